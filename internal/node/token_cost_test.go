package node

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// Copies of the acquire step that lack one of its parts, to measure what that
// part costs.
var lesser = map[string]string{
	"token": `
		local seen = redis.call('MGET', KEYS[1], KEYS[3])
		if string.sub(seen[2] or '', 1, -18) ~= ARGV[7] then return 0 end
		if seen[1] == ARGV[2] then return 1 end
		if seen[1] then return {seen[1], redis.call('PTTL', KEYS[1])} end
		if not redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3], 'NX') then return redis.call('GET', KEYS[1]) end
		return 1`,
	"token and fence": `
		local seen = redis.call('GET', KEYS[1])
		if seen == ARGV[2] then return 1 end
		if seen then return {seen, redis.call('PTTL', KEYS[1])} end
		if not redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3], 'NX') then return redis.call('GET', KEYS[1]) end
		return 1`,
}

// BenchmarkTokenCost compares the acquire step with one that takes no fencing
// token, and with one that also looks for no admission, by the time until the
// answer and by the server's own count. An iteration asks each in turn, so that
// what changes with time falls on all.
func BenchmarkTokenCost(b *testing.B) {
	for _, binary := range redistest.Flavors() {
		b.Run(binary, func(b *testing.B) { tokenCost(b, binary) })
	}
}

func tokenCost(b *testing.B, binary string) {
	server := redistest.New(b, redistest.Options{Binary: binary})
	options, _, err := redisconn.Parse(server.URL())
	if err != nil {
		b.Fatal(err)
	}
	options.ConnectTimeout = time.Second
	conn, err := redisconn.New(options)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	do := func(args ...string) string {
		b.Helper()
		reply, err := conn.Do(b.Context(), args...)
		if err != nil {
			b.Fatal(err)
		}
		return reply.Text
	}

	info, err := server.Info("replication")
	if err != nil {
		b.Fatal(err)
	}
	admitted := "agreement run " + info["master_replid"]
	scripts := map[string]string{"all": script.Voting("default").Text}
	for part, text := range lesser {
		// The dispatch of the real one is part of each.
		scripts[part] = "if ARGV[1] == 'acquire' then\n" + text + "\nend\nreturn redis.error_reply('REDLATCH no such step')"
	}
	names := []string{"all", "token", "token and fence"}
	loaded := make(map[string]string)
	for name, text := range scripts {
		loaded[name] = do("SCRIPT", "LOAD", text)
	}
	do("SET", DeploymentKeys("default")[0], admitted+" 0000000000000000")
	keys := []string{"job", CounterKey("job"), DeploymentKeys("default")[0], NextKey("job")}

	id := 0
	acquire := func(name string) time.Duration {
		id++
		now := time.Now().UnixMicro()
		args := []string{script.Acquire, "holder" + strconv.Itoa(id), "10000", strconv.FormatInt(now, 10), strconv.FormatInt(now/1e6, 10), "34000", admitted}
		sent := time.Now()
		reply, err := conn.EvalSHA(context.Background(), loaded[name], keys, args)
		took := time.Since(sent)
		if err != nil || reply.Int < 1 {
			b.Fatalf("%s: %+v, %v", name, reply, err)
		}
		do("DEL", "job")
		return took
	}

	times := make(map[string][]float64)
	for b.Loop() {
		first := id % len(names)
		for i := range names {
			name := names[(first+i)%len(names)]
			times[name] = append(times[name], float64(acquire(name).Nanoseconds())/1e3)
		}
		id++ // the next round begins with the next
	}
	all := middle(times["all"])
	b.ReportMetric(all, "µs")
	b.ReportMetric(all/middle(times["token"]), "×latency-tokenless")
	b.ReportMetric(all/middle(times["token and fence"]), "×latency-bare")

	// The server's own count is for all scripts together, so each has a block of
	// its own, and many of them.
	const blocks, calls = 21, 100
	spent := make(map[string][]float64)
	for range blocks {
		for _, name := range names {
			before := evalMicros(b, do)
			for range calls {
				acquire(name)
			}
			spent[name] = append(spent[name], (evalMicros(b, do)-before)/calls)
		}
	}
	all = middle(spent["all"])
	b.ReportMetric(all, "script-µs")
	b.ReportMetric(all/middle(spent["token"]), "×script-tokenless")
	b.ReportMetric(all/middle(spent["token and fence"]), "×script-bare")
	b.ReportMetric(0, "ns/op") // an iteration's time says nothing
}

// evalMicros is the time the server has spent in EVALSHA, in µs.
func evalMicros(b *testing.B, do func(...string) string) float64 {
	b.Helper()
	_, text, _ := strings.Cut(do("INFO", "commandstats"), "cmdstat_evalsha:")
	_, text, _ = strings.Cut(text, "usec=")
	text, _, _ = strings.Cut(text, ",")
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func middle(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
