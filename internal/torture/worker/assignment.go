package worker

import "time"

// Assignment is what one worker is to do.
type Assignment struct {
	// Worker is its number, from 1. Life counts its processes: a killed worker's
	// successor has the next.
	Worker int `json:"worker"`
	Life   int `json:"life"`
	// Nodes are URLs, each with the node's name as its fragment, or with an Engine host:port of the
	// servers of one ensemble. Names are the locks to take in turn.
	Nodes []string `json:"nodes"`
	// Engine is that of Redlatch's own workers, none for Redis.
	Engine string   `json:"engine,omitempty"`
	Names  []string `json:"names"`
	TTLMS  int64    `json:"ttl_ms"`
	// Logs are the files that its events go to: it has a caller for each, who all
	// share one client. Register is the host:port of what the locks protect.
	Logs     []string `json:"logs"`
	Register string   `json:"register"`
	// Probe: it has its locks for itself, takes them again and again, each caller
	// one, and touches no register, to find out whether a lock could be had.
	Probe bool   `json:"probe,omitempty"`
	Seed  uint64 `json:"seed"`
	// HoldMS is how long the longest of the ordinary holds takes, and LongHolds the
	// share of those that take about a TTL, and have to be renewed.
	HoldMS    int64   `json:"hold_ms"`
	LongHolds float64 `json:"long_holds"`
	// Primitives are what its callers take, one of them at random each time: no more than the locks of one
	// name if there are none, or for a Locker that is no Taker. Permits is how many there are of a name.
	Primitives []Primitive `json:"primitives,omitempty"`
	Permits    int         `json:"permits,omitempty"`
	// Deployment, MaxTTLMS and Control are for Redlatch's own workers. MaxTTLMS defaults to
	// TTLMS. Those of the control run use a lock that is broken.
	Deployment string `json:"deployment,omitempty"`
	MaxTTLMS   int64  `json:"max_ttl_ms,omitempty"`
	Control    bool   `json:"control,omitempty"`
}

// TTL is how long the servers are to keep a lock.
func (a Assignment) TTL() time.Duration { return time.Duration(a.TTLMS) * time.Millisecond }

// Report is a line of a worker's stdout.
type Report struct {
	Ready  bool   `json:"ready,omitempty"`
	Rested bool   `json:"rested,omitempty"`
	Failed string `json:"failed,omitempty"`
}

// The orders that follow the assignment.
const (
	Go   = "go"
	Rest = "rest"
)

// A probe wants its lock within ProbePatience, else it could not be had.
const (
	ProbePatience = time.Second
	ProbePause    = 50 * time.Millisecond
)
