package main

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/internal/commandline"
	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/internal/redisconn"
)

const (
	defaultDeployment = "default"
	defaultMaxTTL     = 30 * time.Second
	// defaultNodeTimeout is longer than the library's: a command line is in
	// less of a raise than a server, and a release that is given up too soon
	// keeps the next one waiting for the TTL.
	defaultNodeTimeout = 250 * time.Millisecond
)

// connection has the flags of every command that talks to nodes.
type connection struct {
	Nodes          []string
	PasswordFile   string
	CA             string
	Cert           string
	Key            string
	Deployment     string
	MaxTTL         time.Duration
	NodeTimeout    time.Duration
	KeyTemplate    string
	Replicas       int
	Fsync          bool
	ReplicaTimeout time.Duration
	NoQuarantine   bool
	Durable        bool

	// assumed: nobody named nodes.
	assumed bool
	// ensemble is where the locks are, if --nodes is one; maxTTL is the flag, and sized, that it was given.
	ensemble *ensemble.URL
	maxTTL   *pflag.Flag
	sized    bool
}

// addTo adds them, and sets their defaults.
func (c *connection) addTo(flags *pflag.FlagSet) {
	c.Nodes, c.Deployment, c.MaxTTL = []string{local}, defaultDeployment, defaultMaxTTL
	flags.Var(commandline.List(&c.Nodes), "nodes", "`URL,...` of the nodes, all of them: redis://, rediss:// (TLS) or unix://, with user, password and database number where needed, user and password percent-encoded. Or one ensemble: zk://HOST,HOST,.../PATH is ZooKeeper, etcd://HOST,HOST,.../PREFIX is etcd, zks:// and etcds:// are TLS. A command line is visible to everybody in ps: give passwords by the environment or by --password-file. Defaults to redis://127.0.0.1:6379; redlatch then says so.")
	flags.StringVar(&c.PasswordFile, "password-file", "", "`FILE` with the password for every URL that has none. REDLATCH_PASSWORD may hold the password itself.")
	flags.StringVar(&c.CA, "ca", "", "`FILE` with the CA certificates, PEM, for rediss://, zks:// and etcds://. Defaults to the system's.")
	flags.StringVar(&c.Cert, "cert", "", "`FILE` with the client certificate, PEM, for rediss://, zks:// and etcds://. Needs --key.")
	flags.StringVar(&c.Key, "key", "", "`FILE` with the key of --cert.")
	flags.StringVar(&c.Deployment, "deployment", c.Deployment, "`NAME` of the deployment these nodes serve. All clients of a node must agree on it. Defaults to \"default\".")
	flags.Var(commandline.Duration(&c.MaxTTL), "max-ttl", "The longest TTL any client of the deployment uses; all must agree on it. Defaults to 30s. With zk:// and etcd:// the session lasts for twice as long; there it defaults to 20s, and clients need not agree.")
	c.maxTTL = flags.Lookup("max-ttl")
	flags.Var(commandline.Duration(&c.NodeTimeout), "node-timeout", "How long one node may take to answer. Defaults to 250ms, less with a short TTL.")
	flags.StringVar(&c.KeyTemplate, "key-template", "", "The key a name is kept under, as a `TEMPLATE` such as redlock:{name}. Defaults to the name itself.")
	flags.Var(commandline.Int(&c.Replicas), "replicas", "How many replicas of a node must acknowledge a lock before the node's vote counts (WAIT). Defaults to 0.")
	commandline.Bool(flags, &c.Fsync, "fsync", "", "Have the replicas, and the node, acknowledge that the lock is on disk (WAITAOF): Redis or Valkey 7.2 with appendonly yes.")
	flags.Var(commandline.Duration(&c.ReplicaTimeout), "replica-timeout", "How long the acknowledgements are waited for. Defaults to 50ms.")
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "no-fence" { // what it was called
			name = "no-quarantine"
		}
		return pflag.NormalizedName(name)
	})
	commandline.Bool(flags, &c.NoQuarantine, "no-quarantine", "", "Let freshly started nodes vote at once. All clients of the deployment must agree on it; a node that restarts without its keys can then give a lock away twice.")
	commandline.Bool(flags, &c.Durable, "durable", "", "Your word that no node ever forgets an answered write (appendonly yes, appendfsync always, no-appendfsync-on-rewrite no, no replica takes its place), so that one that restarts votes at once. All clients of the deployment must agree on it.")
	fromEnvironment(flags, "nodes", "password-file", "ca", "cert", "key", "deployment", "max-ttl", "node-timeout", "key-template", "replicas", "fsync", "replica-timeout", "no-quarantine", "durable")
}

// The node that is used when none is named, and what stands for that.
const (
	localNode = "redis://127.0.0.1:6379"
	local     = "local"
)

// assumeNodes says which nodes are meant where none is named. It comes before anything is
// done with the flags.
func (c *connection) assumeNodes() {
	if slices.Equal(c.Nodes, []string{local}) {
		c.Nodes, c.assumed = []string{localNode}, true
	}
	if c.onEnsemble() {
		c.assumeEnsemble()
	}
}

// sayNodes says which nodes are used when nobody named any: a command that misses its
// REDLATCH_NODES locks against nobody.
func (c *connection) sayNodes(out *printer) {
	if c.assumed {
		out.say("no --nodes and no REDLATCH_NODES: using %s", localNode)
	}
}

// config turns the flags into the library's, for Redis. Its errors are usage errors.
func (c *connection) config() (redlatch.Config, error) {
	if len(c.Nodes) == 0 {
		return redlatch.Config{}, usage("give --nodes redis://HOST:PORT,... or unset REDLATCH_NODES for redis://127.0.0.1:6379", "no node: --nodes or REDLATCH_NODES is empty")
	}
	if c.onEnsemble() {
		return redlatch.Config{}, c.errNotRedis()
	}
	password, err := c.password()
	if err != nil {
		return redlatch.Config{}, err
	}
	nodes := slices.Clone(c.Nodes)
	if password != "" {
		for i, node := range nodes {
			nodes[i] = withPassword(node, password)
		}
	}
	cfg := redlatch.Config{
		Nodes:       nodes,
		MaxTTL:      c.MaxTTL,
		NodeTimeout: cmp.Or(c.NodeTimeout, defaultNodeTimeout),
		Replicas:    redlatch.Replicas{Count: c.Replicas, Fsync: c.Fsync, Timeout: c.ReplicaTimeout},
		KeyTemplate: c.KeyTemplate,
		Deployment:  c.Deployment,
		Durable:     c.Durable,
	}
	if cfg.TLS, err = c.tls(); err != nil {
		return redlatch.Config{}, err
	}
	cfg.NoQuarantine = c.NoQuarantine
	return cfg, nil
}

// open connects; the caller closes the client.
func (c *connection) open(cfg redlatch.Config, out *printer) (*redlatch.Client, error) {
	c.sayNodes(out)
	open := redlatch.Open
	if c.ensemble != nil {
		open = c.openEnsemble
	}
	client, err := open(cfg)
	if err != nil {
		return nil, opened(err)
	}
	return client, nil
}

// close closes the client, which leaves what is still to be done on nodes that do not answer
// to the TTL.
func (c *connection) close(client *redlatch.Client, out *printer) {
	if err := client.Close(); err != nil {
		out.detail("closing: %v", err)
	}
}

func (c *connection) password() (string, error) {
	if c.PasswordFile == "" {
		return os.Getenv("REDLATCH_PASSWORD"), nil
	}
	text, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return "", usage("--password-file and REDLATCH_PASSWORD_FILE name a file that holds nothing but the password", "cannot read the password: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// withPassword adds a password to a URL that has none. What is not a URL is
// left for the library to refuse in its own words.
func withPassword(node, password string) string {
	node = strings.TrimSpace(node)
	u, err := url.Parse(node)
	if err != nil {
		return node
	}
	if _, has := u.User.Password(); has {
		return node
	}
	u.User = url.UserPassword(u.User.Username(), password)
	return u.String()
}

// endpoint is what tells one node from another: neither the password nor the
// node's own name in the URL do.
func endpoint(node string) string {
	u, err := url.Parse(node)
	if err != nil {
		return node
	}
	if u.Host == "" {
		return u.Path + "?" + cmp.Or(u.Query().Get("db"), "0")
	}
	host := strings.ToLower(u.Hostname())
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		host = "loopback"
	}
	return net.JoinHostPort(host, cmp.Or(u.Port(), "6379")) + "?" + cmp.Or(strings.Trim(u.Path, "/"), "0")
}

// elided stands for URLs with a secret in a command that is shown.
const elided = "…"

// admitCommand is the command line, for a shell, with which an operator vouches for
// nodes in the deployment that c describes. It leaves out what the environment
// says. --nodes is elided where a URL has a user or a password.
func (c *connection) admitCommand(nodes ...string) string { return c.command([]string{"admit"}, nodes) }

// admitAllCommand is the same for all nodes.
func (c *connection) admitAllCommand() string { return c.command([]string{"admit", "--all"}, nil) }

// setCommand is the command line that changes the deployment to these settings.
func (c *connection) setCommand() string { return c.command([]string{"deployment", "set"}, nil) }

func (c *connection) command(command, nodes []string) string {
	words := append([]string{"redlatch"}, command...)
	end := ""
	if !c.assumed && os.Getenv("REDLATCH_NODES") != strings.Join(c.Nodes, ",") {
		value := strings.Join(c.Nodes, ",")
		if slices.ContainsFunc(c.Nodes, func(node string) bool { return redisconn.Redact(node) != node }) {
			value, end = elided, " (… stands for --nodes as given here)"
		}
		words = append(words, "--nodes", value)
	}
	for _, flag := range []struct{ name, variable, value string }{
		{"--password-file", "REDLATCH_PASSWORD_FILE", c.PasswordFile}, {"--ca", "REDLATCH_CA", c.CA},
		{"--cert", "REDLATCH_CERT", c.Cert}, {"--key", "REDLATCH_KEY", c.Key},
	} {
		if flag.value != os.Getenv(flag.variable) {
			words = append(words, flag.name, flag.value)
		}
	}
	if c.Deployment != cmp.Or(os.Getenv("REDLATCH_DEPLOYMENT"), defaultDeployment) {
		words = append(words, "--deployment", c.Deployment)
	}
	if told, err := commandline.ParseDuration(os.Getenv("REDLATCH_MAX_TTL")); err != nil && c.MaxTTL != defaultMaxTTL || err == nil && c.MaxTTL != told {
		words = append(words, "--max-ttl", c.MaxTTL.String())
	}
	for _, flag := range []struct {
		name, variable string
		value          bool
	}{{"--no-quarantine", "REDLATCH_NO_QUARANTINE", c.NoQuarantine}, {"--durable", "REDLATCH_DURABLE", c.Durable}} {
		switch told, _ := strconv.ParseBool(os.Getenv(flag.variable)); {
		case flag.value && !told:
			words = append(words, flag.name)
		case told && !flag.value:
			words = append(words, flag.name+"=false")
		}
	}
	if slices.ContainsFunc(nodes, func(node string) bool { return strings.HasPrefix(node, "-") }) {
		words = append(words, "--")
	}
	line := shellWords(append(words, nodes...)...)
	return strings.Replace(line, " --nodes "+shellQuote(elided)+" ", " --nodes "+elided+" ", 1) + end
}

// nodeTexts are what can be shown of nodes that were given by URL or by name,
// where set are the nodes there are.
func nodeTexts(given, set []string) []string {
	texts := make([]string, len(given))
	for i, node := range given {
		texts[i] = nodeText(node, set)
	}
	return texts
}

// nodeText is the name of a node of the set, by which Admit knows it; of what is
// none, what can be shown.
func nodeText(given string, set []string) string {
	given = strings.TrimSpace(given)
	_, called, err := redisconn.Parse(given)
	for _, node := range set {
		if o, name, parseErr := redisconn.Parse(strings.TrimSpace(node)); parseErr == nil && (given == name || given == o.Address || err == nil && called == name) {
			return name
		}
	}
	return redisconn.Redact(given)
}

// answers shows what each node said, a line each.
func answers(nodes []redlatch.NodeAnswer) []string {
	lines := make([]string, len(nodes))
	for i, node := range nodes {
		said := node.Verdict.String()
		switch {
		case node.Verdict == redlatch.VoteUnknown && node.Err == nil:
			said = "not waited for"
		case node.Verdict == redlatch.VoteHeld && node.Holder.Label != "":
			said += fmt.Sprintf(" (%s, expires in %s)", printable.Text(node.Holder.Label), short(node.Left))
		case node.Verdict == redlatch.VoteNotAdmitted && node.Left > 0:
			said += fmt.Sprintf(" for another %s", short(node.Left))
		}
		if node.Err != nil {
			said += ": " + strings.TrimPrefix(withoutScript(node.Err.Error()), said+": ")
		}
		lines[i] = node.Node + ": " + said
	}
	return lines
}

// scriptName is how servers name the script that a command of theirs failed in: by a hash,
// which tells a person nothing.
var scriptName = regexp.MustCompile(`,? script: [0-9a-f]{40}, on @user_script:\d+\.?`)

// withoutScript leaves that out of a server's text.
func withoutScript(text string) string { return scriptName.ReplaceAllString(text, "") }

// short rounds a duration to what a person reads.
func short(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	default:
		return d.Round(time.Millisecond)
	}
}
