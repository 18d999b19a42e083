package script

import _ "embed"

//go:embed pulse.lua
var pulseLua string

// Pulse goes before a WAIT.
var Pulse = New(pulseLua)
