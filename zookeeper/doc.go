// Package zookeeper holds the locks of redlatch in an ensemble of Apache ZooKeeper.
package zookeeper
