package redlatch

// refuseShared returns an error where the call cannot be a reader's.
func (c *call) refuseShared(wait bool) error {
	_, store := c.client.store()
	switch {
	case store:
		return errNoShared
	case c.settings.also != nil:
		return invalid("WithShared goes with one name: lock the names one by one, always in the same order, or leave out WithAlso")
	case c.settings.leading:
		return invalid("WithShared: one at a time leads: leave it out of Campaign")
	case wait && !c.settings.queue:
		return invalid("WithoutQueue: a reader would pass the writers who wait: leave it out, or use TryLock")
	}
	return nil
}
