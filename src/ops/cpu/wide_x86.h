/* What wide_avx2.h and wide_avx512.h have in common, over what differs. */
#ifndef PN_OPS_CPU_WIDE_X86_H
#define PN_OPS_CPU_WIDE_X86_H

#include <immintrin.h>

typedef __m128 f4;
typedef __m128i c16;
typedef __m256i h16;

/* The greatest of the lanes, none of them a NaN. */
INLINE float w16_top(struct w16 x) {
    __m256 half = w16_max_half(x);
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

/* The sum in the order of kernels.h: lane j takes j + 8, + 4, + 2, + 1. */
INLINE float w16_sum(struct w16 x) {
    __m128 q = w16_quarter(x);
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* The same of four at once. */
INLINE __m128 w16_sum4(const struct w16 x[4]) {
    __m128 a = w16_quarter(x[0]), b = w16_quarter(x[1]);
    __m128 c = w16_quarter(x[2]), d = w16_quarter(x[3]);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    return _mm_add_ps(_mm_add_ps(a, c), _mm_add_ps(b, d));
}

/* The greatest of what w16_max_bits has. */
INLINE uint32_t w16_top_bits(W16_BITS max) {
    __m256i half = w16_fold_bits(max);
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

INLINE f4 f4_set(float f) {
    return _mm_set1_ps(f);
}

INLINE f4 f4_load(const float *p) {
    return _mm_loadu_ps(p);
}

INLINE void f4_store(float *p, f4 x) {
    _mm_storeu_ps(p, x);
}

INLINE f4 f4_sub(f4 a, f4 b) {
    return _mm_sub_ps(a, b);
}

INLINE f4 f4_mul(f4 a, f4 b) {
    return _mm_mul_ps(a, b);
}

INLINE c16 c16_load(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

INLINE void c16_store(void *p, c16 c) {
    _mm_storeu_si128((__m128i *)p, c);
}

/* The sum: bytes are summed without a sign, so 128 too high each. */
INLINE int16_t c16_sum(c16 c) {
    __m128i high = _mm_xor_si128(c, _mm_set1_epi8((char)0x80));
    __m128i s = _mm_sad_epu8(high, _mm_setzero_si128());
    s = _mm_add_epi32(s, _mm_unpackhi_epi64(s, s));
    return (int16_t)(_mm_cvtsi128_si32(s) - 16 * 128);
}

/* What the table has for the nibbles of eight bytes, low before high. */
INLINE c16 c16_lookup(const int8_t table[16], const uint8_t *p) {
    const __m128i low = _mm_set1_epi8(15);
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)p);
    __m128i even = _mm_and_si128(bytes, low);
    __m128i odd = _mm_and_si128(_mm_srli_epi16(bytes, 4), low);
    __m128i values = _mm_loadu_si128((const __m128i *)(const void *)table);
    return _mm_shuffle_epi8(values, _mm_unpacklo_epi8(even, odd));
}

INLINE h16 h16_set(uint16_t h) {
    return _mm256_set1_epi16((short)h);
}

INLINE h16 h16_load(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

INLINE void h16_store(uint8_t *p, h16 h) {
    _mm256_storeu_si256((__m256i *)(void *)p, h);
}

#endif
