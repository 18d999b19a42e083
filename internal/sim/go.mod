module github.com/redlatch/redlatch/internal/sim

go 1.26.0

require (
	github.com/redlatch/redlatch v0.1.0
	github.com/yuin/gopher-lua v1.1.1
)

require (
	github.com/redis/rueidis v1.0.79 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
