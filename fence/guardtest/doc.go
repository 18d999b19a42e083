// Package guardtest tests the guards of package fence against real databases: PostgreSQL, SQLite, Redis and Valkey, the
// servers being started by the tests. It is a module of its own so that their drivers stay out of the library's.
//
// Installed must be PostgreSQL (found in PATH, below /usr/lib/postgresql, or in the directory that GUARDTEST_POSTGRES
// names) and redis-server or valkey-server. A missing server fails the tests; it never skips one. Where the tests
// run as root, the user postgres must exist, as PostgreSQL refuses to be run by root.
package guardtest
