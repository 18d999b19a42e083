//go:build unix

// Package engine starts the servers of an ensemble of ZooKeeper or of a cluster of etcd for the demo
// and the torture. It also opens clients of these servers.
package engine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/zookeeper"
)

// Engine is a system other than Redis that keeps the locks.
type Engine string

// The engines.
const (
	Zookeeper Engine = "zookeeper"
	Etcd      Engine = "etcd"
)

// Open opens a client of the servers, with all locks under root. It blocks and fails as OpenWith of
// the packages zookeeper and etcd does.
func (e Engine) Open(c redlatch.Config, servers []string, root string) (*redlatch.Client, error) {
	if e == Etcd {
		return etcd.OpenWith(c, etcd.Cluster{Endpoints: servers, Prefix: root})
	}
	return zookeeper.OpenWith(c, zookeeper.Ensemble{Servers: servers, Root: root})
}

// Missing returns an error that names what the servers need and is not installed, or nil if nothing
// is missing.
func (e Engine) Missing() error {
	if e == Etcd {
		if _, err := exec.LookPath("etcd"); err != nil {
			return errors.New("there is no etcd (remedy: apt-get install etcd-server)")
		}
		return nil
	}
	if _, err := exec.LookPath("java"); err != nil {
		return errors.New("there is no java (remedy: apt-get install default-jre-headless libzookeeper-java)")
	}
	if _, err := os.Stat(jars + "/zookeeper.jar"); err != nil {
		return fmt.Errorf("there is no %s/zookeeper.jar (remedy: apt-get install libzookeeper-java)", jars)
	}
	return nil
}

// The states of a server that serves clients.
const (
	leading   = "leader"
	following = "follower"
)
