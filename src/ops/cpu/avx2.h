/* What the AVX2 matmuls share.
 *
 * A block type's weights are taken eight rows at once, lane r of a register being row r: chunks of
 * 16 bytes of 8 rows are read and transposed as 4 x 4 dwords in each half of a register. A row's
 * sum is then one lane's chain of fused multiply-adds, block by block: the reference's order,
 * whatever the number of columns.
 *
 * Codes meet activations in vpmaddubsw, unsigned by signed, whose sums of two saturate at int16: a
 * type's form says how many of them may be added up before they are widened.
 *
 * Up to PN_TILE columns take the weights straight from registers. More go through a panel: a few
 * groups of eight rows unpacked once into the thread's scratch, then read for each tile of columns.
 */
#ifndef PN_OPS_CPU_AVX2_H
#define PN_OPS_CPU_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/x86_units.h"

#define INLINE static inline __attribute__((always_inline))

#define ROWS 8 /* lanes: weight rows of a group */

#include "ops/cpu/walk.h"

/* ---- registers of eight rows: the words in which walk_*.h are written ---- */

typedef __m256i vi;
typedef __m256 vf;

INLINE vi v_set8(int x) {
    return _mm256_set1_epi8((char)x);
}

INLINE vi v_set32(int x) {
    return _mm256_set1_epi32(x);
}

INLINE vi v_and(vi a, vi b) {
    return _mm256_and_si256(a, b);
}

/* a | (b & mask) */
INLINE vi v_or_masked(vi a, vi b, vi mask) {
    return _mm256_or_si256(a, _mm256_and_si256(b, mask));
}

/* Shifts of dwords by a constant, which may be 0. */
INLINE vi v_right(vi v, int n) {
    return n == 0 ? v : _mm256_srli_epi32(v, n);
}

INLINE vi v_left(vi v, int n) {
    return n == 0 ? v : _mm256_slli_epi32(v, n);
}

/* The same shuffle in all quarters. */
INLINE vi v_shuffle(vi x, __m128i how) {
    return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(how));
}

/* Entries of a table of sixteen bytes; indices below 16. */
INLINE vi v_lookup(__m128i table, vi index) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), index);
}

/* Bytes of w, plus `by` where x has a byte's one bit of `bits`; they have room for it. */
INLINE vi v_add_where(vi w, vi x, vi bits, vi by) {
    x = _mm256_cmpeq_epi8(_mm256_and_si256(x, bits), bits);
    return _mm256_add_epi8(w, _mm256_and_si256(x, by));
}

/* Bytes less `by`. */
INLINE vi v_sub8(vi v, int by) {
    return _mm256_sub_epi8(v, _mm256_set1_epi8((char)by));
}

INLINE vi v_sub32(vi v, int by) {
    return _mm256_sub_epi32(v, _mm256_set1_epi32(by));
}

INLINE vf v_negated(vf x) {
    return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
}

INLINE vf v_load_floats(const float p[ROWS]) {
    return _mm256_loadu_ps(p);
}

INLINE vi v_load(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Words of 16 bits times a constant. */
INLINE vi v_mul16(vi v, int by) {
    return _mm256_mullo_epi16(v, _mm256_set1_epi16((short)by));
}

/* Signed bytes 0 and 1 of each four as words: what v_low_pair gives of unsigned ones. */
INLINE vi v_words_signed(vi v) {
    return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
}

/* A run's scale as vpmaddwd takes it, from int32: in both halves of a dword. */
INLINE vi v_scale(vi x) {
    return _mm256_blend_epi16(x, _mm256_slli_epi32(x, 16), 0xaa);
}

/* Byte i of each dword as such a scale. */
INLINE vi v_scale_byte(vi v, int i, bool is_signed) {
    char c = (char)i;
    v = v_shuffle(v,
                  _mm_setr_epi8(c, -1, c, -1, (char)(4 + c), -1, (char)(4 + c), -1, (char)(8 + c),
                                -1, (char)(8 + c), -1, (char)(12 + c), -1, (char)(12 + c), -1));
    return is_signed ? v_words_signed(v) : v;
}

/* Word i, signed, of each dword. */
INLINE vi v_scale_word(vi v, int i) {
    if (i == 0) return _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(v, 0xa0), 0xa0);
    return _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(v, 0xf5), 0xf5);
}

/* Signed codes are taken as they are. */
#define SIGNED_OFFSET 0

INLINE vi v_signed(vi codes) {
    return codes;
}

INLINE __m256i pn__load_two(const uint8_t *low, const uint8_t *high) {
    __m256i x = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)low));
    return _mm256_inserti128_si256(x, _mm_loadu_si128((const __m128i *)(const void *)high), 1);
}

/* Dwords 0 to 3 of the 16 bytes at p (row 0) of all rows: t[k] lane r = dword k of row r. */
INLINE void pn__dwords4(const uint8_t *p, size_t rs, __m256i t[4]) {
    __m256i y0 = pn__load_two(p, p + 4 * rs);
    __m256i y1 = pn__load_two(p + rs, p + 5 * rs);
    __m256i y2 = pn__load_two(p + 2 * rs, p + 6 * rs);
    __m256i y3 = pn__load_two(p + 3 * rs, p + 7 * rs);
    __m256i u0 = _mm256_unpacklo_epi32(y0, y1);
    __m256i u1 = _mm256_unpackhi_epi32(y0, y1);
    __m256i u2 = _mm256_unpacklo_epi32(y2, y3);
    __m256i u3 = _mm256_unpackhi_epi32(y2, y3);
    t[0] = _mm256_unpacklo_epi64(u0, u2);
    t[1] = _mm256_unpackhi_epi64(u0, u2);
    t[2] = _mm256_unpacklo_epi64(u1, u3);
    t[3] = _mm256_unpackhi_epi64(u1, u3);
}

INLINE void pn__dwords8(const uint8_t *p, size_t rs, __m256i t[8]) {
    pn__dwords4(p, rs, t);
    pn__dwords4(p + 16, rs, t + 4);
}

/* n dwords that begin in the middle of t[0]. */
INLINE void pn__from_half(const __m256i *t, int n, __m256i *out) {
    const __m128i swap = _mm_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    __m256i low = v_shuffle(t[0], swap);
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        __m256i high = v_shuffle(t[i + 1], swap);
        out[i] = _mm256_blend_epi16(low, high, 0xaa);
        low = high;
    }
}

/* The half-words at p of all rows, as floats: for what doesn't sit on a dword. */
INLINE __m256 pn__halves(const uint8_t *p, size_t rs) {
    int16_t h[ROWS];
    for (int r = 0; r < ROWS; r++)
        memcpy(&h[r], p + (size_t)r * rs, sizeof h[r]);
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)h));
}

/* The low half of each dword of a and the high half of b's, as floats. */
INLINE void pn__halves_of(__m256i a, __m256i b, __m256 *low, __m256 *high) {
    __m256i t = _mm256_blend_epi16(a, b, 0xaa);
    t = v_shuffle(t, _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    t = _mm256_permute4x64_epi64(t, 0xd8);
    *low = _mm256_cvtph_ps(_mm256_castsi256_si128(t));
    *high = _mm256_cvtph_ps(_mm256_extracti128_si256(t, 1));
}

INLINE __m256i pn__dword_of(const void *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_epi32(x);
}

/* 16 bytes of low nibbles, then 16 of high ones: 32 codes as 8 dwords. */
INLINE void pn__nibbles(const __m256i t[4], __m256i w[8]) {
    const __m256i mask = _mm256_set1_epi8(15);
    for (int k = 0; k < 4; k++) {
        w[k] = _mm256_and_si256(t[k], mask);
        w[4 + k] = _mm256_and_si256(_mm256_srli_epi32(t[k], 4), mask);
    }
}

/* The sixteen values that IQ4_NL and IQ4_XS codes stand for. */
INLINE __m128i pn__table_iq4(void) {
    return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}

INLINE void pn__store_register(uint8_t *to, __m256i x) {
    _mm256_store_si256((__m256i *)(void *)to, x);
}

INLINE __m256i pn__load_register(const uint8_t *from) {
    return _mm256_load_si256((const __m256i *)(const void *)from);
}

/* ---- integer dots ---- */

/* Codes against activation codes, |q| <= 127. */
struct pn_form {
    /* Signed codes, -128 to 127: |w| * (q with w's sign), two of which are at most 128 * 127 * 2 =
     * 32512. Else codes are 0 or more. */
    bool is_signed;
    /* vpmaddubsw results that int16 holds the sum of: largest code * 127 * 2 * depth <= 32767. */
    int depth;
};
/* By the bits of a code: 15 * 127 * 2 * 8 = 30480, 31 * 127 * 2 * 4 = 31496, 63 * 127 * 2 * 2 =
 * 32004. */
#define FORM_U4 \
    { false, 8 }
#define FORM_U5 \
    { false, 4 }
#define FORM_U6 \
    { false, 2 }
#define FORM_S8 \
    { true, 1 }

INLINE __m256i pn__products(__m256i w, __m256i q, struct pn_form form) {
    if (!form.is_signed) return _mm256_maddubs_epi16(w, q);
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
}

/* Sums in the order they are written: made into a tree by the compiler, their terms would not fit
 * the registers. */
INLINE __m256i pn__add16(__m256i a, __m256i b) {
    a = _mm256_add_epi16(a, b);
    __asm__("" : "+x"(a));
    return a;
}

INLINE __m256i pn__add32(__m256i a, __m256i b) {
    a = _mm256_add_epi32(a, b);
    __asm__("" : "+x"(a));
    return a;
}

/* sum + (n dwords of codes . q) * by; `by` has the factor in both halves of a dword. */
INLINE __m256i pn__dot(__m256i sum, const __m256i *w, int n, const int8_t *q, __m256i by,
                       struct pn_form form) {
    int depth = form.depth < n ? form.depth : n;
#pragma GCC unroll 8
    for (int i = 0; i < n; i += depth) {
        __m256i s = pn__products(w[i], pn__dword_of(q + 4 * i), form);
#pragma GCC unroll 8
        for (int j = i + 1; j < i + depth; j++)
            s = pn__add16(s, pn__products(w[j], pn__dword_of(q + 4 * j), form));
        sum = pn__add32(sum, _mm256_madd_epi16(s, by));
    }
    return sum;
}

/* ---- groups of eight rows ---- */

/* Eight rows that end inside the matrix; lanes [from, to) are ours. */
struct pn_group {
    uint32_t first;
    uint32_t from;
    uint32_t to;
};

/* The group whose first row is `row`, pulled back where the matrix ends before. */
INLINE struct pn_group pn__group_at(const struct pn_weight *w, uint32_t row, uint32_t hi) {
    struct pn_group g = {.first = row + ROWS <= w->row_n ? row : w->row_n - ROWS};
    g.from = row - g.first;
    g.to = hi - g.first < ROWS ? hi - g.first : ROWS;
    return g;
}

/* Finished dots of a group for one column: factor, bias, and those rows that are ours. */
INLINE void pn__put8(const struct pn_mm *mm, uint32_t m, const struct pn_group *g, __m256 f) {
    float *out = mm->out.data + (uint64_t)m * mm->out.stride + g->first;
    f = _mm256_mul_ps(f, _mm256_set1_ps(mm->w->scale));
    if (mm->bias) f = _mm256_add_ps(f, _mm256_loadu_ps(mm->bias + g->first));
    if (g->from == 0 && g->to == ROWS) {
        _mm256_storeu_ps(out, f);
        return;
    }
    float part[ROWS];
    _mm256_storeu_ps(part, f);
    memcpy(out + g->from, part + g->from, (g->to - g->from) * sizeof *part);
}

/* Groups in a panel, and how many of them its inner kernel takes at once. */
#define PANEL_GROUPS (PN_PANEL_GROUPS * 16 / ROWS)
#define PANEL_PAIR 2

INLINE __m256i pn__panel_dword(const uint8_t *w, uint32_t g, uint64_t group_bytes, int k) {
    return _mm256_load_si256((const __m256i *)(const void *)(w + g * group_bytes + 32 * k));
}

/* pn__dot_panel for depths of 1 and 2: a product meets its sum at once. */
INLINE void pn__dot_panel_shallow(const uint8_t *w, uint64_t group_bytes, uint32_t group_n, int n,
                                  const int8_t *q, int q_step, const __m256i by[PANEL_PAIR],
                                  struct pn_form form, __m256i sum[PANEL_PAIR][PN_TILE]) {
#pragma GCC unroll 8
    for (int i = 0; i < n; i += form.depth) {
        __m256i x[PANEL_PAIR][2];
        for (uint32_t g = 0; g < group_n; g++)
            for (int j = 0; j < form.depth; j++)
                x[g][j] = pn__panel_dword(w, g, group_bytes, i + j);
#pragma GCC unroll 4
        for (int m = 0; m < PN_TILE; m++) {
            __m256i y[2];
            for (int j = 0; j < form.depth; j++)
                y[j] = pn__dword_of(q + q_step * m + 4 * (i + j));
            for (uint32_t g = 0; g < group_n; g++) {
                __m256i s = pn__products(x[g][0], y[0], form);
                if (form.depth == 2) s = pn__add16(s, pn__products(x[g][1], y[1], form));
                sum[g][m] = pn__add32(sum[g][m], _mm256_madd_epi16(s, by[g]));
            }
        }
    }
}

/* The same for greater ones: int16 sums of all, then these widened. */
INLINE void pn__dot_panel_deep(const uint8_t *w, uint64_t group_bytes, uint32_t group_n, int n,
                               const int8_t *q, int q_step, const __m256i by[PANEL_PAIR],
                               struct pn_form form, __m256i sum[PANEL_PAIR][PN_TILE]) {
    int depth = form.depth < n ? form.depth : n;
#pragma GCC unroll 8
    for (int i = 0; i < n; i += depth) {
        __m256i s[PANEL_PAIR][PN_TILE];
#pragma GCC unroll 8
        for (int j = i; j < i + depth; j++) {
            __m256i x[PANEL_PAIR];
            for (uint32_t g = 0; g < group_n; g++)
                x[g] = pn__panel_dword(w, g, group_bytes, j);
#pragma GCC unroll 4
            for (int m = 0; m < PN_TILE; m++) {
                __m256i y = pn__dword_of(q + q_step * m + 4 * j);
                for (uint32_t g = 0; g < group_n; g++) {
                    __m256i p = pn__products(x[g], y, form);
                    s[g][m] = j == i ? p : pn__add16(s[g][m], p);
                }
            }
        }
        for (uint32_t g = 0; g < group_n; g++)
#pragma GCC unroll 4
            for (int m = 0; m < PN_TILE; m++)
                sum[g][m] = pn__add32(sum[g][m], _mm256_madd_epi16(s[g][m], by[g]));
    }
}

/* sum[g][m] + (n dwords of codes . q) * by[g] of group_n groups of a panel against a tile's codes,
 * q_step apart. n, group_n and form are constants where this is inlined. */
INLINE void pn__dot_panel(const uint8_t *w, uint64_t group_bytes, uint32_t group_n, int n,
                          const int8_t *q, int q_step, const __m256i by[PANEL_PAIR],
                          struct pn_form form, __m256i sum[PANEL_PAIR][PN_TILE]) {
    if (form.depth <= 2)
        pn__dot_panel_shallow(w, group_bytes, group_n, n, q, q_step, by, form, sum);
    else
        pn__dot_panel_deep(w, group_bytes, group_n, n, q, q_step, by, form, sum);
}

/* ---- a type's matmul ---- */

/* What a type does with a group. Functions of their own, each with its numbers as constants: all in
 * one, clang works on it for minutes. */
typedef void (*pn_direct_fn)(const struct pn_walk *k, const struct pn_acts *a, __m256 f[PN_TILE]);
typedef void (*pn_pack_fn)(const struct pn_walk *k, uint8_t *to);
/* Groups of a panel against a tile of columns, feeding every feed_len weights of a row. */
typedef void (*pn_panel_fn)(const uint8_t *panel, uint64_t group_bytes, const struct pn_acts *a,
                            uint32_t tile_i, struct pn_feed *feed, __m256 f[PANEL_PAIR][PN_TILE]);

struct pn_group_shape {
    uint64_t block_len;    /* weights of a row in a block */
    uint64_t record_bytes; /* a block of eight rows in a panel */
    uint64_t feed_len;
};

struct pn_type8 {
    struct pn_group_shape shape;
    pn_direct_fn direct[PN_TILE]; /* for 1, 2 … columns */
    pn_pack_fn pack;
    pn_panel_fn panel[PANEL_PAIR]; /* for 1 and 2 groups */
};

/* Up to PN_TILE columns. */
static inline void pn__direct_rows(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                                   const struct pn_type8 *type) {
    const struct pn_weight *w = mm->w;
    uint32_t col_n = mm->acts->row_n;
    uint32_t ahead = pn__rows_ahead(w);
    for (uint32_t row = lo; row < hi; row += ROWS) {
        struct pn_group g = pn__group_at(w, row, hi);
        struct pn_walk k = pn__walk_of(w, g.first, type->shape.block_len);
        __m256 f[PN_TILE];
        k.next = pn__group_ahead(mm, row, hi, ahead);
        type->direct[col_n - 1](&k, mm->acts, f);
        for (uint32_t m = 0; m < col_n; m++)
            pn__put8(mm, m, &g, f[m]);
    }
}

/* A panel's groups against one tile of columns. */
static inline void pn__panel_tile(const struct pn_mm *mm, const uint8_t *panel,
                                  uint64_t group_bytes, const struct pn_group *groups,
                                  uint32_t group_n, uint32_t tile_i, struct pn_feed *feed,
                                  const struct pn_type8 *type) {
    uint32_t left_n = mm->acts->row_n - tile_i * PN_TILE;
    uint32_t col_n = left_n < PN_TILE ? left_n : PN_TILE;
    for (uint32_t g = 0; g < group_n; g += PANEL_PAIR, panel += PANEL_PAIR * group_bytes) {
        uint32_t pair = group_n - g < PANEL_PAIR ? 1 : PANEL_PAIR;
        __m256 f[PANEL_PAIR][PN_TILE];
        type->panel[pair - 1](panel, group_bytes, mm->acts, tile_i, feed, f);
        for (uint32_t i = 0; i < pair; i++)
            for (uint32_t m = 0; m < col_n; m++)
                pn__put8(mm, tile_i * PN_TILE + m, &groups[g + i], f[i][m]);
    }
}

static inline void pn__panel_rows(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                                  const struct pn_thread_scratch *scratch,
                                  const struct pn_type8 *type) {
    const struct pn_weight *w = mm->w;
    uint64_t group_bytes = w->col_n / type->shape.block_len * type->shape.record_bytes;
    uint32_t group_max = (uint32_t)(scratch->panel_bytes / group_bytes);
    if (group_max > PANEL_GROUPS) group_max = PANEL_GROUPS;
    uint32_t tile_n = (mm->acts->row_n + PN_TILE - 1) / PN_TILE;
    for (uint32_t row = lo; row < hi; row += group_max * ROWS) {
        uint32_t end = hi - row < group_max * ROWS ? hi : row + group_max * ROWS;
        uint32_t group_n = (end - row + ROWS - 1) / ROWS;
        struct pn_group groups[PANEL_GROUPS];
        for (uint32_t g = 0; g < group_n; g++) {
            groups[g] = pn__group_at(w, row + g * ROWS, hi);
            struct pn_walk k = pn__walk_of(w, groups[g].first, type->shape.block_len);
            if (g + 1 < group_n) k.next = k.p + ROWS * w->row_bytes;
            type->pack(&k, scratch->panel + g * group_bytes);
        }
        uint64_t pair_n = (group_n + PANEL_PAIR - 1) / PANEL_PAIR;
        struct pn_feed feed =
            pn__feed_after(mm, row, end, hi, tile_n * pair_n * (w->col_n / type->shape.feed_len));
        for (uint32_t t = 0; t < tile_n; t++)
            pn__panel_tile(mm, scratch->panel, group_bytes, groups, group_n, t, &feed, type);
    }
}

/* Rows [lo, hi) of a matmul. */
static inline void pn__matmul8(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                               const struct pn_thread_scratch *scratch,
                               const struct pn_type8 *type) {
    if (mm->acts->row_n <= PN_TILE)
        pn__direct_rows(mm, lo, hi, type);
    else
        pn__panel_rows(mm, lo, hi, scratch, type);
}

/* A type's functions and its matmul: `call` is made with the parameters' names. */
#define PN_DIRECT8(name, col_n, call)                                          \
    static __attribute__((noinline)) void direct_##name##_##col_n(             \
        const struct pn_walk *k, const struct pn_acts *a, __m256 f[PN_TILE]) { \
        call;                                                                  \
    }
#define PN_PACK8(name, call)                                                                  \
    static __attribute__((noinline)) void pack_##name(const struct pn_walk *k, uint8_t *to) { \
        call;                                                                                 \
    }
#define PN_PANEL8(name, group_n, call)                                                        \
    static __attribute__((noinline)) void panel_##name##_##group_n(                           \
        const uint8_t *panel, uint64_t group_bytes, const struct pn_acts *a, uint32_t tile_i, \
        struct pn_feed *feed, __m256 f[PANEL_PAIR][PN_TILE]) {                                \
        call;                                                                                 \
    }
#define PN_MATMUL8(name, block_len, record_bytes, feed_len)                               \
    static void matmul_##name(const struct pn_mm *mm, uint32_t lo, uint32_t hi,           \
                              const struct pn_thread_scratch *scratch) {                  \
        static const struct pn_type8 type = {                                             \
            {block_len, record_bytes, feed_len},                                          \
            {direct_##name##_1, direct_##name##_2, direct_##name##_3, direct_##name##_4}, \
            pack_##name,                                                                  \
            {panel_##name##_1, panel_##name##_2}};                                        \
        pn__matmul8(mm, lo, hi, scratch, &type);                                          \
    }

void pn__init_avx2(struct pn_kernels *k);
void pn__init_avx2_bf16(struct pn_kernels *k);
void pn__init_avx2_float(struct pn_kernels *k);
void pn__init_avx2_q32(struct pn_kernels *k);
void pn__init_avx2_k(struct pn_kernels *k);
void pn__init_avx2_unit32(struct pn_kernels *k);
void pn__init_avx2_unit256(struct pn_kernels *k);

#endif
