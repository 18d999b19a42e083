package judge

import (
	"encoding/binary"
	"slices"
)

// readers is the set of the readers that hold a lock: their ids in order, four bytes each. It is a string
// because porcupine compares states with ==.
type readers string

// at returns the index in r at which id is or would be, and id as four bytes.
func (r readers) at(id int) (index int, key []byte, there bool) {
	key = binary.BigEndian.AppendUint32(nil, uint32(id))
	ids := slices.Collect(slices.Chunk([]byte(r), len(key)))
	index, there = slices.BinarySearchFunc(ids, key, slices.Compare)
	return index * len(key), key, there
}

// with returns r with id.
func (r readers) with(id int) readers {
	i, key, _ := r.at(id)
	return r[:i] + readers(key) + r[i:]
}

// without returns r without id, and whether id was in r.
func (r readers) without(id int) (rest readers, was bool) {
	i, key, there := r.at(id)
	if !there {
		return r, false
	}
	return r[:i] + r[i+len(key):], true
}
