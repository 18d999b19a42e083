package restart

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

const chainTTL = 4 * time.Second

// whatLoses returns the events after which the server has none of the locks that were held.
func (c *chain) whatLoses() []event {
	return []event{
		{"restart, empty", func() { c.check(c.server.RestartEmpty(c.Context())) }},
		{"restart, with old data", func() { c.check(c.server.RestartWith(c.Context(), c.old)) }},
		{"FLUSHALL", func() { c.redis("FLUSHALL") }},
		{"FLUSHALL by a script", func() { c.redis("EVAL", "return redis.call('FLUSHALL')", "0") }},
		{"FLUSHDB", func() { c.redis("FLUSHDB") }},
		{"SCRIPT FLUSH, FLUSHALL, RESETSTAT", func() { c.redis("SCRIPT", "FLUSH"); c.redis("FLUSHALL"); c.redis("CONFIG", "RESETSTAT") }},
		// At once: a lock's key that goes before the admission leaves a lock that anybody may have.
		{"DEL of all keys", func() { c.atOnce("redis.call('DEL', key)") }},
		{"MOVE of all keys", func() { c.atOnce("redis.call('MOVE', key, " + c.emptyDatabase() + ")") }},
		{"RENAME of all keys", func() { c.atOnce("redis.call('RENAME', key, 'gone:' .. key)") }},
		{"eviction of all keys", c.evict},
		{"SWAPDB", func() { c.redis("SWAPDB", "0", c.emptyDatabase()) }},
		{"failback", c.failback},
		{"failback, RESETSTAT", func() { c.failback(); c.redis("CONFIG", "RESETSTAT") }},
		{"failback, RESETSTAT, forgotten", func() { c.failback(); c.redis("CONFIG", "RESETSTAT"); awaitForgotten(c.T, c.server) }},
	}
}

// whatOperatorsDo returns what leaves the locks alone, done to the deployment or to its keys.
func (c *chain) whatOperatorsDo() []event {
	key := func(name string) string { return "redlatch:{" + c.config.Deployment + "}:" + name }
	reset := func(maxTTLs ...time.Duration) func() {
		return func() {
			for _, maxTTL := range maxTTLs {
				config := c.config
				config.MaxTTL, config.TTL = maxTTL, min(maxTTL, chainTTL)
				c.note(locktest.Open(c.T, config).Reset(c.Context(), c.name))
			}
		}
	}
	return []event{
		{"DEL of the admission", func() { c.redis("DEL", key("admitted")) }},
		{"DEL of the record", func() { c.redis("DEL", key("deployment")) }},
		{"PEXPIRE of the record", func() { c.redis("PEXPIRE", key("deployment"), "500") }},
		{"PERSIST of all but the locks", func() { c.each("redlatch:*", "PERSIST") }},
		{"DEL of the counters", func() { c.each("*:token", "DEL") }},
		{"RENAME of all keys, there and back", func() { c.rename("", "gone:"); c.rename("gone:", "") }},
		{"COPY of all keys", func() { c.each("*", "COPY", "copy", "DB", "6", "REPLACE") }},
		{"RESTORE of all keys", func() {
			c.atOnce("redis.call('RESTORE', key, math.max(0, redis.call('PTTL', key)), redis.call('DUMP', key), 'REPLACE')")
		}},
		{"SWAPDB of others", func() { c.redis("SWAPDB", "2", "3") }},
		{"SWAPDB, there and back", func() { c.redis("SWAPDB", "0", "4"); c.redis("SWAPDB", "0", "4") }},
		{"reset to the same", reset(chainTTL)},
		{"reset to longer and back", reset(2*chainTTL, chainTTL)},
		{"reset to shorter and back", reset(chainTTL/4, chainTTL)},
		{"another lock", c.lockAnother},
	}
}

// whatServersDo returns what leaves the keys alone.
func (c *chain) whatServersDo() []event {
	return []event{
		{"RESETSTAT", func() { c.redis("CONFIG", "RESETSTAT") }},
		{"SCRIPT FLUSH", func() { c.redis("SCRIPT", "FLUSH") }},
		{"FLUSHDB of another", func() { c.redis("EVAL", "redis.call('SELECT', 7) return redis.call('FLUSHDB')", "0") }},
		{"a replica comes and goes", c.replicate},
		{"FAILOVER, there and back", c.failOver},
		{"FAILOVER, and taken back", func() { c.yield(); c.redis("REPLICAOF", "NO", "ONE"); c.diverge() }},
		{"REPLICAOF nobody, and back", func() { c.redis("REPLICAOF", "127.0.0.1", "1"); c.redis("REPLICAOF", "NO", "ONE") }},
		{"SAVE, restart", func() { c.redis("SAVE"); c.server.Kill(); c.check(c.server.Restart(c.Context())) }},
		{"BGREWRITEAOF, restart", c.rewrite},
		{"DEBUG RELOAD", func() { c.redis("DEBUG", "RELOAD") }},
		{"DEBUG SLEEP", func() { c.redis("DEBUG", "SLEEP", "0.5") }},
		{"CLIENT PAUSE", func() { c.redis("CLIENT", "PAUSE", "500"); c.lockAnother() }},
		{"CLIENT KILL", func() { c.redis("CLIENT", "KILL", "TYPE", "normal") }},
		{"a halt", func() { c.check(c.server.Pause()); c.lockAnother(); c.check(c.server.Resume()) }},
		{"out of memory for a while", func() {
			c.redis("CONFIG", "SET", "maxmemory", "1")
			c.lockAnother()
			c.redis("CONFIG", "SET", "maxmemory", "0")
		}},
	}
}

// note logs why an operator's command did nothing: the server may be a replica, or meet another event's changes.
func (c *chain) note(err error) {
	if err != nil {
		c.Log(err)
	}
}

// atOnce does something to all keys, with nothing between.
func (c *chain) atOnce(do string) {
	c.redis("EVAL", "for _, key in ipairs(redis.call('KEYS', '*')) do "+do+" end", "0")
}

// each sends a command for each key that matches. "copy" among its words stands for the key.
func (c *chain) each(pattern, command string, words ...string) {
	for _, key := range c.redis("KEYS", pattern).([]any) {
		args := []string{command, key.(string)}
		for _, word := range words {
			args = append(args, strings.Replace(word, "copy", key.(string), 1))
		}
		c.redis(args...)
	}
}

// rename has all keys with one prefix get another. One that is gone by then is left.
func (c *chain) rename(from, to string) {
	for _, key := range c.redis("KEYS", from+"*").([]any) {
		_, err := c.server.Do("RENAME", key.(string), to+strings.TrimPrefix(key.(string), from))
		c.note(err)
	}
}

// evict has the server delete all keys to make room.
func (c *chain) evict() {
	c.redis("CONFIG", "SET", "maxmemory-policy", "allkeys-random", "maxmemory", "1")
	locktest.Await(c.T, "all keys are evicted", func() bool {
		_, err := c.server.Do("SET", "more", "")
		return err != nil && c.redis("DBSIZE") == int64(0)
	})
	c.redis("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
}

// emptyDatabase returns one that had no keys so far. One that had them would set the server back, or keep its own.
func (c *chain) emptyDatabase() string {
	c.databases++
	return strconv.Itoa(7 + c.databases)
}

// lockAnother has the holder's client try another lock, and release it.
func (c *chain) lockAnother() {
	if lock, err := c.client.TryLock(c.Context(), "used"); err == nil {
		_ = lock.Unlock(c.Context()) // what it returns depends on the other events
	}
}

// rewrite has the server write an append-only file, and restart with it.
func (c *chain) rewrite() {
	c.redis("CONFIG", "SET", "appendonly", "yes")
	c.redis("CONFIG", "REWRITE")
	awaitFile(c.T, c.server)
	c.redis("BGREWRITEAOF")
	awaitFile(c.T, c.server) // the process that writes it may have the server's port for a moment
	locktest.KillAndRestart(c.T, c.server)
}

// replicate makes the other one a replica of the server, and a master again that has data of its own: neither can then
// follow the other without taking over all its data.
func (c *chain) replicate() {
	follow(c.T, c.other, c.server)
	c.diverge()
}

func (c *chain) diverge() {
	locktest.Do(c.T, c.other, "REPLICAOF", "NO", "ONE")
	locktest.Do(c.T, c.other, "SET", "diverged", "1")
}

// failback makes the server follow the other one, whose data is old, and makes it a master again.
func (c *chain) failback() {
	follow(c.T, c.server, c.other)
	c.redis("REPLICAOF", "NO", "ONE")
}

// failOver has the other one take the server's place, with all its data, and give it back.
func (c *chain) failOver() {
	c.yield()
	failOver(c, c.other, c.server)
	c.diverge()
}

// yield has the other one take the server's place, with all its data.
func (c *chain) yield() {
	follow(c.T, c.other, c.server)
	failOver(c, c.server, c.other)
}

// failOver has a master give its place to its replica.
func failOver(c *chain, master, replica *redistest.Server) {
	host, port, err := net.SplitHostPort(replica.Addr())
	c.check(err)
	locktest.Await(c.T, "the master hands over", func() bool {
		_, err := master.Do("FAILOVER", "TO", host, port)
		return err == nil
	})
	locktest.Await(c.T, "the replica is the master", func() bool {
		role, err := master.Do("ROLE")
		return err == nil && strings.HasPrefix(fmt.Sprint(role), "[slave")
	})
	c.check(master.AwaitLink(c.Context()))
}
