package doctor

// Ensemble is what was seen of an ensemble of ZooKeeper or a cluster of etcd. Examine of packages
// zookeeper and etcd returns it.
type Ensemble struct {
	// Members are the servers that were named, in their order.
	Members []Member
	// Quorum says that a majority of the ensemble answers, so that locks can be acquired.
	Quorum bool
	// Problems say what is wrong, in plain words.
	Problems []Problem
}

// Member is one server of an ensemble.
type Member struct {
	// Address is host:port.
	Address string
	// Version and Role are what it says of itself; "" where it does not say.
	Version, Role string
	// Err is why it cannot be examined, or nil.
	Err error
}

// Problem is something that is wrong, and its remedy.
type Problem struct {
	// Unusable says that because of it no lock can be acquired, or that two holders may have one.
	// Otherwise locks are safe, but something should be mended.
	Unusable bool
	// Member is the address of the server concerned, or "".
	Member       string
	Text, Remedy string
}
