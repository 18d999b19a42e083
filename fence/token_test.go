package fence

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/hashslot"
)

func TestParseToken(t *testing.T) {
	for _, text := range []string{"1", "33", "1760000000000000", "9007199254740991"} {
		token, err := ParseToken(text)
		if err != nil || strconv.FormatUint(token, 10) != text {
			t.Errorf("ParseToken(%q) = %d, %v", text, token, err)
		}
	}
	for _, text := range []string{"", "0", "00", "007", "-1", "+1", " 1", "1 ", "1_0", "0x1", "1e3", "1.0", "１",
		"9007199254740992", "18446744073709551615", "18446744073709551616", "33, 34"} {
		if token, err := ParseToken(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseToken(%q) = %d, %v, want ErrInvalid", text, token, err)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	for _, text := range []string{"1", "0", "", "9007199254740991", "9007199254740992", "-1", "1_0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(text)
		switch {
		case err != nil && !errors.Is(err, ErrInvalid):
			t.Fatalf("ParseToken(%q): %v is not ErrInvalid", text, err)
		case err == nil && (token == 0 || token > MaxToken || strconv.FormatUint(token, 10) != text):
			t.Fatalf("ParseToken(%q) = %d", text, token)
		}
	})
}

func TestStaleError(t *testing.T) {
	err := fmt.Errorf("saving: %w", &StaleError{Resource: "account:42", Token: 33, Largest: 34})
	if !errors.Is(err, ErrStale) || errors.Is(err, ErrInvalid) {
		t.Errorf("%v: not found as ErrStale alone", err)
	}
	for _, part := range []string{"33", "34", "account:42"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %s", err, part)
		}
	}
}

func TestHashSlot(t *testing.T) {
	// From the Redis Cluster specification and CLUSTER KEYSLOT of Redis 7.0.
	for key, want := range map[string]uint16{"123456789": 0x31C3 % 16384, "foo": 12182, "somekey": 11058} {
		if got := hashslot.Of(key); got != want {
			t.Errorf("hashslot.Of(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestGuardKey(t *testing.T) {
	// slotOf is the specification's rule, written anew: the text in the first braces counts if there is any.
	slotOf := func(key string) uint16 {
		if open := strings.IndexByte(key, '{'); open >= 0 {
			if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
				return hashslot.Of(key[open+1 : open+1+n])
			}
		}
		return hashslot.Of(key)
	}
	seen := make(map[string]string)
	for _, key := range []string{"a", "account:42", "{account}:42", "{account}:43", "a{b}c{d}", "{}x", "a}b", "{", "}", "a{b", "a}{b}", "{{x}}", "{}{x}"} {
		guard := guardKey(key)
		if slotOf(guard) != slotOf(key) {
			t.Errorf("%q and its guard %q are in two slots", key, guard)
		}
		if other, ok := seen[guard]; ok {
			t.Errorf("%q and %q have one guard, %q", key, other, guard)
		}
		seen[guard] = key
	}
}
