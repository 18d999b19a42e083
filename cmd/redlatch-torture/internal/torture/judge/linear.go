package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
)

// Linearizability has porcupine's verdicts on all locks and on all guarded registers: "ok", "violated", or
// "unknown" if the time did not suffice. A lock is an object that one writer or several readers
// have at a time, with growing tokens.
type Linearizability struct {
	Locks      string `json:"locks"`
	Registers  string `json:"registers"`
	Operations int    `json:"operations"`
}

// The verdicts.
const (
	Linearizable = "ok"
	Violated     = "violated"
	Unknown      = "unknown"
)

// piece is the least number of operations that are checked together. A history is cut where its state
// is certain, because the memory that porcupine needs grows with the square of its length.
const piece = 400

// late is how long after the death of its worker an operation may still take effect: the request may be
// in the socket of the registers.
const late = int64(5 * time.Second)

// linearize checks all locks and registers.
func linearize(h *history.History, byName map[string][]history.Hold, steps []int64, patience time.Duration) Linearizability {
	l := Linearizability{Locks: Linearizable, Registers: Linearizable}
	deadline := time.Now().Add(patience)
	check := func(verdict *string, model porcupine.Model, ops []porcupine.Operation) {
		l.Operations += len(ops)
		left := time.Until(deadline)
		if left <= 0 {
			left = time.Nanosecond // 0 would mean no limit
		}
		switch porcupine.CheckOperationsTimeout(model, ops, left) {
		case porcupine.Illegal:
			*verdict = Violated
		case porcupine.Unknown:
			if *verdict == Linearizable {
				*verdict = Unknown
			}
		}
	}
	for _, holds := range byName {
		cutLock(lockOperations(holds, steps), func(from held, ops []porcupine.Operation) {
			check(&l.Locks, lockModel(from), ops)
		})
	}
	registers := map[string][]porcupine.Operation{}
	for i, op := range h.Ops {
		until := op.End
		switch {
		case until == 0 && op.Died != 0:
			until = op.Died + late
		case until == 0:
			until = h.End + late
		}
		registers[op.Name] = append(registers[op.Name], porcupine.Operation{ClientId: i, Input: op, Call: op.Call, Return: until})
	}
	for _, ops := range registers {
		cutRegister(ops, func(from guarded, ops []porcupine.Operation) {
			check(&l.Registers, registerModel(from), ops)
		})
	}
	return l
}

// acquisition and release are the operations on a lock. A token of 0 means that there is none.
type (
	acquisition struct {
		token  uint64
		id     int
		shared bool
	}
	release struct {
		id     int
		shared bool
	}
)

// held is the state of a lock: its holders and the largest tokens so far.
type held struct {
	id      int // of the writer that holds it, or -1
	readers readers
	token   uint64 // the largest of all holders
	writer  uint64 // the largest of a writer
}

// lockOperations makes two operations of each hold, an acquisition and a release. The release takes effect
// when the holder stops relying on the lock. If a clock was stepped under the holder, it may take
// effect at any time from the call on.
func lockOperations(holds []history.Hold, steps []int64) []porcupine.Operation {
	ops := make([]porcupine.Operation, 0, 2*len(holds))
	for i, hold := range holds {
		// A holder that was starved may have learned of its lock only after the validity had ended.
		end := max(hold.Call, min(hold.End, hold.Until))
		free := porcupine.Operation{ClientId: i, Input: release{id: i, shared: hold.Shared}, Call: end, Return: hold.End + 1}
		if stepped(steps, hold.Sent, hold.End) {
			free.Call, free.Return = hold.Call, hold.From+1
		}
		ops = append(ops, free, porcupine.Operation{
			ClientId: i, Input: acquisition{token: hold.Token, id: i, shared: hold.Shared}, Call: hold.Call, Return: hold.From,
		})
	}
	return ops
}

// lockModel is a lock that one writer or any number of readers have at a time. A writer's token must be
// larger than all before it, and a reader's larger than those of the writers before it.
func lockModel(from held) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return from },
		Step: func(state, input, _ any) (bool, any) {
			s := state.(held)
			switch in := input.(type) {
			case acquisition:
				smallest := s.token
				if in.shared {
					smallest = s.writer
				}
				if s.id != -1 || !in.shared && s.readers != "" || in.token != 0 && in.token <= smallest {
					return false, s
				}
				if in.shared {
					return true, held{-1, s.readers.with(in.id), max(s.token, in.token), s.writer}
				}
				return true, held{in.id, "", max(s.token, in.token), max(s.token, in.token)}
			case release:
				if in.shared {
					rest, was := s.readers.without(in.id)
					return was, held{s.id, rest, s.token, s.writer}
				}
				return s.id == in.id, held{-1, s.readers, s.token, s.writer}
			}
			return false, s
		},
	}
}

// cutLock calls check with each piece of a lock's history and its state before the piece. It cuts where nobody
// held or wanted the lock.
func cutLock(ops []porcupine.Operation, check func(held, []porcupine.Operation)) {
	byCall(ops)
	from := held{id: -1}
	begin, busy, unreleased := 0, int64(0), 0
	var token, writer uint64
	for i, op := range ops {
		if i-begin >= piece && op.Call > busy && unreleased == 0 {
			check(from, ops[begin:i])
			begin, from.token, from.writer = i, token, writer
		}
		busy = max(busy, op.Return)
		switch in := op.Input.(type) {
		case acquisition:
			token = max(token, in.token)
			if !in.shared {
				writer = max(writer, in.token)
			}
			unreleased++
		case release:
			unreleased--
		}
	}
	check(from, ops[begin:])
}

// guarded is the state of a guarded register.
type guarded struct {
	token  uint64 // the largest so far
	writer uint64 // the largest of a writer
	value  string
}

// registerModel is a register that refuses a writer's token that is smaller than the largest so far, and
// a reader's token that is smaller than the largest of a writer.
//
// An operation without an answer may have had no effect, at whatever time: its request may not have been sent.
func registerModel(from guarded) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{from} },
		Step: func(state, input, _ any) []any {
			s, op := state.(guarded), input.(history.Op)
			smallest, then := s.token, guarded{op.Token, op.Token, s.value}
			if op.Shared {
				smallest, then = s.writer, guarded{max(s.token, op.Token), s.writer, s.value}
			}
			if op.Wrote != "" {
				then.value = op.Wrote
			}
			switch stale := op.Token < smallest; {
			case op.End == 0 && stale:
				return []any{s}
			case op.End == 0:
				return []any{s, then}
			case op.Stale != stale || !stale && op.Wrote == "" && op.Read != s.value:
				return nil
			case stale:
				return []any{s}
			}
			return []any{then}
		},
	}
	return model.ToModel()
}

// cutRegister calls check with each piece of a register's history and its state before the piece. It cuts
// after an operation that no other one overlaps and whose answer is known, since that tells the state.
func cutRegister(ops []porcupine.Operation, check func(guarded, []porcupine.Operation)) {
	byCall(ops)
	var from guarded
	begin, busy := 0, int64(0)
	for i, o := range ops {
		op := o.Input.(history.Op)
		alone := o.Call > busy && (i+1 == len(ops) || o.Return < ops[i+1].Call)
		busy = max(busy, o.Return)
		if i-begin < piece || !alone || op.End == 0 || op.Stale || op.Shared {
			continue
		}
		check(from, ops[begin:i+1])
		begin = i + 1
		from = guarded{op.Token, op.Token, cmp.Or(op.Wrote, op.Read)}
	}
	check(from, ops[begin:])
}

// byCall sorts operations by their calls.
func byCall(ops []porcupine.Operation) {
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
}
