package main

import (
	"slices"
)

// severity is how bad a finding is. Its number is the exit code.
type severity int

const (
	// note is something that an operator should know.
	note severity = iota
	// warning: locks are safe, but something needs mending or waiting.
	warning
	// danger: a lock can get two holders, or none.
	danger
)

var severities = [...]string{"note", "warning", "unsafe"}

func (s severity) String() string { return severities[s] }

// finding is something that is wrong, in plain words.
type finding struct {
	severity severity
	// nodes are the nodes that it is about; none if it is about the set of nodes.
	nodes        []string
	text, remedy string
}

// findings is all that is wrong with a set of nodes.
type findings []finding

// add adds a finding. If there is the same finding about another node, add adds node to it.
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

// worstFirst sorts the findings by severity. Those about the set of nodes come before
// those about single nodes, and otherwise they keep their order.
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
