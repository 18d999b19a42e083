package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/zookeeper"
)

// runEnsemble examines an ensemble and says what it found.
func (d *doctorCmd) runEnsemble() error {
	cfg, err := d.ensembleConfig()
	if err != nil {
		return err
	}
	if len(d.Lock) > 0 {
		return usage("leave --lock out; redlatch show examines a lock", "--lock has no meaning with %s", shownEnsemble(d.Nodes))
	}
	cfg.MaxTTL = d.MaxTTL
	report, err := d.examineEnsemble(cfg)
	switch {
	case errors.Is(err, redlatch.ErrInvalid):
		return &outcome{code: exitUsage, err: err}
	case errors.Is(err, redlatch.ErrNoQuorum), errors.Is(err, redlatch.ErrRefused): // no server let this client look
		report.Problems = []doctor.Problem{{Unusable: true, Text: err.Error(), Remedy: "check that the servers run, that this machine can connect to them, and that --nodes has the right user and password"}}
	case err != nil:
		return &outcome{code: exitInternal, err: err}
	}
	var f findings
	for _, p := range report.Problems {
		bad := warning
		if p.Unusable {
			bad = danger
		}
		f.add(bad, p.Member, inFlags(p.Text), inFlags(p.Remedy))
	}
	f.worstFirst()
	write := writeEnsemble
	if d.JSON {
		write = writeEnsembleJSON
	}
	if err := write(os.Stdout, report, f); err != nil {
		return &outcome{code: exitSystem, err: err}
	}
	if code := exitCode(f); code != 0 {
		return &outcome{code: code}
	}
	return nil
}

func (d *doctorCmd) examineEnsemble(cfg redlatch.Config) (report doctor.Ensemble, err error) {
	u := d.ensemble
	if cfg.TLS, err = u.Secure(cfg.TLS); err != nil {
		return report, err
	}
	ctx := context.Background()
	if u.Scheme == "zk" {
		return zookeeper.Examine(ctx, cfg, zookeeper.Ensemble{Servers: u.Servers, Root: u.Path, User: u.User, Password: u.Password})
	}
	return etcd.Examine(ctx, cfg, etcd.Cluster{Endpoints: u.Servers, Prefix: u.Path, User: u.User, Password: u.Password})
}

// writeEnsemble prints a row for each server, then the findings.
func writeEnsemble(w io.Writer, report doctor.Ensemble, found findings) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SERVER\tANSWERS\tVERSION\tROLE")
	for _, m := range report.Members {
		answers := "yes"
		if m.Err != nil {
			answers = "no"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", printable.Text(m.Address), answers, cmp.Or(printable.Text(m.Version), "-"), cmp.Or(printable.Text(m.Role), "-"))
	}
	table.Flush()
	fmt.Fprintln(&text)
	writeFindings(&text, found)
	if exitCode(found) == 0 {
		text.WriteString("all well: a majority answers; the clocks of the servers do not matter\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

type memberJSON struct {
	Server  string `json:"server"`
	Version string `json:"version,omitempty"`
	Role    string `json:"role,omitempty"`
	Error   string `json:"error,omitempty"`
}

func writeEnsembleJSON(w io.Writer, report doctor.Ensemble, found findings) error {
	answer := struct {
		Servers  []memberJSON  `json:"servers"`
		Quorum   bool          `json:"quorum"`
		Findings []findingJSON `json:"findings"`
		Exit     int           `json:"exit"`
	}{[]memberJSON{}, report.Quorum, findingsJSON(found), exitCode(found)}
	for _, m := range report.Members {
		answer.Servers = append(answer.Servers, memberJSON{Server: m.Address, Version: m.Version, Role: m.Role, Error: words(m.Err)})
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(answer)
}
