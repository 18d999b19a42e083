package admission

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

const (
	testRun   = "0123456789012345678901234567890123456789"
	otherRun  = "9999999999999999999999999999999999999999"
	testRepl  = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	otherRepl = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	testNow   = 1_000_000
)

var testServer = Server{Run: testRun, ReplicationID: testRepl}

func agreementOf(a Agreement) Agreement {
	a.Deployment, a.Nodes = "default", []string{"a", "b", "c"}
	if a.MaxTTL == 0 {
		a.MaxTTL = 30 * time.Second
	}
	return a
}

func recordOf(a Agreement) *Record {
	r := &Record{Server: testServer, Nodes: make(map[string]string),
		MaxTTLMS: a.MaxTTL.Milliseconds(), NoQuarantine: a.NoQuarantine, Durable: a.Durable}
	for _, name := range a.Nodes {
		r.Nodes[name] = ""
	}
	return r
}

// named is one value of one part of the evidence.
type named[T any] struct {
	name  string
	value T
}

// every calls f with each combination of what evidence may say. name is called by those who fail
// alone: a text for each of so many would take longer than the decisions.
func every(f func(name func() string, a Agreement, e Evidence)) {
	agreements := []named[Agreement]{
		{"fenced", agreementOf(Agreement{})},
		{"unfenced", agreementOf(Agreement{NoQuarantine: true})},
		{"durable", agreementOf(Agreement{Durable: true})},
	}
	for _, a := range agreements {
		with := func(change func(*Record)) *Record {
			r := recordOf(a.value)
			change(r)
			return r
		}
		records := []named[*Record]{
			{"no record", nil},
			{"known", recordOf(a.value)},
			{"this run, another replication id", with(func(r *Record) { r.ReplicationID = otherRepl })},
			{"this run, another replication id, other bytes", with(func(r *Record) { r.ReplicationID, r.Received = otherRepl, 99 })},
			{"another run", with(func(r *Record) { r.Run = otherRun })},
			{"another run, void", with(func(r *Record) { r.Run, r.Void = otherRun, "seen otherwise" })},
			{"longer MaxTTL", with(func(r *Record) { r.MaxTTLMS *= 4 })},
			{"shorter MaxTTL", with(func(r *Record) { r.MaxTTLMS /= 4 })},
			{"other fence", with(func(r *Record) { r.NoQuarantine = !r.NoQuarantine })},
			{"another run, other word", with(func(r *Record) { r.Run, r.Durable = otherRun, !r.Durable })},
			{"another run, other nodes", with(func(r *Record) { r.Run, r.Nodes["d"] = otherRun, "" })},
		}
		d := a.value.Quarantine()
		notes := []named[string]{
			{"no note", ""},
			{"note begun", NewNote(testServer, testNow-3, d).Text()},
			{"note nearly over", NewNote(testServer, testNow-int64(d/time.Second), d).Text()},
			{"note over", NewNote(testServer, testNow-int64(d/time.Second)-1, d).Text()},
			{"longer note", NewNote(testServer, testNow-int64(d/time.Second)-1, 2*d).Text()},
			{"note too short", NewNote(testServer, testNow-3, time.Second).Text()},
			{"note over, of another time as a master", NewNote(Server{testRun, otherRepl, 0}, testNow-1000, d).Text()},
			{"another run's note", NewNote(Server{Run: otherRun, ReplicationID: testRepl}, testNow-3, d).Text()},
			{"note from the year 5000", NewNote(testServer, 95_617_584_000, d).Text()},
			{"note for ever", Note{testServer, testNow - 3, 1 << 50}.Text()},
			{"another run's note, shorter than this one has been up", NewNote(Server{Run: otherRun, ReplicationID: testRepl}, testNow-3, d/2).Text()},
			{"another run's note, by a clock that is ahead", NewNote(Server{Run: otherRun, ReplicationID: testRepl}, testNow+3, d).Text()},
			{"another run's note over", NewNote(Server{Run: otherRun, ReplicationID: testRepl}, testNow-3000, d).Text()},
			{"garbage note", "x"},
		}
		others := []named[Others]{
			{"others have none", Others{None: 2}},
			{"others have ours", Others{Same: 2}},
			{"one has ours", Others{Same: 1}},
			{"others are down", Others{}},
			{"another has another", Others{None: 1, Differing: &DisagreementError{Ours: a.value}}},
			{"most have ours", Others{Same: 2, Differing: &DisagreementError{Ours: a.value}}},
		}
		for _, r := range records {
			for _, n := range notes {
				for _, o := range others {
					for bits := range 1 << 8 {
						for _, received := range []int64{-1, 0, 4711} {
							for _, sync := range []Sync{SyncUnseen, SyncAlways, SyncOtherwise} {
								is := func(bit int) bool { return bits>>bit&1 == 1 }
								e := Evidence{
									Server: Server{testRun, testRepl, received}, Now: testNow,
									Record: r.value, Note: n.value, Others: o.value, Sync: sync,
									Replica: is(0), Promoted: is(1), Flushed: is(2), Evicting: is(3), Voted: is(4), Vouched: is(5), KeepsScripts: is(7),
									Uptime: d - time.Second,
								}
								if is(6) {
									e.Uptime = d
								}
								if a.name != "durable" && sync != SyncUnseen || e.KeepsScripts && bits&^(1<<7) != 0 {
									continue // says nothing more
								}
								f(func() string {
									return fmt.Sprintf("%s, %s, %s, %s, bits %08b, received %d, sync %d", a.name, r.name, n.name, o.name, bits, received, sync)
								}, a.value, e)
							}
						}
					}
				}
			}
		}
	}
}

// What each outcome needs, said in another way than Decide does.
func TestDecideEveryCombination(t *testing.T) {
	combinations, of := 0, make(map[Outcome]int)
	every(func(name func() string, a Agreement, e Evidence) {
		if combinations++; testing.Short() && combinations%7 > 0 {
			return
		}
		d := Decide(a, e)
		of[d.Outcome]++
		fail := func(text string) { t.Errorf("%s: %s: outcome %d, %v", name(), text, d.Outcome, d.Err) }

		r := e.Record
		wasReplica := e.Promoted || e.Received != 0
		stays := func(s Server) bool {
			return s.Run == testRun && (s.ReplicationID == testRepl || !e.Promoted && e.Received == 0 && s.Received == 0)
		}
		recordAgrees := r != nil && r.Agreement(a.Deployment).ID() == a.ID()
		known := recordAgrees && stays(r.Server)
		majority := e.Others.Same >= 2
		othersAgree := majority || e.Others.Differing == nil && e.Others.Same+e.Others.None >= 1
		certain := r != nil && stays(r.Server)
		unlike := r != nil && !recordAgrees && (certain || !majority) || (r == nil || recordAgrees && !certain) && !majority && e.Others.Differing != nil
		agrees := !unlike && (recordAgrees && certain || othersAgree)
		if r != nil && !recordAgrees {
			r = nil // if it votes, by the others' records
		}
		note, noted := ParseNote(e.Note)
		ours := noted && note.Run == testRun
		readable := e.Note == "" || noted && (!ours || note.Since <= e.Now && note.Length < 1<<40)
		over := ours && readable && stays(note.Server) && e.Now-note.Since > int64(a.Quarantine()/time.Second) && e.Now-note.Since >= note.Length
		lost := r == nil && (e.Voted || e.Flushed)
		quiet := e.Note == "" || noted && !ours && e.Uptime >= time.Duration(note.Length)*time.Second
		word := a.Durable && r != nil && r.Void == "" && e.Sync == SyncAlways && e.Note == ""

		// Why it may vote.
		presumed := quiet && !wasReplica && !lost && !(r != nil && r.Run == testRun) && (e.Uptime >= a.Quarantine() || word)
		may := !e.Replica && !e.Evicting && agrees &&
			(a.NoQuarantine || !e.KeepsScripts && (e.Vouched || known && quiet || over || presumed))
		if may != (d.Outcome == Admit) {
			fail(fmt.Sprintf("it may vote: %t", may))
		}
		disagreement, _ := errors.AsType[*DisagreementError](d.Err)
		if want := unlike && !e.Replica && !e.Evicting; want != (disagreement != nil) || want && (d.Outcome != Refuse || !errors.Is(d.Err, ErrInvalid)) {
			fail(fmt.Sprintf("disagrees: %t", want))
		}
		waiting, _ := errors.AsType[*WaitError](d.Err)
		if waits := d.Outcome == Wait || d.Outcome == Begin; waits != (waiting != nil) {
			fail("waits with another error")
		}
		longest := a.Quarantine()
		if note.Length < 1<<40 { // else nobody wrote it
			longest = max(longest, time.Duration(note.Length)*time.Second)
		}
		if waiting != nil && waiting.Left > longest+time.Second {
			fail("waits for too long")
		}
		if d.Outcome == Begin {
			// It is noted once, and over in time.
			e.Note = NewNote(e.Server, e.Now, a.Quarantine()).Text()
			if again := Decide(a, e); again.Outcome != Wait {
				fail("noted, and begins again")
			}
			e.Now += int64(a.Quarantine()/time.Second) + 1
			if again := Decide(a, e); again.Outcome != Admit {
				fail("never over")
			}
		}
		if (d.Err == nil) != (d.Outcome == Admit) {
			fail("the error does not fit")
		}
	})
	t.Logf("%d combinations: %v", combinations, of)
	if len(of) != 4 || combinations < 100_000 {
		t.Errorf("%d combinations have the outcomes %v", combinations, of)
	}
}

// A server that was promoted with the note of another that was kept out begins its own quarantine at once, not
// when the other's is over.
func TestPromotedWithAnothersNote(t *testing.T) {
	a := agreementOf(Agreement{MaxTTL: time.Minute})
	r := recordOf(a)
	r.Run = otherRun
	for _, length := range []time.Duration{a.Quarantine(), 2 * a.Quarantine()} {
		note := NewNote(Server{Run: otherRun, ReplicationID: otherRepl}, testNow-3, length)
		d := Decide(a, Evidence{Server: testServer, Promoted: true, Now: testNow, Record: r, Note: note.Text(), Others: Others{Same: 2}})
		wait, _ := errors.AsType[*WaitError](d.Err)
		if d.Outcome != Begin || wait.Left < length-3*time.Second || wait.Left < a.Quarantine() {
			t.Errorf("outcome %d, %v", d.Outcome, d.Err)
		}
		if left := NewNote(testServer, testNow, a.Quarantine()).After(note.Text()).left(testServer, testNow); left < length-3*time.Second {
			t.Errorf("the quarantine lasts for %v, and what was left of the one before is more", left)
		}
	}
}

// So does a server whose data may have been deleted while it ran.
func TestDeletedWithAnothersNote(t *testing.T) {
	a := agreementOf(Agreement{})
	note := NewNote(Server{Run: otherRun, ReplicationID: testRepl}, testNow, a.Quarantine())
	e := Evidence{Server: testServer, Now: testNow + seconds(a.Quarantine()) - 3, Note: note.Text(), Others: Others{Same: 2}}
	if d := Decide(a, e); d.Outcome != Wait {
		t.Errorf("nothing was deleted: outcome %d, %v", d.Outcome, d.Err)
	}
	for _, deleted := range []func(*Evidence){func(e *Evidence) { e.Flushed = true }, func(e *Evidence) { e.Voted = true }} {
		e := e
		deleted(&e)
		if d := Decide(a, e); d.Outcome != Begin {
			t.Errorf("outcome %d, %v", d.Outcome, d.Err)
		}
	}
}

// A note of another run that no client can have written keeps nobody out, and makes no later quarantine longer.
func TestNoteThatNobodyWrote(t *testing.T) {
	a := agreementOf(Agreement{})
	for _, n := range []Note{{Since: testNow - 1000, Length: 1 << 30}, {Since: testNow + 1000, Length: 1 << 30}, {Since: -1 << 63, Length: 60}} {
		n.Run, n.ReplicationID = otherRun, testRepl
		d := Decide(a, Evidence{Server: testServer, Uptime: a.Quarantine(), Now: testNow, Note: n.Text(), Others: Others{None: 2}})
		if d.Outcome != Admit {
			t.Errorf("%s: outcome %d, %v", n.Text(), d.Outcome, d.Err)
		}
		if begun := NewNote(testServer, testNow, a.Quarantine()); begun.After(n.Text()) != begun {
			t.Errorf("after %s: %s", n.Text(), begun.After(n.Text()).Text())
		}
	}
}

// Where the clock was set back to before a quarantine, or that was noted by another run's clock, all of it is still left: a
// run that restarted waits for it from its start.
func TestNoteByAnotherClock(t *testing.T) {
	a := agreementOf(Agreement{})
	for _, run := range []string{testRun, otherRun} {
		for _, since := range []int64{testNow - 1000, testNow + 1000} {
			if run == testRun && since < testNow {
				continue
			}
			note := NewNote(Server{Run: run, ReplicationID: testRepl}, since, 2*a.Quarantine())
			for _, promoted := range []bool{false, true} {
				want, from := Begin, time.Duration(0)
				if run == otherRun && !promoted {
					want, from = Wait, a.Quarantine()
				}
				d := Decide(a, Evidence{Server: testServer, Promoted: promoted, Uptime: a.Quarantine(), Now: testNow, Note: note.Text(), Others: Others{None: 2}})
				if wait, _ := errors.AsType[*WaitError](d.Err); d.Outcome != want || wait.Left < 2*a.Quarantine()-from {
					t.Errorf("%s, promoted %t: outcome %d, %v", note.Text(), promoted, d.Outcome, d.Err)
				}
			}
			if begun := NewNote(testServer, testNow, a.Quarantine()).After(note.Text()); begun.Since != testNow || begun.Length != note.Length {
				t.Errorf("after %s: %s", note.Text(), begun.Text())
			}
		}
	}
}

// A server that does not tell its run and replication id is refused, even if somebody vouches for it: an admission has
// to name them.
func TestServerWithoutItsNames(t *testing.T) {
	for _, s := range []Server{{}, {Run: testRun}, {ReplicationID: testRepl}, {Run: testRun[1:], ReplicationID: testRepl}} {
		for _, a := range []Agreement{agreementOf(Agreement{}), agreementOf(Agreement{NoQuarantine: true})} {
			d := Decide(a, Evidence{Server: s, Uptime: a.Quarantine(), Now: testNow, Vouched: true, Others: Others{None: 2}})
			if d.Outcome != Refuse {
				t.Errorf("%s: %+v: outcome %d, %v", a, s, d.Outcome, d.Err)
			}
		}
	}
}

// The reason that too few others can be asked says what to do.
func TestUnreadNamesTheRemedy(t *testing.T) {
	a := agreementOf(Agreement{})
	d := Decide(a, Evidence{Server: testServer, Uptime: a.Quarantine(), Now: testNow})
	if d.Outcome != Wait || !d.Unread || !strings.Contains(d.Err.Error(), ": start those that are down, or let them be reached") {
		t.Errorf("outcome %d, %v", d.Outcome, d.Err)
	}
}

func TestDisagreementNamesBothValues(t *testing.T) {
	a := agreementOf(Agreement{MaxTTL: time.Minute})
	r := recordOf(agreementOf(Agreement{MaxTTL: 2 * time.Minute, NoQuarantine: true}))
	err := Decide(a, Evidence{Server: testServer, Record: r}).Err
	want := `the deployment "default" has MaxTTL 2m0s, NoQuarantine here, this client has MaxTTL 1m0s: ` +
		"set the client's to the same, use another Deployment if it shares no locks with the others, or, except in a Redis Cluster, change it for all clients with: redlatch deployment set --max-ttl 1m0s"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	// With other nodes, another Deployment would have a quorum that need not meet that of the others.
	a.Nodes = []string{"x", "y"}
	err = Decide(a, Evidence{Server: testServer, Record: r}).Err
	if err == nil || !strings.HasPrefix(err.Error(), "Nodes: ") || !strings.Contains(err.Error(), ", use another Deployment if it shares no locks with the others, or, ") {
		t.Errorf("other nodes: %v", err)
	}
	// The command would otherwise set a MaxTTL of 30 s, or change the deployment "default".
	a.Deployment = "jobs"
	err = Decide(a, Evidence{Server: testServer, Record: r}).Err
	if err == nil || !strings.HasSuffix(err.Error(), ": redlatch deployment set --nodes ... --deployment jobs --max-ttl 1m0s") {
		t.Errorf("other nodes of another deployment: %v", err)
	}
}

// A node that has forgotten a change of its deployment stays out for as long as locks of before the change may be held, which
// the other nodes tell it.
func TestQuarantineOfAForgottenChange(t *testing.T) {
	t.Parallel()
	a := agreementOf(Agreement{})
	a.MaxTTL = time.Second
	e := Evidence{Server: testServer, Now: testNow, Uptime: 20 * time.Second, Others: Others{Same: 2, Longest: time.Minute}}
	former := Quarantine(time.Minute)
	wait := func(e Evidence) (Outcome, time.Duration) {
		d := Decide(a, e)
		if w, ok := errors.AsType[*WaitError](d.Err); ok {
			return d.Outcome, w.Left
		}
		return d.Outcome, 0
	}
	if outcome, left := wait(e); outcome != Wait || left != former-e.Uptime {
		t.Errorf("restarted: %v for %v", outcome, left)
	}
	e.Flushed = true
	if outcome, left := wait(e); outcome != Begin || left != former || e.Quarantine(a) != former {
		t.Errorf("flushed: %v for %v", outcome, left)
	}
	// A quarantine that began before the others could be asked is as long.
	e.Note = NewNote(testServer, testNow-20, a.Quarantine()).Text()
	if outcome, left := wait(e); outcome != Wait || left < former-21*time.Second {
		t.Errorf("flushed, noted for less: %v for %v", outcome, left)
	}
	// When the quarantine of the change is over, nobody tells of it any more.
	e.Flushed, e.Note, e.Others.Longest = false, "", a.MaxTTL
	if outcome, _ := wait(e); outcome != Admit {
		t.Errorf("the others tell of nothing: %v", outcome)
	}
}
