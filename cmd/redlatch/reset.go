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

// resetFlags are the flags of `redlatch admit` for writing a node's record of the deployment anew.
// `redlatch deployment set` does that on all nodes at once.
type resetFlags struct {
	Reset bool
	Yes   bool
}

// addTo adds the flags to a command.
func (f *resetFlags) addTo(flags *pflag.FlagSet) {
	commandline.Bool(flags, &f.Reset, "reset", "", "Do not vouch, but have these nodes record the settings given here (--nodes, --max-ttl, --no-quarantine, --durable), whatever they have recorded, even if a key of the deployment is of another type, and begin their quarantine. First stop all clients with other settings. For all nodes at once, use redlatch deployment set.")
	commandline.Bool(flags, &f.Yes, "yes", "", "Do not ask whether these clients were stopped. Needed for --reset if stdin is not a terminal.")
}

// reset has the named nodes record the deployment as cfg has it.
func (a *admitCmd) reset(cfg redlatch.Config, out *printer) error {
	for _, node := range cfg.Nodes {
		if _, _, err := redisconn.Parse(node); err != nil {
			// A piece of a broken URL may be a password, so no node is shown.
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
		out.say("these nodes do not vote for the longest TTL so far plus %s or a little more; to admit them now, if no lock is held any more: %s", outOfService, a.admitCommand(nodeTexts(a.Node, cfg.Nodes)...))
	}
	if len(a.Node) < len(cfg.Nodes) {
		out.say("hint: all nodes must have the same record: redlatch deployment show shows what the others have")
	}
	return nil
}

// confirm says what must be done before a reset, and asks whether that was done.
func (a *admitCmd) confirm(cfg redlatch.Config, out *printer) error {
	lines := []string{
		fmt.Sprintf("%s will record the deployment %q with the nodes %s and %s", strings.Join(nodeTexts(a.Node, cfg.Nodes), " "), cfg.Deployment, strings.Join(nodeTexts(cfg.Nodes, cfg.Nodes), " "), settingsOf(cfg)),
		"first stop every client with other settings, on every machine",
		"a client that is not stopped goes on locking, and extending its locks, which can then get a second holder",
	}
	if a.NoQuarantine {
		lines = append(lines, "then wait for the longest TTL that they used: with --no-quarantine the nodes vote at once")
	} else {
		lines = append(lines, "you need not wait for locks of clients that died: the nodes do not vote until these have run out")
	}
	out.write(lines...)
	return confirm(a.Yes, "cannot ask whether these clients are stopped", "type yes when these clients are stopped: ", "nothing was reset", out)
}

// confirm asks question, unless --yes was given. nobody is the error if stdin is not a terminal,
// and no is the error if the answer is not yes.
func confirm(yes bool, nobody, question, no string, out *printer) error {
	switch {
	case yes:
		return nil
	case !term.IsTerminal(int(os.Stdin.Fd())):
		return usage("add --yes", "%s: stdin is not a terminal", nobody)
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
