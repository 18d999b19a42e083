package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/printable"
)

// Cluster says which members hold the locks, and where. The zero value of each field except
// Endpoints is its default.
type Cluster struct {
	// Endpoints are host:port of some or all members of one cluster; the port defaults to 2379.
	// Requests go to them in turn.
	Endpoints []string

	// Prefix begins the keys of the locks, and is itself a key. It is made if nothing is under it.
	// Clients that share locks must have the same Prefix. If others keep something there, that is
	// an error. Defaults to "/redlatch".
	Prefix string

	// User and Password are those of a user who may read and write the Prefix and all keys that
	// begin with it. Default to none.
	User, Password string
}

const (
	defaultPrefix = "/redlatch"
	defaultPort   = "2379"
	// stepTime is how long one step may take, and connectTime how long the first contact.
	stepTime    = ensemble.StepTime
	connectTime = 2 * time.Second
)

// Open is [redlatch.Open] over an etcd client that the program has, with the Prefix "/redlatch";
// package namespace of etcd can give the client another one. Close of the *redlatch.Client does not
// close client: close it afterwards.
//
// A client with a Username gets no answer any more from servers of version 3.4 that have forgotten the
// token which they gave it for its password, as when all restart, or when that expires. The client of
// OpenWith does.
//
// Open returns when an etcd lease was made, or after two seconds. Servers that cannot be reached
// are no error, because they may come back; until then Lock waits, and TryLock returns
// redlatch.ErrNoQuorum.
//
// It uses TTL, MaxTTL, MaxHold, KeyTemplate, Label, Logger and Observer of the Config. MaxTTL
// defaults to TTL, and TTL to 10 s.
//
// The error wraps redlatch.ErrInvalid when a setting cannot work, before anything is sent or when
// the servers have said so. If the servers were not reached before Open returned, calls return that
// error.
func Open(config redlatch.Config, client *clientv3.Client) (*redlatch.Client, error) {
	if client == nil {
		return nil, invalid(errors.New("there is no client: make one by clientv3.New, or use OpenWith"))
	}
	if config.TLS != nil {
		return nil, invalid(errors.New("redlatch.Config.TLS has no meaning here: the client has its own: leave it out"))
	}
	for i, endpoint := range client.Endpoints() {
		// It is not repeated, and errors would: there may be a password. etcd's client does not send that.
		if strings.Contains(endpoint, "@") && !strings.HasPrefix(endpoint, "unix") {
			return nil, invalid(fmt.Errorf("endpoint %d of the client has a user: leave it out, and give clientv3.Config a Username and Password", i+1))
		}
	}
	return open(config, client, false, defaultPrefix)
}

// OpenWith is [Open] over a client of its own, to a cluster. With a User, servers that cannot be
// reached within two seconds are an error that wraps redlatch.ErrNoQuorum, and servers that refuse
// the user one that wraps redlatch.ErrRefused. It also uses TLS of the Config: with it, all
// endpoints are reached by TLS.
func OpenWith(config redlatch.Config, c Cluster) (*redlatch.Client, error) {
	c, err := checked(config, c)
	if err != nil {
		return nil, err
	}
	client, err := dial(context.Background(), config, c)
	if err != nil {
		return nil, err
	}
	return open(config, client, true, c.Prefix)
}

// checked returns the cluster with its defaults, if it and the Config can work.
func checked(config redlatch.Config, c Cluster) (Cluster, error) {
	if _, err := settings(config); err != nil {
		return c, invalid(err)
	}
	c, err := c.complete()
	if err != nil {
		return c, invalid(err)
	}
	return c, nil
}

// OpenURL is [OpenWith] for a cluster named by a URL, as settings and the program redlatch have it:
//
//	etcd://user:password@etcd1,etcd2:2379,etcd3/prefix
//
// with etcds:// for TLS. The port, the user and the prefix may be left out where they are the
// defaults. The user and the password are percent-encoded. The Prefix begins with the slash. No
// error has the password.
func OpenURL(config redlatch.Config, url string) (*redlatch.Client, error) {
	u, err := ensemble.Of("etcd", url)
	if err == nil {
		config.TLS, err = u.Secure(config.TLS)
	}
	if err != nil {
		return nil, invalid(err)
	}
	return OpenWith(config, Cluster{Endpoints: u.Servers, Prefix: u.Path, User: u.User, Password: u.Password})
}

func open(config redlatch.Config, client *clientv3.Client, owned bool, prefix string) (*redlatch.Client, error) {
	config, err := settings(config)
	if err != nil {
		return nil, invalid(err)
	}
	made := false
	newStore := func(changed func(key string)) hook.Store {
		made = true
		return ensemble.Bounded(newStore(config, client, owned, prefix, changed))
	}
	opened, err := hook.Open(config, hook.Surroundings{Nodes: []hook.Node{{Name: nameOf(client, prefix), Store: newStore}}})
	if err != nil {
		if owned && !made {
			client.Close()
		}
		return nil, err
	}
	return opened.(*redlatch.Client), nil
}

func invalid(err error) error { return fmt.Errorf("etcd: %w: %w", redlatch.ErrInvalid, err) }

// settings refuses settings that have no meaning here, and fills in the defaults.
func settings(c redlatch.Config) (redlatch.Config, error) {
	return ensemble.Settings(c, "cluster", "the members are named in Cluster.Endpoints, or known to the client", "Cluster.Prefix")
}

// complete fills in the defaults, and refuses what cannot work.
func (c Cluster) complete() (Cluster, error) {
	if len(c.Endpoints) == 0 {
		return c, errors.New("no endpoint given: name at least one, such as etcd1:2379")
	}
	c.Endpoints = slices.Clone(c.Endpoints)
	for i, endpoint := range c.Endpoints {
		address, err := ensemble.Address(endpoint, defaultPort, "name one member in each, without scheme, user or path; TLS is redlatch.Config.TLS")
		if err != nil {
			// The endpoint is not repeated: somebody may have written a password.
			return c, fmt.Errorf("Cluster.Endpoints[%d]: %w", i, err)
		}
		c.Endpoints[i] = address
	}
	if c.Prefix == "" {
		c.Prefix = defaultPrefix
	}
	if !printable.Is(c.Prefix) || strings.HasSuffix(c.Prefix, "/") {
		return c, fmt.Errorf("Cluster.Prefix is %q: use printable characters, without a slash at its end", c.Prefix)
	}
	if (c.User == "") != (c.Password == "") {
		return c, errors.New("Cluster.User and Cluster.Password: give both or none")
	}
	return c, nil
}
