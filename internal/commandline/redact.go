package commandline

import (
	"errors"
	"strconv"
	"strings"
)

// Redacted is err, which may repeat what is in a wrong place of args: up to a URL, or to what
// may be part of one, and of that what redact shows.
func Redacted(err error, args []string, redact func(url string) string) error {
	text := err.Error()
	for _, arg := range args {
		for _, part := range append(strings.Split(arg, ","), arg) {
			if _, value, has := strings.Cut(part, "="); has && strings.HasPrefix(part, "-") {
				part = value
			}
			if !strings.Contains(part, "@") && !strings.Contains(part, ":/") {
				continue
			}
			// It may be quoted.
			start, _, _ := strings.Cut(strconv.QuoteToASCII(part)[1:], `\`)
			if before, _, found := strings.Cut(text, strings.TrimSuffix(start, `"`)); found {
				text = before + "…" // a piece of a list may be part of a password
				if !strings.Contains(arg, ",") {
					text = before + redact(part)
				}
			}
		}
	}
	return errors.New(text)
}
