package script

import _ "embed"

//go:embed reset.lua
var resetLua string

// Reset makes a node forget which deployment it served, and begins its
// quarantine. It lets nobody vote, so it may be loaded on any node at any time.
var Reset = New(resetLua)
