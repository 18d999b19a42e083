package redlatch

import (
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/internal/vote"
)

// maxLabel bounds the label, which every node stores with the lock.
const maxLabel = 64

// Holder is who has a lock, as far as the value of its key says.
type Holder struct {
	// ID is the value of the key, which belongs to one attempt. In an error it has 1024 bytes at
	// most; a key that is no lock's may have more.
	ID string
	// Label and Since are what the holder said of itself when it acquired the lock, by its own
	// clock. Both are zero for a lock of another library. Label is printable; ID is printable only
	// for locks of this library.
	Label string
	Since time.Time
	// Shared: readers have the lock (Client.RLock). ID is then no reader's own.
	Shared bool
}

func (h Holder) String() string {
	if h.Shared {
		return "readers"
	}
	if h.Label == "" {
		return "holder " + strconv.Quote(h.ID)
	}
	return fmt.Sprintf("%s since %s", printable.Text(h.Label), h.Since.Format(time.RFC3339))
}

// secretText writes random bits in capitals and digits.
var secretText = base32.StdEncoding.WithPadding(base32.NoPadding)

// appendSecret appends 128 random bits, as 26 characters.
func (c *Client) appendSecret(text []byte) []byte {
	secret := c.random()
	return secretText.AppendEncode(text, secret[:])
}

// newHolderID returns a value that no other acquisition has: 128 random bits, and then the time and
// the label, for those who wait to read. Ids are compared whole, though only the first part makes
// them differ.
func (c *Client) newHolderID(now time.Time, label string) string {
	var room [26 + 1 + 13 + 1 + maxLabel]byte
	id := c.appendSecret(room[:0])
	id = strconv.AppendInt(append(id, '.'), now.UnixMilli(), 36)
	return string(append(append(id, '.'), label...))
}

// parseHolder parses what newHolderID returned. It takes any other value for a holder of another
// kind.
func parseHolder(id string) Holder {
	if id == vote.SharedMark {
		return Holder{ID: id, Shared: true}
	}
	h := Holder{ID: id}
	secret, rest, ok := strings.Cut(id, ".")
	since, label, ok2 := strings.Cut(rest, ".")
	ms, err := strconv.ParseInt(since, 36, 64)
	if ok && ok2 && err == nil && len(secret) >= 26 && checkLabel("", label) == nil {
		h.Label, h.Since = label, time.UnixMilli(ms)
	}
	return h
}

// isForeign reports whether a holder is of another library, or of an older kind, and therefore
// wakes nobody up when it releases.
func isForeign(holder string) bool {
	h := parseHolder(holder)
	return h.Since.IsZero() && !h.Shared
}
