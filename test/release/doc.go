// Package release holds tests of what is published: that each module can be built by those who
// have nothing of this repository but its modules, that README.md is true for them, and what goes
// into the image and the archives.
package release
