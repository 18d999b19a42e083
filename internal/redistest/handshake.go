package redistest

import "strings"

// prepare notes what a command changes about the bytes to come, before the
// server can answer it.
func (l *link) prepare(args []string) {
	switch strings.ToUpper(args[0]) {
	case "HELLO":
		if len(args) > 1 {
			l.resp3.Store(args[1] == "3")
		}
	case "PSYNC", "SYNC":
		l.raw.Store(true)
	}
}

// remember keeps the first commands of a connection, which make it what the
// client takes it for.
func (l *link) remember(it item) {
	if l.greeted || len(it.args) == 0 {
		return
	}
	switch strings.ToUpper(it.args[0]) {
	case "HELLO", "AUTH", "SELECT", "CLIENT":
		l.handshake = append(l.handshake, Command{Conn: l.conn, N: l.commands, Args: it.args})
	default:
		l.greeted = true
	}
}
