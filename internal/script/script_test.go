package script

import "testing"

// The script by which clients of any version see that a server may have voted is the same in all of them.
func TestVotedIsTheSameInAllVersions(t *testing.T) {
	const text, sha = "-- redlatch deployment orders\nreturn 1\n", "689e5464dc8667a71ff3cab2fe612537d9db1def"
	if got := Voted("orders"); got.Text != text || got.SHA != sha {
		t.Errorf("%q, %s", got.Text, got.SHA)
	}
}
