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
#include "ops/cpu/x86_units.h"

#define INLINE static inline __attribute__((always_inline))

#define ROWS 16 /* lanes: weight rows of a group */

#include "ops/cpu/walk.h"

/* ---- registers of sixteen rows: the words in which walk_*.h are written ---- */

typedef __m512i vi;
typedef __m512 vf;

INLINE vi v_set8(int x) {
    return _mm512_set1_epi8((char)x);
}

INLINE vi v_set32(int x) {
    return _mm512_set1_epi32(x);
}

INLINE vi v_and(vi a, vi b) {
    return _mm512_and_si512(a, b);
}

/* a | (b & mask) */
INLINE vi v_or_masked(vi a, vi b, vi mask) {
    return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}

/* Shifts of dwords by a constant, which may be 0. */
INLINE vi v_right(vi v, int n) {
    return n == 0 ? v : _mm512_srli_epi32(v, (unsigned)n);
}

INLINE vi v_left(vi v, int n) {
    return n == 0 ? v : _mm512_slli_epi32(v, (unsigned)n);
}

/* The same shuffle in all quarters. */
INLINE vi v_shuffle(vi x, __m128i how) {
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(how));
}

/* Entries of a table of sixteen bytes; indices below 16. */
INLINE vi v_lookup(__m128i table, vi index) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), index);
}

/* Bytes of w, plus `by` where x has a byte's one bit of `bits`; they have room for it. */
INLINE vi v_add_where(vi w, vi x, vi bits, vi by) {
    return _mm512_mask_add_epi8(w, _mm512_test_epi8_mask(x, bits), w, by);
}

/* Bytes less `by`. */
INLINE vi v_sub8(vi v, int by) {
    return _mm512_sub_epi8(v, _mm512_set1_epi8((char)by));
}

INLINE vi v_sub32(vi v, int by) {
    return _mm512_sub_epi32(v, _mm512_set1_epi32(by));
}

INLINE vf v_negated(vf x) {
    return _mm512_xor_ps(x, _mm512_set1_ps(-0.0f));
}

INLINE vf v_load_floats(const float p[ROWS]) {
    return _mm512_loadu_ps(p);
}

INLINE vi v_load(const void *p) {
    return _mm512_loadu_si512(p);
}

/* Words of 16 bits times a constant. */
INLINE vi v_mul16(vi v, int by) {
    return _mm512_mullo_epi16(v, _mm512_set1_epi16((short)by));
}

/* Signed bytes 0 and 1 of each four as words: what v_low_pair gives of unsigned ones. */
INLINE vi v_words_signed(vi v) {
    return _mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8);
}

/* A run's scale as it is multiplied in: an int32. */
INLINE vi v_scale(vi x) {
    return x;
}

/* Byte i of each dword as such a scale. */
INLINE vi v_scale_byte(vi v, int i, bool is_signed) {
    if (is_signed) return _mm512_srai_epi32(v_left(v, 24 - 8 * i), 24);
    return v_and(v_right(v, 8 * i), v_set32(255));
}

/* Word i, signed, of each dword. */
INLINE vi v_scale_word(vi v, int i) {
    return _mm512_srai_epi32(i ? v : v_left(v, 16), 16);
}

/* What is added to signed codes so that vpdpbusd takes them. */
#define SIGNED_OFFSET 128

INLINE vi v_signed(vi codes) {
    return _mm512_xor_si512(codes, v_set8(0x80));
}

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

/* 32 bytes of two rows 4 apart, one in each half. */
INLINE __m512i pn__load_halves(const uint8_t *p, size_t step) {
    __m512i z = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_inserti64x4(z, _mm256_loadu_si256((const __m256i *)(const void *)(p + step)), 1);
}

/* Dwords 0 to 7 of the 32 bytes at p of all rows: half the loads of two pn__dwords4. */
INLINE void pn__dwords8(const uint8_t *p, size_t rs, __m512i t[8]) {
    __m512i a[4], b[4]; /* a[k]: dword k of rows 0-3, 4 + k of rows 0-3, the same of 4-7 */
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        const uint8_t *from = p + 8 * rs * (size_t)half;
        __m512i z0 = pn__load_halves(from, 4 * rs);
        __m512i z1 = pn__load_halves(from + rs, 4 * rs);
        __m512i z2 = pn__load_halves(from + 2 * rs, 4 * rs);
        __m512i z3 = pn__load_halves(from + 3 * rs, 4 * rs);
        __m512i u0 = _mm512_unpacklo_epi32(z0, z1);
        __m512i u1 = _mm512_unpackhi_epi32(z0, z1);
        __m512i u2 = _mm512_unpacklo_epi32(z2, z3);
        __m512i u3 = _mm512_unpackhi_epi32(z2, z3);
        __m512i *to = half ? b : a;
        to[0] = _mm512_unpacklo_epi64(u0, u2);
        to[1] = _mm512_unpackhi_epi64(u0, u2);
        to[2] = _mm512_unpacklo_epi64(u1, u3);
        to[3] = _mm512_unpackhi_epi64(u1, u3);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        t[k] = _mm512_shuffle_i32x4(a[k], b[k], 0x88);
        t[4 + k] = _mm512_shuffle_i32x4(a[k], b[k], 0xdd);
    }
}

/* The half-words at p of all rows, as floats: for what doesn't sit on a dword. */
INLINE __m512 pn__halves(const uint8_t *p, size_t rs) {
    int16_t h[ROWS];
    for (int r = 0; r < ROWS; r++)
        memcpy(&h[r], p + (size_t)r * rs, sizeof h[r]);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)h));
}

/* The low half of each dword of a and the high half of b's, as floats. */
INLINE void pn__halves_of(__m512i a, __m512i b, __m512 *low, __m512 *high) {
    *low = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a));
    *high = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(b, 16)));
}

/* n dwords that begin in the middle of t[0]. */
INLINE void pn__from_half(const __m512i *t, int n, __m512i *out) {
    __m512i low = _mm512_rol_epi32(t[0], 16);
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        __m512i high = _mm512_rol_epi32(t[i + 1], 16);
        out[i] = _mm512_mask_blend_epi16(0xaaaaaaaa, low, high);
        low = high;
    }
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

/* The sixteen values that IQ4_NL and IQ4_XS codes stand for, as this level takes signed codes. */
INLINE __m128i pn__table_iq4(void) {
    return _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153,
                         (char)166, (char)181, (char)197, (char)217, (char)241);
}

/* Finished dots of sixteen rows for one column: factor, bias, and those rows that are ours. */
INLINE void pn__put16(const struct pn_mm *mm, uint32_t m, uint32_t row, __mmask16 ours, __m512 f) {
    f = _mm512_mul_ps(f, _mm512_set1_ps(mm->w->scale));
    if (mm->bias) f = _mm512_add_ps(f, _mm512_maskz_loadu_ps(ours, mm->bias + row));
    _mm512_mask_storeu_ps(mm->out.data + (uint64_t)m * mm->out.stride + row, ours, f);
}

/* ---- groups of sixteen rows ---- */

#define FEED_LEN 32 /* weights of a row between two portions of a feed */

/* Groups that a panel's inner kernel takes at once. */
#define PANEL_PAIR 2

/* What a type does with a group; handed on as plain arguments, or gcc does not inline them. col_n
 * and group_n are constants there. */
typedef void (*pn_direct_fn)(const struct pn_walk *k, const struct pn_acts *a, uint32_t col_n,
                             __m512 f[PN_TILE]);
typedef void (*pn_pack_fn)(const struct pn_walk *k, uint8_t *to);
/* group_n groups of a panel against a tile of columns, feeding every FEED_LEN weights of a row.
 * Types write both cases out: clang unrolls these functions before it inlines them, and over a
 * number not yet known it left the sums in memory, at a quarter of the speed. */
typedef void (*pn_panel_fn)(const uint8_t *panel, uint64_t group_bytes, uint32_t group_n,
                            const struct pn_acts *a, uint32_t tile_i, struct pn_feed *feed,
                            __m512 f[PANEL_PAIR][PN_TILE]);

struct pn_group_shape {
    uint64_t block_len;    /* weights of a row in a block */
    uint64_t record_bytes; /* a block of sixteen rows in a panel */
};

/* The group of sixteen rows whose first is `row`, pulled back so that it ends inside the matrix;
 * the rows before `row` are somebody else's. */
INLINE uint32_t pn__group_start(const struct pn_weight *w, uint32_t row, uint32_t hi,
                                __mmask16 *ours) {
    uint32_t first = row + ROWS <= w->row_n ? row : w->row_n - ROWS;
    uint32_t end = hi - first < ROWS ? hi - first : ROWS;
    *ours = (__mmask16)((0xffffu >> (ROWS - end)) & (0xffffu << (row - first)));
    return first;
}

INLINE void pn__direct_group(const struct pn_mm *mm, const struct pn_walk *k, uint32_t first,
                             __mmask16 ours, pn_direct_fn direct, uint32_t col_n) {
    __m512 f[PN_TILE];
    direct(k, mm->acts, col_n, f);
    for (uint32_t m = 0; m < col_n; m++)
        pn__put16(mm, m, first, ours, f[m]);
}

/* Up to PN_TILE columns. */
INLINE void pn__direct_rows(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                            struct pn_group_shape shape, pn_direct_fn direct) {
    const struct pn_weight *w = mm->w;
    uint32_t ahead = pn__rows_ahead(w);
    for (uint32_t row = lo; row < hi; row += ROWS) {
        __mmask16 ours;
        uint32_t first = pn__group_start(w, row, hi, &ours);
        struct pn_walk k = pn__walk_of(w, first, shape.block_len);
        k.next = pn__group_ahead(mm, row, hi, ahead);
        switch (mm->acts->row_n) {
        case 1:
            pn__direct_group(mm, &k, first, ours, direct, 1);
            break;
        case 2:
            pn__direct_group(mm, &k, first, ours, direct, 2);
            break;
        case 3:
            pn__direct_group(mm, &k, first, ours, direct, 3);
            break;
        default:
            pn__direct_group(mm, &k, first, ours, direct, 4);
        }
    }
}

INLINE void pn__panel_pack(const struct pn_mm *mm, uint32_t first, bool last,
                           struct pn_group_shape shape, pn_pack_fn pack, uint8_t *to) {
    const struct pn_weight *w = mm->w;
    struct pn_walk k = pn__walk_of(w, first, shape.block_len);
    if (!last) k.next = k.p + ROWS * w->row_bytes;
    pack(&k, to);
}

INLINE void pn__panel_rows(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                           const struct pn_thread_scratch *scratch, struct pn_group_shape shape,
                           pn_pack_fn pack, pn_panel_fn panel_tile) {
    const struct pn_weight *w = mm->w;
    const struct pn_acts *a = mm->acts;
    uint64_t group_bytes = w->col_n / shape.block_len * shape.record_bytes;
    uint32_t group_max = (uint32_t)(scratch->panel_bytes / group_bytes);
    if (group_max > PN_PANEL_GROUPS) group_max = PN_PANEL_GROUPS;
    uint32_t tile_n = (a->row_n + PN_TILE - 1) / PN_TILE;
    for (uint32_t row = lo; row < hi; row += group_max * ROWS) {
        uint32_t end = hi - row < group_max * ROWS ? hi : row + group_max * ROWS;
        uint32_t group_n = (end - row + ROWS - 1) / ROWS;
        uint32_t first[PN_PANEL_GROUPS];
        __mmask16 ours[PN_PANEL_GROUPS];
        uint64_t pair_n = (group_n + PANEL_PAIR - 1) / PANEL_PAIR;
        uint64_t feed_n = tile_n * pair_n * (w->col_n / FEED_LEN);
        struct pn_feed feed = pn__feed_after(mm, row, end, hi, feed_n);
        for (uint32_t g = 0; g < group_n; g++) {
            first[g] = pn__group_start(w, row + g * ROWS, hi, &ours[g]);
            pn__panel_pack(mm, first[g], g + 1 == group_n, shape, pack,
                           scratch->panel + g * group_bytes);
        }
        for (uint32_t t = 0; t < tile_n; t++) {
            uint32_t col_n = a->row_n - t * PN_TILE < PN_TILE ? a->row_n - t * PN_TILE : PN_TILE;
            for (uint32_t g = 0; g < group_n; g += PANEL_PAIR) {
                const uint8_t *panel = scratch->panel + g * group_bytes;
                uint32_t pair = group_n - g < PANEL_PAIR ? 1 : PANEL_PAIR;
                __m512 f[PANEL_PAIR][PN_TILE];
                if (pair == PANEL_PAIR)
                    panel_tile(panel, group_bytes, PANEL_PAIR, a, t, &feed, f);
                else
                    panel_tile(panel, group_bytes, 1, a, t, &feed, f);
                for (uint32_t i = 0; i < pair; i++)
                    for (uint32_t m = 0; m < col_n; m++)
                        pn__put16(mm, t * PN_TILE + m, first[g + i], ours[g + i], f[i][m]);
            }
        }
    }
}

/* Rows [lo, hi) of a matmul. */
INLINE void pn__matmul16(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                         const struct pn_thread_scratch *scratch, struct pn_group_shape shape,
                         pn_direct_fn direct, pn_pack_fn pack, pn_panel_fn panel_tile) {
    if (mm->acts->row_n <= PN_TILE)
        pn__direct_rows(mm, lo, hi, shape, direct);
    else
        pn__panel_rows(mm, lo, hi, scratch, shape, pack, panel_tile);
}

void pn__init_avx512(struct pn_kernels *k);
void pn__init_avx512_q32(struct pn_kernels *k);
void pn__init_avx512_float(struct pn_kernels *k);
void pn__init_avx512_bf16(struct pn_kernels *k);
void pn__init_avx512_k(struct pn_kernels *k);
void pn__init_avx512_unit32(struct pn_kernels *k);
void pn__init_avx512_unit256(struct pn_kernels *k);

#endif
