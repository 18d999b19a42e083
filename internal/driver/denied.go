package driver

import (
	"errors"
	"strings"
)

// Denied reports whether the ACL denies the user the command, or one that a script sent, and which
// command that is in the ACL's words, such as "client|id". command is "" where the server does not
// say, and where a key or a channel is denied.
func (e *ServerError) Denied() (command string, ok bool) {
	text := strings.TrimPrefix(e.Text, "ERR ") // clients may leave it out
	for _, beginning := range []string{"NOPERM ", "ACL failure in script", "The user executing the script can't "} {
		ok = ok || strings.HasPrefix(text, beginning)
	}
	if !ok {
		return "", false
	}
	_, rest, _ := strings.Cut(text, "permissions to run the '")
	command, _, named := strings.Cut(rest, "' command")
	if !named {
		return "", true
	}
	return command, true
}

// KeyDenied reports whether err is that the ACL denies the user a key. The same command may be permitted
// for another key.
func KeyDenied(err error) bool {
	refusal, ok := errors.AsType[*ServerError](err)
	if !ok {
		return false
	}
	command, denied := refusal.Denied()
	return denied && command == ""
}
