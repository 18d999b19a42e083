package main

import "github.com/alecthomas/kong"

// helpCmd is `redlatch help`: the parser is given COMMAND --help in its place.
type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command."`
}

func (helpCmd) Run(*printer) error { return nil }

// example is a command line, and what it is for.
type example struct{ what, command string }

// examples are those of each command, by its path.
var examples = map[string][]example{
	"run": {
		{"a cron job on three machines, once a night", "redlatch run -n --min-hold 60 nightly-report -- ./report.sh"},
		{"wait a minute for it, then give up with exit code 75", "redlatch run -w 60 deploy -- ./deploy.sh production"},
		{"as flock does it", "redlatch run -n -E 1 backup -c 'pg_dump shop | gzip > shop.gz'"},
		{"three servers: a majority of them decides", "redlatch run --nodes redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 job -- ./job"},
	},
	"lock": {
		{"take a lock in a script, for 25 s", `handle=$(redlatch lock -w 10 --ttl 25 job) || exit`},
		{"for as long as this script runs, or until it unlocks it", `handle=$(redlatch lock --keep --parent $$ job) || exit`},
	},
	"extend": {
		{"keep it for 25 s from now on", `redlatch extend --ttl 25 job "$handle"`},
	},
	"unlock": {
		{"release a lock whose handle is lost, after a look at who has it", "redlatch unlock --force job"},
		{"release what redlatch lock took", `redlatch unlock job "$handle" || echo "it was lost meanwhile"`},
	},
	"show": {
		{"who has it, and for how long", "redlatch show job"},
		{"for a script", "redlatch show --json job | jq -r .label"},
	},
	"list": {
		{"all locks of the shop", "redlatch list 'shop/*'"},
		{"what goes on, until Ctrl-C", "redlatch list --watch --ours"},
		{"for a script: names that somebody waits for", "redlatch list --json | jq -r '.[] | select(.waiting != []) | .name'"},
	},
	"admit": {
		{"new servers, of which none has held a lock", "redlatch admit --all --nodes redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3"},
		{"one server, by its name as redlatch shows it", "redlatch admit 10.0.0.3:6379"},
	},
	"deployment show": {
		{"what the nodes have recorded, and whether they agree", "redlatch deployment show"},
	},
	"deployment set": {
		{"allow TTLs of five minutes, once all clients are configured so", "redlatch deployment set --max-ttl 5m"},
	},
	"doctor": {
		{"before the first lock, and in monitoring: the exit code is 0 when all is well", "redlatch doctor --json"},
	},
	"demo": {
		{"what happens when servers die", "redlatch demo"},
	},
	"torture": {
		{"an hour of faults, with a page to look at", "redlatch torture --for 1h --report ./report"},
	},
	"completion": {
		{"for this shell, at once", "source <(redlatch completion bash)"},
	},
	"man": {
		{"read it", "redlatch man | man -l -"},
		{"install it", "redlatch man > /usr/local/share/man/man1/redlatch.1"},
	},
	"help": {
		{"all about redlatch run", "redlatch help run"},
	},
}

// examplesOf are those of a command.
func examplesOf(command *kong.Node) []example { return examples[commandPath(command)] }

// commandPath is what is typed for a command after redlatch.
func commandPath(command *kong.Node) string {
	path := command.Name
	for parent := command.Parent; parent != nil && parent.Type == kong.CommandNode; parent = parent.Parent {
		path = parent.Name + " " + path
	}
	return path
}
