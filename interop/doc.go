// Package interop runs other lock libraries against Redlatch on the same real
// servers, both ways. It holds tests only; docs/interop.md has the table that
// they keep true.
package interop
