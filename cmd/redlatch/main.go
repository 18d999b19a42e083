// Redlatch takes distributed locks on Redis and Valkey from the shell.
//
// `redlatch run NAME... -- COMMAND` runs COMMAND while holding the lock NAME;
// `redlatch --help` lists the other commands.
package main

import "os"

func main() {
	runsMain = true
	os.Exit(execute(os.Args[1:]))
}

// runsMain reports that this program calls main if it starts itself again. A test
// binary does so only if TestMain sees to it. Otherwise the second process would run
// all tests, one of which starts the program again, and so on without end.
var runsMain bool
