package redlatch

import (
	"time"
)

// sleepCheck bounds how late a lock is found lost after the machine slept, as its alarm slept
// with it.
const sleepCheck = 250 * time.Millisecond

// longestNoSleep is what the two clocks may differ by though the machine did not sleep: they are
// read one after the other.
const longestNoSleep = 10 * time.Millisecond

// watchForSleep has the held locks looked after when the machine has slept, as long as there are any.
func (c *Client) watchForSleep() {
	now := c.clock.Now()
	c.mu.Lock()
	c.seen = now
	c.mu.Unlock()
	c.clock.AfterFunc(sleepCheck, c.checkSleep)
}

func (c *Client) checkSleep() {
	now := c.clock.Now()
	var wake []*Lock
	c.mu.Lock()
	slept := now.Boot - c.seen.Boot - now.Mono.Sub(c.seen.Mono)
	c.seen = now
	again := len(c.held) > 0
	c.watching = again
	if slept > longestNoSleep {
		for l := range c.held {
			wake = append(wake, l)
		}
	}
	c.mu.Unlock()
	for _, l := range wake {
		l.ring(0)
	}
	if again {
		c.clock.AfterFunc(sleepCheck, c.checkSleep)
	}
}
