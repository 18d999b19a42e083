package judge

import (
	"encoding/binary"
	"slices"
)

// readers are the ids of those who have a lock together, in order, four bytes each: states are compared.
type readers string

func (r readers) at(id int) (index int, key []byte, there bool) {
	key = binary.BigEndian.AppendUint32(nil, uint32(id))
	ids := slices.Collect(slices.Chunk([]byte(r), len(key)))
	index, there = slices.BinarySearchFunc(ids, key, slices.Compare)
	return index * len(key), key, there
}

func (r readers) with(id int) readers {
	i, key, _ := r.at(id)
	return r[:i] + readers(key) + r[i:]
}

func (r readers) without(id int) (rest readers, was bool) {
	i, key, there := r.at(id)
	if !there {
		return r, false
	}
	return r[:i] + r[i+len(key):], true
}
