package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/ensemble"
)

// examineTime bounds the look at a cluster.
const examineTime = 5 * time.Second

// Examine looks at a cluster and says what is wrong with it, for operators and health checks. Give
// it what clients are opened with. It changes nothing.
//
// It waits for all endpoints, for five seconds at most, or for ctx. What could not be found out by
// then is missing from the report, which says why. The error wraps redlatch.ErrInvalid when a
// setting cannot work or ctx is nil; then nothing was sent. With a User it is that of OpenWith if servers cannot
// be reached or refuse the user.
func Examine(ctx context.Context, config redlatch.Config, c Cluster) (doctor.Ensemble, error) {
	if ctx == nil {
		return doctor.Ensemble{}, invalid(ensemble.ErrNilContext)
	}
	c, err := checked(config, c)
	if err != nil {
		return doctor.Ensemble{}, err
	}
	client, err := dial(ctx, config, c)
	if err != nil {
		return doctor.Ensemble{}, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, examineTime)
	defer cancel()
	x := &examination{
		client: client, prefix: c.Prefix, names: make(map[uint64]string), status: make([]*etcdserverpb.StatusResponse, len(c.Endpoints)),
		report: doctor.Ensemble{Members: make([]doctor.Member, len(c.Endpoints))},
	}
	var all sync.WaitGroup
	for i, endpoint := range c.Endpoints {
		all.Go(func() { x.status[i], x.report.Members[i] = x.ask(ctx, endpoint) })
	}
	all.Go(func() { x.why, x.said = x.look(ctx) })
	all.Go(func() { x.members, x.unlisted = client.MemberList(ctx) })
	all.Go(func() { x.alarms, x.unheard = client.AlarmList(ctx) })
	all.Wait()
	x.judge()
	return x.report, nil
}

type examination struct {
	client *clientv3.Client
	prefix string
	report doctor.Ensemble
	// status is what each endpoint says, or nil. names are the endpoints by member id.
	status []*etcdserverpb.StatusResponse
	names  map[uint64]string
	// first is the first endpoint that answers, and cluster is the cluster that it is of.
	first   string
	cluster uint64
	// why says why the prefix cannot be used, as a majority has it, if that is so. said: servers
	// have said so.
	why               error
	said              bool
	members           *clientv3.MemberListResponse
	alarms            *clientv3.AlarmResponse
	unlisted, unheard error
}

// ask asks one endpoint what it is.
func (x *examination) ask(ctx context.Context, endpoint string) (*etcdserverpb.StatusResponse, doctor.Member) {
	m := doctor.Member{Address: endpoint}
	conn, err := x.client.Dial(endpoint)
	if err != nil {
		m.Err = err
		return nil, m
	}
	defer conn.Close()
	status, err := ask(ctx, conn)
	if err != nil {
		m.Err = errors.New(reason(err))
		return nil, m
	}
	m.Version, m.Role = status.Version, "follower"
	switch {
	case status.IsLearner:
		m.Role = "learner"
	case status.Leader == status.Header.GetMemberId():
		m.Role = "leader"
	}
	return status, m
}

// look reads the prefix as a majority has it, and tries whether the user may use it. It returns why
// it cannot be used, and whether servers have said so.
func (x *examination) look(ctx context.Context) (why error, said bool) {
	r, err := x.client.Get(ctx, x.prefix)
	if err != nil {
		return answer(err).Err, refuses(err)
	}
	if len(r.Kvs) > 0 { // otherwise the first client makes it
		if _, err = baseOf(x.prefix, string(r.Kvs[0].Value)); err != nil {
			return err, true
		}
	}
	// Servers check the rights for all of a transaction, even for writes whose condition never holds.
	_, err = x.client.Txn(ctx).If(clientv3.Compare(clientv3.Version(x.prefix), "<", 0)).
		Then(clientv3.OpPut(x.prefix, ""), clientv3.OpPut(x.prefix+lockPrefix, "")).
		Else(clientv3.OpGet(x.prefix+lockPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())).Commit()
	if refuses(err) {
		return answer(err).Err, true
	}
	return nil, false // what else is in the way of a write, an alarm tells
}

// judge says what is wrong.
func (x *examination) judge() {
	x.judgeWhole()
	for i, m := range x.report.Members {
		status := x.status[i]
		if status == nil {
			x.add(false, m.Address, "it cannot be examined: "+m.Err.Error(), "check that it runs, and that this machine can connect to it")
			continue
		}
		if same := x.names[status.Header.GetMemberId()]; same != "" {
			x.add(false, m.Address, "it is the same member as "+same, "name each once")
		}
		x.names[status.Header.GetMemberId()] = m.Address
		if x.first == "" {
			x.first, x.cluster = m.Address, status.Header.GetClusterId()
		}
		if status.Header.GetClusterId() != x.cluster {
			x.add(true, m.Address, "it is of another cluster than "+x.first+": two may hold one lock", "name the members of one cluster")
		}
		if status.Leader == 0 {
			x.add(false, m.Address, "it has no leader", "check that it reaches the other members")
		}
		if status.IsLearner {
			x.add(false, m.Address, "it is a learner, which serves no client", "promote it, or name another member")
		}
		if defect, remedy := defectOf(m.Version); defect != "" {
			x.add(true, m.Address, "version "+m.Version+" "+defect, remedy)
		}
	}
	if x.alarms == nil {
		if x.why == nil {
			x.add(false, "", "no member has told of its alarms, which may keep the cluster from taking writes: "+answer(x.unheard).Err.Error(), "see that all endpoints answer, and look again")
		}
		return
	}
	for _, alarm := range x.alarms.Alarms {
		switch alarm.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			x.add(true, x.names[alarm.MemberID], "alarm NOSPACE: its data has reached the quota, and the cluster takes no write: no lock can be acquired",
				"compact and defragment it or raise --quota-backend-bytes, then etcdctl alarm disarm")
		case etcdserverpb.AlarmType_CORRUPT:
			x.add(true, x.names[alarm.MemberID], "alarm CORRUPT: its data differs from the others': two may hold one lock", "replace the member, then etcdctl alarm disarm")
		}
	}
}

// judgeWhole judges the cluster as a whole.
func (x *examination) judgeWhole() {
	switch x.report.Quorum = x.why == nil || x.said; {
	case x.said:
		x.add(true, "", x.why.Error(), "correct the configuration of the servers, or the settings with which clients are opened")
	case x.why != nil:
		x.add(true, "", "no majority of the cluster answers: no lock can be acquired: "+x.why.Error(), "bring back members until a majority runs")
	}
	if x.unlisted != nil || x.members == nil {
		return
	}
	voting := 0
	for _, m := range x.members.Members {
		if !m.IsLearner {
			voting++
		}
	}
	switch {
	case voting == 1:
		x.add(false, "", "the cluster has one member: while it is down no lock can be acquired, and with its disk all locks are lost", "run three or five members, so that a majority goes on")
	case voting%2 == 0:
		x.add(false, "", fmt.Sprintf("the cluster has %d voting members: it tolerates the loss of %d, no more than with %d members", voting, (voting-1)/2, voting-1), "run an odd number")
	}
}

func (x *examination) add(unusable bool, member, text, remedy string) {
	x.report.Problems = append(x.report.Problems, doctor.Problem{Unusable: unusable, Member: member, Text: text, Remedy: remedy})
}

// defectOf says what is wrong with a version for locks, if anything is known.
func defectOf(version string) (defect, remedy string) {
	var major, minor, patch int
	fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch)
	switch {
	case major < 3 || major == 3 && minor < 4:
		return "is older than those that this library is tested with", "use 3.4 or later"
	case major == 3 && minor == 5 && patch < 3:
		return "may lose committed writes on a member that is killed under load: two may hold one lock", "use 3.5.3 or later"
	}
	return "", ""
}
