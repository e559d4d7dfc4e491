/* wide.h in registers of AVX2. */
#ifndef PN_OPS_CPU_WIDE_AVX2_H
#define PN_OPS_CPU_WIDE_AVX2_H

#include <immintrin.h>

struct w16 {
    __m256 v[2];
};

struct d8 {
    __m256d v[2];
};

INLINE struct w16 w16_set(float f) {
    return (struct w16){{_mm256_set1_ps(f), _mm256_set1_ps(f)}};
}

INLINE struct w16 w16_load(const float *p) {
    return (struct w16){{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}};
}

INLINE void w16_store(float *p, struct w16 x) {
    _mm256_storeu_ps(p, x.v[0]);
    _mm256_storeu_ps(p + 8, x.v[1]);
}

/* n <= 16 elements, then zeros. */
INLINE struct w16 w16_load_n(const float *p, uint32_t n) {
    float all[16] = {0};
    memcpy(all, p, n * sizeof *p);
    return w16_load(all);
}

INLINE void w16_store_n(float *p, struct w16 x, uint32_t n) {
    float all[16];
    w16_store(all, x);
    memcpy(p, all, n * sizeof *p);
}

INLINE struct w16 w16_add(struct w16 a, struct w16 b) {
    return (struct w16){{_mm256_add_ps(a.v[0], b.v[0]), _mm256_add_ps(a.v[1], b.v[1])}};
}

INLINE struct w16 w16_sub(struct w16 a, struct w16 b) {
    return (struct w16){{_mm256_sub_ps(a.v[0], b.v[0]), _mm256_sub_ps(a.v[1], b.v[1])}};
}

INLINE struct w16 w16_mul(struct w16 a, struct w16 b) {
    return (struct w16){{_mm256_mul_ps(a.v[0], b.v[0]), _mm256_mul_ps(a.v[1], b.v[1])}};
}

/* a * b + c and a * b - c, rounded once. */
INLINE struct w16 w16_fma(struct w16 a, struct w16 b, struct w16 c) {
    return (struct w16){
        {_mm256_fmadd_ps(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_ps(a.v[1], b.v[1], c.v[1])}};
}

INLINE struct w16 w16_fms(struct w16 a, struct w16 b, struct w16 c) {
    return (struct w16){
        {_mm256_fmsub_ps(a.v[0], b.v[0], c.v[0]), _mm256_fmsub_ps(a.v[1], b.v[1], c.v[1])}};
}

/* Elements 0, 2, 4 … (0x88) or 1, 3, 5 … (0xdd) of the sixteen at p. */
#define W16_EVERY_OTHER(p, which)                                                                 \
    _mm256_castpd_ps(_mm256_permute4x64_pd(                                                       \
        _mm256_castps_pd(_mm256_shuffle_ps(_mm256_loadu_ps(p), _mm256_loadu_ps((p) + 8), which)), \
        0xd8))

/* Elements 0, 2, 4 … and 1, 3, 5 … of the 32 at p. */
INLINE void w16_unzip(const float *p, struct w16 *even, struct w16 *odd) {
    for (int i = 0; i < 2; i++, p += 16) {
        even->v[i] = W16_EVERY_OTHER(p, 0x88);
        odd->v[i] = W16_EVERY_OTHER(p, 0xdd);
    }
}

/* Pairs (x0, x1) turned by (cos, sin) pairs: x0 * cos - (x1 * sin), x0 * sin + (x1 * cos). */
INLINE struct w16 w16_turn(struct w16 x, struct w16 by) {
    struct w16 out;
    for (int i = 0; i < 2; i++) {
        __m256 swapped =
            _mm256_mul_ps(_mm256_movehdup_ps(x.v[i]), _mm256_permute_ps(by.v[i], 0xb1));
        out.v[i] = _mm256_fmaddsub_ps(_mm256_moveldup_ps(x.v[i]), by.v[i], swapped);
    }
    return out;
}

/* Lane j takes j + 8, then j + 4. */
INLINE __m128 w16_quarter(struct w16 x) {
    __m256 half = _mm256_add_ps(x.v[0], x.v[1]);
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

/* Of four: lane j takes j + 8, then j + 4; what is left of them stands one behind the other. */
INLINE struct w16 w16_quarters(const struct w16 x[4]) {
    struct w16 out;
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m256 a = _mm256_add_ps(x[2 * i].v[0], x[2 * i].v[1]);
        __m256 b = _mm256_add_ps(x[2 * i + 1].v[0], x[2 * i + 1].v[1]);
        out.v[i] =
            _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    }
    return out;
}

/* Of each quarter of four: lane j takes j + 2, then j + 1. Quarter i of the result is what is left
 * of the quarters i of all four. */
INLINE struct w16 w16_ones(const struct w16 x[4]) {
    struct w16 out;
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m256d d[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            d[k] = _mm256_castps_pd(x[k].v[i]);
        __m256 a = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(d[0], d[1])),
                                 _mm256_castpd_ps(_mm256_unpackhi_pd(d[0], d[1])));
        __m256 b = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(d[2], d[3])),
                                 _mm256_castpd_ps(_mm256_unpackhi_pd(d[2], d[3])));
        out.v[i] = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
    }
    return out;
}

/* By lanes (two sixteenths each), the greater one of `max`, bits of absolute values, and x's: these
 * are ordered as the values are, NaN on top. */
INLINE __m256i w16_max_bits(__m256i max, struct w16 x) {
    const __m256 all_but_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    for (int i = 0; i < 2; i++)
        max = _mm256_max_epu32(max, _mm256_castps_si256(_mm256_and_ps(x.v[i], all_but_sign)));
    return max;
}
#define W16_BITS __m256i
#define W16_NO_BITS _mm256_setzero_si256()

INLINE __m256i w16_fold_bits(__m256i max) {
    return max;
}

/* Rounded to integers of 8 bits, halves to even; they fit. */
INLINE __m128i w16_codes(struct w16 x) {
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(x.v[0]), _mm256_cvtps_epi32(x.v[1]));
    words = _mm256_permute4x64_epi64(words, 0xd8);
    return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

INLINE __m256i w16_to_halves(struct w16 x) {
    return _mm256_set_m128i(_mm256_cvtps_ph(x.v[1], _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(x.v[0], _MM_FROUND_TO_NEAREST_INT));
}

INLINE struct w16 w16_of_halves(__m256i h) {
    return (struct w16){{_mm256_cvtph_ps(_mm256_castsi256_si128(h)),
                         _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))}};
}

/* a <= b ? yes : no, by lanes; a NaN is not. */
INLINE struct w16 w16_if_le(struct w16 a, struct w16 b, struct w16 yes, struct w16 no) {
    struct w16 out;
    for (int i = 0; i < 2; i++)
        out.v[i] = _mm256_blendv_ps(no.v[i], yes.v[i], _mm256_cmp_ps(a.v[i], b.v[i], _CMP_LE_OQ));
    return out;
}

INLINE struct w16 w16_div(struct w16 a, struct w16 b) {
    return (struct w16){{_mm256_div_ps(a.v[0], b.v[0]), _mm256_div_ps(a.v[1], b.v[1])}};
}

/* a > b ? a : b, by lanes. */
INLINE struct w16 w16_max(struct w16 a, struct w16 b) {
    return (struct w16){{_mm256_max_ps(a.v[0], b.v[0]), _mm256_max_ps(a.v[1], b.v[1])}};
}

/* Bit j: a < b in lane j. */
INLINE uint32_t w16_less(struct w16 a, struct w16 b) {
    int low = _mm256_movemask_ps(_mm256_cmp_ps(a.v[0], b.v[0], _CMP_LT_OQ));
    int high = _mm256_movemask_ps(_mm256_cmp_ps(a.v[1], b.v[1], _CMP_LT_OQ));
    return (uint32_t)(low | high << 8);
}

INLINE void d8_store(double *p, struct d8 x) {
    _mm256_storeu_pd(p, x.v[0]);
    _mm256_storeu_pd(p + 4, x.v[1]);
}

/* Lanes lo … hi of x, those below and above of `other`; lo <= 15. */
INLINE struct w16 w16_between(struct w16 x, uint32_t lo, uint32_t hi, struct w16 other) {
    const __m256i below = _mm256_set1_epi32((int)lo);
    const __m256i above = _mm256_set1_epi32((int)(hi < 15 ? hi : 15));
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int i = 0; i < 2; i++) {
        __m256i out =
            _mm256_or_si256(_mm256_cmpgt_epi32(below, lane), _mm256_cmpgt_epi32(lane, above));
        x.v[i] = _mm256_blendv_ps(x.v[i], other.v[i], _mm256_castsi256_ps(out));
        lane = _mm256_add_epi32(lane, _mm256_set1_epi32(8));
    }
    return x;
}

INLINE __m256 w16_max_half(struct w16 x) {
    return _mm256_max_ps(x.v[0], x.v[1]);
}

/* Integers of 8 bits. */
INLINE struct w16 w16_of_codes(__m128i c) {
    __m256i low = _mm256_cvtepi8_epi32(c);
    __m256i high = _mm256_cvtepi8_epi32(_mm_srli_si128(c, 8));
    return (struct w16){{_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)}};
}

INLINE void w16_transpose8(const __m256 r[8], __m256 out[8]) {
    __m256d u[8]; /* [4g + k]: elements k, 4 + k of four rows */
#pragma GCC unroll 2
    for (int g = 0; g < 2; g++) {
        __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(r[4 * g], r[4 * g + 1]));
        __m256d b = _mm256_castps_pd(_mm256_unpackhi_ps(r[4 * g], r[4 * g + 1]));
        __m256d c = _mm256_castps_pd(_mm256_unpacklo_ps(r[4 * g + 2], r[4 * g + 3]));
        __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(r[4 * g + 2], r[4 * g + 3]));
        u[4 * g] = _mm256_unpacklo_pd(a, c);
        u[4 * g + 1] = _mm256_unpackhi_pd(a, c);
        u[4 * g + 2] = _mm256_unpacklo_pd(b, d);
        u[4 * g + 3] = _mm256_unpackhi_pd(b, d);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        out[k] = _mm256_castpd_ps(_mm256_permute2f128_pd(u[k], u[4 + k], 0x20));
        out[4 + k] = _mm256_castpd_ps(_mm256_permute2f128_pd(u[k], u[4 + k], 0x31));
    }
}

/* Sixteen rows of sixteen to sixteen columns. */
INLINE void w16_transpose(const struct w16 r[16], struct w16 out[16]) {
#pragma GCC unroll 4
    for (int part = 0; part < 4; part++) { /* rows 8 * down …, columns 8 * right … */
        int down = part / 2, right = part % 2;
        __m256 x[8], y[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            x[i] = r[8 * down + i].v[right];
        w16_transpose8(x, y);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            out[8 * right + i].v[down] = y[i];
    }
}

INLINE void w16_to_d8(struct w16 x, struct d8 out[2]) {
    for (int i = 0; i < 2; i++) {
        out[i].v[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(x.v[i]));
        out[i].v[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(x.v[i], 1));
    }
}

INLINE struct w16 w16_of_d8(const struct d8 x[2]) {
    struct w16 out;
    for (int i = 0; i < 2; i++)
        out.v[i] = _mm256_set_m128(_mm256_cvtpd_ps(x[i].v[1]), _mm256_cvtpd_ps(x[i].v[0]));
    return out;
}

INLINE struct d8 d8_set(double x) {
    return (struct d8){{_mm256_set1_pd(x), _mm256_set1_pd(x)}};
}

INLINE struct d8 d8_add(struct d8 a, struct d8 b) {
    return (struct d8){{_mm256_add_pd(a.v[0], b.v[0]), _mm256_add_pd(a.v[1], b.v[1])}};
}

INLINE struct d8 d8_sub(struct d8 a, struct d8 b) {
    return (struct d8){{_mm256_sub_pd(a.v[0], b.v[0]), _mm256_sub_pd(a.v[1], b.v[1])}};
}

INLINE struct d8 d8_mul(struct d8 a, struct d8 b) {
    return (struct d8){{_mm256_mul_pd(a.v[0], b.v[0]), _mm256_mul_pd(a.v[1], b.v[1])}};
}

INLINE struct d8 d8_div(struct d8 a, struct d8 b) {
    return (struct d8){{_mm256_div_pd(a.v[0], b.v[0]), _mm256_div_pd(a.v[1], b.v[1])}};
}

/* a * b + c, rounded once. */
INLINE struct d8 d8_fma(struct d8 a, struct d8 b, struct d8 c) {
    return (struct d8){
        {_mm256_fmadd_pd(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_pd(a.v[1], b.v[1], c.v[1])}};
}

/* Bit j: the bits of lane j, plus `add`, have none of `mask`. */
INLINE uint32_t d8_none_of(struct d8 x, int64_t add, int64_t mask) {
    int none[2];
    for (int i = 0; i < 2; i++) {
        __m256i bits = _mm256_add_epi64(_mm256_castpd_si256(x.v[i]), _mm256_set1_epi64x(add));
        bits = _mm256_and_si256(bits, _mm256_set1_epi64x(mask));
        bits = _mm256_cmpeq_epi64(bits, _mm256_setzero_si256());
        none[i] = _mm256_movemask_pd(_mm256_castsi256_pd(bits));
    }
    return (uint32_t)(none[0] | none[1] << 4);
}

/* a < b ? yes : no, by lanes; a NaN is not. */
INLINE struct d8 d8_if_less(struct d8 a, struct d8 b, struct d8 yes, struct d8 no) {
    struct d8 out;
    for (int i = 0; i < 2; i++)
        out.v[i] = _mm256_blendv_pd(no.v[i], yes.v[i], _mm256_cmp_pd(a.v[i], b.v[i], _CMP_LT_OQ));
    return out;
}

/* -|x| */
INLINE struct d8 d8_minus_abs(struct d8 x) {
    const __m256d sign = _mm256_set1_pd(-0.0);
    return (struct d8){{_mm256_or_pd(x.v[0], sign), _mm256_or_pd(x.v[1], sign)}};
}

/* 2 to the power of the integer in the low bits of x. */
INLINE struct d8 d8_two_to(struct d8 x) {
    struct d8 out;
    for (int i = 0; i < 2; i++) {
        __m256i bits = _mm256_add_epi64(_mm256_castpd_si256(x.v[i]), _mm256_set1_epi64x(1023));
        out.v[i] = _mm256_castsi256_pd(_mm256_slli_epi64(bits, 52));
    }
    return out;
}

#include "ops/cpu/wide_x86.h"

#endif
