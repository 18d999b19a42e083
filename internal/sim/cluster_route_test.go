package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/redistest"
)

// routed is a command that a Cluster's master is sent.
type routed struct {
	at             int // which master: 0 has the slot, 1 gets it, 2 is another
	moving, asking bool
	args           []string
}

// keysOfTag are the keys that the first two masters have of a slot that is being moved; otherwise the first has them all.
// keyBeside is in another slot of the first.
var keysOfTag, keyBeside = [2][]string{{"{s}here", "{s}here2"}, {"{s}moved", "{s}moved2"}}, "{aa}beside"

// keysAt returns the keys that a master has.
func (r routed) keysAt(master int) []string {
	switch {
	case r.moving && master < 2:
		return append(slices.Clone(keysOfTag[master]), keyBeside)
	case master == 0:
		return append(slices.Concat(keysOfTag[:]...), keyBeside)
	}
	return nil
}

// routes are scripts for two keys, of which each is there or not, and scripts for one that read another of the same slot.
func routes() (all []routed) {
	keys := append(slices.Concat(keysOfTag[:]...), "{s}none", "{s}none2", keyBeside)
	for i := range 12 {
		r := routed{at: i % 3, moving: i/3%2 == 0, asking: i/6 == 0}
		for _, first := range keys {
			for _, second := range keys {
				if r.args = []string{"EVAL", "return 1", "2", first, second}; first != second { // the same twice is one to a server
					all = append(all, r)
				}
				if hashslot.Tag(first) == hashslot.Tag(second) {
					r.args = []string{"EVAL", "return redis.call('GET', ARGV[1])", "1", first, second}
					all = append(all, r)
				}
			}
		}
	}
	return all
}

// said is what is compared of a master's answer: the code of a refusal, with the slot and the master of a redirection, or why
// it ended a script.
func said(err error, master func(address string) int) string {
	if err == nil {
		return "OK"
	}
	text, _, _ := strings.Cut(err.Error(), " script: ")
	words := strings.Fields(text)
	switch {
	case words[0] == "MOVED" || words[0] == "ASK":
		return fmt.Sprintf("%s %s to master %d", words[0], words[1], master(words[2]))
	case words[0] == "ERR":
		return text
	}
	return words[0]
}

// A master of the simulated Cluster answers as one of a real Cluster, also while a slot is being moved.
func TestClusterAnswersAsARealOne(t *testing.T) {
	t.Parallel()
	all, slot := routes(), hashslot.Of("s")
	var want []string
	synctest.Test(t, func(*testing.T) {
		w := New(1, None)
		c := w.NewCluster(3, 0, 0)
		c.locked(func() {
			masters := c.masters()
			for _, r := range all {
				want = append(want, said(c.answer(masters, partOf(slot), r), func(name string) int {
					return slices.IndexFunc(masters, func(m *clusterNode) bool { return m.node.Name == name })
				}))
			}
		})
		w.End()
	})
	for _, flavor := range redistest.Flavors() {
		t.Run(flavor, func(t *testing.T) {
			t.Parallel()
			servers := redistest.NewCluster(t, 3, redistest.Options{Binary: flavor})
			var conns []*redistest.Conn
			for _, s := range servers {
				conn, err := s.Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				conns = append(conns, conn)
			}
			do := func(at int, args ...string) (any, error) {
				reply, err := conns[at].Do(args...)
				if refused := redistest.ServerError(""); err != nil && !errors.As(err, &refused) {
					t.Fatal(err)
				}
				return reply, err
			}
			for _, moving := range []bool{false, true} {
				if moving {
					giver, _ := do(0, "CLUSTER", "MYID")
					taker, _ := do(1, "CLUSTER", "MYID")
					for _, key := range keysOfTag[1] {
						do(0, "DEL", key)
					}
					do(0, "CLUSTER", "SETSLOT", strconv.Itoa(int(slot)), "MIGRATING", taker.(string))
					do(1, "CLUSTER", "SETSLOT", strconv.Itoa(int(slot)), "IMPORTING", giver.(string))
				}
				for at := range conns {
					for _, key := range (routed{moving: moving}).keysAt(at) {
						do(at, "ASKING")
						do(at, "SET", key, "x")
					}
				}
				for i, r := range all {
					if r.moving != moving {
						continue
					}
					if r.asking {
						do(r.at, "ASKING")
					}
					_, err := do(r.at, r.args...)
					got := said(err, func(address string) int {
						return slices.IndexFunc(servers, func(s *redistest.Server) bool { return s.Addr() == address })
					})
					if got != want[i] {
						t.Errorf("%+v: a master says %q, the simulated one %q", r, got, want[i])
					}
				}
			}
		})
	}
}

// answer executes a command, where the first of the masters may be giving a part to the second.
func (c *Cluster) answer(masters []*clusterNode, part int, r routed) error {
	for i, m := range masters {
		m.node.server.FlushAll()
		m.givesTo[part], m.takesFrom[part] = nil, nil
		for _, key := range r.keysAt(i) {
			m.node.server.Exec([]string{"SET", key, "x"})
		}
	}
	if r.moving {
		masters[0].givesTo[part], masters[1].takesFrom[part] = masters[1], masters[0]
	}
	_, err := masters[r.at].run(r.args, r.asking)
	return err
}
