/* Vectors of K and V in four bits: the rotation, and a vector's codes.
 *
 * A vector is rotated before it is quantised: the few large elements that heads tend to have spread
 * over all of them, so that sixteen levels do for each. The rotation is the Hadamard matrix over
 * the largest power of two that divides the head, made orthonormal; it is its own inverse and keeps
 * dots, so attention rotates q once and its sum of values back once, and never a stored vector.
 *
 * The codes are those of IQ4_NL: blocks of 32, a half as scale, and sixteen levels that lie densely
 * around zero, as a rotated vector's elements do. Why not evenly spaced: docs/KERNELS.md. */
#ifndef PN_OPS_CPU_Q4_H
#define PN_OPS_CPU_Q4_H

#include "ops/cpu/lanes.h"
#include "quant/half.h"

/* Longest run that is rotated at once; longer powers of two are cut. */
#define PN_TURN_MAX 1024

/* Elements that are rotated together: the largest power of two that divides dim. */
static inline uint32_t pn__turn_len(uint32_t dim) {
    uint32_t n = dim & (~dim + 1);
    return n < PN_TURN_MAX ? n : PN_TURN_MAX;
}

/* For h = from, 2 from … below `end`: the pairs (i, i + h) of n elements become (a + b, a - b). */
static inline void pn__turn_pairs(float *restrict x, uint32_t n, uint32_t from, uint32_t end) {
    for (uint32_t h = from; h < end; h *= 2)
        for (uint32_t i = 0; i < n; i += 2 * h)
            for (uint32_t j = i; j < i + h; j++) {
                float a = x[j];
                float b = x[j + h];
                x[j] = a + b;
                x[j + h] = a - b;
            }
}

/* n elements, a power of two, in place: all pairs, then each element times 1 / sqrt(n). */
static inline void pn__turn_block(float *restrict x, uint32_t n) {
    pn__turn_pairs(x, n, 1, n);
    float f = 1.0f / sqrtf((float)n);
    for (uint32_t i = 0; i < n; i++)
        x[i] *= f;
}

/* A head's vector, in place. */
static inline void pn__turn(float *x, uint32_t dim) {
    uint32_t n = pn__turn_len(dim);
    for (uint32_t i = 0; i < dim; i += n)
        pn__turn_block(x + i, n);
}

/* IQ4_NL's levels; element = half * level. */
static const int8_t pn__q4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};

/* Between levels j and j + 1. */
static inline float pn__q4_midpoint(int j) {
    return 0.5f * (float)(pn__q4_levels[j] + pn__q4_levels[j + 1]);
}

/* The scale of a block and what its elements are multiplied by to be compared with the midpoints.
 * With m the element of the largest absolute value, the first such: scale = m / -127, so that m
 * itself is level 0, and *f = -127 / m. Where *f = 0 all codes are the same and already written:
 * |m| < 2^-100: scale 0, codes 8; an element that is not finite: scale NaN, codes 0. */
static inline float pn__q4_scale(const float *restrict x, uint32_t n, uint8_t *restrict codes,
                                 float *f) {
    uint32_t am_bits = 0; /* bits of absolute values are ordered as the values are, NaN on top */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = pn__float_bits(x[i]) & 0x7fffffffu;
        am_bits = bits > am_bits ? bits : am_bits;
    }
    *f = 0.0f;
    if (am_bits >= 0x7f800000u || pn__bits_float(am_bits) < 0x1p-100f) {
        memset(codes, am_bits >= 0x7f800000u ? 0 : 8, n);
        return am_bits >= 0x7f800000u ? NAN : 0.0f;
    }
    uint32_t first = 0;
    while ((pn__float_bits(x[first]) & 0x7fffffffu) != am_bits)
        first++;
    *f = -127.0f / x[first];
    return x[first] / -127.0f;
}

/* The codes of a block and its scale: a code is the number of midpoints that x * f lies above. */
static inline float pn__q4_block(const float *restrict x, uint8_t *restrict codes, uint32_t n) {
    float f;
    float d = pn__q4_scale(x, n, codes, &f);
    if (f == 0.0f) return d;
    memset(codes, 0, n);
    for (int j = 0; j < 15; j++) {
        float midpoint = pn__q4_midpoint(j);
        for (uint32_t i = 0; i < n; i++)
            codes[i] = (uint8_t)(codes[i] + (x[i] * f > midpoint));
    }
    return d;
}

/* What pn__q4_store is made of, constants where it is inlined. */
struct pn_q4_ways {
    void (*halves)(const float *x, float *out, uint32_t n); /* rounded to halves */
    void (*turn_block)(float *x, uint32_t n);
    float (*block)(const float *x, uint8_t *codes, uint32_t n);
};

/* A vector to its bytes in a page. One run of the rotation, or 32 elements of shorter ones, at a
 * time: both a multiple of a block and of a run but for the vector's end. Values are rounded to
 * halves first, as the page's wide form holds them: so the one form can be made out of the other at
 * any time. */
static inline __attribute__((always_inline)) void
pn__q4_store(const float *x, uint8_t *row, uint32_t dim, struct pn_q4_ways way) {
    float part[PN_TURN_MAX];
    uint8_t codes[PN_TURN_MAX + 1] = {0};
    uint32_t run = pn__turn_len(dim);
    uint32_t step = run > 32 ? run : 32;
    uint8_t *nibbles = row + 2 * (size_t)((dim + 31) / 32);
    for (uint32_t from = 0; from < dim; from += step) {
        uint32_t n = dim - from < step ? dim - from : step;
        way.halves(x + from, part, n);
        for (uint32_t i = 0; i < n; i += run)
            way.turn_block(part + i, run);
        for (uint32_t i = 0; i < n; i += 32) {
            uint16_t d = pn__half_narrow(way.block(part + i, codes + i, n - i < 32 ? n - i : 32));
            memcpy(row + 2 * (size_t)((from + i) / 32), &d, sizeof d);
        }
        codes[n] = 0;
        for (uint32_t i = 0; i < n; i += 2)
            nibbles[(from + i) / 2] = (uint8_t)(codes[i] | codes[i + 1] << 4);
    }
}

#endif
