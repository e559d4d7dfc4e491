/* Matmul of weights in blocks of 256 for AVX-512: arithmetic on what walk_k.h unpacks.
 *
 * A block is runs of 16 or 32 codes under an integer scale each, so its sum is
 *     I = sum over runs of scale * (codes . q)
 * in int32, all of it exact. Codes are unsigned for vpdpbusd; what they are too high by is taken
 * out through the activation's own sums: I += sum over runs of (-offset * scale) * (sum of q), two
 * runs a vpdpwssd. Types with minimums use the same step for their second term. */
#ifndef PN_OPS_CPU_AVX512_K_H
#define PN_OPS_CPU_AVX512_K_H

#include "ops/cpu/avx512.h"

#include "ops/cpu/walk_k.h"

/* ---- arithmetic ---- */

/* A column's sums of q, for two runs each: int16 in dwords. */
INLINE void run_sums(const int16_t *sums, int run_n, int32_t out[RUN_MAX / 2]) {
    __m256i s = _mm256_loadu_si256((const __m256i *)(const void *)sums);
    if (run_n == RUN_MAX)
        _mm256_storeu_si256((__m256i *)(void *)out, s);
    else
        _mm_storeu_si128((__m128i *)(void *)out,
                         _mm256_cvtepi32_epi16(_mm256_madd_epi16(s, _mm256_set1_epi16(1))));
}

/* Adds a block's integer sum to one column's dot. */
INLINE __m512 take(__m512 f, __m512i sum, const struct tail *t, int run_n, bool has_min,
                   const float *dx, const int16_t *sums) {
    int32_t s[RUN_MAX / 2];
    run_sums(sums, run_n, s);
    __m512i second = has_min ? _mm512_setzero_si512() : sum;
#pragma GCC unroll 8
    for (int i = 0; i < run_n / 2; i++)
        second = _mm512_dpwssd_epi32(second, t->pair[i], _mm512_set1_epi32(s[i]));
    if (!has_min) sum = second;
    __m512 x = _mm512_set1_ps(*dx);
    f = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(t->d, x), f);
    if (!has_min) return f;
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(second), _mm512_mul_ps(t->dmin, x), f);
}

/* Up to PN_TILE columns, weights straight from registers. */
struct direct {
    const int8_t *q; /* [block_n][tile][LEN] */
    const float *d;
    const int16_t *sums;
    uint32_t tile;
    uint32_t col_n; /* constant where this is inlined */
    int run_n;
    bool has_min;
    __m512i sum[PN_TILE];
    __m512 f[PN_TILE];
};

INLINE void direct_run(void *user, uint64_t b, int run, const __m512i *w, __m512i scale) {
    struct direct *c = user;
    int dword_n = DWORDS / c->run_n;
#pragma GCC unroll 4
    for (uint32_t m = 0; m < c->col_n; m++) {
        const int8_t *q = c->q + (b * c->tile + m) * LEN + 4 * run * dword_n;
        __m512i s = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int i = 0; i < dword_n; i++)
            s = _mm512_dpbusd_epi32(s, w[i], pn__dword_of(q + 4 * i));
        c->sum[m] = _mm512_add_epi32(c->sum[m], _mm512_mullo_epi32(s, scale));
    }
}

INLINE void direct_end(void *user, uint64_t b, const struct tail *t) {
    struct direct *c = user;
#pragma GCC unroll 4
    for (uint32_t m = 0; m < c->col_n; m++) {
        uint64_t at = b * c->tile + m;
        c->f[m] =
            take(c->f[m], c->sum[m], t, c->run_n, c->has_min, c->d + at, c->sums + at * RUN_MAX);
        c->sum[m] = _mm512_setzero_si512();
    }
}

INLINE void direct_k(const struct pn_walk *k, walk_fn walk, int run_n, bool has_min,
                     const struct pn_acts *a, uint32_t col_n, __m512 f[PN_TILE]) {
    struct direct c = {.q = a->q,
                       .d = a->d,
                       .sums = a->sums,
                       .tile = a->tile,
                       .col_n = col_n,
                       .run_n = run_n,
                       .has_min = has_min};
    for (uint32_t m = 0; m < col_n; m++) {
        c.sum[m] = _mm512_setzero_si512();
        c.f[m] = _mm512_setzero_ps();
    }
    walk(k, direct_run, direct_end, &c);
    for (uint32_t m = 0; m < col_n; m++)
        f[m] = c.f[m];
}

/* ---- panels ---- */

/* A block of sixteen rows in a panel, registers of 64 bytes: for each run its codes and its scale;
 * the pairs; d; dmin. */
#define RUN_BYTES(run_n) (64 * (uint64_t)(DWORDS / (run_n) + 1))
#define TAIL_AT(run_n) ((uint64_t)(run_n)*RUN_BYTES(run_n))
#define RECORD_BYTES(run_n) (TAIL_AT(run_n) + 64 * (uint64_t)((run_n) / 2 + 2))

_Static_assert(RECORD_BYTES(8) <= PN_PANEL_GROUP_BYTES(LEN), "a panel holds two groups");
_Static_assert(RECORD_BYTES(16) <= PN_PANEL_GROUP_BYTES(LEN), "a panel holds two groups");

struct packing {
    uint8_t *to;
    int run_n;
    bool has_min;
};

INLINE void pack_run(void *user, uint64_t b, int run, const __m512i *w, __m512i scale) {
    struct packing *c = user;
    int run_n = c->run_n;
    uint8_t *to = c->to + b * RECORD_BYTES(run_n) + (uint64_t)run * RUN_BYTES(run_n);
#pragma GCC unroll 8
    for (int i = 0; i < DWORDS / run_n; i++)
        _mm512_store_si512(to + 64 * i, w[i]);
    _mm512_store_si512(to + RUN_BYTES(run_n) - 64, scale);
}

INLINE void pack_end(void *user, uint64_t b, const struct tail *t) {
    struct packing *c = user;
    int run_n = c->run_n;
    uint8_t *to = c->to + b * RECORD_BYTES(run_n) + TAIL_AT(run_n);
#pragma GCC unroll 8
    for (int i = 0; i < run_n / 2; i++)
        _mm512_store_si512(to + 64 * i, t->pair[i]);
    _mm512_store_ps(to + 32 * run_n, t->d);
    if (c->has_min) _mm512_store_ps(to + 32 * run_n + 64, t->dmin);
}

INLINE void pack_k(const struct pn_walk *k, walk_fn walk, int run_n, bool has_min, uint8_t *to) {
    struct packing c = {to, run_n, has_min};
    walk(k, pack_run, pack_end, &c);
}

INLINE void load_tail(const uint8_t *from, int run_n, bool has_min, struct tail *t) {
#pragma GCC unroll 8
    for (int i = 0; i < run_n / 2; i++)
        t->pair[i] = _mm512_load_si512(from + 64 * i);
    t->d = _mm512_load_ps(from + 32 * run_n);
    if (has_min) t->dmin = _mm512_load_ps(from + 32 * run_n + 64);
}

/* One run of group_n groups against a tile's codes q, LEN apart. */
INLINE void panel_run(const uint8_t *w, uint64_t group_bytes, uint32_t group_n, int dword_n,
                      const int8_t *q, __m512i sum[PANEL_PAIR][PN_TILE]) {
    __m512i s[PANEL_PAIR][PN_TILE];
    for (uint32_t g = 0; g < group_n; g++)
        for (int m = 0; m < PN_TILE; m++)
            s[g][m] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = 0; i < dword_n; i++) {
        __m512i x[PANEL_PAIR];
        for (uint32_t g = 0; g < group_n; g++)
            x[g] = _mm512_load_si512(w + g * group_bytes + 64 * i);
#pragma GCC unroll 4
        for (int m = 0; m < PN_TILE; m++) {
            __m512i y = pn__dword_of(q + LEN * m + 4 * i);
            for (uint32_t g = 0; g < group_n; g++)
                s[g][m] = _mm512_dpbusd_epi32(s[g][m], x[g], y);
        }
    }
    for (uint32_t g = 0; g < group_n; g++) {
        __m512i scale = _mm512_load_si512(w + g * group_bytes + 64 * dword_n);
#pragma GCC unroll 4
        for (int m = 0; m < PN_TILE; m++)
            sum[g][m] = _mm512_add_epi32(sum[g][m], _mm512_mullo_epi32(s[g][m], scale));
    }
}

INLINE void panel_k(const uint8_t *panel, uint64_t group_bytes, uint32_t group_n, int run_n,
                    bool has_min, const struct pn_acts *a, uint32_t tile_i, struct pn_feed *feed,
                    __m512 f[PANEL_PAIR][PN_TILE]) {
    int dword_n = DWORDS / run_n;
    uint64_t block_n = a->col_n / LEN, from = (uint64_t)tile_i * block_n * PN_TILE;
    const int8_t *q = a->q + from * LEN;
    const float *d = a->d + from;
    const int16_t *sums = a->sums + from * RUN_MAX;
    for (uint32_t g = 0; g < group_n; g++)
        for (int m = 0; m < PN_TILE; m++)
            f[g][m] = _mm512_setzero_ps();
#pragma GCC unroll 1
    for (uint64_t b = 0; b < block_n; b++) {
        const uint8_t *w = panel + b * RECORD_BYTES(run_n);
        __m512i sum[PANEL_PAIR][PN_TILE];
        for (uint32_t g = 0; g < group_n; g++)
            for (int m = 0; m < PN_TILE; m++)
                sum[g][m] = _mm512_setzero_si512();
#pragma GCC unroll 1
        for (int i = 0; i < DWORDS; i += FEED_LEN / 4) {
            pn__feed(feed);
            for (int k = 0; k < FEED_LEN / 4; k += dword_n, w += RUN_BYTES(run_n))
                panel_run(w, group_bytes, group_n, dword_n, q + 4 * (i + k), sum);
        }
        for (uint32_t g = 0; g < group_n; g++) {
            struct tail t;
            load_tail(w + g * group_bytes, run_n, has_min, &t);
#pragma GCC unroll 4
            for (int m = 0; m < PN_TILE; m++)
                f[g][m] = take(f[g][m], sum[g][m], &t, run_n, has_min, d + m, sums + RUN_MAX * m);
        }
        q += LEN * PN_TILE;
        d += PN_TILE;
        sums += RUN_MAX * PN_TILE;
    }
}

/* ---- the types ---- */

#define K_TYPE(name, run_n, has_min)                                                            \
    INLINE void direct_##name(const struct pn_walk *k, const struct pn_acts *a, uint32_t col_n, \
                              __m512 f[PN_TILE]) {                                              \
        direct_k(k, walk_##name, run_n, has_min, a, col_n, f);                                  \
    }                                                                                           \
    INLINE void pack_##name(const struct pn_walk *k, uint8_t *to) {                             \
        pack_k(k, walk_##name, run_n, has_min, to);                                             \
    }                                                                                           \
    INLINE void panel_##name(const uint8_t *panel, uint64_t group_bytes, uint32_t group_n,      \
                             const struct pn_acts *a, uint32_t tile_i, struct pn_feed *feed,    \
                             __m512 f[PANEL_PAIR][PN_TILE]) {                                   \
        if (group_n == PANEL_PAIR)                                                              \
            panel_k(panel, group_bytes, PANEL_PAIR, run_n, has_min, a, tile_i, feed, f);        \
        else                                                                                    \
            panel_k(panel, group_bytes, 1, run_n, has_min, a, tile_i, feed, f);                 \
    }                                                                                           \
    static void matmul_##name(const struct pn_mm *mm, uint32_t lo, uint32_t hi,                 \
                              const struct pn_thread_scratch *scratch) {                        \
        const struct pn_group_shape shape = {LEN, RECORD_BYTES(run_n)};                         \
        pn__matmul16(mm, lo, hi, scratch, shape, direct_##name, pack_##name, panel_##name);     \
    }

#endif
