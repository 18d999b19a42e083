package sim

import (
	"slices"
	"strconv"

	"github.com/redlatch/redlatch/internal/script"
)

func (s *twoServers) reader() string {
	return pick(s, "-+p:a/3", "-+p:a/4", "-+q:b/2", "-+r:c/2", "-+-d/2")
}

// readers sends a reader's step.
func (s *twoServers) readers(key string) {
	keys := []string{key, side("token", key), admission}
	queue := []string{key, side("token", key), side("next", key), side("readers", key)}
	counter := strconv.FormatInt(s.proposed(), 10)
	switch s.rng.IntN(8) {
	case 0, 1, 2:
		args := []string{script.AcquireShared, s.id(), s.ttl(), counter, counter[:len(counter)-6], endless, pick(s, s.expected(), s.expected(), s.expected(), "")}
		rest := []string{pick(s, "*", "", s.reader(), s.reader()), pick(s, "", s.id())}
		s.vote(append(slices.Clone(keys), side("next", key), side("readers", key)), append(args, rest[:s.rng.IntN(3)]...)...)
	case 3:
		s.vote(append(keys, side("readers", key)), script.ExtendShared, s.id(), s.ttl(), counter, endless, pick(s, s.expected(), "other"))
	case 4, 5:
		s.vote([]string{key, admission, side("next", key)}, script.Enqueue, s.reader(), pick(s, "0", "0", "1", "1764000000000001"), pick(s, s.expected(), s.expected(), ""))
	case 6:
		s.evalSHA(script.Releasing.SHA, queue[:3], []string{"nobody", "0", endless, s.reader(), "0"}) // to leave the queue
	default:
		args := []string{s.id(), pick(s, "0", counter), endless}
		if s.rng.IntN(2) == 0 {
			args = append(args, s.reader(), pick(s, "0", "1", "1764000000000001"))
		}
		s.evalSHA(script.ReleasingShared.SHA, queue, args)
	}
}
