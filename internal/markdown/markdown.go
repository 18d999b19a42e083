// Package markdown reads the blocks of code in the project's pages, for tests that compile and
// run them.
package markdown

import (
	"fmt"
	"os"
	"strings"
)

// Block is a block of code between two lines of three backquotes.
type Block struct {
	File     string // as it was given to Blocks
	Line     int    // of its first line of code, counted from 1
	Language string // the first word after the opening backquotes
	Text     string // the lines of code, without the indentation of the opening backquotes
}

// String is the block's place, as compilers print one.
func (b Block) String() string { return fmt.Sprintf("%s:%d", b.File, b.Line) }

// Blocks returns the blocks of file in the language, in their order. It is an error if there is
// none: a test of no blocks could not fail.
func Blocks(file, language string) ([]Block, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all, err := parse(file, string(text))
	if err != nil {
		return nil, err
	}
	var found []Block
	for _, b := range all {
		if b.Language == language {
			found = append(found, b)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no block of %s", file, language)
	}
	return found, nil
}

// parse returns all blocks of a page.
func parse(file, text string) ([]Block, error) {
	const fence = "```"
	var all []Block
	var inside bool
	var indentation string
	line := 0
	for l := range strings.Lines(text) {
		line++
		code := strings.TrimLeft(l, " ")
		info, fenced := strings.CutPrefix(code, fence)
		switch {
		case fenced && !inside:
			language, _, _ := strings.Cut(strings.TrimSpace(info), " ")
			all = append(all, Block{File: file, Line: line + 1, Language: language})
			indentation = l[:len(l)-len(code)]
			inside = true
		case fenced && strings.TrimSpace(info) == "":
			inside = false
		case inside:
			all[len(all)-1].Text += strings.TrimPrefix(l, indentation)
		}
	}
	if inside {
		return nil, fmt.Errorf("%v: the block has no end", all[len(all)-1])
	}
	return all, nil
}
