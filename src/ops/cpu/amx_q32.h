/* Matmul of weights in blocks of 32 for AMX: one instruction a block and tile, then the block's
 * fused multiply-adds as in avx512_q32.h. Sixteen input rows' sums stay in registers along K.
 *
 * Vector and tile instructions share a port, so this is bound by what follows the integer sums: a
 * conversion, a product of two scales and a fused multiply-add for each sixteen of them. */
#ifndef PN_OPS_CPU_AMX_Q32_H
#define PN_OPS_CPU_AMX_Q32_H

#include "ops/cpu/amx.h"

#include "ops/cpu/walk_q32.h"

/* ---- packing ---- */

/* A block of sixteen rows: 8 x 64 bytes of signed codes, 64 of scales, 64 of minima. */
#define RECORD_BYTES 640
_Static_assert(RECORD_BYTES <= PN_PANEL_GROUP_BYTES(32), "a panel holds two groups");

#define STREAM_BLOCKS (AMX_STREAM_BYTES / RECORD_BYTES)

struct packing {
    uint8_t *to;
    int offset;
    bool has_m;
};

INLINE void emit_pack(void *user, uint64_t b, const struct block *x) {
    struct packing *pack = user;
    uint8_t *to = pack->to + b * RECORD_BYTES;
    for (int i = 0; i < 8; i++)
        _mm512_store_si512(to + 64 * i, pack->offset ? v_sub8(x->w[i], pack->offset) : x->w[i]);
    _mm512_store_ps(to + 512, x->d);
    if (pack->has_m) _mm512_store_ps(to + 576, x->m);
}

INLINE void pack_q32(const struct pn_walk *k, walk_fn walk, int offset, bool has_m, uint8_t *to) {
    struct packing pack = {to, offset, has_m};
    walk(k, emit_pack, &pack);
    PN_AMX_FENCE();
}

/* ---- dots ---- */

/* What stands beside a block's sums, one value an input row; zeros behind the tile's rows. */
struct beside {
    _Alignas(64) float d[AMX_ROWS];
    _Alignas(64) float total[AMX_ROWS]; /* sum of the codes; types with minima */
};

INLINE void load_beside(struct beside *s, const struct pn_acts *a, uint64_t at, __mmask16 rows,
                        bool has_min) {
    _mm512_store_ps(s->d, _mm512_maskz_loadu_ps(rows, a->d + at));
    if (!has_min) return;
    __m512i pairs = _mm512_maskz_loadu_epi32(rows, a->sums + 2 * at);
    _mm512_store_ps(s->total, _mm512_cvtepi32_ps(_mm512_dpwssd_epi32(_mm512_setzero_si512(),
                                                                     _mm512_set1_epi16(1), pairs)));
}

/* A block's share of the dots of row_n input rows, a constant where this is inlined, or that of a
 * half of it. `scale`: in the record; a minimum stands behind it. */
INLINE void take_block(__m512 f[AMX_ROWS], int row_n, const int32_t *sum, const uint8_t *scale,
                       const struct beside *s, bool has_min) {
    __m512 d = _mm512_load_ps(scale), min = has_min ? _mm512_load_ps(scale + 64) : d;
#pragma GCC unroll 16
    for (int m = 0; m < row_n; m++) {
        __m512 x = _mm512_set1_ps(s->d[m]);
        __m512 i = _mm512_cvtepi32_ps(_mm512_load_si512(sum + m * ROWS));
        f[m] = _mm512_fmadd_ps(i, _mm512_mul_ps(d, x), f[m]);
        if (has_min)
            f[m] = _mm512_fmadd_ps(_mm512_set1_ps(s->total[m]), _mm512_mul_ps(min, x), f[m]);
    }
}

#define DOT(c, a, b, q, w)     \
    do {                       \
        _tile_zero(c);         \
        _tile_loadd(a, q, 32); \
        _tile_loadd(b, w, 64); \
        _tile_dpbssd(c, a, b); \
    } while (0)

/* The sums of block b + 1 are made while those of b are taken. */
INLINE void dot_rows(const struct pn_amx_part *p, int row_n, bool has_min, bool halves) {
    const uint32_t row = p->tile_i * AMX_ROWS;
    uint64_t at = pn__act_at(p->acts, p->acts->col_n / 32, p->block_i, row);
    uint64_t step = pn__act_step(p->acts, row);
    __mmask16 rows = (__mmask16)(0xffffu >> (AMX_ROWS - p->row_n[0]));
    _Alignas(64) int32_t sums[2][AMX_VALUES];
    struct beside s;
    __m512 f[AMX_ROWS];
    const int8_t *q = p->acts->q + at * 32;
    const uint8_t *w = p->panel;
#pragma GCC unroll 16
    for (int m = 0; m < row_n; m++)
        f[m] = _mm512_load_ps(p->f + m * ROWS);
    if (halves) {
#pragma GCC unroll 1
        for (uint64_t b = 0; b < p->block_n; b++, q += step * 32, w += RECORD_BYTES, at += step) {
            pn__feed(p->feed);
            DOT(0, 4, 6, q, w);
            DOT(1, 5, 7, q + 16, w + 256);
            load_beside(&s, p->acts, at, rows, false);
            _tile_stored(0, sums[0], 64);
            _tile_stored(1, sums[1], 64);
            take_block(f, row_n, sums[0], w + 512, &s, false);
            take_block(f, row_n, sums[1], w + 576, &s, false);
        }
    } else {
        DOT(0, 4, 6, q, w);
        uint64_t b = 0;
#pragma GCC unroll 1
        for (; b + 2 <= p->block_n; b += 2) {
            q += step * 32;
            DOT(1, 5, 7, q, w + RECORD_BYTES);
            _tile_stored(0, sums[0], 64);
            pn__feed(p->feed);
            load_beside(&s, p->acts, at, rows, has_min);
            take_block(f, row_n, sums[0], w + 512, &s, has_min);
            w += RECORD_BYTES;
            at += step;
            q += step * 32;
            if (b + 2 < p->block_n) DOT(0, 4, 6, q, w + RECORD_BYTES);
            _tile_stored(1, sums[1], 64);
            pn__feed(p->feed);
            load_beside(&s, p->acts, at, rows, has_min);
            take_block(f, row_n, sums[1], w + 512, &s, has_min);
            w += RECORD_BYTES;
            at += step;
        }
        if (b < p->block_n) {
            _tile_stored(0, sums[0], 64);
            pn__feed(p->feed);
            load_beside(&s, p->acts, at, rows, has_min);
            take_block(f, row_n, sums[0], w + 512, &s, has_min);
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < row_n; m++)
        _mm512_store_ps(p->f + m * ROWS, f[m]);
}

INLINE void dot_q32(const struct pn_amx_part *p, bool has_min, bool halves) {
    if (p->row_n[0] <= AMX_ROWS / 2)
        dot_rows(p, AMX_ROWS / 2, has_min, halves);
    else
        dot_rows(p, AMX_ROWS, has_min, halves);
}

/* ---- the types ---- */

#define Q32_TYPE(name, offset, has_min, halves)                                 \
    static void pack_##name(const struct pn_walk *k, uint8_t *to) {             \
        pack_q32(k, walk_##name, offset, (has_min) || (halves), to);            \
    }                                                                           \
    static void dot_##name(const struct pn_amx_part *p) {                       \
        dot_q32(p, has_min, halves);                                            \
    }                                                                           \
    static void matmul_##name(const struct pn_mm *mm, uint32_t lo, uint32_t hi, \
                              const struct pn_thread_scratch *scratch) {        \
        const struct pn_amx_type type = {                                       \
            {32, RECORD_BYTES}, (halves) ? 16 : 32, 1, 1, STREAM_BLOCKS};       \
        pn__matmul_amx(mm, lo, hi, scratch, type, pack_##name, dot_##name);     \
    }

#endif
