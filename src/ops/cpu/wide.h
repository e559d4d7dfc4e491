/* Sixteen floats as one value, for kernels that are written once for all levels but the reference:
 * one register of AVX-512, two of AVX2, four of NEON. Sixteen is the width of lane order
 * (kernels.h), so such a kernel is the reference with a loop taken out of it. Doubles come by
 * eight, for the functions of math.h.
 *
 * Each level's header has the same types and functions; wide_avx512.h, the shortest, says what they
 * do. w16: sixteen floats; f4: four; d8: eight doubles; c16: sixteen integers of 8 bits; h16:
 * sixteen halves.
 *
 * A file that uses this is compiled once a level, PN_LEVEL naming the copy
 * (src/ops/CMakeLists.txt).
 */
#ifndef PN_OPS_CPU_WIDE_H
#define PN_OPS_CPU_WIDE_H

#include <string.h>

#include "ops/cpu/kernels.h"

#define INLINE static inline __attribute__((always_inline))

void PN_K(init_wide_act)(struct pn_kernels *k);
void PN_K(init_wide_logits)(struct pn_kernels *k);
void PN_K(init_wide_attention)(struct pn_kernels *k);
void PN_K(init_wide_norm)(struct pn_kernels *k);
void PN_K(init_wide_q4)(struct pn_kernels *k);
void PN_K(init_wide_quant)(struct pn_kernels *k);
void PN_K(init_wide_recurrent)(struct pn_kernels *k);
void PN_K(init_wide)(struct pn_kernels *k);

#if defined(__aarch64__)
#include "ops/cpu/wide_neon.h"
#elif defined(__AVX512F__)
#include "ops/cpu/wide_avx512.h"
#else
#include "ops/cpu/wide_avx2.h"
#endif

/* a . b in lane order. */
INLINE float w16_dot(const float *a, const float *b, uint32_t n) {
    struct w16 sum = w16_set(0);
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16)
        sum = w16_fma(w16_load(a + i), w16_load(b + i), sum);
    if (i < n) sum = w16_fma(w16_load_n(a + i, n - i), w16_load_n(b + i, n - i), sum);
    return w16_sum(sum);
}

#endif
