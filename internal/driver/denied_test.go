package driver

import "testing"

// The texts of Redis 7.0 and Valkey 8.0.
func TestDenied(t *testing.T) {
	for text, want := range map[string]struct {
		command string
		ok      bool
	}{
		"NOPERM this user has no permissions to run the 'evalsha' command":                                 {"evalsha", true},
		"NOPERM User a has no permissions to run the 'client|id' command":                                  {"client|id", true},
		"NOPERM No permissions to access a key":                                                            {"", true},
		"NOPERM this user has no permissions to access one of the keys used as arguments":                  {"", true},
		"ERR ACL failure in script: User a has no permissions to run the 'set' command script: 36f9, on @": {"set", true},
		"ACL failure in script: No permissions to access a key":                                            {"", true},
		"ERR The user executing the script can't run this command or subcommand script: 36f9":              {"", true},
		"ERR The user executing the script can't access at least one of the keys mentioned":                {"", true},
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                {"", false},
		"ERR unknown command 'x'": {"", false},
	} {
		command, ok := (&ServerError{Text: text}).Denied()
		if command != want.command || ok != want.ok {
			t.Errorf("%s: %q, %t", text, command, ok)
		}
	}
}
