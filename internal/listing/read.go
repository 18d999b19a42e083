package listing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

const (
	// pageOfKeys is how many keys a node is asked to look at in one step, which takes it
	// well below a millisecond.
	pageOfKeys = 500
	// maxID bounds a holder id of any kind, in bytes, that is listed.
	maxID = 512
	// maxRecord bounds the record of a deployment, in bytes.
	maxRecord = 1 << 16
	// longestQueue bounds how many waiters are listed.
	longestQueue = 1000
	// AnswerTime is how long one answer is waited for.
	AnswerTime = time.Second
	// gone is what PTTL answers of a key that is not there.
	gone = -2
)

// ErrNotInTime is the error of a node that did not answer in time.
var ErrNotInTime = errors.New("it did not answer in time")

// place is where a node has a lock, and the queue for it.
type place struct {
	ID
	key, queue string
}

// queueKey is the place of the queue among node.SideKeys, and recordKey that of the record among node.DeploymentKeys.
const (
	queueKey  = 2
	recordKey = 1
)

func (l Locks) place(name string) place {
	key := l.key(name)
	return place{ID{Name: name}, key, node.SideKeys(key)[queueKey]}
}

// permitPlace is the place of one slot; queue is the key of the queue for all of them.
func permitPlace(name, queue string, slot int) place {
	return place{ID{Name: name, Permit: true, Slot: slot}, node.SlotKey(queue, slot), node.SideKeys(queue)[queueKey]}
}

// permitAt is the place of the permit that has the key, if its name matches the pattern.
func (l Locks) permitAt(key, pattern string) (p place, ok bool) {
	queue, slot, lock, ok := node.CutSlot(key)
	number, err := strconv.Atoi(slot)
	if !ok || err != nil {
		return p, false
	}
	name, ok := l.name(lock)
	return permitPlace(name, queue, number), ok && matches(pattern, name)
}

// CheckServer returns an error where the server is a replica, whose keys are those of its master, which may
// be another node; or a part of a Cluster, which has a part of the locks; or a Sentinel. Of one that does not
// tell, it returns nil.
func CheckServer(ctx context.Context, conn driver.Batcher) error {
	replies, err := ask(ctx, conn, []string{"INFO", "server"}, []string{"INFO", "replication"})
	if refusal, ok := errors.AsType[*driver.ServerError](err); ok && refusal.Unable() {
		return nil // a client without scripts need not be permitted to ask
	}
	if err != nil {
		return err
	}
	return node.CheckAlone(replies[0].Text + replies[1].Text)
}

// CheckRecord returns an error where a later version has recorded the deployment, whose locks may be kept
// under other keys. Of a server that does not tell, it returns nil.
func CheckRecord(ctx context.Context, conn driver.Batcher, deployment string) error {
	key := node.DeploymentKeys(deployment)[recordKey]
	replies, err := ask(ctx, conn, []string{"GETRANGE", key, "0", strconv.Itoa(maxRecord)})
	if _, ok := errors.AsType[*driver.ServerError](err); ok {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := admission.ParseRecord(key, replies[0].Text); errors.Is(err, admission.ErrLater) {
		return fmt.Errorf("%w: %w", admission.ErrUnfit, err)
	}
	return nil
}

// LeftOutError says that something is missing in what is found.
type LeftOutError struct {
	Err error // why the server denies one of the keys
}

func (e *LeftOutError) Error() string {
	return "keys that the user may not read are left out: " + e.Err.Error()
}

func (e *LeftOutError) Unwrap() error { return e.Err }

// All returns the locks and the permits whose names match the pattern. It reads all keys with SCAN, in
// small steps. Where the user may not read some of them, it returns the others and a *LeftOutError.
func (l Locks) All(ctx context.Context, conn driver.Batcher, pattern string) (map[ID]Found, error) {
	keys, all := escapeGlob(l.Before)+pattern+escapeGlob(l.After), make(map[ID]Found)
	var out LeftOutError
	err := scan(ctx, conn, keys, func(page []string) error {
		var places []place
		for _, key := range page {
			if name, ok := l.name(key); ok && name != "" && !strings.HasPrefix(key, node.KeyPrefix) {
				places = append(places, l.place(name))
			}
		}
		return l.look(ctx, conn, places, all, &out)
	})
	if err != nil {
		return all, err
	}
	err = scan(ctx, conn, node.KeyPrefix+"{*}:permit:*:"+keys, func(page []string) error {
		var places []place
		for _, key := range page {
			if p, ok := l.permitAt(key, pattern); ok {
				places = append(places, p)
			}
		}
		return l.look(ctx, conn, places, all, &out)
	})
	if err == nil && out.Err != nil {
		err = &out
	}
	return all, err
}

// One returns what there is of the lock name.
func (l Locks) One(ctx context.Context, conn driver.Batcher, name string) (map[ID]Found, error) {
	found := make(map[ID]Found)
	return found, l.look(ctx, conn, []place{l.place(name)}, found, nil)
}

// Permits returns the permits of name that are held, in one round.
func (l Locks) Permits(ctx context.Context, conn driver.Batcher, name string) (map[ID]Found, error) {
	queue := node.PermitsKey(l.key(name))
	places, found := make([]place, script.MaxSlots), make(map[ID]Found)
	for slot := range places {
		places[slot] = permitPlace(name, queue, slot)
	}
	if err := l.look(ctx, conn, places, found, nil); err != nil {
		return nil, err
	}
	for id, one := range found {
		if one.Holder == "" { // it has the queue of all
			delete(found, id)
		}
	}
	return found, nil
}

// scan calls look with the keys that match, some at a time.
func scan(ctx context.Context, conn driver.Batcher, match string, look func(keys []string) error) error {
	for cursor := "0"; ; {
		reply, err := ask(ctx, conn, []string{"SCAN", cursor, "MATCH", match, "COUNT", strconv.Itoa(pageOfKeys), "TYPE", "string"})
		if err != nil {
			return err
		}
		if len(reply) != 1 || len(reply[0].Array) != 2 {
			return errors.New("the answer to SCAN has another form")
		}
		var keys []string
		for _, key := range reply[0].Array[1].Array {
			keys = append(keys, key.Text)
		}
		if err := look(keys); err != nil {
			return err
		}
		if cursor = reply[0].Array[0].Text; cursor == "0" {
			return nil
		}
	}
}

// look adds to found what the node has at each of the places that can be a lock. Where the user may not read one, it is left out
// and noted in out, or the error if out is nil.
func (l Locks) look(ctx context.Context, conn driver.Batcher, places []place, found map[ID]Found, out *LeftOutError) error {
	if len(places) == 0 {
		return nil
	}
	const each = 4
	commands := make([][]string, 0, each*len(places)+1)
	for _, p := range places {
		commands = append(commands, []string{"GETRANGE", p.key, "0", strconv.Itoa(maxID)}, []string{"PTTL", p.key},
			[]string{"ZRANGE", p.queue, "0", strconv.Itoa(longestQueue - 1)},
			[]string{"ZRANGE", node.ReadersKey(p.key), "0", strconv.Itoa(longestQueue - 1), "REV", "WITHSCORES"})
	}
	commands = append(commands, []string{"TIME"})
	replies, denied, err := send(ctx, conn, commands...)
	if err != nil {
		return err
	}
	now := readTime(replies[len(replies)-1])
	for i, p := range places {
		switch err := cmp.Or(denied[each*i : each*(i+1)]...); {
		case err != nil && out == nil:
			return err
		case err != nil:
			out.Err = err
			continue
		}
		value, left, queue := replies[each*i].Text, replies[each*i+1].Int, replies[each*i+2].Array
		lock := Found{Left: time.Duration(left) * time.Millisecond}
		// The key may have gone since its value was read. One that never expires and is not this library's is data.
		if left != gone && len(value) <= maxID && (left >= 0 || !l.Foreign(vote.HolderIn(value))) {
			lock.Holder = vote.HolderIn(value)
		}
		if lock.Holder == vote.SharedMark {
			lock.Readers = readersIn(replies[each*i+3].Array, left, now)
		}
		for _, waiter := range queue {
			lock.Queue = append(lock.Queue, waiter.Text)
		}
		if lock.Holder != "" || len(lock.Queue) > 0 {
			found[p.ID] = lock
		}
	}
	return nil
}

// readersIn returns what is left to each of a node's readers, of whom the last to end comes first. It ends when
// the key does, which has left ms; by the server's clock, now, where that never expires (readers.lua, instant).
func readersIn(pairs []driver.Reply, left int64, now time.Duration) map[string]time.Duration {
	readers := make(map[string]time.Duration)
	for i := 0; i < len(pairs); i++ {
		pair := pairs[i].Array // RESP3 has an array for each
		if pair == nil {
			pair = pairs[i:min(i+2, len(pairs))]
			i++
		}
		if len(pair) != 2 {
			break
		}
		score, err := strconv.ParseFloat(pair[1].Text, 64)
		end := time.Duration(score) * time.Millisecond
		if len(readers) == 0 && left >= 0 {
			now = end - time.Duration(left)*time.Millisecond
		}
		if err == nil && end > now {
			readers[pair[0].Text] = end - now
		}
	}
	return readers
}

// readTime reads the answer to the command TIME, as the time since 1970.
func readTime(reply driver.Reply) time.Duration {
	if len(reply.Array) != 2 {
		return 0
	}
	seconds, _ := strconv.ParseInt(reply.Array[0].Text, 10, 64)
	microseconds, _ := strconv.ParseInt(reply.Array[1].Text, 10, 64)
	return time.Duration(seconds)*time.Second + time.Duration(microseconds)*time.Microsecond
}

// ask sends commands together. A key of another type counts as missing.
func ask(ctx context.Context, conn driver.Batcher, commands ...[]string) ([]driver.Reply, error) {
	replies, denied, err := send(ctx, conn, commands...)
	return replies, cmp.Or(err, cmp.Or(denied...))
}

// send is ask, with an error for each command whose key the user may not read.
func send(ctx context.Context, conn driver.Batcher, commands ...[]string) (replies []driver.Reply, denied []error, err error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()
	replies, errs := conn.Batch(ctx, commands...)
	denied = make([]error, len(errs))
	for i, err := range errs {
		server, ok := errors.AsType[*driver.ServerError](err)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return nil, nil, ErrNotInTime
		case driver.KeyDenied(err):
			denied[i] = err
		case err != nil && (!ok || server.Code() != "WRONGTYPE"):
			return nil, nil, err
		}
	}
	return replies, denied, nil
}

// escapeGlob has text mean itself in a pattern.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(text)
}
