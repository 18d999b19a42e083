package redlatch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// Config says which servers hold the locks, and how. The zero value of each field except Nodes is
// its default. Durations are cut to whole milliseconds, the grain of the servers' expiry.
type Config struct {
	// Nodes are the URLs of the servers that vote: one for a lock on one Redis or Valkey, an odd
	// number of independent masters for Redlock.
	//
	//	redis://user:password@host:port/database
	//	rediss://host:port              with TLS
	//	unix:///path/to/socket?db=1
	//	redis://user:password@s1:26379/database?addr=s2:26379&addr=s3:26379&master_set=NAME
	//
	//	redis://user:password@c1:6379?addr=c2:6379&addr=c3:6379
	//
	// The last but one is a master that Sentinels at s1, s2 and s3 watch under NAME. The
	// credentials are the master's; sentinel_username and sentinel_password are the Sentinels'.
	// Name all Sentinels, an odd number: the master is the server that a majority of those in the
	// URL name, 1 of 1, 2 of 2, 2 of 3, 3 of 5. The client asks them every second. A single
	// Sentinel that names another server changes nothing. When two checks in a row find no
	// majority, because Sentinels do not answer or disagree, the client closes the connection,
	// within 3 s. Commands then fail, with an error that says what each Sentinel answered, until a
	// majority names a master again. Locks that cannot be renewed meanwhile are lost when their
	// validity runs out. A Sentinel under two addresses counts once, by its SENTINEL MYID.
	//
	// The last is a Redis Cluster, given by some of its nodes, or by one of them with ?cluster. The
	// whole Cluster is one node, and each lock is at the master of its slot. The Cluster is called
	// "cluster" unless a #name is given. It is recognized by the run_id of its servers: one Cluster
	// cannot be two nodes. Do not let a master that has restarted within MaxTTL and 4 s give slots
	// away.
	//
	// All clients must name the same nodes, and the same database of each: another database has
	// other locks, and nobody checks that. A node's name is its address, or what a fragment says.
	// Where clients reach a node by different addresses, all must give it one name:
	// redis://10.0.0.7:6379#a. Clients of another name are refused. A name has up to 256 bytes,
	// printable, without spaces and without @ # ? & =.
	//
	// A server that takes a node's place, under its name or address, must be started, or restarted,
	// when the server before it is gone: it is kept out from its own start on, and may otherwise
	// vote for locks that the other has granted.
	//
	// Percent-encode users and passwords, as url.UserPassword does: a URL whose password was not
	// escaped is refused. No error and no report repeats a user or a password of a URL.
	Nodes []string

	// TTL is how long the servers keep a lock when they do not hear from its holder. Defaults to 10
	// s, or to MaxTTL if that is less.
	TTL time.Duration

	// MaxTTL is the longest TTL of the deployment, 24 h at most. A node that may have forgotten
	// locks is kept out for 4 s longer than this. All clients must have the same MaxTTL: a client
	// that differs from what the nodes have recorded is refused, with both values in the error,
	// until somebody changes the deployment (redlatch deployment set). Defaults to 30 s, or to TTL
	// if that is more.
	MaxTTL time.Duration

	// MaxHold bounds the renewal in the background. The client makes no renewal later than this
	// after the acquisition; the lock then runs out within a TTL, with ErrMaxHold. Defaults to 1 h.
	MaxHold time.Duration

	// NodeTimeout is how long one step waits for one node, even if a caller's step first goes
	// together with those of others and is then sent by itself. One try for a lock takes two steps at
	// most. Keep it small compared with the TTL; raise it for distant nodes. At most 1 s. Defaults to
	// 50 ms.
	NodeTimeout time.Duration

	// Replicas makes replicas acknowledge each vote. The zero value asks for none.
	Replicas Replicas

	// KeyTemplate turns the name of a lock into its key: the name replaces {name}, as in
	// "redlock:{name}". The braces are not part of the key. All clients that share locks must have
	// the same, which nobody checks: with another, a name is another lock. It must not begin with
	// redlatch:, as the library's own keys do. Defaults to the name itself.
	KeyTemplate string

	// Label tells others who holds the lock or waits for it. It is printable and has 64 bytes at
	// most. Defaults to host:pid.
	Label string

	// Deployment keeps several sets of clients on the same servers apart: each has its own
	// admissions. It does not keep their locks apart. If two deployments use the same names, both
	// must have the same Nodes, otherwise their quorums need not meet; and the longest MaxTTL of
	// either, otherwise one admits a restarted node while a lock of the other still runs. It has up
	// to 64 letters, digits, dots and dashes. Defaults to "default".
	Deployment string

	// NoQuarantine lets every node vote at once. A node that restarts empty then votes for locks
	// that it has already granted, and two holders are possible. All clients of a deployment must
	// choose the same. Defaults to false: a node that restarted, was promoted or lost its data is
	// kept out for longer than any lock that it may have forgotten.
	NoQuarantine bool

	// Durable is your word that no node ever forgets a write that it has answered, so that a node
	// that restarts votes again at once. It means that each node runs with appendonly yes,
	// appendfsync always and no-appendfsync-on-rewrite no, has done so since its first lock, and
	// never on a disk that lies, and that no replica ever takes its place. Nobody can find that out
	// from the settings of today, so the client does not guess it. A node that is seen with other
	// settings is not believed any more, until the deployment is set anew (redlatch deployment set
	// --durable). All clients must choose the same. Durable is refused with NoQuarantine, which
	// asks for no such word, and for nodes that Sentinels or a Cluster replace by replicas.
	// Defaults to false.
	Durable bool

	// Strict refuses a node that may evict locks to make room (maxmemory with a policy other than
	// noeviction). Otherwise such a node is logged once. Defaults to false.
	Strict bool

	// TLS is for rediss:// URLs, and refused if one of Nodes is without TLS. Defaults to the system's
	// roots and the URL's host name.
	TLS *tls.Config

	// Logger gets, at Warn, lost locks, nodes that may evict locks, and nodes in quarantine, each
	// once. For a quarantine it says since when, until when, why, and what ends it. At Info, Logger
	// gets nodes that are admitted or whose quarantine is over, and why a Lock has waited for more
	// than a second, again when the reason changes; at Debug, failed renewals. If Logger takes
	// Debug, the error of a caller that waits for a lock of this client says where that lock was
	// asked for. Defaults to silence.
	Logger *slog.Logger

	// Observer is told of locks that are acquired, extended, lost and released, of calls that
	// failed, and of nodes that go in and out of quarantine or reach, for metrics and traces.
	// Defaults to none, which costs nothing.
	Observer Observer

	// attached are nodes in place of URLs.
	attached []hook.Node
	// batchAbove is passed to node.Batch: 0 except in tests.
	batchAbove int
}

// Replicas says which acknowledgements a vote needs; the zero value asks for none. A lock, an
// extension or a token counts on a node when that many of its replicas have it. A failover then
// finds the lock on those replicas, but not if another replica is promoted: Redis and Valkey do not
// promise which. A release waits for no replica: a failover may bring back a lock that was released,
// until its TTL ends.
type Replicas struct {
	// Count is how many replicas of a node must acknowledge a lock, an extension and a token before
	// the node's vote counts (WAIT). The vote for a lock with fewer is undone, and the error's
	// NodeAnswer has VoteNotReplicated and says how many there were, if the server said so in time.
	// Defaults to 0.
	Count int

	// Fsync makes an acknowledgement mean that the vote is on disk, on the node and on Count
	// replicas; Count may be 0 then (WAITAOF). Fsync needs Redis or Valkey 7.2, and appendonly yes
	// and appendfsync always on all of them: with everysec many votes come too late, whatever
	// Timeout is. Defaults to false.
	Fsync bool

	// Timeout is how long a vote waits for one acknowledgement. Votes are acknowledged in groups,
	// so a vote may wait for two groups. Twice Timeout and Config.NodeTimeout are 1 s together at
	// most. Defaults to 50 ms.
	Timeout time.Duration
}

// maxName bounds a lock's name, in bytes.
const maxName = 512

const (
	defaultTTL         = 10 * time.Second
	defaultMaxTTL      = 30 * time.Second
	defaultMaxHold     = time.Hour
	defaultNodeTimeout = 50 * time.Millisecond
	defaultReplicaWait = 50 * time.Millisecond
	maxNodeTimeout     = vote.LongestAttempt / 2 // an attempt has two steps
	nameMark           = "{name}"
)

// stepTimeout is how long one step waits for one node, its replicas included.
func (c Config) stepTimeout() time.Duration {
	if !c.acknowledged() {
		return c.NodeTimeout
	}
	return c.NodeTimeout + 2*c.Replicas.Timeout
}

// aLittle returns how long to wait for the rest of the nodes when it took took to hear a quorum of
// them. Nothing but knowledge depends on the rest, so one that hangs should cost next to nothing.
func (c Config) aLittle(took time.Duration) time.Duration {
	return min(took/4+time.Millisecond/2, c.NodeTimeout)
}

// acknowledged reports whether votes are to be acknowledged.
func (c Config) acknowledged() bool { return c.Replicas.Count > 0 || c.Replicas.Fsync }

// complete fills in the defaults, and refuses settings that cannot work.
func (c Config) complete() (Config, []endpoint, error) {
	for setting, d := range map[string]*time.Duration{"TTL": &c.TTL, "MaxTTL": &c.MaxTTL, "MaxHold": &c.MaxHold, "NodeTimeout": &c.NodeTimeout, "Replicas.Timeout": &c.Replicas.Timeout} {
		if *d < 0 || *d > 0 && *d < time.Millisecond {
			return c, nil, invalid("Config.%s is %v: it must be at least 1ms, the servers' grain, or 0 for its default", setting, *d)
		}
		*d = d.Truncate(time.Millisecond)
	}
	ttlSetting := "Config.TTL"
	switch {
	case c.TTL == 0 && c.MaxTTL == 0:
		c.TTL, c.MaxTTL = defaultTTL, defaultMaxTTL
	case c.TTL == 0:
		ttlSetting, c.TTL = "Config.MaxTTL", min(defaultTTL, c.MaxTTL)
	case c.MaxTTL == 0:
		c.MaxTTL = max(defaultMaxTTL, c.TTL)
	}
	orDefault(&c.MaxHold, defaultMaxHold)
	orDefault(&c.NodeTimeout, defaultNodeTimeout)
	orDefault(&c.Replicas.Timeout, defaultReplicaWait)
	orDefault(&c.KeyTemplate, nameMark)
	orDefault(&c.Deployment, "default")
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Label == "" {
		c.Label = defaultLabel()
	}
	c.Nodes = slices.Clone(c.Nodes) // the caller may change its own
	endpoints, nodesErr := c.endpoints()
	return c, endpoints, errors.Join(
		nodesErr,
		checkTTL(ttlSetting, c.TTL, c.MaxTTL),
		checkLabel("Config.Label", c.Label),
		check(c.NodeTimeout <= maxNodeTimeout, "Config.NodeTimeout is %v: it must be %v at most", c.NodeTimeout, maxNodeTimeout),
		check(c.Replicas.Count >= 0, "Config.Replicas.Count is %d: it must be 0 or more", c.Replicas.Count),
		// Twice the longest duration would be a negative one.
		check(!c.acknowledged() || c.Replicas.Timeout <= (maxNodeTimeout-c.NodeTimeout)/2 || c.NodeTimeout > maxNodeTimeout,
			"Config.Replicas.Timeout is %v: twice this and NodeTimeout, %v, must be %v together at most", c.Replicas.Timeout, c.NodeTimeout, maxNodeTimeout),
		check(strings.Count(c.KeyTemplate, nameMark) == 1, "Config.KeyTemplate is %q: it must contain %s once", c.KeyTemplate, nameMark),
		check(!strings.HasPrefix(c.KeyTemplate, node.KeyPrefix), "Config.KeyTemplate is %q: this library's own keys begin with %s: begin otherwise", c.KeyTemplate, node.KeyPrefix),
		check(isDeploymentName(c.Deployment), "Config.Deployment is %q: use up to 64 letters, digits, dots and dashes", c.Deployment),
		check(c.MaxTTL <= admission.MaxMaxTTL, "Config.MaxTTL is %v: it must be %v at most, as a node that restarted is kept out for MaxTTL; a lock is renewed while it is held, so it may last longer", c.MaxTTL, admission.MaxMaxTTL),
		check(!c.Durable || !c.NoQuarantine, "Config.Durable: with NoQuarantine every node votes at once: leave one of the two out"),
		checkDurable(c.Durable, endpoints),
	)
}

// checkDurable refuses Durable for nodes whose masters are replaced by replicas, of which it is not
// true.
func checkDurable(durable bool, endpoints []endpoint) error {
	for _, e := range endpoints {
		if durable && (e.cluster || e.options.Master != "") {
			return invalid("Config.Durable: replicas take the place of %s's masters, and may lack their last writes: leave it out", e.name)
		}
	}
	return nil
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func isDeploymentName(s string) bool {
	if len(s) > 64 {
		return false
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-' {
			return false
		}
	}
	return s != ""
}

// key returns the key of the lock name.
func (c Config) key(name string) (string, error) {
	switch {
	case name == "":
		return "", invalid("the lock's name is empty")
	case len(name) > maxName:
		return "", invalid("the lock's name has %d bytes: use %d at most", len(name), maxName)
	}
	key := name
	if c.KeyTemplate != nameMark {
		key = strings.Replace(c.KeyTemplate, nameMark, name, 1)
	}
	if strings.HasPrefix(key, node.KeyPrefix) {
		return "", invalid("the key %q begins like this library's own keys: use another name, or a KeyTemplate", key)
	}
	return key, nil
}

// wholeTTL cuts a TTL to the servers' grain, and refuses it as checkTTL does.
func wholeTTL(setting string, ttl, most time.Duration) (time.Duration, error) {
	whole := ttl.Truncate(time.Millisecond)
	if whole < time.Millisecond {
		whole = ttl // so that the error names what was given
	}
	return whole, checkTTL(setting, whole, most)
}

// checkTTL refuses a TTL that the servers cannot keep, that leaves no validity, or that is longer
// than most, for which a restarted node is kept out.
func checkTTL(setting string, ttl, most time.Duration) error {
	switch {
	case ttl < time.Millisecond:
		return invalid("%s is %v: it must be at least 1ms, and more than the drift of %v", setting, ttl, quorum.Drift(0))
	case ttl <= quorum.Drift(ttl):
		return invalid("%s is %v: nothing is left of it after the drift of %v", setting, ttl, quorum.Drift(ttl))
	case ttl > most:
		return invalid("%s is %v, more than Config.MaxTTL, %v: raise MaxTTL (on Redis, for all clients, with redlatch deployment set)", setting, ttl, most)
	}
	return nil
}

func checkLabel(setting, label string) error {
	if len(label) > maxLabel {
		return invalid("%s has %d bytes: use %d at most", setting, len(label), maxLabel)
	}
	if !printable.Is(label) {
		return invalid("%s is %q: use printable characters", setting, label)
	}
	return nil
}

func check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return invalid(format, args...)
}

func defaultLabel() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	label := fmt.Sprintf("%.48s:%d", host, os.Getpid())
	if checkLabel("", label) != nil {
		return strconv.Itoa(os.Getpid())
	}
	return label
}

// checkContext refuses a ctx that is nil.
func checkContext(ctx context.Context) error {
	return check(ctx != nil, "ctx is nil: pass context.Background() or the request's context")
}
