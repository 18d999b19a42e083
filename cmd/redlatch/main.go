// Redlatch takes distributed locks on Redis and Valkey from the shell.
//
// `redlatch run NAME -- COMMAND` runs COMMAND while holding NAME; `redlatch
// --help` lists the rest.
package main

import "os"

func main() { os.Exit(execute(os.Args[1:])) }
