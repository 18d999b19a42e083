package doctor

// Ensemble is what was seen of an ensemble of ZooKeeper or a cluster of etcd: the Examine of packages
// zookeeper and etcd returns it.
type Ensemble struct {
	// Members are the servers that were named, in their order.
	Members []Member
	// Quorum says that a majority of the ensemble answers, so that locks are to be had.
	Quorum bool
	// Problems are what is wrong, in plain words.
	Problems []Problem
}

// Member is one server.
type Member struct {
	// Address is host:port.
	Address string
	// Version and Role are what it says of itself; "" where it does not.
	Version, Role string
	// Err is why it cannot be asked, or nil.
	Err error
}

// Problem is something that is wrong, and its remedy.
type Problem struct {
	// Unusable says that no lock can be had because of it, or that two may hold one. Else locks are
	// safe, and something should be mended.
	Unusable bool
	// Member is the address of the server that it is about, or "".
	Member       string
	Text, Remedy string
}
