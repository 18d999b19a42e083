package redistest

import "strings"

// Command is one command on its way from a client to the server.
type Command struct {
	Conn int      // number of the client's connection, from 1, in order of acceptance
	N    int      // number of the command on its connection, from 1
	Args []string // its words, the name first; not to be changed
}

// Name returns the command's name in upper case.
func (c Command) Name() string { return strings.ToUpper(c.Args[0]) }

// Action is what [Proxy.OnCommand] has done with a command.
type Action uint8

const (
	// Pass lets it go on.
	Pass Action = iota

	// CutBefore cuts the connection, by a reset on both sides. The command
	// does not reach the server; whether replies to earlier ones had reached
	// the client is open.
	CutBefore

	// CutAfter lets it go on and cuts the connection when the server has
	// answered it: it was executed, earlier replies were delivered, its own
	// was not.
	CutAfter

	// DropReply lets it go on and throws away its reply and all that follows
	// on the connection, which stays open: it was executed, and the client
	// hears nothing more. [Proxy.Cut] and the lifting of [Proxy.DropReplies]
	// end the connection.
	DropReply
)

// OnCommand has f called with every command that is about to be delivered to
// the server, after all delays; nil ends that. Commands that a black hole
// swallows do not come to it. What f does to the proxy holds for the command
// too: one that f has held back waits, one that f has black-holed is lost.
//
// f is called from the connection's own goroutine: commands of one connection
// one after the other, those of different ones at the same time. It delays its
// connection while it runs, may call any method of the proxy but Close, and
// must be safe for concurrent use.
//
// Replies are told apart by counting them, which CLIENT REPLY OFF and SKIP and
// MONITOR put out of step on their connection.
func (p *Proxy) OnCommand(f func(Command) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = f
}

// Translate has f called with the words of every command that is about to be
// delivered, and its answer delivered instead, so that a server seems to know
// commands that it does not; nil ends that. f must return the words it was given
// for what is not to be changed, and be safe for concurrent use. It comes before
// OnCommand's action is carried out and after its function has seen the original.
func (p *Proxy) Translate(f func(args []string) []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rewrite = f
}

func (p *Proxy) translate(it item) item {
	p.mu.Lock()
	f := p.rewrite
	p.mu.Unlock()
	if f == nil || len(it.args) == 0 {
		return it
	}
	if args := f(it.args); &args[0] != &it.args[0] {
		it.args, it.data = args, encode(args)
	}
	return it
}
