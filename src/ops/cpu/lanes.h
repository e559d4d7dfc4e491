/* Sums in lane order (kernels.h), and halves widened in bulk, for the reference kernels. */
#ifndef PN_OPS_CPU_LANES_H
#define PN_OPS_CPU_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/math.h"

/* The tree at the end: lanes are spent. */
static inline float pn__lanes_sum(float lanes[PN_LANES]) {
    for (int s = PN_LANES / 2; s > 0; s /= 2)
        for (int j = 0; j < s; j++)
            lanes[j] += lanes[j + s];
    return lanes[0];
}

static inline void pn__lanes_fma(float lanes[restrict PN_LANES], const float *restrict a,
                                 const float *restrict b) {
    for (int j = 0; j < PN_LANES; j++)
        lanes[j] = fmaf(a[j], b[j], lanes[j]);
}

/* a . b in lane order. */
static inline float pn__dot(const float *a, const float *b, uint32_t n) {
    float lanes[PN_LANES] = {0};
    uint32_t k = 0;
    for (; k + PN_LANES <= n; k += PN_LANES)
        pn__lanes_fma(lanes, a + k, b + k);
    if (k < n) {
        float ta[PN_LANES] = {0};
        float tb[PN_LANES] = {0};
        memcpy(ta, a + k, (n - k) * sizeof *a);
        memcpy(tb, b + k, (n - k) * sizeof *b);
        pn__lanes_fma(lanes, ta, tb);
    }
    return pn__lanes_sum(lanes);
}

/* Halves to floats, exact, without a branch: the bits are moved into a float's fields, where the
 * value is 2^-112 times what it should be, subnormals included. */
static inline void pn__widen_f16(const uint8_t *restrict src, float *restrict dst, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * (size_t)i, sizeof h);
        uint32_t bits = (uint32_t)(h & 0x7fffu) << 13;
        uint32_t wide = pn__float_bits(pn__bits_float(bits) * 0x1p112f);
        wide = bits >= 0x0f800000u ? bits | 0x7f800000u : wide; /* infinity and NaN */
        dst[i] = pn__bits_float(wide | (uint32_t)(h & 0x8000u) << 16);
    }
}

/* The scale of an activation block and its codes (KERNELS): am = max |x|, d = am / 127,
 * q = rint_even(x * (127 / am)); am < 2^-100: all 0; a non-finite x: d = NaN, q = 0. */
static inline float pn__quant_block(const float *restrict x, int8_t *restrict q, uint32_t n) {
    uint32_t am_bits = 0; /* bits of absolute values are ordered as the values are, NaN on top */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = pn__float_bits(x[i]) & 0x7fffffffu;
        am_bits = bits > am_bits ? bits : am_bits;
    }
    float am = pn__bits_float(am_bits);
    if (am_bits >= 0x7f800000u || am < 0x1p-100f) {
        memset(q, 0, n);
        return am_bits >= 0x7f800000u ? NAN : 0.0f;
    }
    float id = 127.0f / am;
    for (uint32_t i = 0; i < n; i++)
        q[i] = (int8_t)pn__round_even(x[i] * id);
    return am / 127.0f;
}

#endif
