package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// promQL is the language as Prometheus has it without flags.
var promQL = parser.NewParser(parser.Options{})

// emitted has the names of the series that an Observer exports, with the labels of each.
type emitted map[string]map[string]bool

// export is what is exported of locks that are acquired, extended, refused, lost and released on a real
// server, and of nodes that cannot be reached.
func export(t *testing.T) emitted {
	t.Helper()
	registry := prometheus.NewRegistry()
	observer, err := observe(registry)
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client, err := redlatch.Open(redlatch.Config{Nodes: []string{proxy.URL()}, NoQuarantine: true, NodeTimeout: time.Second, TTL: 2 * time.Second, Observer: observer})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = client.Do(ctx, "invoice/42", func(ctx context.Context) error {
		_, err := client.TryLock(ctx, "invoice/42")
		for errors.Is(err, redlatch.ErrNoQuorum) && ctx.Err() == nil { // a busy machine's server is late
			_, err = client.TryLock(ctx, "invoice/42")
		}
		if !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("a second lock: %v", err)
		}
		return nil
	}, redlatch.WithTTL(30*time.Second))
	if err != nil && !errors.Is(err, redlatch.ErrNoQuorum) {
		t.Fatal(err)
	}
	lock, err := client.Lock(ctx, "invoice/43")
	if err != nil {
		t.Fatal(err)
	}
	if err := proxy.Refuse(true); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	select {
	case <-lock.Context().Done():
	case <-ctx.Done():
		t.Fatal("the lock is not lost")
	}
	return gather(t, registry)
}

// gather is what registry has.
func gather(t *testing.T, registry *prometheus.Registry) emitted {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := make(emitted)
	for _, family := range families {
		names := []string{family.GetName()}
		if family.GetType().String() == "HISTOGRAM" {
			names = []string{family.GetName() + "_bucket", family.GetName() + "_count", family.GetName() + "_sum"}
		}
		for _, name := range names {
			has := map[string]bool{"job": true, "instance": true} // which Prometheus adds
			if strings.HasSuffix(name, "_bucket") {
				has["le"] = true
			}
			for _, m := range family.GetMetric() {
				for _, label := range m.GetLabel() {
					has[label.GetName()] = true
				}
			}
			series[name] = has
		}
	}
	return series
}

// check says which series and labels of a PromQL expression are not exported, and returns the names of
// those that it uses.
func (e emitted) check(expression string) (used []string, wrong []string) {
	parsed, err := promQL.ParseExpr(expression)
	if err != nil {
		return nil, []string{err.Error()}
	}
	has := make(map[string]bool)
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		s, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		used = append(used, s.Name)
		exported, ok := e[s.Name]
		if !ok {
			wrong = append(wrong, fmt.Sprintf("%q is not exported", s.Name))
		}
		maps.Copy(has, exported)
		for _, m := range s.LabelMatchers {
			if m.Name != "__name__" && !exported[m.Name] {
				wrong = append(wrong, fmt.Sprintf("%s has no label %q", s.Name, m.Name))
			}
		}
		return nil
	})
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if a, ok := node.(*parser.AggregateExpr); ok {
			for _, label := range a.Grouping {
				if !has[label] {
					wrong = append(wrong, fmt.Sprintf("nothing in %q has the label %q", a, label))
				}
			}
		}
		return nil
	})
	return used, wrong
}

// The alerts and the dashboard ask for what an Observer exports, and all of it is asked for.
func TestSeries(t *testing.T) {
	series := export(t)
	all := make(map[string]bool)
	expressions := slices.Concat(alerts(t), panels(t))
	for _, e := range expressions {
		used, wrong := series.check(e)
		for _, name := range used {
			all[strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")] = true
		}
		for _, what := range wrong {
			t.Errorf("%s: %s", e, what)
		}
	}
	if len(expressions) < 15 {
		t.Errorf("only %d expressions were found", len(expressions))
	}
	for name := range series {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
		if strings.HasPrefix(name, "redlatch_") && !all[base] {
			t.Errorf("%s is on no panel and in no alert", name)
		}
	}
}

// rule is an alert of alerts.yml.
type rule struct {
	Alert, Expr         string
	For                 time.Duration
	Labels, Annotations map[string]string
}

// rules are the alerts of alerts.yml.
func rules(t *testing.T) (all []rule) {
	t.Helper()
	text, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		if group.Name == "" {
			t.Errorf("%+v", group)
		}
		all = append(all, group.Rules...)
	}
	return all
}

// alerts are the expressions of alerts.yml.
func alerts(t *testing.T) (expressions []string) {
	t.Helper()
	for _, rule := range rules(t) {
		if rule.Alert == "" || rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" {
			t.Errorf("%+v", rule)
		}
		for _, text := range rule.Annotations {
			// What Prometheus puts before each, and the one of its functions that is used.
			_, err := template.New("").Funcs(template.FuncMap{"humanizeDuration": fmt.Sprint}).Parse("{{$labels := .Labels}}{{$value := .Value}}" + text)
			if err != nil {
				t.Error(err)
			}
		}
		expressions = append(expressions, rule.Expr)
	}
	return expressions
}

// panels are the expressions of dashboard.json, as Grafana would send them.
func panels(t *testing.T) (expressions []string) {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title, UID    string
		SchemaVersion int
		Templating    struct {
			List []struct{ Name, Query string }
		}
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ RefID, Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	variables := []string{"$__rate_interval", "5m"}
	for _, v := range board.Templating.List {
		variables = append(variables, "$"+v.Name, "a")
		if inner, ok := strings.CutPrefix(v.Query, "label_values("); ok {
			series, _, _ := strings.Cut(inner, ",")
			expressions = append(expressions, series)
		}
	}
	ids := make(map[int]bool)
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%+v", p)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			e := strings.NewReplacer(variables...).Replace(target.Expr)
			if strings.Contains(e, "$") {
				t.Errorf("%s has a variable that the dashboard has not", target.Expr)
			}
			expressions = append(expressions, e)
		}
	}
	if board.Title == "" || board.UID == "" || board.SchemaVersion == 0 {
		t.Errorf("%+v", board)
	}
	return expressions
}

// promtool, where there is one, has nothing to say against the alerts, and finds that they fire when they
// should, and only then.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool here: it is in Debian's package prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

func TestSeriesCheck(t *testing.T) {
	series := emitted{"a_total": {"x": true}}
	for expression, want := range map[string]string{
		`sum by (x) (rate(a_total{x="1"}[5m]))`: "",
		`rate(b_total[5m])`:                     `"b_total" is not exported`,
		`a_total{y="1"}`:                        `a_total has no label "y"`,
		`sum by (y) (a_total)`:                  `nothing in "sum by (y) (a_total)" has the label "y"`,
		`sum(`:                                  "parse error",
	} {
		if _, wrong := series.check(expression); (len(wrong) == 0) != (want == "") || !strings.HasPrefix(strings.Join(wrong, "; "), want) && want != "parse error" {
			t.Errorf("%s: %q, want %q", expression, wrong, want)
		}
	}
}
