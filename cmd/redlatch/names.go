//go:build unix

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch"
)

// names returns all names of the lock, as they were given.
func (r *acquisition) names() []string { return slices.Concat([]string{r.Name}, r.Also) }

// further returns the names after the first, each of them once.
func further(names []string) []string {
	var also []string
	for i, name := range names {
		if !slices.Contains(names[:i], name) && i > 0 {
			also = append(also, name)
		}
	}
	return also
}

// quoted returns the names for people to read.
func (r *acquisition) quoted() string { return quoted(r.names()) }

// mostQuoted is the largest number of names in a message.
const mostQuoted = 3

func quoted(names []string) string {
	var words []string
	for i, name := range names {
		if i == mostQuoted-1 && len(names) > mostQuoted {
			words = append(words, fmt.Sprintf("%d more", len(names)-i))
			break
		}
		words = append(words, strconv.Quote(name))
	}
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// nodeURL matches the beginning of a node's URL.
var nodeURL = regexp.MustCompile(`(?i)^(rediss?|valkeys?|unix|zks?|etcds?):/`)

// checkNames refuses names that cannot be among several. It does not print them: a word in the
// wrong place may have a password in it.
func (r *acquisition) checkNames() error {
	if len(r.Also) == 0 {
		return nil
	}
	for i, name := range r.names() {
		switch {
		case nodeURL.MatchString(name):
			return usage("give nodes with --nodes, separated by commas", "NAME %d is the URL of a node", i+1)
		case strings.Contains(name, "\n"):
			return usage("lock it alone, or use another name", "NAME %d has a line break, but %s has one name per line", i+1, envNames)
		}
	}
	return nil
}

// heldText says who holds the lock. If it has several names, it also says which of them is held.
func (r *acquisition) heldText(quorum *redlatch.QuorumError) string {
	if len(r.Also) == 0 {
		return r.holderText(quorum)
	}
	return fmt.Sprintf("%q is held by another: %s", quorum.Name, r.holderText(quorum))
}
