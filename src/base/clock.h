/* Monotonic time, with a seam: a test can stop the clock and move it by hand. */
#ifndef PN_BASE_CLOCK_H
#define PN_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since an arbitrary start; never goes back. */
uint64_t pn__clock_ns(void);

/* The same to within the system's tick (1 to 10 ms late, never early), where it has such a clock;
 * several times cheaper. For telling old from new, not for measuring. */
uint64_t pn__clock_coarse_ns(void);

/* From now on both return what `fn(user)` does; NULL restores the real clock. Set it only while no
 * other thread reads the clock. */
void pn__clock_set(uint64_t (*fn)(void *user), void *user);

static inline double pn__clock_s(uint64_t from_ns, uint64_t to_ns) {
    return (double)(to_ns - from_ns) * 1e-9;
}

#endif
