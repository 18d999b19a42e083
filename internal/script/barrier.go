package script

import _ "embed"

//go:embed barrier.lua
var barrierLua string

// Barrier goes before a WAIT.
var Barrier = New(barrierLua)
