/* Matmul of weights in blocks of 256 for AVX2: arithmetic on what walk_k.h unpacks.
 *
 * A block is runs of 16 or 32 codes under an integer scale each, so its sum is
 *     I = sum over runs of scale * (codes . q)
 * in int32, all of it exact. A scale is multiplied in where vpmaddwd widens the sums of codes to
 * int32. What codes are too high by comes out through the activation's own sums: I += sum over runs
 * of (-offset * scale) * (sum of q), two runs a vpmaddwd. Types with minimums use the same step for
 * their second term. */
#ifndef PN_OPS_CPU_AVX2_K_H
#define PN_OPS_CPU_AVX2_K_H

#include "ops/cpu/avx2.h"

#include "ops/cpu/walk_k.h"

/* A type's integer sums; constants where they are used. */
struct sums {
    struct pn_form form;
    int run_n;
    bool has_pairs; /* minimums, or an offset */
    bool has_min;
};

/* ---- arithmetic ---- */

/* A column's sums of q, for two runs each: int16 in dwords. */
INLINE void run_sums(const int16_t *sums, int run_n, int32_t out[RUN_MAX / 2]) {
    __m256i s = _mm256_loadu_si256((const __m256i *)(const void *)sums);
    if (run_n == RUN_MAX) {
        _mm256_storeu_si256((__m256i *)(void *)out, s);
        return;
    }
    s = _mm256_madd_epi16(s, _mm256_set1_epi16(1));
    _mm_storeu_si128((__m128i *)(void *)out,
                     _mm_packs_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1)));
}

/* sum + the pairs against a column's sums of q. */
INLINE __m256i pairs_dot(__m256i sum, const __m256i *pair, int run_n, const int32_t *s) {
#pragma GCC unroll 8
    for (int i = 0; i < run_n / 2; i++)
        sum = pn__add32(sum, _mm256_madd_epi16(pair[i], _mm256_set1_epi32(s[i])));
    return sum;
}

/* Adds a block's integer sum to one column's dot. */
INLINE __m256 take(__m256 f, __m256i sum, const struct tail *t, struct sums form, const float *dx,
                   const int32_t *s) {
    __m256 x = _mm256_set1_ps(*dx);
    if (form.has_pairs && !form.has_min) sum = pairs_dot(sum, t->pair, form.run_n, s);
    f = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(t->d, x), f);
    if (!form.has_min || !form.has_pairs) return f;
    __m256i second = pairs_dot(_mm256_setzero_si256(), t->pair, form.run_n, s);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(second), _mm256_mul_ps(t->dmin, x), f);
}

/* Up to PN_TILE columns, weights straight from registers. Sums and dots lie apart, as in
 * avx2_q32.h. */
struct direct {
    const int8_t *q; /* [block_n][tile][LEN] */
    const float *d;
    const int16_t *sums;
    uint32_t tile;
    uint32_t col_n; /* constant where this is inlined */
    struct sums form;
    __m256i *sum; /* [col_n] */
    __m256 *f;    /* [col_n] */
};

INLINE void direct_run(void *user, uint64_t b, int run, const __m256i *w, __m256i scale) {
    struct direct *c = user;
    int dword_n = DWORDS / c->form.run_n;
#pragma GCC unroll 4
    for (uint32_t m = 0; m < c->col_n; m++) {
        const int8_t *q = c->q + (b * c->tile + m) * LEN + 4 * run * dword_n;
        c->sum[m] = pn__dot(c->sum[m], w, dword_n, q, scale, c->form.form);
    }
}

INLINE void direct_end(void *user, uint64_t b, const struct tail *t) {
    struct direct *c = user;
#pragma GCC unroll 4
    for (uint32_t m = 0; m < c->col_n; m++) {
        uint64_t at = b * c->tile + m;
        int32_t s[RUN_MAX / 2];
        if (c->form.has_pairs) run_sums(c->sums + at * RUN_MAX, c->form.run_n, s);
        c->f[m] = take(c->f[m], c->sum[m], t, c->form, c->d + at, s);
        c->sum[m] = _mm256_setzero_si256();
    }
}

INLINE void direct_k(const struct pn_walk *k, walk_fn walk, struct sums form,
                     const struct pn_acts *a, uint32_t col_n, __m256 f[PN_TILE]) {
    __m256i sum[PN_TILE];
    __m256 dot[PN_TILE];
    struct direct c = {.q = a->q,
                       .d = a->d,
                       .sums = a->sums,
                       .tile = a->tile,
                       .col_n = col_n,
                       .form = form,
                       .sum = sum,
                       .f = dot};
    for (uint32_t m = 0; m < col_n; m++) {
        sum[m] = _mm256_setzero_si256();
        dot[m] = _mm256_setzero_ps();
    }
    walk(k, direct_run, direct_end, &c);
    for (uint32_t m = 0; m < col_n; m++)
        f[m] = dot[m];
}

/* ---- panels ---- */

/* A block of eight rows in a panel, registers of 32 bytes: for each run its codes and its scale;
 * then the pairs, d and dmin. */
#define RUN_BYTES(run_n) (32 * (uint64_t)(DWORDS / (run_n) + 1))
#define TAIL_AT(run_n) ((uint64_t)(run_n)*RUN_BYTES(run_n))
#define RECORD_BYTES(run_n) (TAIL_AT(run_n) + 32 * (uint64_t)((run_n) / 2 + 2))

struct packing {
    uint8_t *to;
    struct sums form;
};

INLINE void pack_run(void *user, uint64_t b, int run, const __m256i *w, __m256i scale) {
    struct packing *c = user;
    int run_n = c->form.run_n;
    uint8_t *to = c->to + b * RECORD_BYTES(run_n) + (uint64_t)run * RUN_BYTES(run_n);
#pragma GCC unroll 8
    for (int i = 0; i < DWORDS / run_n; i++)
        pn__store_register(to + 32 * i, w[i]);
    pn__store_register(to + RUN_BYTES(run_n) - 32, scale);
}

INLINE void pack_end(void *user, uint64_t b, const struct tail *t) {
    struct packing *c = user;
    int run_n = c->form.run_n;
    uint8_t *to = c->to + b * RECORD_BYTES(run_n) + TAIL_AT(run_n);
    if (c->form.has_pairs)
#pragma GCC unroll 8
        for (int i = 0; i < run_n / 2; i++)
            pn__store_register(to + 32 * i, t->pair[i]);
    to += 16 * run_n;
    pn__store_register(to, _mm256_castps_si256(t->d));
    if (c->form.has_min) pn__store_register(to + 32, _mm256_castps_si256(t->dmin));
}

INLINE void pack_k(const struct pn_walk *k, walk_fn walk, struct sums form, uint8_t *to) {
    struct packing c = {to, form};
    walk(k, pack_run, pack_end, &c);
}

INLINE void load_tail(const uint8_t *from, struct sums form, struct tail *t) {
    if (form.has_pairs)
#pragma GCC unroll 8
        for (int i = 0; i < form.run_n / 2; i++)
            t->pair[i] = pn__load_register(from + 32 * i);
    from += 16 * form.run_n;
    t->d = _mm256_castsi256_ps(pn__load_register(from));
    if (form.has_min) t->dmin = _mm256_castsi256_ps(pn__load_register(from + 32));
}

INLINE void panel_k(const uint8_t *panel, uint64_t group_bytes, uint32_t group_n, struct sums form,
                    const struct pn_acts *a, uint32_t tile_i, struct pn_feed *feed,
                    __m256 f[PANEL_PAIR][PN_TILE]) {
    int run_n = form.run_n, dword_n = DWORDS / run_n;
    uint64_t block_n = a->col_n / LEN, from = (uint64_t)tile_i * block_n * PN_TILE;
    const int8_t *q = a->q + from * LEN;
    const float *d = a->d + from;
    const int16_t *sums = a->sums + from * RUN_MAX;
    for (uint32_t g = 0; g < group_n; g++)
        for (int m = 0; m < PN_TILE; m++)
            f[g][m] = _mm256_setzero_ps();
#pragma GCC unroll 1
    for (uint64_t b = 0; b < block_n; b++) {
        const uint8_t *w = panel + b * RECORD_BYTES(run_n);
        __m256i sum[PANEL_PAIR][PN_TILE];
        int32_t s[PN_TILE][RUN_MAX / 2];
        for (uint32_t g = 0; g < group_n; g++)
            for (int m = 0; m < PN_TILE; m++)
                sum[g][m] = _mm256_setzero_si256();
#pragma GCC unroll 1
        for (int r = 0; r < run_n; r++, w += RUN_BYTES(run_n)) {
            __m256i scale[PANEL_PAIR];
            pn__feed(feed);
            for (uint32_t g = 0; g < group_n; g++)
                scale[g] = pn__load_register(w + g * group_bytes + 32 * dword_n);
            pn__dot_panel(w, group_bytes, group_n, dword_n, q + 4 * r * dword_n, LEN, scale,
                          form.form, sum);
        }
        if (form.has_pairs)
            for (int m = 0; m < PN_TILE; m++)
                run_sums(sums + RUN_MAX * m, run_n, s[m]);
        for (uint32_t g = 0; g < group_n; g++) {
            struct tail t;
            load_tail(w + g * group_bytes, form, &t);
#pragma GCC unroll 4
            for (int m = 0; m < PN_TILE; m++)
                f[g][m] = take(f[g][m], sum[g][m], &t, form, d + m, s[m]);
        }
        q += LEN * PN_TILE;
        d += PN_TILE;
        sums += RUN_MAX * PN_TILE;
    }
}

/* ---- the types ---- */

#define K_DIRECT(name, col_n) \
    PN_DIRECT8(name, col_n, direct_k(k, walk_##name, form_##name, a, col_n, f))
#define K_PANEL(name, group_n) \
    PN_PANEL8(name, group_n, panel_k(panel, group_bytes, group_n, form_##name, a, tile_i, feed, f))
#define K_TYPE(name, form, run_n, has_pairs, has_min)                         \
    static const struct sums form_##name = {form, run_n, has_pairs, has_min}; \
    K_DIRECT(name, 1)                                                         \
    K_DIRECT(name, 2)                                                         \
    K_DIRECT(name, 3)                                                         \
    K_DIRECT(name, 4)                                                         \
    PN_PACK8(name, pack_k(k, walk_##name, form_##name, to))                   \
    K_PANEL(name, 1)                                                          \
    K_PANEL(name, 2)                                                          \
    PN_MATMUL8(name, LEN, RECORD_BYTES(run_n), LEN / (run_n))

#endif
