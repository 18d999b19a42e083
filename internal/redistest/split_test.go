package redistest

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

var commandStreams = []string{
	"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n*1\r\n",
	"PING\r\nset  k v\r\n\r\n*0\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
	"*-1\r\nPING\n",
	"*1\r\n$4\r\nPING\r\n\x16\x03\x01",
}

var replyStreams = []string{
	"+OK\r\n-ERR no\r\n:12\r\n$-1\r\n$3\r\na\r\n\r\n*-1\r\n*0\r\n",
	"*2\r\n*1\r\n+a\r\n$2\r\nbb\r\n>2\r\n$7\r\nmessage\r\n_\r\n#t\r\n,1.5\r\n(123\r\n",
	"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n:1\r\n:2\r\n~1\r\n=7\r\ntxt:abc\r\n!3\r\nERR\r\n",
	"|1\r\n+ttl\r\n:3600\r\n*1\r\n:1\r\n%0\r\n",
	"*9223372036854775807\r\n",
}

// split feeds the stream in pieces of that size and returns the frames and what
// is left over.
func split(next func() ([]byte, error), feed func([]byte), rest func() []byte, stream []byte, size int) (frames [][]byte, left []byte) {
	for piece := range slices.Chunk(stream, size) {
		feed(piece)
		for {
			data, err := next()
			if err != nil {
				return frames, rest()
			}
			if data == nil {
				break
			}
			frames = append(frames, data)
		}
	}
	return frames, rest()
}

func splitCommands(stream []byte, size int) ([][]byte, []byte) {
	var s commandSplitter
	next := func() ([]byte, error) { data, _, err := s.next(); return data, err }
	return split(next, s.feed, s.rest, stream, size)
}

func splitReplies(stream []byte, size int) ([][]byte, []byte) {
	var s replySplitter
	return split(s.next, s.feed, s.rest, stream, size)
}

func TestSplit(t *testing.T) {
	for _, test := range []struct {
		split   func([]byte, int) ([][]byte, []byte)
		streams []string
		frames  []int
	}{
		{splitCommands, commandStreams, []int{2, 5, 2}},
		{splitReplies, replyStreams, []int{7, 5, 3, 2}},
	} {
		for i, frameCount := range test.frames {
			stream := test.streams[i]
			for size := 1; size <= len(stream); size++ {
				frames, left := test.split([]byte(stream), size)
				if len(frames) != frameCount || len(left) != 0 {
					t.Fatalf("%q in pieces of %d: %d frames %q and %q left, want %d frames",
						stream, size, len(frames), frames, left, frameCount)
				}
				if got := string(slices.Concat(frames...)); got != stream {
					t.Fatalf("%q in pieces of %d became %q", stream, size, got)
				}
			}
		}
	}
}

func TestSplitCommandWords(t *testing.T) {
	for stream, words := range map[string]string{
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n": "GET k",
		"get  k\r\n":                     "get k",
		"\r\n":                           "",
	} {
		n, args, err := parseCommand([]byte(stream))
		if err != nil || n != len(stream) || strings.Join(args, " ") != words {
			t.Fatalf("%q: %d, %q, %v", stream, n, args, err)
		}
	}
	for _, stream := range []string{"\x16\x03\x01", "*x\r\n", "*1\r\n+a\r\n", "*1\r\n$-1\r\n", "*1\r\n$99999999999\r\n", "*" + strings.Repeat("1", 40)} {
		if _, _, err := parseCommand([]byte(stream)); err == nil {
			t.Fatalf("%q passes for a command", stream)
		}
	}
}

// However the bytes come and whatever they are, none is lost, doubled or moved,
// and the cuts are the same.
func fuzzSplit(f *testing.F, streams []string, split func([]byte, int) ([][]byte, []byte)) {
	for _, s := range streams {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		size = 1 + (size&0xff)%64
		frames, left := split(stream, size)
		got := append(slices.Concat(frames...), left...)
		if !bytes.HasPrefix(stream, got) {
			t.Fatalf("%q in pieces of %d became %q", stream, size, got)
		}
		if whole, _ := split(stream, max(1, len(stream))); !slices.EqualFunc(whole, frames, bytes.Equal) {
			t.Fatalf("%q: %q in pieces of %d, %q as a whole", stream, frames, size, whole)
		}
	})
}

func FuzzSplitCommands(f *testing.F) { fuzzSplit(f, commandStreams, splitCommands) }

func FuzzSplitReplies(f *testing.F) { fuzzSplit(f, replyStreams, splitReplies) }
