//go:build unix

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
)

// configureEtcd sets the command lines of the servers. fronts are the addresses at which they reach
// each other.
func (e *Ensemble) configureEtcd(fronts []string) {
	members := make([]string, len(e.Servers))
	for i, s := range e.Servers {
		members[i] = fmt.Sprintf("m%d=http://%s", s.id, fronts[i])
	}
	for i, s := range e.Servers {
		client := "http://" + s.Addr()
		s.command = []string{
			"etcd", "--name", fmt.Sprint("m", s.id), "--data-dir", filepath.Join(s.dir, "data"), "--log-level", "error", "--logger", "zap",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", "http://" + loopback(s.peer), "--initial-advertise-peer-urls", "http://" + fronts[i],
			"--initial-cluster", strings.Join(members, ","), "--initial-cluster-token", e.dir,
			"--heartbeat-interval", "100", "--election-timeout", "1000",
		}
	}
}

// post sends a request to a member's JSON gateway and decodes the answer.
func post(ctx context.Context, address, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Close = true // otherwise the client would keep the connection to a member that may be killed
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, reply.Status)
	}
	return json.NewDecoder(reply.Body).Decode(answer)
}

// etcdStatus is a member's answer to a status request.
type etcdStatus struct {
	Header struct {
		Member string `json:"member_id"`
	} `json:"header"`
	Leader  string `json:"leader"`
	Version string `json:"version"`
}

// statusOf returns a member's status, which is empty if the member does not answer.
func statusOf(ctx context.Context, address string) (s etcdStatus) {
	_ = post(ctx, address, "/v3/maintenance/status", struct{}{}, &s)
	return s
}

// etcdState returns leading, following, or "" if the member does not serve clients.
func etcdState(ctx context.Context, address string) string {
	switch s := statusOf(ctx, address); s.Leader {
	case "", "0":
		return ""
	case s.Header.Member:
		return leading
	}
	return following
}

func etcdVersion(ctx context.Context, address string) string {
	return "etcd " + statusOf(ctx, address).Version
}

// etcdLeft is Left for etcd. It does not count a lock's gates: a client that gives an attempt up
// writes one, and it stays until that client closes.
func etcdLeft(ctx context.Context, address, root string, names []string) (map[string]bool, error) {
	left := make(map[string]bool)
	for _, name := range names {
		place := root + "/lock/" + url.QueryEscape(name) + "/"
		var found struct {
			Kvs []struct {
				Key []byte `json:"key"`
			} `json:"kvs"`
		}
		// The range ends before the keys with "0", the character after "/".
		question := map[string][]byte{"key": []byte(place), "range_end": []byte(strings.TrimSuffix(place, "/") + "0")}
		if err := post(ctx, address, "/v3/kv/range", question, &found); err != nil {
			return nil, err
		}
		for _, kv := range found.Kvs {
			left[name] = left[name] || !strings.HasPrefix(string(kv.Key), place+"gate/")
		}
	}
	return left, nil
}
