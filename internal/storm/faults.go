package storm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/redistest"
)

// fault is one kind of what befalls the Cluster. happen draws from the storm's luck alone, says what it has
// chosen, and leaves the Cluster so that it comes in order by itself.
type fault struct {
	name   string
	happen func(*storm, context.Context) (what string, err error) // methods
}

func faultKinds() []fault {
	return []fault{
		{"slots moved key by key", (*storm).moveSlots},
		{"slots given at once", (*storm).giveSlots},
		{"failover", (*storm).failOver},
		{"takeover", func(s *storm, ctx context.Context) (string, error) { return s.takeOver(ctx, false) }},
		{"takeover there and back", func(s *storm, ctx context.Context) (string, error) { return s.takeOver(ctx, true) }},
		{"killed, with its data", func(s *storm, ctx context.Context) (string, error) { return s.kill(ctx, s.Restart) }},
		{"killed, without its data", func(s *storm, ctx context.Context) (string, error) { return s.kill(ctx, s.RestartEmpty) }},
		{"killed and replaced", (*storm).replace},
		{"fix", (*storm).fix},
		{"hung", (*storm).hang},
		{"hung and replaced, and goes on", (*storm).wake},
	}
}

// master picks one that has slots, and a living replica of it.
func (s *storm) master() (master, replica *redistest.Server, err error) {
	var masters []*redistest.Server
	for _, m := range s.Living() {
		slots, err := s.SlotsOf(m)
		if err != nil {
			return nil, nil, err
		}
		if len(slots) > 0 {
			masters = append(masters, m)
		}
	}
	if len(masters) == 0 {
		return nil, nil, errors.New("no master")
	}
	master = masters[s.luck.IntN(len(masters))]
	replicas, err := s.ReplicasOf(master)
	if err != nil || len(replicas) == 0 {
		return master, nil, err
	}
	return master, replicas[0], nil
}

// label names a member so that it is the same in each run of a seed.
func (s *storm) label(m *redistest.Server) string {
	if i := slices.Index(s.Masters, m); i >= 0 {
		return fmt.Sprint("master ", i)
	}
	return fmt.Sprint("replica ", slices.Index(s.Replicas, m))
}

// pause waits for a time up to d.
func (s *storm) pause(ctx context.Context, d time.Duration) {
	Rest(ctx, time.Duration(s.luck.Int64N(int64(d))))
}

// slots picks those of up to most names, and a master for them.
func (s *storm) slots(most int) (names []string, to *redistest.Server, err error) {
	if to, _, err = s.master(); err != nil {
		return nil, nil, err
	}
	for _, i := range s.luck.Perm(len(s.names))[:1+s.luck.IntN(most)] {
		names = append(names, s.names[i])
	}
	return names, to, nil
}

func (s *storm) moveSlots(ctx context.Context) (string, error) {
	names, to, err := s.slots(4)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if err = s.MoveSlot(ctx, SlotOf(name), to, nil); err != nil {
			break
		}
	}
	return fmt.Sprintf("%v to %s", names, s.label(to)), err
}

func (s *storm) giveSlots(ctx context.Context) (string, error) {
	names, to, err := s.slots(12)
	if err != nil {
		return "", err
	}
	var slots []int
	for _, name := range names {
		slots = append(slots, SlotOf(name))
	}
	return fmt.Sprintf("%v to %s", names, s.label(to)), s.GiveSlots(ctx, to, slots...)
}

func (s *storm) failOver(ctx context.Context) (string, error) {
	_, replica, err := s.master()
	if replica == nil {
		return "a master without a replica", err
	}
	return s.label(replica), s.FailOver(ctx, replica)
}

func (s *storm) takeOver(ctx context.Context, back bool) (string, error) {
	master, replica, err := s.master()
	if replica == nil {
		return "a master without a replica", err
	}
	what := fmt.Sprintf("%s by %s", s.label(master), s.label(replica))
	err = s.HoldReplication(ctx, master, true)
	s.pause(ctx, 300*time.Millisecond) // for which the replica lacks what is written
	if err == nil {
		err = s.TakeOver(ctx, replica)
	}
	err = errors.Join(err, s.HoldReplication(ctx, master, false))
	if err != nil || !back {
		return what, err
	}
	if err := master.AwaitLink(ctx); err != nil {
		return what, err
	}
	s.pause(ctx, s.wait+time.Second)
	return what, s.TakeOver(ctx, master)
}

func (s *storm) kill(ctx context.Context, restart func(context.Context, *redistest.Server) error) (string, error) {
	master, _, err := s.master()
	if err != nil {
		return "", err
	}
	master.Kill()
	s.pause(ctx, time.Second)
	return s.label(master), restart(ctx, master)
}

func (s *storm) replace(ctx context.Context) (string, error) {
	master, replica, err := s.master()
	if replica == nil {
		return "a master without a replica", err
	}
	master.Kill()
	s.pause(ctx, time.Second)
	err = s.TakeOver(ctx, replica)
	s.pause(ctx, time.Second)
	return fmt.Sprintf("%s by %s", s.label(master), s.label(replica)), errors.Join(err, s.RestartEmpty(ctx, master))
}

func (s *storm) fix(ctx context.Context) (string, error) {
	master, replica, err := s.master()
	if replica == nil {
		return "a master without a replica", err
	}
	replica.Kill()
	master.Kill()
	_, err = s.Fix(ctx)
	s.pause(ctx, s.wait)
	err = errors.Join(err, s.RestartEmpty(ctx, master), s.RestartEmpty(ctx, replica))
	if err == nil {
		err = s.AwaitServing(ctx)
	}
	s.pause(ctx, s.wait)
	if err != nil {
		return s.label(master), err
	}
	// It gets slots again, without their keys.
	var slots []int
	for slot := range hashslot.Slots / 3 {
		slots = append(slots, 3*slot)
	}
	for _, i := range s.luck.Perm(len(s.names))[:len(s.names)/3] {
		slots = append(slots, SlotOf(s.names[i]))
	}
	slices.Sort(slots)
	return s.label(master), s.GiveSlots(ctx, master, slices.Compact(slots)...)
}

func (s *storm) hang(ctx context.Context) (string, error) {
	master, _, err := s.master()
	if err != nil {
		return "", err
	}
	if err := master.Pause(); err != nil {
		return "", err
	}
	s.pause(ctx, 4*time.Second)
	return s.label(master), master.Resume()
}

// wake has a master hang, its replica take its place, and the master go on: it does not
// know yet that it is none.
func (s *storm) wake(ctx context.Context) (string, error) {
	master, replica, err := s.master()
	if replica == nil {
		return "a master without a replica", err
	}
	if err := master.Pause(); err != nil {
		return "", err
	}
	err = s.TakeOver(ctx, replica)
	s.pause(ctx, 2*s.wait)
	return fmt.Sprintf("%s by %s", s.label(master), s.label(replica)), errors.Join(err, master.Resume())
}

// mend brings the Cluster in order after a fault that went wrong.
func (s *storm) mend(ctx context.Context) error {
	for _, m := range s.Members() {
		if m.Frozen() {
			if err := m.Resume(); err != nil {
				return err
			}
		}
		if !m.Running() {
			if err := s.RestartEmpty(ctx, m); err != nil {
				return err
			}
		}
		if _, err := m.Do("ACL", "SETUSER", "default", "+psync", "+sync"); err != nil {
			return err
		}
	}
	for _, name := range s.names {
		for _, m := range s.Members() {
			if master, err := s.MasterOf(m); err == nil && master == m {
				m.Do("CLUSTER", "SETSLOT", strconv.Itoa(SlotOf(name)), "STABLE") // which it is for most
			}
		}
	}
	// One member can keep a slot for another's that does not have it: nobody claims it,
	// so nobody tells. The tool that repairs Clusters gives it to somebody.
	_, err := s.Fix(ctx)
	return err
}
