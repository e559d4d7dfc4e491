/* What the AVX-512 matmuls share.
 *
 * A block type's weights are taken sixteen rows at once, lane r of a register being row r: the file
 * lays a row's block contiguously, so chunks of 16 bytes of 16 rows are read and transposed as 4 x
 * 4 dwords in registers. A row's sum is then one lane's chain of fused multiply-adds, block by
 * block: the reference's order, whatever the number of columns.
 *
 * Up to PN_TILE columns take the weights straight from registers. More go through a panel: a few
 * groups of sixteen rows unpacked once into the thread's scratch, then read for each tile of
 * columns.
 */
#ifndef PN_OPS_CPU_AVX512_H
#define PN_OPS_CPU_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "ops/cpu/kernels.h"

#define INLINE static inline __attribute__((always_inline))

#define ROWS 16 /* lanes: weight rows of a group */

/* 16 bytes of rows 4 apart, one in each quarter. */
INLINE __m512i pn__load_quarters(const uint8_t *p, size_t step) {
    __m512i z = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)p));
    z = _mm512_mask_broadcast_i32x4(z, 0x00f0,
                                    _mm_loadu_si128((const __m128i *)(const void *)(p + step)));
    z = _mm512_mask_broadcast_i32x4(z, 0x0f00,
                                    _mm_loadu_si128((const __m128i *)(const void *)(p + 2 * step)));
    return _mm512_mask_broadcast_i32x4(
        z, 0xf000, _mm_loadu_si128((const __m128i *)(const void *)(p + 3 * step)));
}

/* Dwords 0 to 3 of the 16 bytes at p (row 0) of all rows: t[k] lane r = dword k of row r. */
INLINE void pn__dwords4(const uint8_t *p, size_t rs, __m512i t[4]) {
    __m512i z0 = pn__load_quarters(p, 4 * rs);
    __m512i z1 = pn__load_quarters(p + rs, 4 * rs);
    __m512i z2 = pn__load_quarters(p + 2 * rs, 4 * rs);
    __m512i z3 = pn__load_quarters(p + 3 * rs, 4 * rs);
    __m512i u0 = _mm512_unpacklo_epi32(z0, z1);
    __m512i u1 = _mm512_unpackhi_epi32(z0, z1);
    __m512i u2 = _mm512_unpacklo_epi32(z2, z3);
    __m512i u3 = _mm512_unpackhi_epi32(z2, z3);
    t[0] = _mm512_unpacklo_epi64(u0, u2);
    t[1] = _mm512_unpackhi_epi64(u0, u2);
    t[2] = _mm512_unpacklo_epi64(u1, u3);
    t[3] = _mm512_unpackhi_epi64(u1, u3);
}

/* The half-words at p of all rows, as floats: for what doesn't sit on a dword. */
INLINE __m512 pn__halves16(const uint8_t *p, size_t rs) {
    int16_t h[ROWS];
    for (int r = 0; r < ROWS; r++)
        memcpy(&h[r], p + (size_t)r * rs, sizeof h[r]);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)h));
}

/* The low and the high half of each dword, as floats. */
INLINE __m512 pn__low_half(__m512i t) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(t));
}

INLINE __m512 pn__high_half(__m512i t) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(t, 16)));
}

INLINE __m512i pn__dword_of(const void *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm512_set1_epi32(x);
}

/* 16 bytes of low nibbles, then 16 of high ones: 32 codes as 8 dwords. */
INLINE void pn__nibbles(const __m512i t[4], __m512i w[8]) {
    const __m512i mask = _mm512_set1_epi8(15);
    for (int k = 0; k < 4; k++) {
        w[k] = _mm512_and_si512(t[k], mask);
        w[4 + k] = _mm512_and_si512(_mm512_srli_epi32(t[k], 4), mask);
    }
}

/* Finished dots of sixteen rows for one column: factor, bias, and those rows that are ours. */
INLINE void pn__put16(const struct pn_mm *mm, uint32_t m, uint32_t row, __mmask16 ours, __m512 f) {
    f = _mm512_mul_ps(f, _mm512_set1_ps(mm->w->scale));
    if (mm->bias) f = _mm512_add_ps(f, _mm512_maskz_loadu_ps(ours, mm->bias + row));
    _mm512_mask_storeu_ps(mm->out.data + (uint64_t)m * mm->out.stride + row, ours, f);
}

void pn__init_avx512(struct pn_kernels *k);
void pn__init_avx512_q32(struct pn_kernels *k);

/* Lines are fetched this far ahead of where they are used, in the order of use. */
#define PREFETCH_AHEAD_BYTES 20480

INLINE void pn__prefetch_lines(const uint8_t *p, int line_n) {
#pragma GCC unroll 20
    for (int i = 0; i < line_n; i++)
        _mm_prefetch((const char *)p + 64 * i, _MM_HINT_NTA);
}

#endif
