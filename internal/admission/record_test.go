package admission

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseRecord(t *testing.T) {
	r := recordOf(agreementOf(Agreement{Durable: true}))
	again, err := ParseRecord("k", r.Text())
	if err != nil || again.Text() != r.Text() {
		t.Errorf("%v, %v", again, err)
	}
	if none, err := ParseRecord("k", ""); none != nil || err != nil {
		t.Errorf("%v, %v", none, err)
	}
	for _, text := range []string{
		"x", "{}", "[]", "null", `{"nodes":{"a":""}}`, `{"nodes":{"a":""},"max_ttl_ms":0}`, `{"nodes":{"a":""},"max_ttl_ms":-5}`,
		`{"nodes":{"a":""},"max_ttl_ms":9223372036854}`, `{"nodes":{"a":""},"max_ttl_ms":9223372036854775807}`,
		`{"nodes":{"a":""},"max_ttl_ms":-9223372036860}`, // as a number of nanoseconds it overflows, and is positive
		`{"nodes":{},"max_ttl_ms":1000}`, strings.Replace(r.Text(), `"a"`, `a`, 1),
	} {
		if r, err := ParseRecord("redlatch:{d}:deployment", text); err == nil || !strings.Contains(err.Error(), `"redlatch:{d}:deployment"`) {
			t.Errorf("%s: %v, %v", text, r, err)
		}
	}
}

// A record of a later protocol is not taken for this one's, nor for garbage, whatever its other fields are.
func TestParseRecordOfALaterVersion(t *testing.T) {
	for _, text := range []string{
		`{"protocol":1,"nodes":{"a":""},"max_ttl_ms":1000}`, `{"nodes":{"a":""},"max_ttl_ms":1000,"protocol":2}`,
		`{"protocol":1}`, `{"nodes":["a"],"max_ttl_ms":"1s","protocol":1,"other":{}}`,
	} {
		if r, err := ParseRecord("k", text); r != nil || !errors.Is(err, ErrLater) || strings.Contains(err.Error(), "deployment set") {
			t.Errorf("%s: %v, %v", text, r, err)
		}
	}
	if r, err := ParseRecord("k", `{"nodes":{"a":""},"max_ttl_ms":1000,"other":{}}`); r == nil || err != nil {
		t.Errorf("a field that this version does not know, and may ignore: %v, %v", r, err)
	}
}

func TestParseNote(t *testing.T) {
	for _, text := range []string{"", "run", "run 5", "run id 0 x 5", "run id 0 5 x", "run id x 5 6", "run id 0 5 6 7", "  "} {
		if n, ok := ParseNote(text); ok {
			t.Errorf("%q: %v", text, n)
		}
	}
	n := Note{Server{"run", "id", -1}, 5, 6}
	if again, ok := ParseNote(n.Text()); !ok || again != n {
		t.Errorf("%v, %t", again, ok)
	}
}

// A quarantine that a note counts in whole seconds of a clock is never shorter than it is to be.
func TestNoteIsNotOverTooEarly(t *testing.T) {
	for _, d := range []time.Duration{time.Millisecond, time.Second - 1, time.Second, time.Second + 1, 5500 * time.Millisecond} {
		begun, end := NewNote(Server{}, testNow, d), testNow*time.Second+999*time.Millisecond+d // at the end of its first second
		if left := begun.left(Server{}, int64((end-1)/time.Second)); left <= 0 {
			t.Errorf("%v: it is over before its end", d)
		}
	}
}
