/* How weights are fetched ahead of their use, said once for all kernels of x86. INLINE is that of
 * the header of the level, which comes first. */
#ifndef PN_OPS_CPU_FETCH_H
#define PN_OPS_CPU_FETCH_H

#include <immintrin.h>
#include <stdint.h>

/* Bytes by which the first-level cache follows the second. */
#define FETCH_FOLLOW_BYTES 18432

/* Lines that are needed PREFETCH_AHEAD_BYTES or more later, in two steps: these into the
 * second-level cache, and those that were fetched FETCH_FOLLOW_BYTES ago into the first. A fetch
 * into the first level holds one of the few entries for its misses until memory answers; one to the
 * second soon frees it. A hint to pass the other levels by (NTA) is worse on some processors by far
 * (docs/PERFORMANCE.md). What stands before the weights may be named too: a hint can't fault. */
INLINE void pn__prefetch_lines(const uint8_t *p, int line_n) {
#pragma GCC unroll 20
    for (int i = 0; i < line_n; i++) {
        _mm_prefetch((const char *)p + 64 * i, _MM_HINT_T1);
        _mm_prefetch((const char *)p + 64 * i - FETCH_FOLLOW_BYTES, _MM_HINT_T0);
    }
}

#endif
