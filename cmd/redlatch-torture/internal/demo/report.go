package demo

import "time"

// assignment is the first line that a worker reads. At the second line, "go", it starts to
// race, and at the end of its stdin it stops.
type assignment struct {
	Worker int      `json:"worker"` // from 1
	Nodes  []string `json:"nodes"`
	Engine string   `json:"engine,omitempty"`
	Dir    string   `json:"dir"` // where the record is
	NoLock bool     `json:"no_lock,omitempty"`
}

// report is one line that a worker writes: that it is ready, that it has failed, or the
// result of one turn at the record.
type report struct {
	Ready bool `json:"ready,omitempty"`
	// Failed says why the worker gives up.
	Failed string `json:"failed,omitempty"`

	// Turn is when the worker acquired the lock, in ns since 1970. Wait is how long that took.
	Turn int64         `json:"turn,omitempty"`
	Wait time.Duration `json:"wait,omitempty"`
	// Unserved is how long the worker had waited for a turn when the race ended.
	Unserved time.Duration `json:"unserved,omitempty"`
	// Locked: the worker had the lock during the turn, which it does not have with NoLock.
	Locked bool `json:"locked,omitempty"`
	// Updated: the worker wrote the record, with a number one higher than it had read.
	Updated bool `json:"updated,omitempty"`
	// Overlap: another worker was at the record.
	Overlap string `json:"overlap,omitempty"`
	// Garbled: the record was damaged, or could not be read.
	Garbled string `json:"garbled,omitempty"`
	// Disorder: the fencing token was not larger than that of an earlier turn.
	Disorder string `json:"disorder,omitempty"`
	// Lost: the lock was lost before the update, so the worker did not make it.
	Lost bool `json:"lost,omitempty"`
	// Unreleased: no quorum confirmed the release of the lock.
	Unreleased bool `json:"unreleased,omitempty"`
}
