# Every target installs what it needs of a fresh Debian machine, as root, where it is not there.

MODULES := . $(patsubst %/go.mod,%,$(wildcard bench/go.mod cmd/*/go.mod etcd/go.mod examples/*/go.mod fence/*/go.mod goredis/go.mod internal/sim/go.mod interop/go.mod otel/go.mod otel/examples/*/go.mod zookeeper/go.mod))
# All modules' packages at once: what they share is looked at once.
PACKAGES := $(addsuffix /...,$(addprefix ./,$(MODULES)))
NPM := interop/node/node_modules
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
REVIVE := github.com/mgechev/revive@v1.15.0
MISSPELL := github.com/golangci/misspell/cmd/misspell@v0.8.0
GORELEASER := github.com/goreleaser/goreleaser/v2@v2.15.1

.DEFAULT_GOAL := help

# What is compiled then does not depend on the folder: another clone, and the tests of the published
# modules, find it in the build cache.
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## install servers and tools (Debian, root)
	./setup.sh
	$(MAKE) $(NPM)

# What the interoperation tests run of npm, as its lock file has it.
$(NPM): interop/node/package-lock.json
	$(call needs,npm,nodejs npm)
	npm --prefix interop/node ci --no-audit --no-fund
	@touch $@

# needs installs packages, or all there are, where one of the programs is missing.
needs = @for p in $(1); do command -v $$p >/dev/null || exec ./setup.sh $(2); done

servers:
	$(call needs,redis-server redis-sentinel redis-cli gcc,redis-server redis-sentinel redis-tools gcc libc6-dev)

everything:
	$(call needs,redis-server redis-sentinel redis-cli gcc spin tcc psql php)

test busy busy-once bench bench-once fuzz fuzz-tool torture torture-peers margins storm: servers
test-all race-waiting: everything

demo: ## five nodes, racing workers, killed and hung nodes, and the tally
	$(call needs,redis-server,redis-server)
	go run ./cmd/redlatch-torture demo

# What starts no server.
UNIT := ./cmd/internal/commandline ./fence ./internal/admission ./internal/clock ./internal/driver ./internal/printable ./internal/quorum ./internal/waitqueue ./internal/storm ./redlatchtest ./test/house
unit: ## the tests that need no server, some seconds
	go test -short $(UNIT)

# The library on one server and on several, and what it is made of.
TEST := . ./doctor ./fence ./oneshot ./legacy ./internal/... ./redlatchtest ./test/faults ./test/guides ./test/house ./test/locking ./test/restart ./test/waiting
test: ## the library's tests on servers, without the slowest; two minutes
	go test -short -p 4 $(TEST)

test-all: $(NPM) ## also those of the tool, Clusters, Sentinels, other engines, examples, without the slowest
	go test -short -p 4 $(addsuffix /...,$(filter-out ./bench,$(addprefix ./,$(MODULES))))

# PROCESSES is how many processes run what computes; otherwise there is one for each core.
PROCESSES ?=

# What computes in one goroutine, or has other programs compute: the race detector would find
# nothing, in ten times the time.
PLAIN := internal/admission|internal/hashslot|internal/printable|spec
# What has other programs do it, beside servers.
PROGRAMS := test/house|test/release
# Of these a part is not tested under the race detector: zookeeper/race_test.go.
BOTH := zookeeper
# Programs that start programs, and suites whose code others run under the race detector as well: these are under it in
# soak alone.
SOAKED := cmd/redlatch|cmd/redlatch-torture(/.*)?|interop|test/restart|test/topology
# This takes the processors, and nothing in it is ever late. The others mostly wait.
COMPUTING := internal/sim

# What takes the longest comes first, so that nothing is left for one processor at the end.
LONGEST := ./cmd/redlatch/... ./test/topology ./cmd/redlatch-torture/... ./test/restart ./zookeeper ./test/faults ./etcd ./test/house ./test/locking

# tested runs go test, with the arguments given first, on the packages whose paths in the repository
# match (-E) or do not match (-vE) the pattern. There must be some. lint vets them.
tested = @all=$$(go list $(LONGEST) $(addsuffix /...,$(filter-out ./bench,$(addprefix ./,$(MODULES))))) && \
	some=$$(echo "$$all" | grep $(2) '^[^/]+/[^/]+/[^/]+/($(3))$$') && set -x && MAKEFLAGS= go test $(1) -vet=off -count=1 -timeout 1h $$some

# At its end a process would sleep for a second, in which others may race; here nothing goes on in it.
race-waiting: export GORACE := atexit_sleep_ms=50
race-waiting:
	$(call tested,-race,-vE,$(PLAIN)|$(PROGRAMS)|$(SOAKED)|$(COMPUTING))

# One more at once than there are processors, as these wait for longer than the others: they would be the last to end.
plain-waiting: everything $(NPM)
	$(call tested,-p $$(($$(nproc) + 1)) -skip Storm,-E,$(PROGRAMS)|$(BOTH)|$(SOAKED))

plain: export GOMAXPROCS := $(PROCESSES)
plain:
	$(call needs,spin gcc tcc,spin gcc libc6-dev tcc)
	$(call tested,,-E,$(PLAIN))

race: race-waiting race-soaked ## the tests in which the race detector has something to find, under it

race-soaked: everything $(NPM)
	$(call tested,-race -p 2,-E,$(SOAKED))
	$(call tested,-race -p 1,-E,$(COMPUTING))

# Compiled first: that is not what is tested.
BUSY_ONCE := ./test/locking ./test/waiting ./internal/waitqueue ./internal/quorum
BUSY := $(BUSY_ONCE) ./oneshot ./doctor ./test/faults ./test/restart ./test/topology
busy-once:
	go test -short -run=NONE $(BUSY_ONCE)
	go test -short -count=1 -p 4 -timeout 30m $(BUSY_ONCE)

# The loops end by themselves if they are not stopped.
busy: ## the tests on servers, of waiting and of votes beside busy loops, two for each core
	go test -short -run=NONE $(BUSY)
	@pids=; trap 'kill $$pids' EXIT; trap 'exit 130' HUP INT TERM; \
	for i in $$(seq $$((2 * $$(nproc)))); do timeout 30m sh -c 'while :; do :; done' & pids="$$pids $$!"; done; \
	go test -short -count=1 -p 4 -timeout 30m $(BUSY)

lint: ## gofmt, go vet, go fix, staticcheck, revive (revive.toml), misspell
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -d $$(git ls-files '*.go'); exit 1; }
	go vet $(PACKAGES)
	go fix -diff $(PACKAGES)
	GOGC=400 go run $(STATICCHECK) $(PACKAGES)
	go run $(REVIVE) -config revive.toml -set_exit_status ./...
	go run $(MISSPELL) -error -i proces $$(git ls-files '*.go' '*.lua' '*.md' '*.pml' '*.sh' Makefile)

# What contestants do in turns has rounds; what grows is measured once, as it takes long.
BENCH := SideBySide|Distant|Degraded|Contention/./clients=16|Contention/./clients=1$$/callers=128|HandOff|Engines|GrowthNodes
BENCH_ONCE := Growth(Names|Waiters|Clients)|Overload|Held/nodes=3/locks=(100|10000|100000)$$
bench: ## side by side with other libraries and with the floor, and what grows: docs/benchmarks.md; some 20 minutes of an idle machine
	$(call needs,redis-server java etcd,redis-server redis-tools default-jre-headless libzookeeper-java etcd-server)
	@figures=$$(mktemp) && trap 'rm -f $$figures' EXIT && set -x && cd bench && \
	go test -run=NONE -bench='$(BENCH)' -benchtime=5x -timeout 0 . -figures=$$figures -write-costs && \
	go test -run=NONE -bench='$(BENCH_ONCE)' -benchtime=1x -timeout 0 . -figures=$$figures -growth.waiters=100000 && \
	go run ./report -figures $$figures && cp $$figures ../docs/benchmarks/figures.jsonl

engine-costs: ## what a lock costs by engine: the table of docs/engines.md
	$(call needs,redis-server java etcd,redis-server redis-tools default-jre-headless libzookeeper-java etcd-server)
	cd bench && go test -run=NONE -bench=Engines -benchtime=5x . -write-costs

bench-once: ## every benchmark once, so that none rots
	go test -run=NONE -bench=. -benchtime=1x ./internal/... ./test/...
	cd goredis && go test -run=NONE -bench=. -benchtime=1x .
	@figures=$$(mktemp -d) && trap 'rm -rf $$figures' EXIT && set -x && cd bench && \
	go test -run=NONE -bench=. -benchtime=1x -short . -figures=$$figures/figures.jsonl && \
	go run ./report -figures $$figures/figures.jsonl -docs $$figures

# FUZZ is how long each fuzz test runs.
FUZZ ?= 3s
fuzz: ## the fuzz tests, some seconds each
	go test -run=NONE -fuzz=FuzzParse$$ -fuzztime=$(FUZZ) ./internal/redisconn
	go test -run=NONE -fuzz=FuzzRedact$$ -fuzztime=$(FUZZ) ./internal/redisconn
	go test -run=NONE -fuzz=FuzzSecret$$ -fuzztime=$(FUZZ) ./test/locking
	go test -run=NONE -fuzz=FuzzParseToken$$ -fuzztime=$(FUZZ) ./fence
	go test -run=NONE -fuzz=FuzzSplitCommands$$ -fuzztime=$(FUZZ) ./internal/redistest
	go test -run=NONE -fuzz=FuzzSplitReplies$$ -fuzztime=$(FUZZ) ./internal/redistest

# Slow, so not in soak: its seeds are tests. A comma in a password cuts a list of URLs in two.
fuzz-tool: ## command lines with a secret, until one is printed; FUZZ=1m
	go test -run=NONE -fuzz=FuzzSecret$$ -fuzztime=$(FUZZ) ./cmd/redlatch

torture: ## servers and workers under faults for a minute, judged; REPORTS=DIR for the reports
	@reports=$${REPORTS:-$$(mktemp -d)} && echo "reports: $$reports" && go run ./cmd/redlatch-torture run --for 60s --report "$$reports"

torture-peers: ## other libraries under the same faults, and a table
	$(call needs,npm,nodejs npm)
	cd bench && go run ./torture --for 4m --seed 42

margins: ## how long before its key expires COMMAND of redlatch run is dead, idle and busy: the tables of docs/run.md
	cd cmd/redlatch && go test -count=1 -timeout 40m -run TestMargins -v . -margins

sim: ## simulated time and faults, from new seeds, until stopped
	go test -run 'TestSim$$' -v -timeout 0 ./internal/sim -sim.for=8760h -sim.first=$$(date +%s)

# WORLDS is how many of them TestSim runs; ci has a quarter.
WORLDS ?= 1920
sim-once: ## the simulation at its full size, which is too slow for the race detector; WORLDS=480
	GOMAXPROCS=$(PROCESSES) go test -count=1 -timeout 1h -v ./internal/sim -sim.count=$(WORLDS)

sim-found: ## find anew the worlds that notice each mutation and breach, which sim-once tries first
	go test -count=1 -timeout 1h -v -run 'TestSimMutations|TestSimBreaches' ./internal/sim -sim.keep

sim-beside:
	nice -n 19 $(MAKE) sim-once

storm: ## a Cluster and Sentinels under faults, and their locks, which is too much for the race detector; 40 chains of events at one server or three, 20 at a Cluster
	go test -count=1 -p 2 -timeout 1h -run Storm ./test/topology ./goredis -skip StormOfEvents
	go test -count=1 -timeout 1h -run Chains ./test/restart -chains=40
	go test -count=1 -timeout 1h -run StormOfEvents ./test/topology -chains=20

spec: ## the model, at its larger size
	$(call needs,spin gcc tcc,spin gcc libc6-dev tcc)
	REDLATCH_SPEC=large go test -v -timeout 1h ./spec

VERSION_FILE := cmd/internal/commandline/version.go
VERSION = $(shell sed -n 's/^const Version = "\(.*\)"/\1/p' $(VERSION_FILE))

version: ## set the version of all modules: V=v0.2.0
	@echo "$(V)" | grep -qxE 'v[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?' || { echo "version: give V=v0.2.0, not \"$(V)\"" >&2; exit 1; }
	sed -i 's/^const Version = ".*"/const Version = "$(V)"/' $(VERSION_FILE)
	sed -i -E 's#(github.com/redlatch/redlatch[^ ]*) v[^ ]+#\1 $(V)#' go.work $(addsuffix /go.mod,$(filter-out .,$(MODULES)))

tags: ## tag the commit with the version, for each module
	for m in $(MODULES); do git tag -m $(VERSION) "$$(echo "$$m/$(VERSION)" | sed 's#^\./##')" || exit 1; done

# What goes with the programs into their archives.
share:
	mkdir -p share/man/man1 share/completions
	go run ./cmd/redlatch man >share/man/man1/redlatch.1
	for s in bash zsh fish; do go run ./cmd/redlatch completion $$s >share/completions/redlatch.$$s || exit 1; done

platforms: ## compile and vet everything for macOS, which no test runs on
	GOOS=darwin go vet $(PACKAGES)

release-check: ## whether .goreleaser.yaml is well-formed
	go run $(GORELEASER) check

release: ## build and publish what the tag of this commit names
	GORELEASER_CURRENT_TAG=$(VERSION) go run $(GORELEASER) release --clean

# Tests that mostly wait for servers, under the race detector and beside that without it, while the simulation has what they
# leave of the processors; then the model and, beside that once more, what no busy machine may make fail.
ci: setup lint ## what every change must pass
	$(MAKE) -j 3 race-waiting plain-waiting sim-beside WORLDS=480
	$(MAKE) -j 2 plain busy-once PROCESSES=$$((2 * $$(nproc)))

soak: ci platforms sim-once race-soaked fuzz storm bench-once torture busy ## ci, and what takes too long for every change: nightly, and before a release

.PHONY: help setup servers everything demo unit test test-all race race-waiting race-soaked plain plain-waiting busy busy-once lint bench bench-once engine-costs fuzz fuzz-tool \
	torture torture-peers margins sim sim-once sim-found sim-beside storm spec version tags share platforms release-check release ci soak
