package sim

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/seed"
)

// comparison runs the same commands on a real server and on the model of it.
type comparison struct {
	t     *testing.T
	rng   *rand.Rand
	conn  *redistest.Conn
	model *Server
	now   time.Time // the server's, as the model takes it
	last  string    // the command under comparison
	// early is what the model would have, had it executed that before the server did.
	early  map[string]entry
	tossed int
	// told are the messages that the model has published since the last command, and heard
	// those of the server.
	told  []string
	heard chan string
	// planned are the commands to come, the next one last.
	planned [][]string
}

const (
	compared = 1500
	long     = "60000" // ms: outlives the test
	short    = "3"     // is over before the next command
)

// The model does what the scripts do on a real server: every random command has
// the same reply from both, and leaves the same keys.
func TestModelDoesWhatAServerDoes(t *testing.T) {
	seed := seed.Of(t)
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
	c.planned = c.opening()
	for range compared {
		c.step()
		if t.Failed() {
			return
		}
	}
	if c.tossed > compared/10 {
		t.Logf("%d of %d commands were held up", c.tossed, compared)
	}
}

// copy returns a server with the same keys and scripts, that is apart.
func (s *Server) copy() *Server {
	other := *s
	other.keys, other.scripts = s.snapshot(), maps.Clone(s.scripts)
	return &other
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
	c.early = nil
	switch c.rng.IntN(100) {
	case 0:
		c.real("FLUSHALL")
		c.model.FlushAll()
	case 1:
		c.real("SCRIPT", "FLUSH")
		c.model.FlushScripts()
	case 2:
		key := pick(c, "a", "b")
		if side := pick(c, "", "line", "beat", "next"); side != "" {
			key = "redlatch:{" + key + "}:" + side + ":" + key
		}
		c.real("DEL", key)
		c.real("RPUSH", key, "x")
		c.model.SetList(key)
	default:
		c.compare(c.command())
	}
	if c.early == nil {
		c.early = c.model.keys
	}
	c.keys()
}

// opening is what chance seldom brings together, the first command last: a block of counters
// that begins below the one before, proposals of a clock far ahead where the counter is ahead,
// too, and steps that go together with proposals far from the server's clock.
func (c *comparison) opening() [][]string {
	voting := script.Voting("default")
	agreed := "agreed " + c.model.RunID + " " + c.model.ReplicationID
	now := c.now.UnixMicro()
	proposal := func(after time.Duration) string { return strconv.FormatInt(now+after.Microseconds(), 10) }
	proposed := proposal(0)
	const far = "8000000000000000"
	acquire := func(id, from, proposed, lowest string) []string {
		seconds := proposed[:len(proposed)-6]
		return []string{"EVALSHA", voting.SHA, "4", "a", "redlatch:{a}:token:a", "admission", "redlatch:{a}:next:a",
			script.Acquire, id, long, proposed, seconds, long, agreed, "*", from, lowest}
	}
	several := func(proposed string) []string {
		return []string{"EVALSHA", voting.SHA, "4", "admission", "b", "redlatch:{b}:token:b", "redlatch:{b}:next:b",
			script.Batch, long, agreed, "1", "one", long, proposed}
	}
	return [][]string{
		several(far), several("1000000000000000"), several(proposal(-3 * time.Second)), several(proposal(3 * time.Second)),
		acquire("five", "four", far, "7999999999999993"), acquire("four", "three", far, far), acquire("three", "two", far, far),
		{"EVALSHA", voting.SHA, "3", "a", "redlatch:{a}:token:a", "admission", script.Extend, "two", long, proposal(5 * time.Second), long, agreed},
		acquire("two", "one", proposed, proposal(-5*time.Microsecond)),
		acquire("one", "", proposed, proposed),
		{"EVAL", voting.Text, "3", "admission", "deployment", "quarantine", script.Admit, agreed, "{}", "", c.model.flushed()},
	}
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
			vote([]string{record, admission, next}, script.Enqueue, waiter, "2", expected),
			vote([]string{record, admission, next}, script.Enqueue, pick(c, "p/1", "p/2"), "1", expected),
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
		return vote([]string{record, counter, admission}, script.Extend, id, ttl, number, counterTTL, expected)
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
		return vote([]string{record, admission, next}, script.Enqueue, waiter, ticket, expected)
	case 17:
		return releasing(pick(c, id, waiter), "0", counterTTL, waiter, ticket)
	case 19:
		other := map[string]string{"a": "b", "b": "a"}[record]
		otherCounter, otherNext := "redlatch:{"+other+"}:token:"+other, "redlatch:{"+other+"}:next:"+other
		now := strconv.FormatInt(c.now.UnixMicro(), 10)
		keys := []string{admission, record, counter, next, other, otherCounter, otherNext, record, counter, next}
		args := []string{script.Batch, counterTTL, expected, "3", id, ttl, pick(c, now, number), "four", ttl, pick(c, now, now, "1"), "five", ttl, now}
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

// execute has the server execute a command, and returns its clock before and after. The
// first is read by itself: what a server takes for the time may be that of the start of EXEC.
func (c *comparison) execute(args []string) (reply any, before, after time.Time, refusal error) {
	c.t.Helper()
	before = serverTime(c.real("TIME"))
	c.real("MULTI")
	c.real(args...)
	c.real("TIME")
	both := c.real("EXEC").([]any)
	after = serverTime(both[1])
	if refusal, ok := both[0].(redistest.ServerError); ok {
		return nil, before, after, refusal
	}
	return both[0], before, after, nil
}

// compare sends the command to both and compares what they say. The model executes it at
// both times between which the server did, and what comes from a clock is to lie between
// its answers; the rest is to be the same.
func (c *comparison) compare(args []string) {
	c.last = fmt.Sprintf("%.60q", args)
	real, before, after, realErr := c.execute(args)
	c.now = before
	toss := c.lapses(3, 3+after.Sub(before).Milliseconds())
	early := c.model.copy()
	earlyReply, earlyErr := early.Exec(args)
	told := c.told
	c.told, c.now, c.early = nil, after, early.keys
	model, modelErr := c.model.Exec(args)
	if toss || code(earlyErr) != code(modelErr) || !slices.Equal(told, c.told) || !alike(earlyReply, model) || !c.alike() {
		// It was held up until something lapsed, or a second began, which may have been on
		// either side of it: there is nothing to compare, and both begin anew.
		c.tossed++
		c.real("FLUSHALL")
		c.model.FlushAll()
		c.early = c.model.keys
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
	if realErr == nil && !same(real, earlyReply, model) {
		c.t.Fatalf("%s: the server answers %v, the model %+v or %+v", c.last, real, earlyReply, model)
	}
}

// alike reports whether replies differ by what comes from a clock at most.
func alike(a, b driver.Reply) bool {
	if a.Kind != b.Kind || len(a.Array) != len(b.Array) {
		return false
	}
	for i := range a.Array {
		if !alike(a.Array[i], b.Array[i]) {
			return false
		}
	}
	return (a.Int < 2) == (b.Int < 2) && (a.Int == b.Int || a.Int >= 2) &&
		(strings.Contains(a.Text, "run_id:") || inBetween(a.Text, a.Text, b.Text))
}

// alike reports whether the same keys are left by a command whenever it was executed.
func (c *comparison) alike() bool {
	if len(c.early) != len(c.model.keys) {
		return false
	}
	for name, late := range c.model.keys {
		early, ok := c.early[name]
		samePlaces := slices.EqualFunc(early.places, late.places, func(a, b place) bool { return a.who == b.who })
		if !ok || early.list != late.list || !samePlaces || !inBetween(early.value, early.value, late.value) {
			return false
		}
	}
	return true
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

// same compares a reply with those of the model, and of INFO that the server has what the
// model says.
func same(real any, early, late driver.Reply) bool {
	switch real := real.(type) {
	case nil:
		return late.Kind == driver.Reply{}.Kind
	case int64:
		return late.Kind == driver.Int && within(real, early.Int, late.Int)
	case string:
		if late.Kind != driver.Text {
			return false
		}
		if strings.Contains(real, "run_id:") {
			return sameInfo(real, late.Text)
		}
		return inBetween(real, early.Text, late.Text)
	case []any:
		if late.Kind != driver.Array || len(real) != len(late.Array) {
			return false
		}
		for i := range real {
			if !same(real[i], early.Array[i], late.Array[i]) {
				return false
			}
		}
		return true
	}
	return false
}

func within[T int64 | float64](x, a, b T) bool { return min(a, b) <= x && x <= max(a, b) }

// inBetween reports whether the words of a text are those of two others, or numbers between
// theirs.
func inBetween(x, a, b string) bool {
	if x == a && x == b {
		return true
	}
	words, as, bs := strings.Split(x, " "), strings.Split(a, " "), strings.Split(b, " ")
	if len(words) != len(as) || len(words) != len(bs) {
		return false
	}
	for i, word := range words {
		if word == as[i] && word == bs[i] {
			continue
		}
		n, err := strconv.ParseInt(word, 10, 64)
		na, errA := strconv.ParseInt(as[i], 10, 64)
		nb, errB := strconv.ParseInt(bs[i], 10, 64)
		if err != nil || errA != nil || errB != nil || !within(n, na, nb) {
			return false
		}
	}
	return true
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

// keys compares what is there and how long it stays, and gives the model what the server has
// from its clock.
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
		early, e := c.early[name], c.model.keys[name]
		expires := max(0, c.real("PEXPIRETIME", name).(int64))
		if !within(expires, early.expires, e.expires) {
			c.t.Fatalf("after %s %s expires at %d on the server, between %d and %d by the model", c.last, name, expires, early.expires, e.expires)
		}
		if e.expires = expires; e.list {
			c.line(name, early, &e)
		} else {
			real := c.real("GET", name).(string)
			if !inBetween(real, early.value, e.value) {
				c.t.Fatalf("after %s the server has %q at %s, the model %q or %q", c.last, real, name, early.value, e.value)
			}
			e.value = real
		}
		c.model.keys[name] = e
	}
}

// line compares a sorted set, and gives the model the server's scores.
func (c *comparison) line(name string, early entry, e *entry) {
	c.t.Helper()
	if e.places == nil {
		return
	}
	real := c.real("ZRANGE", name, "0", "-1", "WITHSCORES").([]any)
	var theirs []place
	for i := 0; i+1 < len(real); i += 2 {
		theirs = append(theirs, place{number(real[i+1].(string)), real[i].(string)})
	}
	same := len(theirs) == len(e.places)
	for i := 0; same && i < len(theirs); i++ {
		same = theirs[i].who == e.places[i].who && within(theirs[i].score, early.places[i].score, e.places[i].score)
	}
	if !same {
		c.t.Fatalf("after %s the server has %v at %s, the model %v or %v", c.last, theirs, name, early.places, e.places)
	}
	e.places = theirs
}
