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
	// less of a hurry than a server, and if it gives up a release too soon, the
	// next client has to wait for the TTL.
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

	// assumed: nobody named nodes, and the default is used.
	assumed bool
	// ensemble is the ensemble that --nodes names, if it names one. maxTTL is the flag
	// --max-ttl, and sized reports whether it was given.
	ensemble *ensemble.URL
	maxTTL   *pflag.Flag
	sized    bool
}

// addTo adds the flags to a command, and sets their defaults.
func (c *connection) addTo(flags *pflag.FlagSet) {
	c.Nodes, c.Deployment, c.MaxTTL = []string{local}, defaultDeployment, defaultMaxTTL
	flags.Var(commandline.List(&c.Nodes), "nodes", "The URLs, `URL,...`, of all nodes: redis://, rediss:// (TLS) or unix://, with user, password and database number where needed; percent-encode user and password. Or the URL of one ensemble: zk://HOST,HOST,.../PATH for ZooKeeper, etcd://HOST,HOST,.../PREFIX for etcd, zks:// or etcds:// for TLS. Everybody can read a command line with ps: give passwords in the environment or with --password-file. Defaults to redis://127.0.0.1:6379; redlatch says so when it uses that.")
	flags.StringVar(&c.PasswordFile, "password-file", "", "`FILE` with the password for every URL that has none. REDLATCH_PASSWORD may hold the password itself.")
	flags.StringVar(&c.CA, "ca", "", "PEM `FILE` with the CA certificates for rediss://, zks:// and etcds://. Defaults to the system's.")
	flags.StringVar(&c.Cert, "cert", "", "PEM `FILE` with the client certificate for rediss://, zks:// and etcds://. Needs --key.")
	flags.StringVar(&c.Key, "key", "", "PEM `FILE` with the private key of --cert.")
	flags.StringVar(&c.Deployment, "deployment", c.Deployment, "`NAME` of the deployment that these nodes serve. All clients that share locks must give the same. Defaults to \"default\".")
	flags.Var(commandline.Duration(&c.MaxTTL), "max-ttl", "The longest TTL that any client of the deployment uses; all clients must give the same. Defaults to 30s. With zk:// and etcd:// the session lasts twice as long, the default is 20s, and clients may differ.")
	c.maxTTL = flags.Lookup("max-ttl")
	flags.Var(commandline.Duration(&c.NodeTimeout), "node-timeout", "How long one node may take to answer. Defaults to 250ms, or less if the TTL is short.")
	flags.StringVar(&c.KeyTemplate, "key-template", "", "`TEMPLATE` of a lock's key, such as redlock:{name}. All clients that share locks must give the same: with another, a name is another lock. Defaults to the name itself.")
	flags.Var(commandline.Int(&c.Replicas), "replicas", "How many replicas of a node must acknowledge a lock before the node's vote counts (WAIT). Defaults to 0.")
	commandline.Bool(flags, &c.Fsync, "fsync", "", "Require the node and its replicas to acknowledge that the lock is on disk (WAITAOF). Needs Redis or Valkey 7.2 with appendonly yes and appendfsync always.")
	flags.Var(commandline.Duration(&c.ReplicaTimeout), "replica-timeout", "How long to wait for the acknowledgements. Defaults to 50ms.")
	commandline.Bool(flags, &c.NoQuarantine, "no-quarantine", "", "Let nodes vote as soon as they have started. A node that restarts without its keys can then give a lock to a second holder. All clients of the deployment must agree on this flag.")
	commandline.Bool(flags, &c.Durable, "durable", "", "Your word that no node ever forgets an answered write (appendonly yes, appendfsync always, no-appendfsync-on-rewrite no, and no replica takes its place). Nodes then vote as soon as they have restarted. All clients of the deployment must agree on this flag.")
	fromEnvironment(flags, "nodes", "password-file", "ca", "cert", "key", "deployment", "max-ttl", "node-timeout", "key-template", "replicas", "fsync", "replica-timeout", "no-quarantine", "durable")
}

// localNode is the node that redlatch uses if nobody names one. local is the value of --nodes
// that stands for it.
const (
	localNode = "redis://127.0.0.1:6379"
	local     = "local"
)

// assumeNodes sets the node that is used if nobody names one, and the other defaults that a flag
// stands for if it is empty or 0. It is called before any other use of the flags.
func (c *connection) assumeNodes() {
	if slices.Equal(c.Nodes, []string{local}) {
		c.Nodes, c.assumed = []string{localNode}, true
	}
	if c.onEnsemble() {
		c.assumeEnsemble()
	}
	c.MaxTTL, c.Deployment = cmp.Or(c.MaxTTL, defaultMaxTTL), cmp.Or(c.Deployment, defaultDeployment)
}

// sayNodes says which node is used if nobody named one: a command that lacks its REDLATCH_NODES
// takes its lock where no other client looks.
func (c *connection) sayNodes(out *printer) {
	if c.assumed {
		out.say("no --nodes and no REDLATCH_NODES: using %s", localNode)
	}
}

// config turns the flags into the library's settings for Redis. Its errors are usage errors.
func (c *connection) config() (redlatch.Config, error) {
	if len(c.Nodes) == 0 {
		return redlatch.Config{}, usage("give --nodes redis://HOST:PORT,... or unset REDLATCH_NODES for redis://127.0.0.1:6379", "no node: --nodes or REDLATCH_NODES is empty")
	}
	if c.onEnsemble() {
		return redlatch.Config{}, c.errNotRedis()
	}
	for i, node := range c.Nodes {
		if words := strings.Fields(node); len(words) > 1 && strings.Contains(words[1], "://") {
			return redlatch.Config{}, usage("separate the URLs by commas; in a user or a password, write a space as %20", "URL %d of --nodes has a space in it", i+1)
		}
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

// open connects to the nodes. The caller closes the client.
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

// close closes the client. On nodes that do not answer, what is left of a lock ends with its TTL.
func (c *connection) close(client *redlatch.Client, out *printer) {
	if err := client.Close(); err != nil {
		out.detail("closing: %v", err)
	}
}

func (c *connection) password() (string, error) {
	if c.PasswordFile == "" {
		return os.Getenv(envPassword), nil
	}
	text, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return "", usage("--password-file and REDLATCH_PASSWORD_FILE name a file that holds nothing but the password", "cannot read the password: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// withPassword adds a password to a URL that has none. It returns a text that is
// not a URL as it is: the library refuses it in its own words.
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

// endpoint returns the part of a URL that tells one node from another. That is
// neither the password nor the node's own name.
func endpoint(node string) string {
	o, _, err := redisconn.Parse(strings.TrimSpace(node))
	if err != nil { // the place of an ensemble's server
		return node
	}
	place := oneLoopback(o.Address) + "?" + strconv.Itoa(o.Database)
	if o.Master != "" {
		place += "?" + o.Master
	}
	return place
}

// oneLoopback writes the loopback addresses in one way.
func oneLoopback(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil { // a socket's path
		return address
	}
	host = strings.ToLower(host)
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		host = "loopback"
	}
	return net.JoinHostPort(host, port)
}

// elided stands for URLs with a secret in a command that redlatch shows.
const elided = "…"

// admitCommand returns the shell command with which an operator vouches for nodes
// of the deployment that c describes. It leaves out settings that the environment
// has. It elides --nodes if a URL has a user or a password.
func (c *connection) admitCommand(nodes ...string) string { return c.command([]string{"admit"}, nodes) }

// admitAllCommand returns the same command for all nodes.
func (c *connection) admitAllCommand() string { return c.command([]string{"admit", "--all"}, nil) }

// setCommand returns the shell command that changes the deployment to these settings.
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
		switch told, _ := commandline.ParseBool(os.Getenv(flag.variable)); {
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
	return strings.Replace(line, " --nodes "+shellQuote(elided), " --nodes "+elided, 1) + end
}

// nodeTexts returns nodeText of each of the given nodes.
func nodeTexts(given, set []string) []string {
	texts := make([]string, len(given))
	for i, node := range given {
		texts[i] = nodeText(node, set)
	}
	return texts
}

// nodeText returns the name by which Admit knows a node, which the user gave by URL
// or by name. If it is not a node of the set, nodeText returns what may be shown of it.
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

// answers returns a line for each node that shows its answer.
func answers(nodes []redlatch.NodeAnswer) []string {
	lines := make([]string, len(nodes))
	for i, node := range nodes {
		line := node.String()
		if node.Verdict == redlatch.VoteHeld && node.Err == nil {
			line = node.Node + ": " + node.Verdict.String()
			if node.Holder.Label != "" {
				line += fmt.Sprintf(" (%s, expires in %s)", printable.Text(node.Holder.Label), short(node.Left))
			}
		}
		lines[i] = strings.ReplaceAll(withoutScript(line), "\n", "; ") // an error may have several reasons, a line each
	}
	return lines
}

// looked is answers to the question who holds a lock.
func looked(nodes []redlatch.NodeAnswer) []string {
	lines := answers(nodes)
	for i, node := range nodes {
		if node.Verdict == redlatch.VoteNotOurs {
			lines[i] = node.Node + ": free"
		}
	}
	return lines
}

// scriptName matches the name that servers give to the script in which a command failed: a hash,
// which tells a person nothing.
var scriptName = regexp.MustCompile(`,? script: [0-9a-f]{40}, on @user_script:\d+\.?`)

// withoutScript removes that name from a server's text.
func withoutScript(text string) string { return scriptName.ReplaceAllString(text, "") }

// short rounds a duration for people to read.
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

// seconds is a duration in JSON: 2.397, where Duration.Seconds has 2.3970000000000002.
func seconds(d time.Duration) float64 { return float64(d) / float64(time.Second) }
