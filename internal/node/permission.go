package node

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// lookAtPermissions tries every command that the scripts and this library use, in a form that
// changes nothing. That tells more than ACL DRYRUN would, which few users may send: it also finds a
// node that is out of memory or a proxy that does not know a command. Servers check permissions
// before a command looks at its keys (Redis documentation, "ACL").
func (n *Node) lookAtPermissions(ctx context.Context, x *Examination, lockKeys []string) error {
	if x.evidence.info.isSentinel() {
		return nil // it knows none of the commands
	}
	tries := n.harmless(lockKeys)
	errs := make([]error, len(tries))
	var all sync.WaitGroup
	for i, t := range tries {
		all.Go(func() { errs[i] = n.try(ctx, t) })
	}
	all.Wait()
	var denied []try
	for i, err := range errs {
		refusal, ok := errors.AsType[*driver.ServerError](err)
		command := ""
		if ok {
			command, _ = refusal.Denied()
		}
		switch {
		case err == nil:
		case !ok:
			return err
		case command == "select": // nothing was tried: there is no connection to this database
			x.Missing = []string{"+select"}
			return nil
		case forbidden(err), tries[i].name() != "CLIENT|CACHING" && tries[i].command[0] == "CLIENT":
			denied = append(denied, tries[i]) // or a server that does not know it
		case refusal.Code() == "WRONGTYPE": // lookAtForeignKeys has reported that key
		case n.isSlot() && refusal.Redirects(): // another master has the key, and the user may use it
		case refusal.Code() == "NOSCRIPT", tries[i].command[0] == "PSETEX", tries[i].command[0] == "CLIENT":
		case x.Refusal == nil && x.Role != "slave": // a replica refuses all writes
			x.Refusal = err
		}
	}
	x.Missing = rules(tries, denied)
	return nil
}

// try is one harmless command. key is what it is tried on, "" where it has none.
type try struct {
	key     string
	command []string
}

// try sends the command, and takes back what it did to the connection.
func (n *Node) try(ctx context.Context, t try) error {
	if !strings.HasSuffix(t.command[0], "SUBSCRIBE") {
		_, err := n.conn.Do(ctx, t.command...)
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := n.subscriber()(ctx, t.command[1], cancel, func(string) {})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// name returns the name that an ACL has for the command.
func (t try) name() string {
	if t.command[0] == "CLIENT" || t.command[0] == "CLUSTER" {
		return t.command[0] + "|" + t.command[1]
	}
	return t.command[0]
}

// rules returns what an ACL would have to add for the denied tries to pass: the keys on which every
// command was denied, and the commands that were denied on other keys. Where everything was denied,
// nobody can tell which it is, and both are named.
func rules(tries, denied []try) []string {
	tried, refused := make(map[string]int), make(map[string]int)
	for _, t := range tries {
		tried[keyRule(t.key)]++
	}
	for _, t := range denied {
		refused[keyRule(t.key)]++
	}
	var missing []string
	wholly := 0
	for rule, n := range refused {
		if rule != "" && n == tried[rule] {
			missing = append(missing, rule)
			wholly++
		}
	}
	delete(tried, "")
	for _, t := range denied {
		if kind, _, ok := strings.Cut(t.command[0], "PUBLISH"); ok {
			// Either the command or the channel was denied. Both are needed, also to subscribe.
			missing = append(missing, "+"+strings.ToLower(kind)+"subscribe", "&"+wakeUpChannel("*"))
		}
		if rule := keyRule(t.key); !slices.Contains(missing, rule) || wholly == len(tried) {
			missing = append(missing, "+"+strings.ToLower(t.name()))
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

// keyRule returns the rule that gives access to key: for keys of this library, to all of them at
// once.
func keyRule(key string) string {
	switch {
	case key == "":
		return ""
	case strings.HasPrefix(key, KeyPrefix):
		return "~" + KeyPrefix + "*"
	}
	return "~" + key
}

// forms has a form of each command that changes nothing on any server, whatever keys that has, and
// that is permitted only where the command is.
var forms = map[string]struct {
	keys  scope
	words []string // what follows the command and its key
}{
	"PING":    {noKey, nil},
	"INFO":    {noKey, []string{"server"}},
	"TIME":    {noKey, nil},
	"EVAL":    {noKey, []string{"return 1", "0"}},
	"EVALSHA": {noKey, []string{strings.Repeat("0", 40), "0"}}, // answers NOSCRIPT
	// Of a key that exists, GET and MGET may answer at length.
	"GET":     {absentKey, nil},
	"MGET":    {absentKey, nil},
	"PTTL":    {anyKey, nil},
	"PEXPIRE": {anyKey, []string{"0", "GT"}}, // cannot prolong to a time in the past
	"SET":     {absentKey, []string{"", "XX", "PX", "1"}},
	"DEL":     {absentKey, nil},
	"PSETEX":  {absentKey, []string{"0", ""}}, // answers that the time is invalid
	"ZADD":    {absentKey, []string{"XX", "0", ""}},
	"ZREM":    {absentKey, []string{""}},
	"ZRANGE":  {absentKey, []string{"0", "0"}},
	"ZRANK":   {absentKey, []string{""}},
	"ZSCORE":  {absentKey, []string{""}},
	// These are tried on a channel that nobody listens on.
	"PUBLISH":  {noKey, []string{""}},
	"SPUBLISH": {noKey, []string{""}},
}

// scope says which keys a harmless form may be tried on.
type scope uint8

const (
	noKey     scope = iota
	anyKey          // even a key that exists
	absentKey       // a key that does not exist
)

// harmless returns the commands of the scripts and of this library, once for each key on which the
// user must be permitted to use them.
func (n *Node) harmless(lockKeys []string) []try {
	keys := n.deploymentKeys()
	for _, key := range lockKeys {
		keys = append(keys, key, CounterKey(key))
	}
	absent := CounterKey(n.inSlot(rand.Text()))
	tries := []try{
		{"", []string{"CLIENT", "TRACKING", "OFF"}},
		{"", []string{"CLIENT", "CACHING", "YES"}}, // answers that tracking is off
	}
	channel, publish, subscribe := wakeUpChannel(n.inSlot("nobody")), "PUBLISH", "SUBSCRIBE"
	if n.isSlot() {
		publish, subscribe = "SPUBLISH", "SSUBSCRIBE"
		tries = append(tries, try{"", []string{"CLUSTER", "NODES"}})
	}
	if n.subscriber() != nil {
		tries = append(tries, try{"", []string{subscribe, channel}})
	}
	if c, ok := n.conn.(driver.Commander); ok {
		for _, command := range c.Commands() {
			tries = append(tries, try{"", command})
		}
	}
	r := n.options.Replicas
	if r.Want > 0 {
		tries = append(tries, try{"", wait(0, 0)})
	}
	if r.Fsync {
		tries = append(tries, try{"", r.command(0, 0)})
	}
	for _, name := range append(script.Commands(), "EVAL", "EVALSHA", "PING") {
		if strings.HasSuffix(name, "PUBLISH") {
			if name == publish {
				tries = append(tries, try{"", append([]string{name, channel}, forms[name].words...)})
			}
			continue
		}
		switch form := forms[name]; form.keys {
		case noKey:
			tries = append(tries, try{"", append([]string{name}, form.words...)})
		case absentKey:
			tries = append(tries, try{absent, append([]string{name, absent}, form.words...)})
		case anyKey:
			for _, key := range keys {
				tries = append(tries, try{key, append([]string{name, key}, form.words...)})
			}
		}
	}
	return tries
}
