/* Matmul of Q4_0, Q4_1 and Q8_0 weights: blocks of 32, one fused multiply-add a block (two with a
 * minimum). Codes are made unsigned for vpdpbusd; what the offset adds is taken out of the integer
 * sum again by way of the activation's own sums. */
#include "ops/cpu/avx512.h"

/* One block of sixteen rows. */
struct block16 {
    __m512i w[8]; /* unsigned codes, four a dword */
    __m512 d;
    __m512 m; /* minimum; types with has_min */
};

/* What a block is used for: `b` is its number in the row. */
typedef void (*emit_fn)(void *user, uint64_t b, const struct block16 *x);

/* Weights of one type: offset of the codes, and the walk over a group's blocks. */
struct walk {
    const uint8_t *p;    /* first row */
    size_t rs;           /* bytes a row */
    uint64_t block_n;    /* a row */
    const uint8_t *next; /* what to prefetch, a line for each line used; NULL: nothing */
};

/* ---- unpacking ---- */

/* One block, wherever it lies. */
INLINE void block_q4_0(const uint8_t *p, size_t rs, struct block16 *x) {
    __m512i t[4];
    pn__dwords4(p + 2, rs, t);
    pn__nibbles(t, x->w);
    x->d = pn__halves16(p, rs);
}

/* Eight blocks are 144 bytes, nine chunks of 16, in which the scales come along: blocks 2i start on
 * a dword, blocks 2i + 1 half a dword later. */
INLINE void walk_q4_0(const struct walk *k, emit_fn emit, void *user) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
    uint64_t b = 0;
#pragma GCC unroll 1
    for (; b + 8 <= k->block_n; b += 8, p += 144) {
        __m512i t[36];
        struct block16 x;
#pragma GCC unroll 4
        for (int pair = 0; pair < 4; pair++) {
            int at = 9 * pair;
            if (k->next) pn__prefetch_lines(k->next + (b + 2 * (uint64_t)pair) * 288, 9);
#pragma GCC unroll 4
            for (int c = (at + 3) / 4; c < (at + 12) / 4; c++)
                pn__dwords4(p + 16 * c, rs, t + 4 * c);
            __m512i s[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                s[i] = _mm512_shrdi_epi32(t[at + i], t[at + i + 1], 16);
            pn__nibbles(s, x.w);
            x.d = pn__low_half(t[at]);
            emit(user, b + 2 * (uint64_t)pair, &x);
            pn__nibbles(t + at + 5, x.w);
            x.d = pn__high_half(t[at + 4]);
            emit(user, b + 2 * (uint64_t)pair + 1, &x);
        }
    }
    for (; b < k->block_n; b++, p += 18) {
        struct block16 x;
        block_q4_0(p, rs, &x);
        emit(user, b, &x);
    }
}

INLINE void signs(__m512i w[8]) {
    for (int i = 0; i < 8; i++)
        w[i] = _mm512_xor_si512(w[i], _mm512_set1_epi8((char)0x80));
}

INLINE void block_q8_0(const uint8_t *p, size_t rs, struct block16 *x) {
    pn__dwords4(p + 2, rs, x->w);
    pn__dwords4(p + 18, rs, x->w + 4);
    signs(x->w);
    x->d = pn__halves16(p, rs);
}

/* Eight blocks are 272 bytes, seventeen chunks. */
INLINE void walk_q8_0(const struct walk *k, emit_fn emit, void *user) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
    uint64_t b = 0;
#pragma GCC unroll 1
    for (; b + 8 <= k->block_n; b += 8, p += 272) {
        __m512i t[68];
        struct block16 x;
#pragma GCC unroll 4
        for (int pair = 0; pair < 4; pair++) {
            int at = 17 * pair;
            if (k->next) pn__prefetch_lines(k->next + (b + 2 * (uint64_t)pair) * 544, 17);
#pragma GCC unroll 6
            for (int c = (at + 3) / 4; c < (at + 20) / 4; c++)
                pn__dwords4(p + 16 * c, rs, t + 4 * c);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                x.w[i] = _mm512_shrdi_epi32(t[at + i], t[at + i + 1], 16);
            signs(x.w);
            x.d = pn__low_half(t[at]);
            emit(user, b + 2 * (uint64_t)pair, &x);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                x.w[i] = t[at + 9 + i];
            signs(x.w);
            x.d = pn__high_half(t[at + 8]);
            emit(user, b + 2 * (uint64_t)pair + 1, &x);
        }
    }
    for (; b < k->block_n; b++, p += 34) {
        struct block16 x;
        block_q8_0(p, rs, &x);
        emit(user, b, &x);
    }
}

/* Twenty bytes a block: scale and minimum share a dword, the nibbles follow. Four blocks are five
 * chunks. */
INLINE void walk_q4_1(const struct walk *k, emit_fn emit, void *user) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
    uint64_t b = 0;
#pragma GCC unroll 1
    for (; b + 4 <= k->block_n; b += 4, p += 80) {
        __m512i t[20];
        struct block16 x;
        if (k->next) pn__prefetch_lines(k->next + b * 320, 20);
#pragma GCC unroll 5
        for (int c = 0; c < 5; c++)
            pn__dwords4(p + 16 * c, rs, t + 4 * c);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            pn__nibbles(t + 5 * i + 1, x.w);
            x.d = pn__low_half(t[5 * i]);
            x.m = pn__high_half(t[5 * i]);
            emit(user, b + (uint64_t)i, &x);
        }
    }
    for (; b < k->block_n; b++, p += 20) {
        __m512i t[4];
        struct block16 x;
        pn__dwords4(p + 4, rs, t);
        pn__nibbles(t, x.w);
        x.d = pn__halves16(p, rs);
        x.m = pn__halves16(p + 2, rs);
        emit(user, b, &x);
    }
}

/* ---- arithmetic ---- */

/* Takes a block's share of one column's dot: I = sum of codes * q - offset * sum of q. */
INLINE __m512 take(__m512 f, __m512i sum, __m512 d, __m512 m, const float *dx, const int16_t *sums,
                   bool has_min) {
    __m512 x = _mm512_set1_ps(*dx);
    f = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(d, x), f);
    if (!has_min) return f;
    __m512i total =
        _mm512_dpwssd_epi32(_mm512_setzero_si512(), _mm512_set1_epi16(1), pn__dword_of(sums));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), _mm512_mul_ps(m, x), f);
}

INLINE __m512i correction(const int16_t *sums, int offset) {
    if (offset == 0) return _mm512_setzero_si512();
    return _mm512_dpwssd_epi32(_mm512_setzero_si512(), _mm512_set1_epi16((short)-offset),
                               pn__dword_of(sums));
}

/* Up to PN_TILE columns, weights straight from registers. */
struct direct {
    const int8_t *q; /* [block_n][tile][32] */
    const float *d;
    const int16_t *sums;
    uint32_t tile;
    uint32_t col_n; /* constant where this is inlined */
    int offset;
    bool has_min;
    __m512 f[PN_TILE];
};

INLINE void emit_direct(void *user, uint64_t b, const struct block16 *x) {
    struct direct *c = user;
#pragma GCC unroll 4
    for (uint32_t m = 0; m < c->col_n; m++) {
        uint64_t at = b * c->tile + m;
        const int8_t *q = c->q + at * 32;
        __m512i i0 = correction(c->sums + at * 2, c->offset);
        __m512i i1 = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            i0 = _mm512_dpbusd_epi32(i0, x->w[k], pn__dword_of(q + 4 * k));
            i1 = _mm512_dpbusd_epi32(i1, x->w[4 + k], pn__dword_of(q + 16 + 4 * k));
        }
        c->f[m] = take(c->f[m], _mm512_add_epi32(i0, i1), x->d, x->m, c->d + at, c->sums + at * 2,
                       c->has_min);
    }
}

/* ---- panels ---- */

/* A block of sixteen rows in a panel: 8 x 64 bytes of codes, 64 of scales, 64 of minima. */
#define RECORD_BYTES 640
/* Groups of sixteen rows that the inner kernel takes at once. */
#define PAIR 2

struct packing {
    uint8_t *to;
    bool has_min;
};

INLINE void emit_pack(void *user, uint64_t b, const struct block16 *x) {
    struct packing *pack = user;
    uint8_t *to = pack->to + b * RECORD_BYTES;
    for (int i = 0; i < 8; i++)
        _mm512_store_si512(to + 64 * i, x->w[i]);
    _mm512_store_ps(to + 512, x->d);
    if (pack->has_min) _mm512_store_ps(to + 576, x->m);
}

/* group_n (1 or 2, a constant) groups of a panel against one tile of columns. */
INLINE void panel_tile(const uint8_t *panel, uint64_t group_bytes, uint32_t group_n,
                       const struct pn_acts *a, uint32_t tile_i, uint64_t block_n, int offset,
                       bool has_min, __m512 f[PAIR][PN_TILE]) {
    uint64_t from = (uint64_t)tile_i * block_n * PN_TILE;
    const int8_t *q = a->q + from * 32;
    const float *d = a->d + from;
    const int16_t *sums = a->sums + from * 2;
    for (uint32_t g = 0; g < group_n; g++)
        for (int m = 0; m < PN_TILE; m++)
            f[g][m] = _mm512_setzero_ps();
#pragma GCC unroll 1
    for (uint64_t b = 0; b < block_n; b++) {
        const uint8_t *w = panel + b * RECORD_BYTES;
        __m512i sum[PAIR][PN_TILE];
#pragma GCC unroll 4
        for (int m = 0; m < PN_TILE; m++) {
            __m512i start = correction(sums + 2 * m, offset);
            for (uint32_t g = 0; g < group_n; g++)
                sum[g][m] = start;
        }
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            __m512i x[PAIR];
            for (uint32_t g = 0; g < group_n; g++)
                x[g] = _mm512_load_si512(w + g * group_bytes + 64 * k);
#pragma GCC unroll 4
            for (int m = 0; m < PN_TILE; m++) {
                __m512i y = pn__dword_of(q + 32 * m + 4 * k);
                for (uint32_t g = 0; g < group_n; g++)
                    sum[g][m] = _mm512_dpbusd_epi32(sum[g][m], x[g], y);
            }
        }
        for (uint32_t g = 0; g < group_n; g++) {
            __m512 wd = _mm512_load_ps(w + g * group_bytes + 512);
            __m512 wm = has_min ? _mm512_load_ps(w + g * group_bytes + 576) : wd;
#pragma GCC unroll 4
            for (int m = 0; m < PN_TILE; m++)
                f[g][m] = take(f[g][m], sum[g][m], wd, wm, d + m, sums + 2 * m, has_min);
        }
        q += 32 * PN_TILE;
        d += PN_TILE;
        sums += 2 * PN_TILE;
    }
}

/* ---- a type's matmul ---- */

typedef void (*walk_fn)(const struct walk *k, emit_fn emit, void *user);

/* The group of sixteen rows whose first is `row`, pulled back so that it ends inside the matrix;
 * the rows before `row` are somebody else's. */
INLINE uint32_t group_start(const struct pn_weight *w, uint32_t row, uint32_t hi, __mmask16 *ours) {
    uint32_t first = row + ROWS <= w->row_n ? row : w->row_n - ROWS;
    uint32_t end = hi - first < ROWS ? hi - first : ROWS;
    *ours = (__mmask16)((0xffffu >> (ROWS - end)) & (0xffffu << (row - first)));
    return first;
}

INLINE void direct_rows(const struct pn_mm *mm, uint32_t lo, uint32_t hi, walk_fn walk, int offset,
                        bool has_min, uint32_t col_n) {
    const struct pn_weight *w = mm->w;
    const struct pn_acts *a = mm->acts;
    for (uint32_t row = lo; row < hi; row += ROWS) {
        __mmask16 ours;
        uint32_t first = group_start(w, row, hi, &ours);
        struct walk k = {.p = w->data + (uint64_t)first * w->row_bytes,
                         .rs = w->row_bytes,
                         .block_n = w->col_n / 32};
        uint64_t ahead = (PREFETCH_AHEAD_BYTES / (ROWS * w->row_bytes) + 1) * ROWS * w->row_bytes;
        k.next = k.p + ahead;
        struct direct c = {.q = a->q,
                           .d = a->d,
                           .sums = a->sums,
                           .tile = a->tile,
                           .col_n = col_n,
                           .offset = offset,
                           .has_min = has_min};
        for (uint32_t m = 0; m < col_n; m++)
            c.f[m] = _mm512_setzero_ps();
        walk(&k, emit_direct, &c);
        for (uint32_t m = 0; m < col_n; m++)
            pn__put16(mm, m, first, ours, c.f[m]);
    }
}

INLINE void panel_rows(const struct pn_mm *mm, uint32_t lo, uint32_t hi, walk_fn walk, int offset,
                       bool has_min, const struct pn_thread_scratch *scratch) {
    const struct pn_weight *w = mm->w;
    const struct pn_acts *a = mm->acts;
    uint64_t block_n = w->col_n / 32;
    uint64_t group_bytes = block_n * RECORD_BYTES;
    uint32_t group_max = (uint32_t)(scratch->panel_bytes / group_bytes);
    if (group_max > PN_PANEL_GROUPS) group_max = PN_PANEL_GROUPS;
    uint32_t tile_n = (a->row_n + PN_TILE - 1) / PN_TILE;
    for (uint32_t row = lo; row < hi; row += group_max * ROWS) {
        uint32_t group_n = (hi - row + ROWS - 1) / ROWS;
        if (group_n > group_max) group_n = group_max;
        uint32_t first[PN_PANEL_GROUPS];
        __mmask16 ours[PN_PANEL_GROUPS];
        for (uint32_t g = 0; g < group_n; g++) {
            first[g] = group_start(w, row + g * ROWS, hi, &ours[g]);
            struct walk k = {.p = w->data + (uint64_t)first[g] * w->row_bytes,
                             .rs = w->row_bytes,
                             .block_n = block_n};
            k.next = k.p + ROWS * w->row_bytes;
            struct packing pack = {.to = scratch->panel + g * group_bytes, .has_min = has_min};
            walk(&k, emit_pack, &pack);
        }
        for (uint32_t t = 0; t < tile_n; t++) {
            uint32_t col_n = a->row_n - t * PN_TILE < PN_TILE ? a->row_n - t * PN_TILE : PN_TILE;
            for (uint32_t g = 0; g < group_n; g += PAIR) {
                const uint8_t *panel = scratch->panel + g * group_bytes;
                uint32_t pair = group_n - g < PAIR ? 1 : PAIR;
                __m512 f[PAIR][PN_TILE];
                if (pair == PAIR)
                    panel_tile(panel, group_bytes, PAIR, a, t, block_n, offset, has_min, f);
                else
                    panel_tile(panel, group_bytes, 1, a, t, block_n, offset, has_min, f);
                for (uint32_t i = 0; i < pair; i++)
                    for (uint32_t m = 0; m < col_n; m++)
                        pn__put16(mm, t * PN_TILE + m, first[g + i], ours[g + i], f[i][m]);
            }
        }
    }
}

INLINE void matmul(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                   const struct pn_thread_scratch *scratch, walk_fn walk, int offset,
                   bool has_min) {
    switch (mm->acts->row_n) {
    case 1:
        direct_rows(mm, lo, hi, walk, offset, has_min, 1);
        break;
    case 2:
        direct_rows(mm, lo, hi, walk, offset, has_min, 2);
        break;
    case 3:
        direct_rows(mm, lo, hi, walk, offset, has_min, 3);
        break;
    case 4:
        direct_rows(mm, lo, hi, walk, offset, has_min, 4);
        break;
    default:
        panel_rows(mm, lo, hi, walk, offset, has_min, scratch);
    }
}

static void matmul_q4_0(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                        const struct pn_thread_scratch *scratch) {
    matmul(mm, lo, hi, scratch, walk_q4_0, 8, false);
}

static void matmul_q4_1(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                        const struct pn_thread_scratch *scratch) {
    matmul(mm, lo, hi, scratch, walk_q4_1, 0, true);
}

static void matmul_q8_0(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                        const struct pn_thread_scratch *scratch) {
    matmul(mm, lo, hi, scratch, walk_q8_0, 128, false);
}

void pn__init_avx512_q32(struct pn_kernels *k) {
    k->matmul[PN_TYPE_Q4_0] = matmul_q4_0;
    k->matmul[PN_TYPE_Q4_1] = matmul_q4_1;
    k->matmul[PN_TYPE_Q8_0] = matmul_q8_0;
}
