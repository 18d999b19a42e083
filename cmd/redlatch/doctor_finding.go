package main

import (
	"slices"
)

// severity is how bad a finding is. Its number is the exit code.
type severity int

const (
	// note is what an operator had better know.
	note severity = iota
	// warning: locks are safe, and something should be mended or waited for.
	warning
	// danger: two holders of a lock are possible, or none at all.
	danger
)

var severities = [...]string{"note", "warning", "unsafe"}

func (s severity) String() string { return severities[s] }

// finding is something that is wrong, in plain words.
type finding struct {
	severity severity
	// nodes it is about; none for what is about the set.
	nodes        []string
	text, remedy string
}

// findings are what is wrong with a set of nodes.
type findings []finding

// add adds a finding. One that was made of another node becomes one of both.
func (f *findings) add(s severity, node, text, remedy string) {
	for i := range *f {
		if same := &(*f)[i]; node != "" && same.severity == s && same.text == text && same.remedy == remedy {
			same.nodes = append(same.nodes, node)
			return
		}
	}
	made := finding{severity: s, text: text, remedy: remedy}
	if node != "" {
		made.nodes = []string{node}
	}
	*f = append(*f, made)
}

// worstFirst sorts by severity, what is about the set before what is about a
// node, and keeps the order otherwise.
func (f findings) worstFirst() {
	slices.SortStableFunc(f, func(a, b finding) int {
		if a.severity != b.severity {
			return int(b.severity - a.severity)
		}
		return min(len(a.nodes), 1) - min(len(b.nodes), 1)
	})
}

func exitCode(f findings) int {
	worst := note
	for _, one := range f {
		worst = max(worst, one.severity)
	}
	return int(worst)
}
