package printable

import "testing"

func TestText(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"":                   "",
		"host-1:4711":        "host-1:4711",
		"naïve 名前":           "naïve 名前",
		"\x1b[31mred\x1b[m":  `\x1b[31mred\x1b[m`,
		"a\tb\r\nc\x00\x7f":  `a\tb\r\nc\x00\x7f`,
		"\u009b2J":           `\u009b2J`,
		"user\u202egnp.exe":  `user\u202egnp.exe`,
		"\u2066x\u2069":      `\u2066x\u2069`,
		"a\u2028b\u00a0c":    `a\u2028b\u00a0c`,
		"\xff\xc3(\ufffd":    `\xff\xc3(` + "\ufffd",
		`back\slash "quote"`: `back\slash "quote"`,
	} {
		if got := Text(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
		if Is(s) != (s == want) {
			t.Errorf("Is(%q): %v", s, Is(s))
		}
		if !Is(Text(s)) {
			t.Errorf("%q is not printable", Text(s))
		}
	}
}
