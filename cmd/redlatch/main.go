// Redlatch takes distributed locks on Redis and Valkey from the shell.
//
// `redlatch run NAME... -- COMMAND` runs COMMAND while holding NAME; `redlatch
// --help` lists the rest.
package main

import "os"

func main() {
	runsMain = true
	os.Exit(execute(os.Args[1:]))
}

// runsMain: this program, when it is started again, comes to main with its command
// line. A test binary does only if TestMain sees to it. Else it would run all of its
// tests, of which one starts it again, and so on without end.
var runsMain bool
