package main

import (
	"regexp"
	"strconv"
	"strings"
)

// The library's errors name its settings, but the users of a command line know flags.
var (
	nodeSetting = regexp.MustCompile(`Config\.Nodes\[(\d+)\]`)
	flagNames   = strings.NewReplacer(
		"Config.NoQuarantine", "--no-quarantine",
		"NoQuarantine", "--no-quarantine",
		"Config.MaxTTL", "--max-ttl",
		"raise MaxTTL", "raise --max-ttl",
		"kept out for MaxTTL", "kept out for --max-ttl",
		"Config.TTL", "--ttl",
		"WithTTL", "--ttl",
		"WithGuard", "--grace",
		"use Lock, or leave WithShared out", "leave --shared out",
		"Config.NodeTimeout", "--node-timeout",
		"and NodeTimeout", "and --node-timeout",
		"Config.Replicas.Timeout", "--replica-timeout",
		"Config.Replicas.Fsync", "--fsync",
		"Config.Replicas.Count", "--replicas",
		"Config.Replicas", "--replicas",
		"Config.KeyTemplate", "--key-template",
		"or a KeyTemplate", "or a --key-template",
		"Config.Label", "--label",
		"WithLabel", "--label",
		"Config.Deployment", "--deployment",
		"Config.Durable", "--durable",
		", Durable", ", --durable",
		"Config.Nodes", "--nodes",
		"Nodes: ", "--nodes: ",
		"and Config.TLS has none", "and there is no --cert",
		"that of Config.TLS", "that of --cert",
		"and whether these want TLS (redlatch.Config.TLS, or etcds:// in a URL)", "and whether these want TLS (etcds://)",
		"and leave redlatch.Config.TLS out if these have no TLS (zk:// in a URL)", "and write zk:// if these have no TLS",
		"Ensemble.Servers", "--nodes",
		"Cluster.Endpoints", "--nodes",
		"Ensemble.Root", "the path of --nodes",
		"Cluster.Prefix", "the path of --nodes",
		"Ensemble.User and Ensemble.Password", "user and password of --nodes",
		"Cluster.User and Cluster.Password", "user and password of --nodes",
		"give Cluster.User and Password, or a client that has a user", "name a user in --nodes",
		"a role of Cluster.User readwrite", "a role of the user of --nodes readwrite",
		"give the Ensemble.User and Password for whom", "name in --nodes the user, with the password, for whom",
		"use another Root", "use another path",
		"lower MaxTTL and TTL", "lower --max-ttl and --ttl",
		"use a MaxTTL of", "use a --max-ttl of",
		"use another Deployment", "use another --deployment",
	)
)

// inFlags words an error of the library for the command line. It names flags in place of the
// library's settings, and drops the prefixes "redlatch:" and "invalid:", which tell nothing here.
func inFlags(text string) string {
	var lines strings.Builder
	for line := range strings.Lines(text) {
		for _, prefix := range []string{"redlatch: ", "zookeeper: ", "etcd: ", "invalid: "} {
			line = strings.TrimPrefix(line, prefix)
		}
		line = nodeSetting.ReplaceAllStringFunc(line, func(setting string) string {
			i, _ := strconv.Atoi(nodeSetting.FindStringSubmatch(setting)[1])
			return "URL " + strconv.Itoa(i+1) + " of --nodes"
		})
		lines.WriteString(flagNames.Replace(strings.ReplaceAll(line, ": invalid: ", ": ")))
	}
	return lines.String()
}
