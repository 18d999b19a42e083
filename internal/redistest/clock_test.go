package redistest

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

func serverTime(t *testing.T, s *Server) time.Time {
	t.Helper()
	v, _ := do(t, s, "TIME").([]any)
	if len(v) != 2 {
		t.Fatalf("TIME: %v", v)
	}
	sec, err1 := strconv.ParseInt(v[0].(string), 10, 64)
	usec, err2 := strconv.ParseInt(v[1].(string), 10, 64)
	if err1 != nil || err2 != nil {
		t.Fatalf("TIME: %v", v)
	}
	return time.Unix(sec, usec*1000)
}

// ahead returns bounds for how far the server's clock is ahead of ours.
func ahead(t *testing.T, s *Server) (least, most time.Duration) {
	t.Helper()
	before := time.Now()
	now := serverTime(t, s)
	after := time.Now()
	return now.Sub(after) - time.Microsecond, now.Sub(before) + time.Microsecond
}

func TestStepClock(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the clock shim is for Linux only")
	}
	each(t, func(t *testing.T, o Options) {
		o.ClockShim = true
		s := New(t, o)
		check := func(expected time.Duration) {
			t.Helper()
			if least, most := ahead(t, s); least > expected || most < expected {
				t.Fatalf("the server's clock is %v to %v ahead, want %v", least, most, expected)
			}
		}
		step := func(d time.Duration) {
			t.Helper()
			if err := s.StepClock(d); err != nil {
				t.Fatal(err)
			}
		}
		check(0)
		// The times are long beside anything that may pass by itself here.
		do(t, s, "SET", "gone", "v", "PX", "60000")
		do(t, s, "SET", "stays", "v", "PX", "3600000")
		step(70 * time.Second)
		check(70 * time.Second)
		want(t, "EXISTS of the expired key", do(t, s, "EXISTS", "gone"), int64(0))
		want(t, "EXISTS of the other key", do(t, s, "EXISTS", "stays"), int64(1))
		want(t, "a script sees the same", do(t, s, "EVAL", "return redis.call('EXISTS', KEYS[1])", "1", "gone"), int64(0))

		// Steps add up, also to the microsecond across a whole second.
		step(-1_100_000_001 * time.Microsecond)
		check(70*time.Second - 1_100_000_001*time.Microsecond)
		if left := do(t, s, "PTTL", "stays").(int64); left < 3_600_000 {
			t.Fatalf("stepped back, %d ms are left of an hour, want more", left)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		check(70*time.Second - 1_100_000_001*time.Microsecond)
	})
}

// The shim is loaded where the paths of the user's folders have what ld.so takes for the end of a path.
func TestStepClockInOddPaths(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the clock shim is for Linux only")
	}
	odd := filepath.Join(t.TempDir(), "a b:c")
	if err := os.Mkdir(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", odd)
	t.Setenv("TMPDIR", odd)
	s := New(t, Options{ClockShim: true})
	for range 2 {
		if err := s.StepClock(time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := s.RestartEmpty(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if least, most := ahead(t, s); least > 2*time.Minute || most < 2*time.Minute {
		t.Errorf("the server's clock is %v to %v ahead, want 2m", least, most)
	}
}

// A clock that was stepped back must not make the server's threads spin.
func TestStepClockBackCostsNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the clock shim is for Linux only")
	}
	each(t, func(t *testing.T, o Options) {
		o.ClockShim = true
		s := New(t, o)
		used := func() float64 {
			info, err := s.Info("cpu")
			if err != nil {
				t.Fatal(err)
			}
			user, err1 := strconv.ParseFloat(info["used_cpu_user"], 64)
			sys, err2 := strconv.ParseFloat(info["used_cpu_sys"], 64)
			if err1 != nil || err2 != nil {
				t.Fatalf("INFO cpu: %v", info)
			}
			return user + sys
		}
		if err := s.StepClock(-time.Hour); err != nil {
			t.Fatal(err)
		}
		// Freed memory that is yet to be given back is what jemalloc's thread
		// would wake up for.
		do(t, s, "DEBUG", "POPULATE", "200000")
		do(t, s, "FLUSHALL", "SYNC")
		var spent, took float64
		for range 20 { // it spins each time, or a busy machine makes what little there is to do take long
			before, start := used(), time.Now()
			// A blocking command is a wait on the server's own, monotonic, clock.
			if v := do(t, s, "BLPOP", "none", "0.5"); v != nil {
				t.Fatalf("BLPOP: %v", v)
			}
			if spent, took = used()-before, time.Since(start).Seconds(); spent <= took/10 {
				return
			}
		}
		t.Fatalf("the idle server used %.2f s of CPU in %.2f s", spent, took)
	})
}

func TestStepClockNeedsTheShim(t *testing.T) {
	s := New(t)
	if err := s.StepClock(time.Second); err == nil || !strings.Contains(err.Error(), "Options.ClockShim") {
		t.Fatalf("without the shim: %v, want an error that names Options.ClockShim", err)
	}
}

func TestClockShimNeedsACompiler(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the clock shim is for Linux only")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // where it has not been compiled yet
	t.Setenv("CC", "no-such-compiler")
	_, err := Start(t.Context(), Options{ClockShim: true})
	if err == nil || !strings.Contains(err.Error(), "needs a C compiler") {
		t.Fatalf("without a compiler: %v, want an error that says what is missing", err)
	}
}
