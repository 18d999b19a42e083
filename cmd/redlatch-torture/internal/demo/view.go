package demo

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"
)

// view writes the output of a race. In a terminal, it writes lines that stay, and below them a
// block that it redraws. Elsewhere it writes only lines that stay, and once a second the first line
// of the block. One goroutine uses it.
type view struct {
	out   *os.File
	live  bool
	color bool
	drawn int // lines of the block that are on the screen
	block []line
	told  time.Duration // when the first line of the block was last written
	err   error         // of the first write that failed
}

// line is a line of the block, in one tone.
type line struct {
	text string
	tone tone
}

type tone uint8

const (
	plain tone = iota
	good
	fair
	bad
	faint
)

// The tones' colours (ECMA-48, "SGR").
var colors = [...]string{plain: "", good: "\x1b[32m", fair: "\x1b[33m", bad: "\x1b[31m", faint: "\x1b[2m"}

const plainColor = "\x1b[0m"

func newView(out *os.File) *view {
	kind := os.Getenv("TERM")
	v := &view{out: out, live: term.IsTerminal(int(out.Fd())) && kind != "" && kind != "dumb"}
	v.color = v.live && os.Getenv("NO_COLOR") == ""
	return v
}

// say writes a line that stays.
func (v *view) say(format string, args ...any) {
	v.frame(fmt.Sprintf(format, args...)+"\n", v.block)
}

// happen writes a line that stays, with the time since the start of the race.
func (v *view) happen(at time.Duration, format string, args ...any) {
	v.say("%6.1f s  %s", at.Seconds(), fmt.Sprintf(format, args...))
}

// draw shows the block of the present state.
func (v *view) draw(now time.Duration, block []line) {
	if v.live {
		v.frame("", block)
		return
	}
	if now-v.told >= time.Second {
		v.told = now.Truncate(time.Second)
		v.happen(now, "%s", block[0].text)
	}
}

// clear removes the block from the screen.
func (v *view) clear() { v.frame("", nil) }

// frame replaces the block on the screen by text and a new block. It does so in one
// write, so that nobody sees half of it.
func (v *view) frame(text string, block []line) {
	var b bytes.Buffer
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dA\x1b[J", v.drawn)
	}
	b.WriteString(text)
	v.block, v.drawn = block, 0
	if v.live {
		// A line that wraps or has scrolled off the screen could not be removed later. So lines are cut
		// to the width, and the block to the height.
		width, height, err := term.GetSize(int(v.out.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			width, height = 80, 24
		}
		for _, l := range block[:min(len(block), max(0, height-1))] {
			b.WriteString(v.paint(l, max(0, width-1)))
			v.drawn++
		}
	}
	if b.Len() == 0 || v.err != nil {
		return
	}
	_, v.err = v.out.Write(b.Bytes())
}

// paint returns a line of the block, cut to width and coloured.
func (v *view) paint(l line, width int) string {
	text := []rune(l.text)
	cut := string(text[:min(len(text), width)])
	if !v.color || l.tone == plain {
		return cut + "\n"
	}
	return colors[l.tone] + cut + plainColor + "\n"
}
