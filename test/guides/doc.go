// Package guides has the Go code of the pages in docs/guides, and tests that run it on real
// servers. What a page shows stands here word for word.
package guides
