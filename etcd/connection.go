package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/redlatch/redlatch"
)

// dial makes a client of a cluster, which ends with ctx.
func dial(ctx context.Context, config redlatch.Config, c Cluster) (*clientv3.Client, error) {
	settings := clientv3.Config{
		Context:   ctx,
		Endpoints: c.Endpoints, Username: c.User, Password: c.Password, TLS: config.TLS, Logger: zap.NewNop(),
		// Servers object to more frequent probes.
		DialTimeout: connectTime, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(connecting), grpc.WithChainUnaryInterceptor(passLearners)},
	}
	withUser := settings
	withUser.DialOptions = append(withUser.DialOptions, grpc.WithChainUnaryInterceptor(authenticateAnew(settings)))
	client, err := clientv3.New(withUser)
	switch {
	case refuses(err):
		return nil, fmt.Errorf("etcd: %w: %w", redlatch.ErrRefused, err)
	case err != nil:
		return nil, fmt.Errorf("etcd: %w: %w", redlatch.ErrNoQuorum, explain(settings, err))
	}
	return client, nil
}

// connecting bounds a try to connect, so that a call that waits for it can say why it failed, and the pause before the next one, which
// would become two minutes while a member is down.
var connecting = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: time.Second, Multiplier: 1, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: 1500 * time.Millisecond,
}

// errLearner is what a learner answers to every request for a lock. It has executed nothing.
var errLearner = rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)

// maxLearners is how many learners are asked one after the other. A cluster has one, unless it was told to have more.
const maxLearners = 8

// passLearners asks the next member where a learner was asked: members are asked in turn.
func passLearners(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) (err error) {
	for range maxLearners {
		if err = invoke(ctx, method, request, reply, conn, options...); !errors.Is(rpctypes.Error(err), errLearner) {
			return err
		}
	}
	return err
}

// authenticateAnew makes a client give its password on a connection of its own where a server has forgotten the token that it was
// given before: the client sends that token with the password, and servers of version 3.4 refuse the password because of it, each time.
func authenticateAnew(settings clientv3.Config) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, method, request, reply, conn, options...)
		if method != pb.Auth_Authenticate_FullMethodName || !errors.Is(rpctypes.Error(err), rpctypes.ErrInvalidAuthToken) {
			return err
		}
		client, failed := withoutUser(settings)
		if failed != nil {
			return err
		}
		defer client.Close()
		return client.ActiveConnection().Invoke(ctx, method, request, reply, options...)
	}
}

// withoutUser makes a client that sends nothing when it is made.
func withoutUser(settings clientv3.Config) (*clientv3.Client, error) {
	settings.Username, settings.Password = "", ""
	return clientv3.New(settings)
}

// explain returns the error of a client that could not authenticate its user, with why it could not connect if that
// is so.
func explain(settings clientv3.Config, err error) error {
	client, failed := withoutUser(settings)
	if failed != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(settings.Context, connectTime+stepTime)
	defer cancel()
	if why := whyNot(ctx, client.ActiveConnection()); why != "" {
		return errors.New(why)
	}
	return err
}

// ask asks the member at the end of a connection what it is. It returns an error when that cannot be connected.
func ask(ctx context.Context, conn *grpc.ClientConn) (*pb.StatusResponse, error) {
	r := new(pb.StatusResponse)
	return r, conn.Invoke(ctx, pb.Maintenance_Status_FullMethodName, new(pb.StatusRequest), r)
}

// whyNot says what the last try to connect met, or returns "" if that is not known.
func whyNot(ctx context.Context, conn *grpc.ClientConn) string {
	_, err := ask(ctx, conn)
	if status.Code(err) != codes.Unavailable {
		return ""
	}
	return reason(err)
}

// reason is the text of an error of a connection. It has a remedy if something was connected, and nothing is said of
// its certificate, which is a reason of its own.
func reason(err error) string {
	text := status.Convert(err).Message()
	if status.Code(err) == codes.Unavailable && !strings.Contains(text, "dial tcp") && !strings.Contains(text, "certificate") {
		text = "what is connected has not answered as a member of etcd does (" + text + "): see whether it hangs, look at Cluster.Endpoints, and whether these want TLS (redlatch.Config.TLS, or etcds:// in a URL)"
	}
	return text
}
