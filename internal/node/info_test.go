package node

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

func infoOf(t *testing.T, s *redistest.Server) info {
	t.Helper()
	// As inspect.lua reads it.
	reply, err := s.Do("EVAL", `local all = {}
for i, section in ipairs({'server', 'replication', 'persistence', 'memory', 'stats', 'commandstats'}) do all[i] = redis.call('INFO', section) end
return table.concat(all)`, "0")
	if err != nil {
		t.Fatal(err)
	}
	return parseInfo(reply.(string))
}

func command(t *testing.T, s *redistest.Server, args ...string) {
	t.Helper()
	if _, err := s.Do(args...); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
}

// What is read from the INFO of real servers, before and after what it is to
// tell of.
func TestInfoOfRealServers(t *testing.T) {
	t.Parallel()
	for _, binary := range redistest.Flavors() {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t, redistest.Options{Binary: binary})
			f := infoOf(t, server)
			if len(f["run_id"]) != 40 || f["role"] != "master" || f.uptime() < 0 || f.uptime() > time.Hour {
				t.Errorf("run %q, role %q, up %v", f["run_id"], f["role"], f.uptime())
			}
			if f.promoted() || f.flushed() || f.evicting() || f.keepsScripts() {
				t.Errorf("fresh: promoted %t, flushed %t, evicting %t, keeps scripts %t", f.promoted(), f.flushed(), f.evicting(), f.keepsScripts())
			}
			if f["aof_enabled"] != "0" {
				t.Errorf("aof_enabled is %q", f["aof_enabled"])
			}

			command(t, server, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
			if infoOf(t, server).evicting() {
				t.Error("evicting without a limit")
			}
			command(t, server, "CONFIG", "SET", "maxmemory", "100mb")
			if !infoOf(t, server).evicting() {
				t.Error("not evicting under allkeys-lru with a limit")
			}
			command(t, server, "CONFIG", "SET", "maxmemory-policy", "noeviction")
			if infoOf(t, server).evicting() {
				t.Error("evicting under noeviction")
			}
			command(t, server, "CONFIG", "SET", "appendonly", "yes")
			if infoOf(t, server)["aof_enabled"] != "1" {
				t.Error("aof_enabled is not 1")
			}

			command(t, server, "FLUSHDB")
			if !infoOf(t, server).flushed() {
				t.Error("FLUSHDB leaves no trace")
			}
			command(t, server, "CONFIG", "RESETSTAT")
			command(t, server, "FLUSHALL")
			if !infoOf(t, server).flushed() {
				t.Error("FLUSHALL leaves no trace")
			}

			replica := redistest.NewReplica(t, server)
			if f := infoOf(t, replica); f["role"] != "slave" || f.promoted() {
				t.Errorf("replica: role %q, promoted %t", f["role"], f.promoted())
			}
			command(t, replica, "REPLICAOF", "NO", "ONE")
			if f := infoOf(t, replica); f["role"] != "master" || !f.promoted() {
				t.Errorf("promoted: role %q, promoted %t", f["role"], f.promoted())
			}
			if infoOf(t, server)["run_id"] == infoOf(t, replica)["run_id"] {
				t.Error("two servers share a run_id")
			}
		})
	}
}

func TestParseInfo(t *testing.T) {
	t.Parallel()
	f := parseInfo("# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.0.1\r\nuptime_in_seconds:61\r\n\r\n# Other\nexecutable:C:\\redis:server\nempty:\n")
	if f["redis_version"] != "7.2.4" || f.uptime() != 60*time.Second || f["executable"] != `C:\redis:server` || f["empty"] != "" {
		t.Errorf("%v", f)
	}
	if len(f) != 5 {
		t.Errorf("%d fields: %v", len(f), f)
	}
	if f.number("none") != 0 || f.number("executable") != 0 {
		t.Error("a number was made of nothing")
	}
}

// Scripts may outlive a restart before version 7; what cannot be read is
// taken to be old.
func TestKeepsScripts(t *testing.T) {
	t.Parallel()
	for version, keeps := range map[string]bool{
		"6.2.14": true, "5.0.3": true, "7.0.0": false, "7.2.4": false, "8.0.1": false, "10.1.0": false, "": true, "unstable": true,
	} {
		if got := (info{"redis_version": version}).keepsScripts(); got != keeps {
			t.Errorf("version %q: %t", version, got)
		}
	}
}
