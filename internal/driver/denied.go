package driver

import "strings"

// Denied reports that the ACL denies the user what was asked, or what a script asked, and
// which command that is as an ACL calls it, such as "client|id": "" where the server does
// not say, and where it is a key or a channel.
func (e *ServerError) Denied() (command string, ok bool) {
	text := strings.TrimPrefix(e.Text, "ERR ") // which clients may leave out
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
