package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/redlatch/redlatch"
)

// resetFlags are what `redlatch admit` has for moving a deployment.
type resetFlags struct {
	Reset bool `help:"Move the deployment on these nodes to --nodes and --max-ttl as given here, instead of vouching. All clients with another --nodes or --max-ttl must have been stopped before."`
	Yes   bool `help:"Do not ask whether they were. Needed for --reset where nobody can be asked."`
}

// reset moves the nodes that were named to the deployment as cfg has it.
func (a *admitCmd) reset(cfg redlatch.Config, out *printer) error {
	if err := a.confirm(cfg, out); err != nil {
		return err
	}
	if err := a.each(cfg, out, (*redlatch.Client).Reset, "%s was reset"); err != nil {
		return err
	}
	if !a.NoFence {
		out.say("they vote when the longest TTL there was and %s are over; if no lock is held any more: %s", outOfService, a.admitCommand(nodeTexts(a.Node, cfg.Nodes)...))
	}
	if len(a.Node) < len(cfg.Nodes) {
		out.say("hint: the nodes of a set belong together: see redlatch doctor for those that still belong to another")
	}
	return nil
}

// confirm says what must have been done before, and asks whether it was.
func (a *admitCmd) confirm(cfg redlatch.Config, out *printer) error {
	lines := []string{
		fmt.Sprintf("this moves the deployment %q on %s to the nodes %s and to --max-ttl %s", cfg.Deployment, strings.Join(nodeTexts(a.Node, cfg.Nodes), " "), strings.Join(nodeTexts(cfg.Nodes, cfg.Nodes), " "), a.MaxTTL),
		"to be drained first: stop every client with other nodes or another --max-ttl, on every machine",
		"a client that is not stopped goes on extending the lock it holds, which can then get a second holder",
	}
	if a.NoFence {
		lines = append(lines, "then wait for the longest TTL they used: with --no-fence the nodes vote at once")
	} else {
		lines = append(lines, "locks of clients that died are waited for: the nodes do not vote until they have run out")
	}
	out.write(lines...)
	switch {
	case a.Yes:
		return nil
	case !term.IsTerminal(int(os.Stdin.Fd())):
		return usage("add --yes", "nobody can be asked whether they are stopped: stdin is no terminal")
	}
	io.WriteString(out.out, "redlatch: type yes when they are stopped: ")
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if strings.TrimSpace(answer) != "yes" {
		return &outcome{code: exitUsage, err: errors.Join(errors.New("nothing was reset"), ignoreEOF(err))}
	}
	return nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
