// Package doctor looks at the nodes of a configuration and says whether they are fit for
// locks: for operators and health checks.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/node"
)

// examineTimeout bounds the look at one node after connecting.
const examineTimeout = 5 * time.Second

// Examine looks at every node of config and says whether it is fit for locks. It returns one report
// for each node, in their order. It is for operators and health checks, and needs no client: it
// opens connections of its own. names are locks whose keys are looked at, and on which the user's
// permissions are tried besides the library's own keys.
//
// It changes no key and no setting on any node, and admits none. It tries permissions with commands
// that cannot have an effect, such as SET XX on a key that does not exist. Those that are denied
// appear in the server's ACL LOG.
//
// In a Cluster, every master is looked at as a server is: see Report.Cluster.
//
// It waits for all nodes, for some seconds at most, or for ctx. What could not be found out by then
// is missing from the reports, which say why. The error wraps redlatch.ErrInvalid when config or a
// name cannot work, or ctx is nil; then nothing was sent.
func Examine(ctx context.Context, config redlatch.Config, names ...string) ([]Report, error) {
	if ctx == nil {
		return nil, fmt.Errorf("redlatch: %w: ctx is nil: pass context.Background() or the request's context", redlatch.ErrInvalid)
	}
	patients, keys, connect, err := hook.Patients(config, names)
	if err != nil {
		return nil, fmt.Errorf("redlatch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, connect+examineTimeout)
	defer cancel()

	found := make([]patient, len(patients))
	var all sync.WaitGroup
	for i, p := range patients {
		found[i].Patient = p
		all.Go(func() { found[i].look(ctx, keys) })
	}
	all.Wait()
	// Which set of nodes this is can be told only after all have been looked at.
	for i := range found {
		all.Go(func() { found[i].judge(ctx) })
	}
	all.Wait()
	for _, p := range patients { // each has read the others' records
		all.Go(p.Close)
	}
	all.Wait()

	reports := make([]Report, len(patients))
	first := make(map[string]string)
	// compare notes whether the server of r, which is the node name or one of its masters, was seen
	// before.
	compare := func(r *Report, name string) {
		if same, ok := first[r.RunID]; ok && r.RunID != "" {
			r.SameAs = same
			return
		}
		first[r.RunID] = name
	}
	for i, p := range found {
		r := p.report()
		compare(&r, r.Node)
		if r.Cluster != nil {
			for k := range r.Cluster.Masters {
				compare(&r.Cluster.Masters[k].Report, r.Node)
			}
		}
		reports[i] = r
	}
	return reports, nil
}

// patient is a node, a server or a Cluster, and what was found of it.
type patient struct {
	hook.Patient
	server  *node.Examination
	record  *node.Record
	cluster *node.ClusterExamination
}

func (p *patient) look(ctx context.Context, keys []string) {
	if p.Cluster != nil {
		p.cluster = p.Cluster.Look(ctx, p.Seeds, p.Dial, keys)
		return
	}
	p.server = p.Node.Look(ctx, keys)
}

func (p *patient) judge(ctx context.Context) {
	if p.Cluster != nil {
		p.Cluster.Judge(ctx, p.cluster)
		return
	}
	p.Node.Judge(ctx, p.server)
	p.record = p.Node.JudgeRecord(ctx, p.server)
}

func (p *patient) report() Report {
	if p.Cluster != nil {
		return reportCluster(p.Name, p.User, p.cluster)
	}
	r := report(p.Name, p.server, p.record)
	if r.Err == nil { // otherwise the URL may have a password in the user's place
		r.User = cmp.Or(r.User, p.User, "default")
	}
	return r
}
