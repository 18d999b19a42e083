//go:build unix

// Package engine starts the servers of an ensemble of ZooKeeper or of a cluster of etcd for the demo
// and the torture, and opens clients of them.
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

// Engine is where the locks are kept.
type Engine string

// The engines beside Redis.
const (
	Zookeeper Engine = "zookeeper"
	Etcd      Engine = "etcd"
)

// Open opens a client of the servers, whose locks are under root. Errors and blocking are those of
// the packages zookeeper and etcd.
func (e Engine) Open(c redlatch.Config, servers []string, root string) (*redlatch.Client, error) {
	if e == Etcd {
		return etcd.OpenWith(c, etcd.Cluster{Endpoints: servers, Prefix: root})
	}
	return zookeeper.OpenWith(c, zookeeper.Ensemble{Servers: servers, Root: root})
}

// Missing says what of the servers is not installed.
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

// What a server may be.
const (
	leading   = "leader"
	following = "follower"
)
