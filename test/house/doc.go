// Package house holds tests of the code's own order: the words it uses, the direction of its
// imports, and the rules that docs/rules.md says are kept, where. They need no servers.
package house
