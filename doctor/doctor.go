// Package doctor looks at the nodes of a configuration and says whether they are fit for
// locks: for operators and health checks.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/node"
)

// examineTimeout bounds the look at one node once it is connected.
const examineTimeout = 5 * time.Second

// Examine looks at every node of config and says whether it is fit for locks:
// one report a node, in their order. It is for operators and health checks, and
// needs no client: it opens connections of its own. names are locks whose keys
// are looked at, and which the user's permissions are tried on beside the library's own.
//
// It changes no key and no setting on any node, and admits none. Permissions are
// tried with commands that cannot have an effect, such as SET XX on a key that
// nobody has; those denied appear in the server's ACL LOG.
//
// A Cluster is not looked at: its report has an Err that says so.
//
// It waits for all nodes, some seconds at most, or for ctx: what cannot be had
// is in the reports. The error wraps redlatch.ErrInvalid when config or a name cannot
// work; then nothing was sent.
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

	found := make([]*node.Examination, len(patients))
	recorded := make([]*node.Record, len(patients))
	var all sync.WaitGroup
	for i, p := range patients {
		if p.Node == nil {
			found[i] = &node.Examination{Err: errCluster, Reason: errCluster}
			continue
		}
		all.Go(func() { found[i] = p.Node.Look(ctx, keys) })
	}
	all.Wait()
	// Which set of nodes this is shows only when all have been looked at.
	for i, p := range patients {
		if p.Node == nil {
			continue
		}
		all.Go(func() {
			p.Node.Judge(ctx, found[i])
			recorded[i] = p.Node.JudgeRecord(ctx, found[i])
		})
	}
	all.Wait()
	for _, p := range patients { // each has read the others' records
		if p.Node != nil {
			all.Go(p.Node.Close)
		}
	}
	all.Wait()

	reports := make([]Report, len(patients))
	first := make(map[string]string)
	for i, x := range found {
		reports[i] = report(patients[i].Name, x, recorded[i])
		reports[i].User = x.User
		if x.Err == nil { // else what the URL has may be a password in the user's place
			reports[i].User = cmp.Or(x.User, patients[i].User, "default")
		}
		if same, ok := first[x.RunID]; ok && x.RunID != "" {
			reports[i].SameAs = same
			continue
		}
		first[x.RunID] = patients[i].Name
	}
	return reports, nil
}

var errCluster = errors.New("a Cluster is not examined as a whole, and its servers are not judged by themselves")
