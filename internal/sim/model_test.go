package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// comparison runs the same commands on a real server and on the model of it.
type comparison struct {
	t     *testing.T
	rng   *rand.Rand
	conn  *redistest.Conn
	model *Server
	now   time.Time // the server's, as the model takes it
	last  string    // the command under comparison
	// told are the messages that the model has published since the last command, and heard
	// those of the server.
	told  []string
	heard chan string
	// planned are the commands to come, the next one last.
	planned [][]string
}

const (
	compared  = 1500
	long      = "60000" // ms: outlives the test
	short     = "3"     // is over before the next command
	tolerance = 2 * time.Second
)

// The model does what the scripts do on a real server: every random command has
// the same reply from both, and leaves the same keys.
func TestModelDoesWhatAServerDoes(t *testing.T) {
	seed := rand.Uint64()
	if env := os.Getenv("REDLATCH_SEED"); env != "" {
		var err error
		if seed, err = strconv.ParseUint(env, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("REDLATCH_SEED=%d replays this", seed)
	server := redistest.New(t, redistest.Options{})
	conn, err := server.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	info, err := server.Info("server")
	if err != nil {
		t.Fatal(err)
	}
	c := &comparison{t: t, rng: rand.New(rand.NewPCG(seed, 0)), conn: conn}
	c.tick()
	c.model = NewServer(info["run_id"], func() time.Time { return c.now })
	if info, err = server.Info("replication"); err != nil {
		t.Fatal(err)
	}
	c.model.ReplicationID = info["master_replid"]
	c.listen(server)
	for range compared {
		c.step()
		if t.Failed() {
			return
		}
	}
}

// channel is that of the one process that hears when its waiters are called.
const channel = "redlatch:call:p"

func (c *comparison) listen(server *redistest.Server) {
	ear, err := server.Dial(c.t.Context())
	if err == nil {
		err = ear.Send("SUBSCRIBE", channel)
	}
	if err == nil {
		_, err = ear.Receive()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	over := make(chan struct{})
	c.heard = make(chan string, 100)
	go func() {
		defer close(over)
		for err := error(nil); !errors.Is(err, net.ErrClosed); {
			var message any
			if message, err = ear.Receive(); err == nil {
				c.heard <- message.([]any)[2].(string)
			}
		}
	}()
	c.t.Cleanup(func() {
		ear.Close()
		<-over
	})
	c.model.Publish = func(to, message string) int {
		if to != channel {
			return 0
		}
		c.told = append(c.told, message)
		return 1
	}
}

// messages compares what was published.
func (c *comparison) messages() {
	heard, told := c.published()
	if !slices.Equal(heard, told) {
		c.t.Fatalf("%s: the server publishes %q, the model %q", c.last, heard, told)
	}
}

// published returns what the server and the model have published since it was last called.
func (c *comparison) published() (heard, told []string) {
	const end = "end"
	c.real("PUBLISH", channel, end)
	for message := <-c.heard; message != end; message = <-c.heard {
		heard = append(heard, message)
	}
	told, c.told = c.told, nil
	return heard, told
}

// tick brings the model's clock up to the server's.
func (c *comparison) tick() {
	c.t.Helper()
	c.now = serverTime(c.real("TIME"))
}

func serverTime(reply any) time.Time {
	pair := reply.([]any)
	seconds, _ := strconv.ParseInt(pair[0].(string), 10, 64)
	micros, _ := strconv.ParseInt(pair[1].(string), 10, 64)
	return time.UnixMicro(seconds*1e6 + micros)
}

func pick[T any](c *comparison, of ...T) T { return of[c.rng.IntN(len(of))] }

// step compares one random command.
func (c *comparison) step() {
	c.tick()
	c.wait()
	switch c.rng.IntN(200) {
	case 0:
		c.real("FLUSHALL")
		c.model.FlushAll()
	case 1:
		c.real("SCRIPT", "FLUSH")
		c.model.FlushScripts()
	case 2:
		key := pick(c, "a", "b")
		c.real("DEL", key)
		c.real("RPUSH", key, "x")
		c.model.SetList(key)
	default:
		c.compare(c.command())
	}
	c.keys()
}

func (c *comparison) command() []string {
	if last := len(c.planned) - 1; last >= 0 {
		command := c.planned[last]
		c.planned = c.planned[:last]
		return command
	}
	record := pick(c, "a", "b")
	counter, next := "redlatch:{"+record+"}:token:"+record, "redlatch:{"+record+"}:next:"+record
	waiter, ticket := pick(c, "p/1", "p/2", "p/3", "-q/1", "-q/2", "r/1"), pick(c, "0", number0(c))
	const admission, deployment, quarantine = "admission", "deployment", "quarantine"
	agreed := "agreed " + c.model.RunID + " " + c.model.ReplicationID
	expected := agreed
	if c.rng.IntN(20) == 0 {
		expected = pick(c, "", "other "+c.model.RunID+" "+c.model.ReplicationID, "agreed "+c.model.RunID+" "+sha("another"))
	}
	voting := script.Voting(pick(c, "default", "default", "default", "default", "default", "default", "other"))
	ttl, counterTTL := long, long
	if c.rng.IntN(10) == 0 {
		ttl, counterTTL = short, pick(c, long, short)
	}
	id := pick(c, "one", "two", "three")
	number := strconv.FormatInt(c.now.UnixMicro()+c.rng.Int64N(4e6)-2e6, 10)
	if last, ok := c.model.Value(counter); ok && c.rng.IntN(2) == 0 {
		number = last
	}
	vote := func(keys []string, args ...string) []string {
		return slices.Concat([]string{"EVALSHA", voting.SHA, strconv.Itoa(len(keys))}, keys, args)
	}
	// A release that finds the record to be its holder's.
	if holder, ok := c.model.Value(record); ok && c.rng.IntN(2) == 0 {
		id = holder
	}
	releasing := func(args ...string) []string {
		return slices.Concat(
			pick(c, []string{"EVALSHA", script.Releasing.SHA}, []string{"EVAL", script.Releasing.Text}),
			[]string{"3", record, counter, next}, args)
	}
	switch c.rng.IntN(22) {
	case 20:
		// The holder releases while somebody is first in line: by chance that is rare.
		known, _ := c.model.Value(deployment)
		now := strconv.FormatInt(c.now.UnixMicro(), 10)
		if held, ok := c.model.Value(record); ok {
			id = held
		}
		c.planned = [][]string{
			releasing(id, "0", counterTTL, ">"),
			vote([]string{record, admission, next}, script.Stand, waiter, "2", expected),
			vote([]string{record, admission, next}, script.Stand, pick(c, "p/1", "p/2"), "1", expected),
			vote([]string{record, counter, admission, next}, script.Acquire, id, long, now, now[:len(now)-6], counterTTL, expected, "*"),
		}
		if c.rng.IntN(2) == 0 {
			c.planned[0] = releasing(id, "0", counterTTL)
		}
		if c.rng.IntN(2) == 0 {
			c.planned = slices.Delete(c.planned, 1, 2)
		}
		return []string{"EVAL", voting.Text, "3", admission, deployment, quarantine, script.Admit, agreed, "{}", known, c.model.flushed()}
	case 0, 1, 2, 3:
		proposed := pick(c, number, number, "1", "1000000000000000", "8000000000000000")
		args := []string{script.Acquire, id, ttl, proposed, proposed[:max(0, len(proposed)-6)], counterTTL, expected}
		switch c.rng.IntN(6) {
		case 0:
			args = append(args, pick(c, waiter, waiter, "*", "="))
		case 1:
			args = append(args, pick(c, "*", "*", waiter, ""), pick(c, "one", "two", "three"))
		case 2:
			lowest, _ := strconv.ParseInt(proposed, 10, 64)
			args = append(args, pick(c, "", "*"), pick(c, "", "one"), strconv.FormatInt(max(1, lowest-pick[int64](c, 1, 7)), 10))
		}
		return vote([]string{record, counter, admission, next}, args...)
	case 4, 5:
		return vote([]string{record, counter}, script.Extend, id, ttl, number, counterTTL)
	case 6, 7:
		return vote([]string{record, counter}, script.Confirm, id, number, pick(c, number, strconv.FormatInt(c.now.UnixMicro(), 10)), counterTTL)
	case 8:
		return vote([]string{record, counter, admission}, script.Repair, id, ttl, number, counterTTL, expected)
	case 9:
		return vote(nil, "")
	case 10, 11:
		to := pick(c, agreed, agreed, agreed, "agreed "+sha("another run")+" "+c.model.ReplicationID)
		known, _ := c.model.Value(deployment)
		text := `{"run":"` + pick(c, c.model.RunID, "0000") + `"}`
		return []string{"EVAL", voting.Text, "3", admission, deployment, quarantine, script.Admit, to, text,
			pick(c, "", known, known), pick(c, "+", c.model.flushed(), c.model.flushed())}
	case 12:
		return []string{"EVAL", script.Inspect.Text, "3", admission, deployment, quarantine}
	case 14, 15, 16:
		return vote([]string{record, admission, next}, script.Stand, waiter, ticket, expected)
	case 17:
		return releasing(pick(c, id, waiter), "0", counterTTL, waiter, ticket)
	case 19:
		other := map[string]string{"a": "b", "b": "a"}[record]
		otherCounter, otherNext := "redlatch:{"+other+"}:token:"+other, "redlatch:{"+other+"}:next:"+other
		now := strconv.FormatInt(c.now.UnixMicro(), 10)
		keys := []string{admission, record, counter, next, other, otherCounter, otherNext, record, counter, next}
		args := []string{script.Several, counterTTL, expected, "3", id, ttl, pick(c, now, number), "four", ttl, pick(c, now, now, "1"), "five", ttl, now}
		acquires := c.rng.IntN(4)
		args[3] = strconv.Itoa(acquires)
		return vote(slices.Concat(keys[:1+3*acquires], []string{record, next, other, otherNext}),
			slices.Concat(args[:4+3*acquires], []string{id, pick(c, "one", "two", "three", "four")})...)
	case 18:
		return releasing(id, "0", counterTTL, ">")
	case 13:
		known, _ := c.model.Value(deployment)
		noted, _ := c.model.Value(quarantine)
		args := pick(c, []string{known, noted}, []string{known, noted}, []string{"*", "{}"}, []string{"", ""})
		return slices.Concat([]string{"EVAL", script.Quarantine.Text, "3", admission, deployment, quarantine,
			c.model.RunID, pick(c, c.model.ReplicationID, sha("another")), "noted", "60"}, args)
	default:
		return releasing(id, pick(c, "0", number), counterTTL)
	}
}

// number0 is a ticket.
func number0(c *comparison) string { return strconv.FormatInt(1e15+c.rng.Int64N(1e15), 10) }

// wait has what is about to lapse by the server's clock lapse before the next
// command, not under way.
func (c *comparison) wait() {
	if c.lapses(5, 10) {
		time.Sleep(20 * time.Millisecond)
		c.tick()
	}
}

// lapses reports whether anything lapses between so many ms before now and after.
func (c *comparison) lapses(before, after int64) bool {
	near := func(ms int64) bool { d := ms - c.now.UnixMilli(); return d > -before && d < after }
	for name, e := range c.model.keys {
		_, deadline, _, ok := called(e.value)
		soon := ok && near(deadline) || e.expires != 0 && near(e.expires)
		for _, p := range e.places {
			soon = soon || strings.Contains(name, ":beat:") && near(int64(p.score))
		}
		if soon {
			return true
		}
	}
	return false
}

func (c *comparison) real(args ...string) any {
	c.t.Helper()
	reply, err := c.conn.Do(args...)
	if err != nil {
		c.t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// execute has the server execute a command, and the model's clock at the moment
// when it did, however long the command was on its way.
func (c *comparison) execute(args []string) (any, error) {
	c.t.Helper()
	c.real("MULTI")
	c.real("TIME")
	c.real(args...)
	both := c.real("EXEC").([]any)
	c.now = serverTime(both[0])
	if refusal, ok := both[1].(redistest.ServerError); ok {
		return nil, refusal
	}
	return both[1], nil
}

// compare sends the command to both and compares what they say.
func (c *comparison) compare(args []string) {
	c.last = fmt.Sprintf("%.60q", args)
	real, realErr := c.execute(args)
	toss := c.lapses(3, 3)
	model, modelErr := c.model.Exec(args)
	if toss {
		// It was held up until something lapsed, which may have been on either side of
		// it: there is nothing to compare, and both begin anew.
		c.real("FLUSHALL")
		c.model.FlushAll()
		c.published()
		return
	}
	c.messages()
	if slices.Contains(args, short) {
		time.Sleep(10 * time.Millisecond) // what lives for so long is gone on both
	}
	if code(realErr) != code(modelErr) {
		c.t.Fatalf("%s: the server says %v, the model %v", c.last, realErr, modelErr)
	}
	if realErr == nil && !same(real, model) {
		c.t.Fatalf("%s: the server answers %v, the model %+v", c.last, real, model)
	}
}

// code is the first word of a server's error.
func code(err error) string {
	if err == nil {
		return ""
	}
	// Some versions put ERR before what a script says of its own.
	word, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "ERR "), " ")
	return word
}

// same compares replies: what comes from a clock within the tolerance, and of
// INFO that the server has what the model says.
func same(real any, model driver.Reply) bool {
	switch real := real.(type) {
	case nil:
		return model.Kind == driver.Reply{}.Kind
	case int64:
		return model.Kind == driver.Int && near(real, model.Int)
	case string:
		if model.Kind != driver.Text {
			return false
		}
		if strings.Contains(real, "run_id:") {
			return sameInfo(real, model.Text)
		}
		a, errA := strconv.ParseInt(real, 10, 64)
		b, errB := strconv.ParseInt(model.Text, 10, 64)
		return real == model.Text || errA == nil && errB == nil && (max(a-b, b-a) <= 2 || near(a, b))
	case []any:
		if model.Kind != driver.Array || len(real) != len(model.Array) {
			return false
		}
		for i := range real {
			if !same(real[i], model.Array[i]) {
				return false
			}
		}
		return true
	}
	return false
}

// near: a counter or a remaining time, if it is not a verdict.
func near(a, b int64) bool {
	if a < 2 || b < 2 {
		return a == b
	}
	limit := tolerance.Milliseconds()
	if a > 1e12 {
		limit = tolerance.Microseconds()
	}
	return max(a-b, b-a) < limit
}

// sameInfo reports whether the server's INFO has the fields that the model's
// has, with the same values where no clock or build decides.
func sameInfo(real, model string) bool {
	has := make(map[string]string)
	for line := range strings.Lines(real) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		has[name] = value
	}
	for line := range strings.Lines(model) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		got, ok := has[name]
		switch name {
		case "redis_version", "uptime_in_seconds":
			value = got
		case "cmdstat_flushall":
			got, _, _ = strings.Cut(got, ",")
		}
		if !ok || got != value {
			return false
		}
	}
	return true
}

// keys compares what is there, and gives the model the server's own counters:
// they come from a clock that goes on while a script is on its way.
func (c *comparison) keys() {
	c.t.Helper()
	c.tick()
	var names []string
	for _, name := range c.real("KEYS", "*").([]any) {
		names = append(names, name.(string))
	}
	ours := c.model.Keys()
	slices.Sort(names)
	slices.Sort(ours)
	if !slices.Equal(names, ours) {
		c.t.Fatalf("after %s the server has the keys %q, the model %q", c.last, names, ours)
	}
	for _, name := range names {
		e := c.model.keys[name]
		if e.list {
			c.line(name, e)
			continue
		}
		real := c.real("GET", name).(string)
		ours, _ := c.model.Value(name)
		if real == ours {
			continue
		}
		who, deadline, from, isCall := called(ours)
		realWho, realDeadline, realFrom, _ := called(real)
		switch {
		case name == "admission" && len(real) == len(ours) && real[:len(real)-16] == ours[:len(ours)-16]:
			// when it was looked at
		case isCall && who == realWho && from == realFrom && near(deadline, realDeadline):
		case !strings.Contains(name, ":token:") || !near(int64(number(real)), int64(number(ours))):
			c.t.Fatalf("after %s the server has %q at %s, the model %q", c.last, real, name, ours)
		}
		e.value = real
		c.model.keys[name] = e
	}
}

// line compares a sorted set, and gives the model the server's scores.
func (c *comparison) line(name string, e entry) {
	c.t.Helper()
	if e.places == nil {
		return
	}
	real := c.real("ZRANGE", name, "0", "-1", "WITHSCORES").([]any)
	var theirs []place
	for i := 0; i+1 < len(real); i += 2 {
		theirs = append(theirs, place{number(real[i+1].(string)), real[i].(string)})
	}
	if !slices.EqualFunc(theirs, e.places, func(a, b place) bool { return a.who == b.who && near(int64(a.score), int64(b.score)) }) {
		c.t.Fatalf("after %s the server has %v at %s, the model %v", c.last, theirs, name, e.places)
	}
	e.places = theirs
	c.model.keys[name] = e
}
