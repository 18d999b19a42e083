package driver

import "testing"

// What a server says is printable, and repeats no arguments of a command.
func TestServerErrorIsPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"WRONGTYPE Operation":                       "WRONGTYPE Operation",
		"ERR \x1b[31mred\u202e\nredlatch: all well": `ERR \x1b[31mred\u202e\nredlatch: all well`,
		"ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'u' 'secret' ": "ERR unknown command 'HELLO', with arguments",
	} {
		e := &ServerError{Text: text}
		if e.Error() != want {
			t.Errorf("%q: %q, want %q", text, e.Error(), want)
		}
	}
}

func TestReplyString(t *testing.T) {
	t.Parallel()
	reply := Reply{Kind: Array, Array: []Reply{{Kind: Int, Int: -7}, {Kind: Text, Text: "a\x1b\xff"}, {}, {Kind: Array}}}
	if got, want := reply.String(), `[-7 "a\x1b\xff" null []]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
