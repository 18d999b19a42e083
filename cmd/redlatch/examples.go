package main

import "github.com/redlatch/redlatch/internal/commandline"

// helpCmd is `redlatch help`: the parser is given COMMAND --help in its place.
type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command."`
}

func (helpCmd) Run(*printer) error { return nil }

// examples are those of each command, by its path.
var examples = map[string][]commandline.Example{
	"run": {
		{What: "a cron job on three machines, once a night", Line: "redlatch run -n --min-hold 60 nightly-report -- ./report.sh"},
		{What: "wait a minute for it, then give up with exit code 75", Line: "redlatch run -w 60 deploy -- ./deploy.sh production"},
		{What: "as flock does it", Line: "redlatch run -n -E 1 backup -c 'pg_dump shop | gzip > shop.gz'"},
		{What: "three servers: a majority of them decides", Line: "redlatch run --nodes redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 job -- ./job"},
	},
	"lock": {
		{What: "take a lock in a script, for 25 s", Line: `handle=$(redlatch lock -w 10 --ttl 25 job) || exit`},
		{What: "for as long as this script runs, or until it unlocks it", Line: `handle=$(redlatch lock --keep --parent $$ job) || exit`},
	},
	"extend": {
		{What: "keep it for 25 s from now on", Line: `redlatch extend --ttl 25 job "$handle"`},
	},
	"unlock": {
		{What: "show who holds a lock whose handle is lost, and release it", Line: "redlatch unlock --force job"},
		{What: "release what redlatch lock took", Line: `redlatch unlock job "$handle" || echo "it was lost meanwhile"`},
	},
	"show": {
		{What: "who has it, and for how long", Line: "redlatch show job"},
		{What: "for a script", Line: "redlatch show --json job | jq -r .label"},
	},
	"list": {
		{What: "all locks of the shop", Line: "redlatch list 'shop/*'"},
		{What: "watch the locks until Ctrl-C", Line: "redlatch list --watch --ours"},
		{What: "for a script: names that somebody waits for", Line: "redlatch list --json | jq -r '.[] | select(.waiting != []) | .name'"},
	},
	"admit": {
		{What: "new servers, of which none has held a lock", Line: "redlatch admit --all --nodes redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3"},
		{What: "one server, by its name as redlatch shows it", Line: "redlatch admit 10.0.0.3:6379"},
	},
	"deployment show": {
		{What: "what the nodes have recorded, and whether they agree", Line: "redlatch deployment show"},
	},
	"deployment set": {
		{What: "allow TTLs of five minutes, once all clients are configured so", Line: "redlatch deployment set --max-ttl 5m"},
	},
	"doctor": {
		{What: "before the first lock, and in monitoring: the exit code is 0 when all is well", Line: "redlatch doctor --json"},
	},
	"completion": {
		{What: "for this shell, at once", Line: "source <(redlatch completion bash)"},
	},
	"man": {
		{What: "read it", Line: "redlatch man | man -l -"},
		{What: "install it", Line: "redlatch man > /usr/local/share/man/man1/redlatch.1"},
	},
	"help": {
		{What: "all about redlatch run", Line: "redlatch help run"},
	},
}
