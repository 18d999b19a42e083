package node

import (
	"strconv"
	"strings"
)

// KeyPrefix begins every key that is not a lock.
const KeyPrefix = "redlatch:"

// CounterKey names the side key that holds a lock's fence counter. It lies in
// the record's Cluster hash slot, so that one script may touch both.
func CounterKey(record string) string {
	return KeyPrefix + "{" + hashTag(record) + "}:token:" + record
}

// The keys a deployment has once on every node.
func admissionKey(deployment string) string  { return KeyPrefix + "{" + deployment + "}:admitted" }
func recordKey(deployment string) string     { return KeyPrefix + "{" + deployment + "}:deployment" }
func quarantineKey(deployment string) string { return KeyPrefix + "{" + deployment + "}:quarantine" }

// hashTag returns a text that, put in braces at the head of a key, sends that
// key to the slot of key (Redis Cluster specification, "Hash tags").
func hashTag(key string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
			return key[open+1 : open+1+length]
		}
	}
	if !strings.ContainsRune(key, '}') {
		return key
	}
	// The whole key is hashed, but a tag ends at its first brace. Any other
	// text of the same slot does; one in 16384 numbers is.
	want := slot(key)
	for n := 0; ; n++ {
		if tag := strconv.Itoa(n); slot(tag) == want {
			return tag
		}
	}
}

// slot is CRC16-XMODEM modulo the number of slots of a Cluster.
func slot(text string) uint16 {
	var crc uint16
	for i := range len(text) {
		crc ^= uint16(text[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}
