/* wide.h in registers of AVX-512. */
#ifndef PN_OPS_CPU_WIDE_AVX512_H
#define PN_OPS_CPU_WIDE_AVX512_H

#include <immintrin.h>

struct w16 {
    __m512 v;
};

struct d8 {
    __m512d v;
};

INLINE struct w16 w16_set(float f) {
    return (struct w16){_mm512_set1_ps(f)};
}

INLINE struct w16 w16_load(const float *p) {
    return (struct w16){_mm512_loadu_ps(p)};
}

INLINE void w16_store(float *p, struct w16 x) {
    _mm512_storeu_ps(p, x.v);
}

/* n <= 16 elements, then zeros. */
INLINE struct w16 w16_load_n(const float *p, uint32_t n) {
    return (struct w16){_mm512_maskz_loadu_ps((__mmask16)(0xffffu >> (16 - n)), p)};
}

INLINE void w16_store_n(float *p, struct w16 x, uint32_t n) {
    _mm512_mask_storeu_ps(p, (__mmask16)(0xffffu >> (16 - n)), x.v);
}

INLINE struct w16 w16_add(struct w16 a, struct w16 b) {
    return (struct w16){_mm512_add_ps(a.v, b.v)};
}

INLINE struct w16 w16_sub(struct w16 a, struct w16 b) {
    return (struct w16){_mm512_sub_ps(a.v, b.v)};
}

INLINE struct w16 w16_mul(struct w16 a, struct w16 b) {
    return (struct w16){_mm512_mul_ps(a.v, b.v)};
}

/* a * b + c and a * b - c, rounded once. */
INLINE struct w16 w16_fma(struct w16 a, struct w16 b, struct w16 c) {
    return (struct w16){_mm512_fmadd_ps(a.v, b.v, c.v)};
}

INLINE struct w16 w16_fms(struct w16 a, struct w16 b, struct w16 c) {
    return (struct w16){_mm512_fmsub_ps(a.v, b.v, c.v)};
}

/* Elements 0, 2, 4 … and 1, 3, 5 … of the 32 at p. */
INLINE void w16_unzip(const float *p, struct w16 *even, struct w16 *odd) {
    const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 16);
    even->v = _mm512_permutex2var_ps(a, at, b);
    odd->v = _mm512_permutex2var_ps(a, _mm512_add_epi32(at, _mm512_set1_epi32(1)), b);
}

/* Pairs (x0, x1) turned by (cos, sin) pairs: x0 * cos - (x1 * sin), x0 * sin + (x1 * cos). */
INLINE struct w16 w16_turn(struct w16 x, struct w16 by) {
    __m512 swapped = _mm512_mul_ps(_mm512_movehdup_ps(x.v), _mm512_permute_ps(by.v, 0xb1));
    return (struct w16){_mm512_fmaddsub_ps(_mm512_moveldup_ps(x.v), by.v, swapped)};
}

/* Lane j takes j + 8, then j + 4. */
INLINE __m128 w16_quarter(struct w16 x) {
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

/* Of four: lane j takes j + 8, then j + 4; what is left of them stands one behind the other. */
INLINE struct w16 w16_quarters(const struct w16 x[4]) {
    __m512 a = _mm512_add_ps(_mm512_shuffle_f32x4(x[0].v, x[1].v, 0x44),
                             _mm512_shuffle_f32x4(x[0].v, x[1].v, 0xee));
    __m512 b = _mm512_add_ps(_mm512_shuffle_f32x4(x[2].v, x[3].v, 0x44),
                             _mm512_shuffle_f32x4(x[2].v, x[3].v, 0xee));
    return (struct w16){
        _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd))};
}

/* Of each quarter of four: lane j takes j + 2, then j + 1. Quarter i of the result is what is left
 * of the quarters i of all four. */
INLINE struct w16 w16_ones(const struct w16 x[4]) {
    __m512d d[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        d[i] = _mm512_castps_pd(x[i].v);
    __m512 a = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(d[0], d[1])),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(d[0], d[1])));
    __m512 b = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(d[2], d[3])),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(d[2], d[3])));
    return (struct w16){
        _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd))};
}

/* By lanes, the greater one of `max`, bits of absolute values, and x's: these are ordered as the
 * values are, NaN on top. */
INLINE __m512i w16_max_bits(__m512i max, struct w16 x) {
    __m512i bits = _mm512_and_si512(_mm512_castps_si512(x.v), _mm512_set1_epi32(0x7fffffff));
    return _mm512_max_epu32(max, bits);
}
#define W16_BITS __m512i
#define W16_NO_BITS _mm512_setzero_si512()

INLINE __m256i w16_fold_bits(__m512i max) {
    return _mm256_max_epu32(_mm512_castsi512_si256(max), _mm512_extracti64x4_epi64(max, 1));
}

/* Rounded to integers of 8 bits, halves to even; they fit. */
INLINE __m128i w16_codes(struct w16 x) {
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x.v));
}

INLINE __m256i w16_to_halves(struct w16 x) {
    return _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT);
}

INLINE struct w16 w16_of_halves(__m256i h) {
    return (struct w16){_mm512_cvtph_ps(h)};
}

/* a <= b ? yes : no, by lanes; a NaN is not. */
INLINE struct w16 w16_if_le(struct w16 a, struct w16 b, struct w16 yes, struct w16 no) {
    return (struct w16){
        _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ), no.v, yes.v)};
}

INLINE struct w16 w16_div(struct w16 a, struct w16 b) {
    return (struct w16){_mm512_div_ps(a.v, b.v)};
}

/* a > b ? a : b, by lanes. */
INLINE struct w16 w16_max(struct w16 a, struct w16 b) {
    return (struct w16){_mm512_max_ps(a.v, b.v)};
}

/* Bit j: a < b in lane j. */
INLINE uint32_t w16_less(struct w16 a, struct w16 b) {
    return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ);
}

INLINE void d8_store(double *p, struct d8 x) {
    _mm512_storeu_pd(p, x.v);
}

/* Lanes lo … hi of x, those below and above of `other`; lo <= 15. */
INLINE struct w16 w16_between(struct w16 x, uint32_t lo, uint32_t hi, struct w16 other) {
    uint32_t mask = (hi < 15 ? (2u << hi) - 1 : 0xffffu) & (0xffffu << lo);
    return (struct w16){_mm512_mask_blend_ps((__mmask16)mask, other.v, x.v)};
}

INLINE __m256 w16_max_half(struct w16 x) {
    return _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
}

/* Integers of 8 bits. */
INLINE struct w16 w16_of_codes(__m128i c) {
    return (struct w16){_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(c))};
}

/* Sixteen rows of sixteen to sixteen columns. */
INLINE void w16_transpose(const struct w16 r[16], struct w16 out[16]) {
    __m512 v[4][4]; /* [rows 4g …][k]: elements k, 4 + k, 8 + k, 12 + k of four rows */
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        __m512d u0 = _mm512_castps_pd(_mm512_unpacklo_ps(r[4 * g].v, r[4 * g + 1].v));
        __m512d u1 = _mm512_castps_pd(_mm512_unpackhi_ps(r[4 * g].v, r[4 * g + 1].v));
        __m512d u2 = _mm512_castps_pd(_mm512_unpacklo_ps(r[4 * g + 2].v, r[4 * g + 3].v));
        __m512d u3 = _mm512_castps_pd(_mm512_unpackhi_ps(r[4 * g + 2].v, r[4 * g + 3].v));
        v[g][0] = _mm512_castpd_ps(_mm512_unpacklo_pd(u0, u2));
        v[g][1] = _mm512_castpd_ps(_mm512_unpackhi_pd(u0, u2));
        v[g][2] = _mm512_castpd_ps(_mm512_unpacklo_pd(u1, u3));
        v[g][3] = _mm512_castpd_ps(_mm512_unpackhi_pd(u1, u3));
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m512 a = _mm512_shuffle_f32x4(v[0][k], v[1][k], 0x44);
        __m512 b = _mm512_shuffle_f32x4(v[0][k], v[1][k], 0xee);
        __m512 c = _mm512_shuffle_f32x4(v[2][k], v[3][k], 0x44);
        __m512 d = _mm512_shuffle_f32x4(v[2][k], v[3][k], 0xee);
        out[k].v = _mm512_shuffle_f32x4(a, c, 0x88);
        out[4 + k].v = _mm512_shuffle_f32x4(a, c, 0xdd);
        out[8 + k].v = _mm512_shuffle_f32x4(b, d, 0x88);
        out[12 + k].v = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

INLINE void w16_to_d8(struct w16 x, struct d8 out[2]) {
    out[0].v = _mm512_cvtps_pd(_mm512_castps512_ps256(x.v));
    out[1].v = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1));
}

INLINE struct w16 w16_of_d8(const struct d8 x[2]) {
    return (struct w16){_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(x[0].v)),
                                           _mm512_cvtpd_ps(x[1].v), 1)};
}

INLINE struct d8 d8_set(double x) {
    return (struct d8){_mm512_set1_pd(x)};
}

INLINE struct d8 d8_add(struct d8 a, struct d8 b) {
    return (struct d8){_mm512_add_pd(a.v, b.v)};
}

INLINE struct d8 d8_sub(struct d8 a, struct d8 b) {
    return (struct d8){_mm512_sub_pd(a.v, b.v)};
}

INLINE struct d8 d8_mul(struct d8 a, struct d8 b) {
    return (struct d8){_mm512_mul_pd(a.v, b.v)};
}

INLINE struct d8 d8_div(struct d8 a, struct d8 b) {
    return (struct d8){_mm512_div_pd(a.v, b.v)};
}

/* a * b + c, rounded once. */
INLINE struct d8 d8_fma(struct d8 a, struct d8 b, struct d8 c) {
    return (struct d8){_mm512_fmadd_pd(a.v, b.v, c.v)};
}

/* Bit j: the bits of lane j, plus `add`, have none of `mask`. */
INLINE uint32_t d8_none_of(struct d8 x, int64_t add, int64_t mask) {
    __m512i bits = _mm512_add_epi64(_mm512_castpd_si512(x.v), _mm512_set1_epi64(add));
    return _mm512_testn_epi64_mask(bits, _mm512_set1_epi64(mask));
}

/* a < b ? yes : no, by lanes; a NaN is not. */
INLINE struct d8 d8_if_less(struct d8 a, struct d8 b, struct d8 yes, struct d8 no) {
    return (struct d8){_mm512_mask_blend_pd(_mm512_cmp_pd_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}

/* -|x| */
INLINE struct d8 d8_minus_abs(struct d8 x) {
    return (struct d8){_mm512_or_pd(x.v, _mm512_set1_pd(-0.0))};
}

/* 2 to the power of the integer in the low bits of x. */
INLINE struct d8 d8_two_to(struct d8 x) {
    __m512i bits = _mm512_add_epi64(_mm512_castpd_si512(x.v), _mm512_set1_epi64(1023));
    return (struct d8){_mm512_castsi512_pd(_mm512_slli_epi64(bits, 52))};
}

#include "ops/cpu/wide_x86.h"

#endif
