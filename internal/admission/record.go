package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/printable"
)

// Server is a server process during one period as a master.
type Server struct {
	Run string `json:"run,omitempty"`
	// ReplicationID is that of Run. A master that was a replica in between has another.
	ReplicationID string `json:"replication_id,omitempty"`
	// Received is how many bytes Run has received by replication, and how often it was told whom to
	// follow, together; -1 where the server does not say. It does not grow while Run is a master.
	Received int64 `json:"received,omitempty"`
}

// hasBeen reports whether the server, which may have been promoted, is the master that before
// describes and has been it ever since. A run that was a replica in between took over its master's
// data, which may lack its own last writes, and has another replication id. The id also changes
// when the first replica comes, or when the last one has been gone for long; the run has then
// received nothing, nor was it told to be a replica.
func (s Server) hasBeen(before Server, promoted bool) bool {
	return s.Run == before.Run && (s.ReplicationID == before.ReplicationID ||
		!promoted && s.Received >= 0 && s.Received == before.Received)
}

// Record is what a node keeps of the deployment that it belongs to: what its clients agreed on, and
// as which server it was admitted. A record that is read is text from outside.
type Record struct {
	// Server was admitted, or is kept out by its note until it is.
	Server
	// Protocol is which steps and keys the clients use. This version knows one, whose number is 0; a later
	// version that cannot share locks with it writes a greater number, and this one then gets no vote.
	Protocol int `json:"protocol,omitempty"`
	// Nodes has the names of the nodes as its keys. What they map to is not read: clients of other
	// versions write the runs there.
	Nodes        map[string]string `json:"nodes"`
	MaxTTLMS     int64             `json:"max_ttl_ms"`
	NoQuarantine bool              `json:"no_quarantine,omitempty"`
	Durable      bool              `json:"durable,omitempty"`
	// FormerMS is the longest TTL of locks that may be held since before the deployment was last changed. It
	// is set until the quarantine of that change is over here: it tells a node that has forgotten
	// the change meanwhile.
	FormerMS int64 `json:"former_max_ttl_ms,omitempty"`
	// Void is why Durable is not believed any more, until an operator says it again.
	Void string `json:"void,omitempty"`
	// Since, Epoch, Flushes and Slots are set for a Cluster's master. Since is when Server was first seen, or first seen
	// after it deleted all keys. Flushes is how often it had done that.
	Since   int64 `json:"since,omitempty"`
	Epoch   int64 `json:"epoch,omitempty"`
	Flushes int64 `json:"flushes,omitempty"`
	Slots   Slots `json:"slots,omitempty"`
}

// ErrLater is the error of a record that clients of a later version wrote, for themselves alone.
var ErrLater = errors.New("a later version of Redlatch wrote it, and does not share its locks with this version: update this client")

// ParseRecord reads a record. It returns nil for an empty text. The error names key, where the text
// was found.
func ParseRecord(key, text string) (*Record, error) {
	if text == "" {
		return nil, nil
	}
	r := new(Record)
	err := json.Unmarshal([]byte(text), r)
	if r.Protocol != 0 { // whatever else it says, or fails to say, to this version
		return nil, fmt.Errorf("the key %q has the record of a deployment: %w", key, ErrLater)
	}
	if err == nil && (r.MaxTTLMS < 1 || r.MaxTTLMS > MaxMaxTTL.Milliseconds()) {
		err = fmt.Errorf("max_ttl_ms is %d", r.MaxTTLMS)
	}
	if err == nil && (r.FormerMS < 0 || r.FormerMS > MaxMaxTTL.Milliseconds()) {
		err = fmt.Errorf("former_max_ttl_ms is %d", r.FormerMS)
	}
	if err == nil && len(r.Nodes) == 0 {
		err = fmt.Errorf("it names no nodes")
	}
	if err == nil && !r.Slots.valid() {
		err = errors.New("its slots are none")
	}
	if err != nil {
		return nil, fmt.Errorf("the key %q has no record of a deployment (%w): %s", key, err, remedy)
	}
	return r, nil
}

const remedy = "write it anew with redlatch deployment set or, in a Redis Cluster, delete it when no lock is held in the slots of that master"

// OfAnotherType returns the error of a key of the deployment that is not a string.
func OfAnotherType(key string) error {
	return fmt.Errorf("the key %q is of another type than this library's: %s", key, remedy)
}

// Text returns the text that ParseRecord reads.
func (r *Record) Text() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return string(text)
}

// Record returns the record that the server s must have for clients of a.
func (a Agreement) Record(s Server) *Record {
	r := &Record{Server: s, Nodes: make(map[string]string), MaxTTLMS: a.MaxTTL.Milliseconds(), NoQuarantine: a.NoQuarantine, Durable: a.Durable}
	for _, name := range a.Nodes {
		r.Nodes[name] = ""
	}
	return r
}

// Agreement returns what the clients of the record agreed on.
func (r *Record) Agreement(deployment string) Agreement {
	return Agreement{
		Deployment: deployment, Nodes: slices.Sorted(maps.Keys(r.Nodes)), MaxTTL: time.Duration(r.MaxTTLMS) * time.Millisecond,
		NoQuarantine: r.NoQuarantine, Durable: r.Durable,
	}
}

// LongestTTL returns the longest TTL of a lock that may be held where the record is.
func (r *Record) LongestTTL() time.Duration {
	return time.Duration(max(r.MaxTTLMS, r.FormerMS)) * time.Millisecond
}

// Note is what a node in quarantine keeps: which server is kept out, from which second of the
// node's clock on, and for how many seconds.
type Note struct {
	Server
	Since, Length int64
}

// NewNote returns the note of a quarantine of d that begins at now.
func NewNote(s Server, now int64, d time.Duration) Note {
	return Note{Server: s, Since: now, Length: seconds(d)}
}

// seconds returns d in whole seconds, and one more for the parts of a second that two readings of
// the clock leave out.
func seconds(d time.Duration) int64 { return int64((d+time.Second-1)/time.Second) + 1 }

// Text returns the text that ParseNote reads.
func (n Note) Text() string {
	return fmt.Sprintf("%s %s %d %d %d", n.Run, n.ReplicationID, n.Received, n.Since, n.Length)
}

// ParseNote reads a note. ok is false for any other text.
func ParseNote(text string) (n Note, ok bool) {
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return n, false
	}
	n.Run, n.ReplicationID = fields[0], fields[1]
	for i, number := range []*int64{&n.Received, &n.Since, &n.Length} {
		var err error
		if *number, err = strconv.ParseInt(fields[2+i], 10, 64); err != nil {
			return n, false
		}
	}
	return n, true
}

// possible reports whether a client can have written the note.
func (n Note) possible() bool {
	longest := Agreement{MaxTTL: MaxMaxTTL}
	return n.Since >= 0 && n.Length >= 0 && n.Length <= seconds(longest.Quarantine())
}

// left returns how long the quarantine of server still lasts at most. It is over when that is not
// positive. All of it is left where it was noted by another run's clock, or this one's was set back to
// before its beginning: nobody can say what has gone by.
func (n Note) left(server Server, now int64) time.Duration {
	if n.Run != server.Run {
		return time.Duration(n.Length) * time.Second
	}
	return time.Duration(n.Length-max(0, now-n.Since)) * time.Second
}

// After returns the note. If before notes a quarantine of which more is left, the note gets that
// length, also where it is an earlier run's: the server has restarted since, and its data was lost before.
func (n Note) After(before string) Note {
	if b, ok := ParseNote(before); ok && b.possible() {
		n.Length = max(n.Length, int64(b.left(n.Server, n.Since)/time.Second))
	}
	return n
}

// ErrInvalid is the public package's error of the same name.
var ErrInvalid = errors.New("invalid")

// DisagreementError says that a client's settings are not those of its deployment. It wraps
// ErrInvalid. Nothing was changed on the node that reported it.
type DisagreementError struct {
	Recorded, Ours Agreement
	// Node is the node that has the record, "" for the node that was asked.
	Node string
}

func (e *DisagreementError) Error() string {
	at := "here"
	if e.Node != "" {
		at = "on " + e.Node
	}
	if !slices.Equal(e.Recorded.Nodes, e.Ours.Nodes) {
		return fmt.Sprintf("Nodes: the deployment %q has the nodes [%s] %s, this client names [%s]: "+
			"name the same nodes (%s), use another Deployment if it shares no locks with the others, "+
			"or, except in a Redis Cluster, change it for all clients with: redlatch deployment set --nodes ...%s",
			e.Ours.Deployment, printable.Text(strings.Join(e.Recorded.Nodes, " ")), at, strings.Join(e.Ours.Nodes, " "), e.Renaming(), e.flags())
	}
	return fmt.Sprintf("the deployment %q has %s %s, this client has %s: set the client's to the same, use another Deployment if it shares no locks with the others, "+
		"or, except in a Redis Cluster, change it for all clients with: redlatch deployment set%s",
		e.Ours.Deployment, e.Recorded, at, e.Ours, e.flags())
}

// Renaming says what to do where the client's nodes are the recorded ones under other addresses.
func (e *DisagreementError) Renaming() string {
	return "if they are the same under other addresses, give them the recorded names, each at the end of its URL, such as #" + printable.Text(e.Recorded.Nodes[0])
}

// flags returns the flags, all but --nodes, that the command needs to set the client's settings. It
// names no deployment where the command means that one without being told.
func (e *DisagreementError) flags() string {
	flags := " --max-ttl " + e.Ours.MaxTTL.String()
	if e.Ours.Deployment != "default" {
		flags = " --deployment " + e.Ours.Deployment + flags
	}
	if e.Ours.NoQuarantine {
		flags += " --no-quarantine"
	}
	if e.Ours.Durable {
		flags += " --durable"
	}
	return flags
}

func (e *DisagreementError) Unwrap() error { return ErrInvalid }
