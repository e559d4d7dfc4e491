/* Monotonic time, with a seam: a test can stop the clock and move it by hand. */
#ifndef PN_BASE_CLOCK_H
#define PN_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since an arbitrary start; never goes back. */
uint64_t pn__clock_ns(void);

/* From now on pn__clock_ns returns what `fn(user)` does; NULL restores the real clock. Set it only
 * while no other thread reads the clock. */
void pn__clock_set(uint64_t (*fn)(void *user), void *user);

static inline double pn__clock_s(uint64_t from_ns, uint64_t to_ns) {
    return (double)(to_ns - from_ns) * 1e-9;
}

#endif
