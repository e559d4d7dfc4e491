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

typedef void (*walk_fn)(const struct pn_walk *k, emit_fn emit, void *user);

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
INLINE void walk_q4_0(const struct pn_walk *k, emit_fn emit, void *user) {
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
            const uint8_t *next = k->next ? k->next + (b + 2 * (uint64_t)pair) * 288 : NULL;
            if (next) pn__prefetch_lines(next, 5);
            if (pair == 0) pn__dwords4(p, rs, t);
            pn__dwords8(p + 16 + 32 * pair, rs, t + 4 + 8 * pair);
            __m512i s[4];
            pn__from_half(t + at, 4, s);
            pn__nibbles(s, x.w);
            x.d = pn__low_half(t[at]);
            emit(user, b + 2 * (uint64_t)pair, &x);
            if (next) pn__prefetch_lines(next + 5 * 64, 4);
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
INLINE void walk_q8_0(const struct pn_walk *k, emit_fn emit, void *user) {
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
            const uint8_t *next = k->next ? k->next + (b + 2 * (uint64_t)pair) * 544 : NULL;
            if (next) pn__prefetch_lines(next, 5);
            if (pair == 0) pn__dwords4(p, rs, t);
            pn__dwords8(p + 16 + 64 * pair, rs, t + 4 + 16 * pair);
            pn__from_half(t + at, 8, x.w);
            if (next) pn__prefetch_lines(next + 5 * 64, 4);
            signs(x.w);
            x.d = pn__low_half(t[at]);
            emit(user, b + 2 * (uint64_t)pair, &x);
            if (next) pn__prefetch_lines(next + 9 * 64, 4);
            pn__dwords8(p + 48 + 64 * pair, rs, t + 12 + 16 * pair);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                x.w[i] = t[at + 9 + i];
            if (next) pn__prefetch_lines(next + 13 * 64, 4);
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
INLINE void walk_q4_1(const struct pn_walk *k, emit_fn emit, void *user) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
    uint64_t b = 0;
#pragma GCC unroll 1
    for (; b + 4 <= k->block_n; b += 4, p += 80) {
        __m512i t[20];
        struct block16 x;
#pragma GCC unroll 5
        for (int c = 0; c < 5; c++)
            pn__dwords4(p + 16 * c, rs, t + 4 * c);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            if (k->next) pn__prefetch_lines(k->next + (b + (uint64_t)i) * 320, 5);
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

INLINE void direct_q32(const struct pn_walk *k, walk_fn walk, int offset, bool has_min,
                       const struct pn_acts *a, uint32_t col_n, __m512 f[PN_TILE]) {
    struct direct c = {.q = a->q,
                       .d = a->d,
                       .sums = a->sums,
                       .tile = a->tile,
                       .col_n = col_n,
                       .offset = offset,
                       .has_min = has_min};
    for (uint32_t m = 0; m < col_n; m++)
        c.f[m] = _mm512_setzero_ps();
    walk(k, emit_direct, &c);
    for (uint32_t m = 0; m < col_n; m++)
        f[m] = c.f[m];
}

/* ---- panels ---- */

/* A block of sixteen rows in a panel: 8 x 64 bytes of codes, 64 of scales, 64 of minima. */
#define RECORD_BYTES 640
_Static_assert(RECORD_BYTES <= PN_PANEL_GROUP_BYTES(32), "a panel holds two groups");

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

INLINE void pack_q32(const struct pn_walk *k, walk_fn walk, bool has_min, uint8_t *to) {
    struct packing pack = {to, has_min};
    walk(k, emit_pack, &pack);
}

INLINE void panel_q32(const uint8_t *panel, uint64_t group_bytes, uint32_t group_n, int offset,
                      bool has_min, const struct pn_acts *a, uint32_t tile_i, struct pn_feed *feed,
                      __m512 f[PANEL_PAIR][PN_TILE]) {
    uint64_t block_n = a->col_n / 32, from = (uint64_t)tile_i * block_n * PN_TILE;
    const int8_t *q = a->q + from * 32;
    const float *d = a->d + from;
    const int16_t *sums = a->sums + from * 2;
    for (uint32_t g = 0; g < group_n; g++)
        for (int m = 0; m < PN_TILE; m++)
            f[g][m] = _mm512_setzero_ps();
#pragma GCC unroll 1
    for (uint64_t b = 0; b < block_n; b++) {
        const uint8_t *w = panel + b * RECORD_BYTES;
        pn__feed(feed);
        __m512i sum[PANEL_PAIR][PN_TILE];
#pragma GCC unroll 4
        for (int m = 0; m < PN_TILE; m++) {
            __m512i start = correction(sums + 2 * m, offset);
            for (uint32_t g = 0; g < group_n; g++)
                sum[g][m] = start;
        }
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            __m512i x[PANEL_PAIR];
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

/* ---- the types ---- */

#define Q32_TYPE(name, offset, has_min)                                                         \
    INLINE void direct_##name(const struct pn_walk *k, const struct pn_acts *a, uint32_t col_n, \
                              __m512 f[PN_TILE]) {                                              \
        direct_q32(k, walk_##name, offset, has_min, a, col_n, f);                               \
    }                                                                                           \
    INLINE void pack_##name(const struct pn_walk *k, uint8_t *to) {                             \
        pack_q32(k, walk_##name, has_min, to);                                                  \
    }                                                                                           \
    INLINE void panel_##name(const uint8_t *panel, uint64_t group_bytes, uint32_t group_n,      \
                             const struct pn_acts *a, uint32_t tile_i, struct pn_feed *feed,    \
                             __m512 f[PANEL_PAIR][PN_TILE]) {                                   \
        panel_q32(panel, group_bytes, group_n, offset, has_min, a, tile_i, feed, f);            \
    }                                                                                           \
    static void matmul_##name(const struct pn_mm *mm, uint32_t lo, uint32_t hi,                 \
                              const struct pn_thread_scratch *scratch) {                        \
        const struct pn_group_shape shape = {32, RECORD_BYTES};                                 \
        pn__matmul16(mm, lo, hi, scratch, shape, direct_##name, pack_##name, panel_##name);     \
    }

Q32_TYPE(q4_0, 8, false)
Q32_TYPE(q4_1, 0, true)
Q32_TYPE(q8_0, 128, false)

void pn__init_avx512_q32(struct pn_kernels *k) {
    k->matmul[PN_TYPE_Q4_0] = matmul_q4_0;
    k->matmul[PN_TYPE_Q4_1] = matmul_q4_1;
    k->matmul[PN_TYPE_Q8_0] = matmul_q8_0;
}
