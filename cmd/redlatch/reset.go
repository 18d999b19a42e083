package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/internal/redisconn"
)

// resetFlags are what `redlatch admit` has for writing a node's record of the deployment anew.
// For all nodes at once there is `redlatch deployment set`.
type resetFlags struct {
	Reset bool
	Yes   bool
}

// addTo adds them.
func (f *resetFlags) addTo(flags *pflag.FlagSet) {
	commandline.Bool(flags, &f.Reset, "reset", "", "Instead of vouching, have these nodes record the deployment as given here (--nodes, --max-ttl, --no-quarantine, --durable), whatever is there, keys of the deployment that are of another type included, and begin their quarantine. For all nodes at once: redlatch deployment set. Clients with other settings must have been stopped before.")
	commandline.Bool(flags, &f.Yes, "yes", "", "Do not ask whether they were. Needed for --reset where nobody can be asked.")
}

// reset moves the nodes that were named to the deployment as cfg has it.
func (a *admitCmd) reset(cfg redlatch.Config, out *printer) error {
	for _, node := range cfg.Nodes {
		if _, _, err := redisconn.Parse(node); err != nil {
			// What is left of a URL in pieces may be a password: nothing is shown of any.
			return a.each(cfg, out, (*redlatch.Client).Reset, "%s was reset", nil)
		}
	}
	if err := a.confirm(cfg, out); err != nil {
		return err
	}
	if err := a.each(cfg, out, (*redlatch.Client).Reset, "%s was reset", nil); err != nil {
		return err
	}
	if !a.NoQuarantine {
		out.say("they vote when the longest TTL there was and %s are over; if no lock is held any more: %s", outOfService, a.admitCommand(nodeTexts(a.Node, cfg.Nodes)...))
	}
	if len(a.Node) < len(cfg.Nodes) {
		out.say("hint: the nodes of a set belong together: see redlatch deployment show for what the others have")
	}
	return nil
}

// confirm says what must have been done before, and asks whether it was.
func (a *admitCmd) confirm(cfg redlatch.Config, out *printer) error {
	lines := []string{
		fmt.Sprintf("this has %s record the deployment %q with the nodes %s and %s", strings.Join(nodeTexts(a.Node, cfg.Nodes), " "), cfg.Deployment, strings.Join(nodeTexts(cfg.Nodes, cfg.Nodes), " "), settingsOf(cfg)),
		"to be drained first: stop every client with other settings, on every machine",
		"a client that is not stopped goes on extending the lock it holds, which can then get a second holder",
	}
	if a.NoQuarantine {
		lines = append(lines, "then wait for the longest TTL they used: with --no-quarantine the nodes vote at once")
	} else {
		lines = append(lines, "locks of clients that died are waited for: the nodes do not vote until they have run out")
	}
	out.write(lines...)
	return confirm(a.Yes, "nobody can be asked whether they are stopped", "type yes when they are stopped: ", "nothing was reset", out)
}

// confirm asks for a yes, unless yes has been said. nobody says that nobody can be asked, no
// that the answer was another.
func confirm(yes bool, nobody, question, no string, out *printer) error {
	switch {
	case yes:
		return nil
	case !term.IsTerminal(int(os.Stdin.Fd())):
		return usage("add --yes", "%s: stdin is no terminal", nobody)
	}
	io.WriteString(out.out, "redlatch: "+question)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if strings.TrimSpace(answer) != "yes" {
		return &outcome{code: exitUsage, err: errors.Join(errors.New(no), ignoreEOF(err))}
	}
	return nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
