package figures

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	var b strings.Builder
	want := []Run{
		{Begin: Begin{Time: time.Unix(1, 0).UTC(), Commit: "abc", Versions: []Version{{"go", "1"}}},
			Figures: []Figure{{"A/b", "x", "m", []float64{1, 2}}, {"A/b", "y", "m", []float64{3}}}, End: End{Seconds: 2, Load: "1 2 3", Others: 4, Stolen: 5}},
		{Begin: Begin{Time: time.Unix(2, 0).UTC()}, End: End{Seconds: 1}},
	}
	for _, run := range want {
		l, err := NewLog(&b, run.Begin)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range append(run.Figures, Figure{"A/b", "z", "m", []float64{1, math.NaN()}}, Figure{"A/b", "z", "m", []float64{math.Inf(1)}}) {
			if err := l.Add(f); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.End(run.End); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := Read(strings.NewReader(b.String()))
	if err != nil || !reflect.DeepEqual(runs, want) {
		t.Errorf("written and read it is %+v, %v", runs, err)
	}

	lines := strings.SplitAfter(b.String(), "\n")
	for what, text := range map[string]string{
		"nothing":              "",
		"no end":               strings.Join(lines[:3], ""),
		"two beginnings":       lines[0] + b.String(),
		"a figure by itself":   lines[1],
		"an end by itself":     lines[3],
		"a figure after":       b.String() + lines[1],
		"a line of another":    lines[0] + `{"Other":{}}` + "\n" + lines[3],
		"a line that is empty": lines[0] + "{}\n" + lines[3],
	} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: nothing is said", what)
		}
	}

	var none *Log
	if none.Add(Figure{}) != nil || none.End(End{}) != nil {
		t.Error("a nil Log fails")
	}
}
