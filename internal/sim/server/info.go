package server

import (
	"fmt"
	"strings"
)

// sections are those of INFO, in order.
var sections = []struct {
	name  string
	write func(s *Server, b []byte) []byte
}{
	{"server", func(s *Server, b []byte) []byte {
		b = fmt.Appendf(b, "# Server\r\nredis_version:%s\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n",
			s.Version, s.RunID, max(0, s.now.Unix()-s.Started.Unix()))
		if s.Nodes != nil {
			b = append(b, "redis_mode:cluster\r\n"...)
		}
		return b
	}},
	{"memory", func(_ *Server, b []byte) []byte {
		return append(b, "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"...)
	}},
	{"persistence", func(s *Server, b []byte) []byte {
		enabled := 0
		if s.AppendFsync != "" {
			enabled = 1
		}
		return fmt.Appendf(b, "# Persistence\r\naof_enabled:%d\r\n", enabled)
	}},
	{"stats", func(s *Server, b []byte) []byte {
		return fmt.Appendf(b, "# Stats\r\ntotal_net_repl_input_bytes:%d\r\n", s.Received)
	}},
	{"replication", func(s *Server, b []byte) []byte {
		role := "master"
		if s.Replica {
			role = "slave"
		}
		return fmt.Appendf(b, "# Replication\r\nrole:%s\r\nconnected_slaves:%d\r\nmaster_replid:%s\r\nsecond_repl_offset:%d\r\n",
			role, s.Replicas, s.ReplicationID, s.Offset)
	}},
	{"commandstats", func(s *Server, b []byte) []byte {
		b = append(b, "# Commandstats\r\n"...)
		if s.flushes > 0 {
			b = fmt.Appendf(b, "cmdstat_flushall:calls=%d,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0\r\n", s.flushes)
		}
		if s.reset {
			b = append(b, "cmdstat_config|resetstat:calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0\r\n"...)
		}
		return b
	}},
}

// info is INFO [section ...].
func (s *Server) info(args []string) reply {
	var room [512]byte
	b := room[:0]
	for _, section := range sections {
		wanted := len(args) == 1 && section.name != "commandstats"
		for _, name := range args[1:] {
			wanted = wanted || strings.EqualFold(name, section.name) || strings.EqualFold(name, "all")
		}
		if !wanted {
			continue
		}
		if len(b) > 0 {
			b = append(b, "\r\n"...)
		}
		b = section.write(s, b)
	}
	return text(string(b))
}
