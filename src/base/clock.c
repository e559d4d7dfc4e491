#include "base/clock.h"

#include <stddef.h>
#include <time.h>

/* Sync: set only while no other thread reads the clock. */
static uint64_t (*clock_fn)(void *user);
static void *clock_user;

void pn__clock_set(uint64_t (*fn)(void *user), void *user) {
    clock_fn = fn;
    clock_user = user;
}

static uint64_t read_clock(clockid_t id) {
    if (clock_fn) return clock_fn(clock_user);
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t pn__clock_ns(void) {
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t pn__clock_coarse_ns(void) {
#ifdef CLOCK_MONOTONIC_COARSE
    return read_clock(CLOCK_MONOTONIC_COARSE);
#else
    return read_clock(CLOCK_MONOTONIC);
#endif
}
