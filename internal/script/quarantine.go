package script

import _ "embed"

//go:embed quarantine.lua
var quarantineLua string

// Quarantine keeps a node out of the vote, and may store a new description of its deployment. It
// lets nobody vote, so it may be loaded on any node at any time.
var Quarantine = New(quarantineLua)
