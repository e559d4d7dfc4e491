/* Matmul of weights in blocks of 32 for AVX2: arithmetic on what walk_q32.h unpacks. One fused
 * multiply-add a block, two with a minimum or with a scale for each half. What codes are too high
 * by is taken out of the integer sum again by way of the activation's own sums. */
#ifndef PN_OPS_CPU_AVX2_Q32_H
#define PN_OPS_CPU_AVX2_Q32_H

#include "ops/cpu/avx2.h"

#include "ops/cpu/walk_q32.h"

/* ---- arithmetic ---- */

/* What a type's integer sums are. */
struct sums {
    struct pn_form form;
    int offset;
    bool has_min;
    bool halves; /* a scale for each half of a block, `m` the second's; no offset */
};

/* A column's two sums of 16 codes times `by`, added. */
INLINE __m256i total(const int16_t *sums, int by) {
    return _mm256_madd_epi16(pn__dword_of(sums), _mm256_set1_epi16((short)by));
}

INLINE __m256i start(const int16_t *sums, struct sums form) {
    return form.offset == 0 ? _mm256_setzero_si256() : total(sums, -form.offset);
}

/* Takes a block's share of one column's dot. */
INLINE __m256 take(__m256 f, __m256i sum, __m256 d, __m256 m, const float *dx, const int16_t *sums,
                   bool has_min) {
    __m256 x = _mm256_set1_ps(*dx);
    f = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, x), f);
    if (!has_min) return f;
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(total(sums, 1)), _mm256_mul_ps(m, x), f);
}

/* Up to PN_TILE columns, weights straight from registers. The dots lie apart: in one struct with an
 * array whose index isn't known yet, clang 14 sees the form change with every dot, unrolls loops
 * over a number it doesn't know and works for minutes. */
struct direct {
    const int8_t *q; /* [block_n][tile][32] */
    const float *d;
    const int16_t *sums;
    uint32_t tile;
    uint32_t col_n; /* constant where this is inlined */
    struct sums form;
    __m256 *f; /* [col_n] */
};

/* A block's share where its halves have scales of their own. */
INLINE __m256 take_halves(__m256 f, const __m256i sum[2], __m256 d, __m256 m, const float *dx) {
    __m256 x = _mm256_set1_ps(*dx);
    f = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[0]), _mm256_mul_ps(d, x), f);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[1]), _mm256_mul_ps(m, x), f);
}

INLINE void emit_direct(void *user, uint64_t b, const struct block *x) {
    struct direct *c = user;
    const __m256i one = _mm256_set1_epi16(1);
#pragma GCC unroll 4
    for (uint32_t m = 0; m < c->col_n; m++) {
        uint64_t at = b * c->tile + m;
        const int16_t *sums = c->sums + at * 2;
        const int8_t *q = c->q + at * 32;
        if (c->form.halves) {
            const __m256i zero = _mm256_setzero_si256();
            __m256i two[2] = {pn__dot(zero, x->w, 4, q, one, c->form.form),
                              pn__dot(zero, x->w + 4, 4, q + 16, one, c->form.form)};
            c->f[m] = take_halves(c->f[m], two, x->d, x->m, c->d + at);
            continue;
        }
        __m256i sum = pn__dot(start(sums, c->form), x->w, 8, q, one, c->form.form);
        c->f[m] = take(c->f[m], sum, x->d, x->m, c->d + at, sums, c->form.has_min);
    }
}

INLINE void direct_q32(const struct pn_walk *k, walk_fn walk, struct sums form,
                       const struct pn_acts *a, uint32_t col_n, __m256 f[PN_TILE]) {
    __m256 dot[PN_TILE];
    struct direct c = {.q = a->q,
                       .d = a->d,
                       .sums = a->sums,
                       .tile = a->tile,
                       .col_n = col_n,
                       .form = form,
                       .f = dot};
    for (uint32_t m = 0; m < col_n; m++)
        dot[m] = _mm256_setzero_ps();
    walk(k, emit_direct, &c);
    for (uint32_t m = 0; m < col_n; m++)
        f[m] = dot[m];
}

/* ---- panels ---- */

/* A block of eight rows in a panel: 8 x 32 bytes of codes, 32 of scales, 32 of minima. */
#define RECORD_BYTES 320
struct packing {
    uint8_t *to;
    bool has_m;
};

INLINE void emit_pack(void *user, uint64_t b, const struct block *x) {
    struct packing *pack = user;
    uint8_t *to = pack->to + b * RECORD_BYTES;
    for (int i = 0; i < 8; i++)
        _mm256_store_si256((__m256i *)(void *)(to + 32 * i), x->w[i]);
    _mm256_store_ps((float *)(void *)(to + 256), x->d);
    if (pack->has_m) _mm256_store_ps((float *)(void *)(to + 288), x->m);
}

INLINE void pack_q32(const struct pn_walk *k, walk_fn walk, bool has_m, uint8_t *to) {
    struct packing pack = {to, has_m};
    walk(k, emit_pack, &pack);
}

/* Scales of a group's block in a panel, and its minima or the scales of second halves. */
INLINE __m256 panel_floats(const uint8_t *w, int i) {
    return _mm256_load_ps((const float *)(const void *)(w + 256 + 32 * i));
}

INLINE void panel_block(const uint8_t *w, uint64_t group_bytes, uint32_t group_n, struct sums form,
                        const int8_t *q, const float *d, const int16_t *sums,
                        __m256 f[PANEL_PAIR][PN_TILE]) {
    const __m256i ones[PANEL_PAIR] = {_mm256_set1_epi16(1), _mm256_set1_epi16(1)};
    __m256i sum[PANEL_PAIR][PN_TILE];
#pragma GCC unroll 4
    for (int m = 0; m < PN_TILE; m++) {
        __m256i first = start(sums + 2 * m, form);
        for (uint32_t g = 0; g < group_n; g++)
            sum[g][m] = first;
    }
    pn__dot_panel(w, group_bytes, group_n, 8, q, 32, ones, form.form, sum);
    for (uint32_t g = 0; g < group_n; g++) {
        __m256 wd = panel_floats(w + g * group_bytes, 0);
        __m256 wm = form.has_min ? panel_floats(w + g * group_bytes, 1) : wd;
#pragma GCC unroll 4
        for (int m = 0; m < PN_TILE; m++)
            f[g][m] = take(f[g][m], sum[g][m], wd, wm, d + m, sums + 2 * m, form.has_min);
    }
}

INLINE void panel_halves(const uint8_t *w, uint64_t group_bytes, uint32_t group_n, struct sums form,
                         const int8_t *q, const float *d, __m256 f[PANEL_PAIR][PN_TILE]) {
    const __m256i ones[PANEL_PAIR] = {_mm256_set1_epi16(1), _mm256_set1_epi16(1)};
    for (int half = 0; half < 2; half++) {
        __m256i sum[PANEL_PAIR][PN_TILE];
        for (uint32_t g = 0; g < group_n; g++)
            for (int m = 0; m < PN_TILE; m++)
                sum[g][m] = _mm256_setzero_si256();
        pn__dot_panel(w + 128 * half, group_bytes, group_n, 4, q + 16 * half, 32, ones, form.form,
                      sum);
        for (uint32_t g = 0; g < group_n; g++) {
            __m256 scale = panel_floats(w + g * group_bytes, half);
#pragma GCC unroll 4
            for (int m = 0; m < PN_TILE; m++) {
                __m256 by = _mm256_mul_ps(scale, _mm256_set1_ps(d[m]));
                f[g][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[g][m]), by, f[g][m]);
            }
        }
    }
}

INLINE void panel_q32(const uint8_t *panel, uint64_t group_bytes, uint32_t group_n,
                      struct sums form, const struct pn_acts *a, uint32_t tile_i,
                      struct pn_feed *feed, __m256 f[PANEL_PAIR][PN_TILE]) {
    uint64_t block_n = a->col_n / 32, from = (uint64_t)tile_i * block_n * PN_TILE;
    const int8_t *q = a->q + from * 32;
    const float *d = a->d + from;
    const int16_t *sums = a->sums + from * 2;
    for (uint32_t g = 0; g < group_n; g++)
        for (int m = 0; m < PN_TILE; m++)
            f[g][m] = _mm256_setzero_ps();
#pragma GCC unroll 1
    for (uint64_t b = 0; b < block_n; b++) {
        const uint8_t *w = panel + b * RECORD_BYTES;
        pn__feed(feed);
        if (form.halves)
            panel_halves(w, group_bytes, group_n, form, q, d, f);
        else
            panel_block(w, group_bytes, group_n, form, q, d, sums, f);
        q += 32 * PN_TILE;
        d += PN_TILE;
        sums += 2 * PN_TILE;
    }
}

/* ---- the types ---- */

#define Q32_DIRECT(name, col_n, ...) \
    PN_DIRECT8(name, col_n, direct_q32(k, walk_##name, (struct sums){__VA_ARGS__}, a, col_n, f))
#define Q32_PANEL(name, group_n, ...) \
    PN_PANEL8(                        \
        name, group_n,                \
        panel_q32(panel, group_bytes, group_n, (struct sums){__VA_ARGS__}, a, tile_i, feed, f))
#define Q32_TYPE(name, type_form, offset, has_min, halves)              \
    Q32_DIRECT(name, 1, type_form, offset, has_min, halves)             \
    Q32_DIRECT(name, 2, type_form, offset, has_min, halves)             \
    Q32_DIRECT(name, 3, type_form, offset, has_min, halves)             \
    Q32_DIRECT(name, 4, type_form, offset, has_min, halves)             \
    PN_PACK8(name, pack_q32(k, walk_##name, (has_min) || (halves), to)) \
    Q32_PANEL(name, 1, type_form, offset, has_min, halves)              \
    Q32_PANEL(name, 2, type_form, offset, has_min, halves)              \
    PN_MATMUL8(name, 32, RECORD_BYTES, 32)

#endif
