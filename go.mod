module github.com/redlatch/redlatch

go 1.26

require (
	github.com/redis/rueidis v1.0.79
	golang.org/x/sys v0.47.0
)
