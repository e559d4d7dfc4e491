/* Matmul of weights in blocks of 32 for AVX-512: arithmetic on what walk_q32.h unpacks. One fused
 * multiply-add a block, two with a minimum or with a scale for each half. Codes are unsigned for
 * vpdpbusd; what they are too high by is taken out of the integer sum again by way of the
 * activation's own sums. */
#ifndef PN_OPS_CPU_AVX512_Q32_H
#define PN_OPS_CPU_AVX512_Q32_H

#include "ops/cpu/avx512.h"

#include "ops/cpu/walk_q32.h"

/* ---- arithmetic ---- */

/* What a type's integer sums are; constants where they are used. */
struct sums {
    int offset;
    bool has_min;
    bool halves; /* a scale for each half of a block, `m` the second's */
};

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

/* The same of one half of a block. */
INLINE __m512i half_correction(const int16_t *sums, int half, int offset) {
    return _mm512_set1_epi32(-offset * sums[half]);
}

/* A block's share where its halves have scales of their own. */
INLINE __m512 take_half(__m512 f, __m512i sum, __m512 d, const float *dx) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(d, _mm512_set1_ps(*dx)), f);
}

/* Up to PN_TILE columns, weights straight from registers. */
struct direct {
    const int8_t *q; /* [block_n][tile][32] */
    const float *d;
    const int16_t *sums;
    uint32_t tile;
    uint32_t col_n; /* constant where this is inlined */
    struct sums form;
    __m512 f[PN_TILE];
};

INLINE void emit_direct(void *user, uint64_t b, const struct block *x) {
    struct direct *c = user;
#pragma GCC unroll 4
    for (uint32_t m = 0; m < c->col_n; m++) {
        uint64_t at = b * c->tile + m;
        const int8_t *q = c->q + at * 32;
        const int16_t *sums = c->sums + at * 2;
        bool halves = c->form.halves;
        __m512i i0 =
            halves ? half_correction(sums, 0, c->form.offset) : correction(sums, c->form.offset);
        __m512i i1 = halves ? half_correction(sums, 1, c->form.offset) : _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            i0 = _mm512_dpbusd_epi32(i0, x->w[k], pn__dword_of(q + 4 * k));
            i1 = _mm512_dpbusd_epi32(i1, x->w[4 + k], pn__dword_of(q + 16 + 4 * k));
        }
        if (halves)
            c->f[m] = take_half(take_half(c->f[m], i0, x->d, c->d + at), i1, x->m, c->d + at);
        else
            c->f[m] = take(c->f[m], _mm512_add_epi32(i0, i1), x->d, x->m, c->d + at, sums,
                           c->form.has_min);
    }
}

INLINE void direct_q32(const struct pn_walk *k, walk_fn walk, struct sums form,
                       const struct pn_acts *a, uint32_t col_n, __m512 f[PN_TILE]) {
    struct direct c = {
        .q = a->q, .d = a->d, .sums = a->sums, .tile = a->tile, .col_n = col_n, .form = form};
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
    bool has_m;
};

INLINE void emit_pack(void *user, uint64_t b, const struct block *x) {
    struct packing *pack = user;
    uint8_t *to = pack->to + b * RECORD_BYTES;
    for (int i = 0; i < 8; i++)
        _mm512_store_si512(to + 64 * i, x->w[i]);
    _mm512_store_ps(to + 512, x->d);
    if (pack->has_m) _mm512_store_ps(to + 576, x->m);
}

INLINE void pack_q32(const struct pn_walk *k, walk_fn walk, bool has_m, uint8_t *to) {
    struct packing pack = {to, has_m};
    walk(k, emit_pack, &pack);
}

/* sum + n dwords of codes . q of group_n groups of a panel against a tile's codes, 32 apart. */
INLINE void panel_dot(const uint8_t *w, uint64_t group_bytes, uint32_t group_n, int n,
                      const int8_t *q, __m512i sum[PANEL_PAIR][PN_TILE]) {
#pragma GCC unroll 8
    for (int k = 0; k < n; k++) {
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
}

INLINE void panel_block(const uint8_t *w, uint64_t group_bytes, uint32_t group_n, struct sums form,
                        const int8_t *q, const float *d, const int16_t *sums,
                        __m512 f[PANEL_PAIR][PN_TILE]) {
    __m512i sum[PANEL_PAIR][PN_TILE];
#pragma GCC unroll 4
    for (int m = 0; m < PN_TILE; m++) {
        __m512i start = correction(sums + 2 * m, form.offset);
        for (uint32_t g = 0; g < group_n; g++)
            sum[g][m] = start;
    }
    panel_dot(w, group_bytes, group_n, 8, q, sum);
    for (uint32_t g = 0; g < group_n; g++) {
        __m512 wd = _mm512_load_ps(w + g * group_bytes + 512);
        __m512 wm = form.has_min ? _mm512_load_ps(w + g * group_bytes + 576) : wd;
#pragma GCC unroll 4
        for (int m = 0; m < PN_TILE; m++)
            f[g][m] = take(f[g][m], sum[g][m], wd, wm, d + m, sums + 2 * m, form.has_min);
    }
}

INLINE void panel_halves(const uint8_t *w, uint64_t group_bytes, uint32_t group_n, struct sums form,
                         const int8_t *q, const float *d, const int16_t *sums,
                         __m512 f[PANEL_PAIR][PN_TILE]) {
    for (int half = 0; half < 2; half++) {
        __m512i sum[PANEL_PAIR][PN_TILE];
        for (uint32_t g = 0; g < group_n; g++)
            for (int m = 0; m < PN_TILE; m++)
                sum[g][m] = half_correction(sums + 2 * m, half, form.offset);
        panel_dot(w + 256 * half, group_bytes, group_n, 4, q + 16 * half, sum);
        for (uint32_t g = 0; g < group_n; g++) {
            __m512 scale = _mm512_load_ps(w + g * group_bytes + 512 + 64 * half);
#pragma GCC unroll 4
            for (int m = 0; m < PN_TILE; m++)
                f[g][m] = take_half(f[g][m], sum[g][m], scale, d + m);
        }
    }
}

INLINE void panel_q32(const uint8_t *panel, uint64_t group_bytes, uint32_t group_n,
                      struct sums form, const struct pn_acts *a, uint32_t tile_i,
                      struct pn_feed *feed, __m512 f[PANEL_PAIR][PN_TILE]) {
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
        if (form.halves)
            panel_halves(w, group_bytes, group_n, form, q, d, sums, f);
        else
            panel_block(w, group_bytes, group_n, form, q, d, sums, f);
        q += 32 * PN_TILE;
        d += PN_TILE;
        sums += 2 * PN_TILE;
    }
}

/* ---- the types ---- */

#define Q32_TYPE(name, offset, has_min, halves)                                                  \
    INLINE void direct_##name(const struct pn_walk *k, const struct pn_acts *a, uint32_t col_n,  \
                              __m512 f[PN_TILE]) {                                               \
        direct_q32(k, walk_##name, (struct sums){offset, has_min, halves}, a, col_n, f);         \
    }                                                                                            \
    INLINE void pack_##name(const struct pn_walk *k, uint8_t *to) {                              \
        pack_q32(k, walk_##name, (has_min) || (halves), to);                                     \
    }                                                                                            \
    INLINE void panel_##name(const uint8_t *panel, uint64_t group_bytes, uint32_t group_n,       \
                             const struct pn_acts *a, uint32_t tile_i, struct pn_feed *feed,     \
                             __m512 f[PANEL_PAIR][PN_TILE]) {                                    \
        if (group_n == PANEL_PAIR)                                                               \
            panel_q32(panel, group_bytes, PANEL_PAIR, (struct sums){offset, has_min, halves}, a, \
                      tile_i, feed, f);                                                          \
        else                                                                                     \
            panel_q32(panel, group_bytes, 1, (struct sums){offset, has_min, halves}, a, tile_i,  \
                      feed, f);                                                                  \
    }                                                                                            \
    static void matmul_##name(const struct pn_mm *mm, uint32_t lo, uint32_t hi,                  \
                              const struct pn_thread_scratch *scratch) {                         \
        const struct pn_group_shape shape = {32, RECORD_BYTES};                                  \
        pn__matmul16(mm, lo, hi, scratch, shape, direct_##name, pack_##name, panel_##name);      \
    }

#endif
