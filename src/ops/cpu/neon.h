/* Kernels of the NEON level, four weight rows at a time, and where their results go. */
#ifndef PN_OPS_CPU_NEON_H
#define PN_OPS_CPU_NEON_H

#include <arm_neon.h>
#include <string.h>

#include "ops/cpu/kernels.h"

#define INLINE static inline __attribute__((always_inline))

void pn__init_neon(struct pn_kernels *k);
void pn__init_kernels_neon(struct pn_kernels *k);
void pn__init_wide_neon(struct pn_kernels *k);
void pn__init_neon_float(struct pn_kernels *k);
/* neon_blocks.c with and without the dot product instructions of ARMv8.2. */
void pn__init_neon_blocks_neon(struct pn_kernels *k);
void pn__init_neon_blocks_neondot(struct pn_kernels *k);

/* Rows row … row + 3 of the weights; behind `hi` the last one again. */
INLINE void pn__rows4(const struct pn_weight *w, uint32_t row, uint32_t hi, const uint8_t *p[4]) {
    for (uint32_t r = 0; r < 4; r++)
        p[r] = w->data + (uint64_t)(row + r < hi ? row + r : hi - 1) * w->row_bytes;
}

/* Finished dots of input row m with weight rows row … row + 3, those before `hi`. */
INLINE void pn__put4(const struct pn_mm *mm, uint32_t m, uint32_t row, uint32_t hi, float32x4_t f) {
    float *out = mm->out.data + m * mm->out.stride + row;
    f = vmulq_n_f32(f, mm->w->scale);
    if (row + 4 <= hi) {
        if (mm->bias) f = vaddq_f32(f, vld1q_f32(mm->bias + row));
        vst1q_f32(out, f);
        return;
    }
    float some[4];
    vst1q_f32(some, f);
    for (uint32_t r = 0; row + r < hi; r++)
        out[r] = mm->bias ? some[r] + mm->bias[row + r] : some[r];
}

#endif
