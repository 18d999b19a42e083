package demo

import "time"

// assignment is the first line that a worker reads. The second, "go", starts the
// race, and the end of its stdin ends it.
type assignment struct {
	Worker int      `json:"worker"` // from 1
	Nodes  []string `json:"nodes"`
	Engine string   `json:"engine,omitempty"`
	Dir    string   `json:"dir"` // where the record is
	NoLock bool     `json:"no_lock,omitempty"`
}

// report is one line from a worker: that it is ready, that it failed, or what
// became of one turn at the record.
type report struct {
	Ready bool `json:"ready,omitempty"`
	// Failed says why the worker gives up.
	Failed string `json:"failed,omitempty"`

	// Turn is when it got the lock, in ns since 1970; Wait, how long that took.
	Turn int64         `json:"turn,omitempty"`
	Wait time.Duration `json:"wait,omitempty"`
	// Unserved is how long the worker had waited for a turn when the race ended.
	Unserved time.Duration `json:"unserved,omitempty"`
	// Locked: the turn was had by the lock, not with NoLock.
	Locked bool `json:"locked,omitempty"`
	// Updated: the record was written, one higher than it was read.
	Updated bool `json:"updated,omitempty"`
	// Overlap: another worker was at the record.
	Overlap string `json:"overlap,omitempty"`
	// Garbled: the record was no record, or could not be read.
	Garbled string `json:"garbled,omitempty"`
	// Disorder: the fencing token was not larger than that of an earlier turn.
	Disorder string `json:"disorder,omitempty"`
	// Lost: the lock was lost before the update, which was not made.
	Lost bool `json:"lost,omitempty"`
	// Unreleased: the release of the lock did not get through to a quorum.
	Unreleased bool `json:"unreleased,omitempty"`
}
