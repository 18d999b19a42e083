// Package printable makes text of others safe to print: what a server, another
// client or a key says may hold control characters, which a terminal obeys.
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Is reports whether s is valid UTF-8 and made of characters that strconv.IsPrint
// takes for printable: no control characters, no line breaks, no marks that change
// the direction of writing, no space but the ASCII one.
func Is(s string) bool {
	for i, r := range s {
		if !strconv.IsPrint(r) || r == utf8.RuneError && isBroken(s[i:]) {
			return false
		}
	}
	return true
}

// Text returns s with all that is not printable written as in a Go string
// literal, such as \x1b and \u202e. It adds no quotes.
func Text(s string) string {
	if Is(s) {
		return s
	}
	var text strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && isBroken(s[i:]):
			fmt.Fprintf(&text, `\x%02x`, s[i])
		case strconv.IsPrint(r):
			text.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			text.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return text.String()
}

// isBroken reports whether s begins with a byte that is no UTF-8.
func isBroken(s string) bool {
	_, size := utf8.DecodeRuneInString(s)
	return size == 1
}
