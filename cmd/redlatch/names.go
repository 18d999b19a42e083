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

// names are all names of the lock, as they were given.
func (r *acquisition) names() []string { return slices.Concat([]string{r.Name}, r.Also) }

// further are the names beside the first, each once.
func further(names []string) []string {
	var also []string
	for i, name := range names {
		if !slices.Contains(names[:i], name) && i > 0 {
			also = append(also, name)
		}
	}
	return also
}

// quoted are the names for people to read.
func (r *acquisition) quoted() string { return quoted(r.names()) }

// mostQuoted is how many names a message has room for.
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

// nodeURL is how the URL of a node begins.
var nodeURL = regexp.MustCompile(`(?i)^(rediss?|valkeys?|unix|zks?|etcds?):/`)

// checkNames refuses what cannot be among several names. It does not print them: what is in a wrong place may
// have a password.
func (r *acquisition) checkNames() error {
	if len(r.Also) == 0 {
		return nil
	}
	for i, name := range r.names() {
		switch {
		case nodeURL.MatchString(name):
			return usage("nodes are given with --nodes, one after the other with commas between", "NAME %d is the URL of a node", i+1)
		case strings.Contains(name, "\n"):
			return usage("lock it alone, or use another name", "NAME %d has a line break: of several names, %s has one a line", i+1, envNames)
		}
	}
	return nil
}

// heldText says which of the names is held, if there are several, and by whom.
func (r *acquisition) heldText(quorum *redlatch.QuorumError) string {
	if len(r.Also) == 0 {
		return r.holderText(quorum)
	}
	return fmt.Sprintf("%q is held by another: %s", quorum.Name, r.holderText(quorum))
}
