package report

import (
	"encoding/json"
	"io"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/judge"
)

// JSON writes the report as JSON: the findings and the faults, but not the rest of the history.
func (r *Report) JSON(w io.Writer) error {
	type fault struct {
		Kind    string  `json:"kind"`
		Nodes   []int   `json:"nodes,omitempty"`
		Workers []int   `json:"workers,omitempty"`
		At      float64 `json:"at_s"`
		For     float64 `json:"for_s"`
		Detail  string  `json:"detail,omitempty"`
		Err     string  `json:"error,omitempty"`
	}
	faults := make([]fault, 0, len(r.History.Faults))
	for _, f := range r.History.Faults {
		faults = append(faults, fault{
			f.Kind, f.Nodes, f.Workers, time.Duration(f.Began - r.History.Start).Seconds(),
			time.Duration(f.Ended - f.Began).Seconds(), f.Detail, f.Err,
		})
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Verdict      string          `json:"verdict"`
		OK           bool            `json:"ok"`
		Violations   []string        `json:"violations"`
		Unproved     []string        `json:"unproved"`
		Started      time.Time       `json:"started"`
		Seed         uint64          `json:"seed"`
		Seconds      float64         `json:"seconds"`
		Topology     string          `json:"topology"`
		Subject      string          `json:"subject"`
		Servers      string          `json:"servers"`
		Nodes        int             `json:"nodes"`
		Workers      int             `json:"workers"`
		TTL          time.Duration   `json:"ttl_ns"`
		Fired        map[string]int  `json:"fired"`
		Refusals     int             `json:"refusals"` // of clients with other settings
		LeftOut      string          `json:"left_out,omitempty"`
		Availability float64         `json:"availability"`
		Overall      float64         `json:"availability_overall"`
		Findings     *judge.Findings `json:"findings"`
		Control      *judge.Findings `json:"control,omitempty"`
		Bug          string          `json:"control_bug,omitempty"`
		Faults       []fault         `json:"faults"`
	}{
		r.Verdict(), r.OK(), r.Violations(), r.Unproved(), r.Started, r.Seed, r.length().Seconds(), r.Topology, r.Subject, r.Servers,
		r.Nodes, r.Workers, r.TTL, r.Fired(), r.History.Refusals, r.LeftOut, r.Findings.Availability.Share(), r.Findings.Availability.Overall(),
		r.Findings, r.Control, r.Bug, faults,
	})
}
