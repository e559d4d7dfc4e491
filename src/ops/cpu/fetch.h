/* How weights are fetched ahead of their use, said once for all kernels of x86. INLINE is that of
 * the header of the level, which comes first. */
#ifndef PN_OPS_CPU_FETCH_H
#define PN_OPS_CPU_FETCH_H

#include <immintrin.h>
#include <stdint.h>

/* Into all caches: with a hint to pass the others by, one processor's first level lost the lines
 * before they were used (docs/PERFORMANCE.md). */
INLINE void pn__prefetch_lines(const uint8_t *p, int line_n) {
#pragma GCC unroll 20
    for (int i = 0; i < line_n; i++)
        _mm_prefetch((const char *)p + 64 * i, _MM_HINT_T0);
}

#endif
