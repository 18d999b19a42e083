package legacy

import "time"

// Lockers of tests wait for servers of a busy machine.
func init() { commandPatience, connectPatience = 40*time.Second, 40*time.Second }

// NotPatient has the locker wait for an answer as long as others do.
func (l *Locker) NotPatient() { l.patience = commandTimeout }
