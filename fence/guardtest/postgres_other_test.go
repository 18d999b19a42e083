//go:build !linux

package guardtest

import "syscall"

// postgresAttr leaves the server as it is started; here the tests are not run as root.
func postgresAttr(string) (*syscall.SysProcAttr, error) { return nil, nil }
