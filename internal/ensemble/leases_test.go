package ensemble

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// expiry starts the Expiry of one lease, and returns when it has ended.
func expiry(l *Leases, id string, end func(over func() bool) bool) (ended func() time.Duration) {
	var background sync.WaitGroup
	start := time.Now()
	e := Expiry{
		Run:   func(f func()) bool { background.Go(f); return true },
		Pause: func(d time.Duration) bool { time.Sleep(d); return true },
		End:   func(_, _ string, over func() bool) bool { return end(over) },
	}
	e.Start(l, "key", id)
	e.Start(l, "key", id) // changes nothing
	return func() time.Duration {
		background.Wait()
		return time.Since(start)
	}
}

// A lease that nobody extends is ended once, after its TTL; one that is extended, after that, also
// where the extension comes just as it is looked at.
func TestExpiry(t *testing.T) {
	const ttl = 3 * time.Second
	synctest.Test(t, func(t *testing.T) {
		l := NewLeases()
		l.Lengthen("id", ttl)
		looks, ends := 0, 0
		ended := expiry(l, "id", func(over func() bool) bool {
			looks++
			if looks == 1 {
				l.Lengthen("id", ttl)
			}
			if over() {
				ends++
			}
			return ends > 0
		})
		if after := ended(); after < 2*ttl || after > 2*ttl+time.Second || ends != 1 || l.Any() {
			t.Errorf("ended %d times after %v, %d looks; it is still there: %v", ends, after, looks, l.Any())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := NewLeases()
		l.Lengthen("id", ttl)
		tries := 0
		ended := expiry(l, "id", func(func() bool) bool { tries++; return tries == 3 })
		if after := ended(); tries != 3 || after > ttl+time.Second {
			t.Errorf("ended after %v and %d tries", after, tries)
		}
	})
	synctest.Test(t, func(t *testing.T) { // under another session when it is looked at, and then extended by its id here
		l := NewLeases()
		l.Lengthen("id", ttl)
		looks := 0
		ended := expiry(l, "id", func(func() bool) bool {
			if looks++; looks == 1 {
				l.Lengthen("id", ttl)
			}
			return true
		})
		if after := ended(); after < 2*ttl || looks != 2 || l.Any() {
			t.Errorf("forgotten after %v and %d looks; it is still there: %v", after, looks, l.Any())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := NewLeases()
		l.Lengthen("id", ttl)
		ended := expiry(l, "id", func(func() bool) bool { t.Error("it was released"); return true })
		l.Forget("id")
		ended()
	})
}

// What is written for a lease never ends before what was written before it, and is in whole milliseconds; one that was
// forgotten keeps no session.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLeases()
		for _, c := range []struct{ after, ttl, want time.Duration }{
			{0, 1500 * time.Microsecond, 2 * time.Millisecond},
			{0, 10 * time.Second, 10 * time.Second},
			{time.Second, 3 * time.Second, 9 * time.Second},
			{time.Second, 20 * time.Second, 20 * time.Second},
		} {
			time.Sleep(c.after)
			if got := l.Lengthen("id", c.ttl); got != c.want {
				t.Errorf("%v: %v, want %v", c.ttl, got, c.want)
			}
		}
		if l.Written("id", 7); l.Version("id") != 7 || !l.Any() {
			t.Errorf("version %d, any: %t", l.Version("id"), l.Any())
		}
		l.Forget("id")
		if l.Written("id", 8); l.Version("id") != 0 || l.Any() {
			t.Errorf("forgotten: version %d, any: %t", l.Version("id"), l.Any())
		}
	})
}
