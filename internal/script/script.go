// Package script holds the atomic steps that run on a node, and composes them
// into the scripts that are sent.
//
// The steps that make a node vote are one script: a node either knows all of
// them or none, and one hash stands for what the clients of a deployment must
// agree on, because the agreement is part of the text. A server's script cache
// does not survive a restart or a promotion (Redis ≥ 7.0, Valkey ≥ 7.2), so a
// node that may have forgotten answers NOSCRIPT until somebody admits it anew.
package script

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// The first argument of a voting script, which chooses the step.
const (
	Acquire = "acquire"
	Extend  = "extend"
	Confirm = "confirm"
	Repair  = "repair"
	Admit   = "admit"
	Stand   = "stand"
	Several = "several"
)

// Clamp is how far from a node's own clock a proposed counter may be. Only the
// nodes' clocks matter for what a counter can be after a loss of memory.
const Clamp = time.Second

// A waiter that is called has Grace to take the lock before the next is; one that
// was not heard of for Patience loses its place in the line.
const (
	Grace    = 500 * time.Millisecond
	Patience = 5 * time.Second
)

var (
	//go:embed acquire.lua
	acquireLua string
	//go:embed extend.lua
	extendLua string
	//go:embed confirm.lua
	confirmLua string
	//go:embed repair.lua
	repairLua string
	//go:embed admit.lua
	admitLua string
	//go:embed release.lua
	releaseLua string
	//go:embed publish.lua
	publishLua string
	//go:embed handon.lua
	handonLua string
	//go:embed otherwise.lua
	otherwiseLua string
	//go:embed line.lua
	lineLua string
	//go:embed stand.lua
	standLua string
	//go:embed several.lua
	severalLua string
	//go:embed inspect.lua
	inspectLua string
)

// Script is a text and the name a server knows it by once it is loaded.
type Script struct {
	Text string
	SHA  string
	// Agreement is that of a voting script.
	Agreement string
}

// New names a text as a server does.
func New(text string) Script {
	sum := sha1.Sum([]byte(text))
	return Script{Text: text, SHA: hex.EncodeToString(sum[:])}
}

// Releasing is the compare-and-delete. It gives nothing away, so it may be loaded
// on any node at any time. Functions are made anew in each run: those that the usual ways
// do without come behind these.
var Releasing = New(lineTimes + releaseLua + publishLua + handonLua + lineLua + otherwiseLua)

var lineTimes = fmt.Sprintf("local GRACE, PATIENCE = %d, %d\n", Grace.Milliseconds(), Patience.Milliseconds())

// Inspect reads what admission depends on.
var Inspect = New(inspectLua)

// Voting composes the voting script of the clients that share agreement, which
// is letters and digits. With fenced false the node
// votes without having been admitted.
func Voting(agreement string, fenced bool) Script {
	steps := []struct{ name, body string }{
		{Acquire, acquireLua},
		{Extend, extendLua},
		{Confirm, confirmLua},
		{Repair, repairLua},
		{Admit, admitLua},
		{Several, severalLua},
	}
	var text strings.Builder
	fmt.Fprintf(&text, "local AGREEMENT, FENCED, CLAMP = '%s', %t, %d\n", agreement, fenced, Clamp.Microseconds())
	text.WriteString(lineTimes)
	word := "if"
	for _, step := range steps {
		fmt.Fprintf(&text, "%s ARGV[1] == '%s' then\n%s", word, step.name, step.body)
		word = "elseif"
	}
	// The line's functions are made only for the step that needs them.
	fmt.Fprintf(&text, "elseif ARGV[1] == '%s' then\n%s%s%s", Stand, publishLua, lineLua, standLua)
	text.WriteString("end\nreturn redis.error_reply('REDLATCH no such step: ' .. ARGV[1])\n")
	voting := New(text.String())
	voting.Agreement = agreement
	return voting
}
