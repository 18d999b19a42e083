package script

import _ "embed"

//go:embed quarantine.lua
var quarantineLua string

// Quarantine keeps a node out, and may give it to another description of its deployment. It
// lets nobody vote, so it may be loaded on any node at any time.
var Quarantine = New(quarantineLua)
