// Moves a server's wall clock while its monotonic clock runs on as it is.
//
// Preloaded, it stands before the C library's wall clock functions and adds an
// offset that another process may change at any time: a signed 64-bit number of
// microseconds, in the machine's own byte order, at the start of the file that
// REDISTEST_CLOCK_OFFSET names. The file is mapped, as these functions are
// called several times for each command.
//
// The time comes from the kernel by a plain system call. To look up the real
// functions instead would allocate, and the allocator of a server (jemalloc)
// asks for the time while it starts: the two would call each other for ever.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *offset;

// Calls that come before this constructor has run see the true time.
__attribute__((constructor)) static void map_offset(void) {
	const char *path = getenv("REDISTEST_CLOCK_OFFSET");
	if (path == NULL)
		return;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	void *p = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (p != MAP_FAILED)
		__atomic_store_n(&offset, (const int64_t *)p, __ATOMIC_RELEASE);
}

static int moved(clockid_t clock, struct timespec *ts) {
	int rc = (int)syscall(SYS_clock_gettime, clock, ts);
	const int64_t *p = __atomic_load_n(&offset, __ATOMIC_ACQUIRE);
	if (rc != 0 || p == NULL)
		return rc;
	int64_t us = __atomic_load_n(p, __ATOMIC_ACQUIRE);
	int64_t ns = (int64_t)ts->tv_nsec + us % 1000000 * 1000;
	ts->tv_sec += us / 1000000;
	if (ns < 0) {
		ns += 1000000000;
		ts->tv_sec -= 1;
	} else if (ns >= 1000000000) {
		ns -= 1000000000;
		ts->tv_sec += 1;
	}
	ts->tv_nsec = ns;
	return 0;
}

int clock_gettime(clockid_t clock, struct timespec *ts) {
	if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
		return moved(clock, ts);
	return (int)syscall(SYS_clock_gettime, clock, ts);
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
	struct timespec ts;
	(void)tz; // obsolete, and nobody passes one
	if (moved(CLOCK_REALTIME, &ts) != 0)
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec ts;
	if (moved(CLOCK_REALTIME, &ts) != 0)
		return (time_t)-1;
	if (t != NULL)
		*t = ts.tv_sec;
	return ts.tv_sec;
}
