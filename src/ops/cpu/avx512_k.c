/* Matmul of weights in blocks of 256: Q2_K to Q6_K and IQ4_XS.
 *
 * A block is runs of 16 or 32 codes under an integer scale each, so its sum is
 *     I = sum over runs of scale * (codes . q)
 * in int32, all of it exact. Codes are made unsigned for vpdpbusd, so too high by a type's offset.
 * That is taken out through the activation's own sums: I += sum over runs of (-offset * scale) *
 * (sum of q), two runs a vpdpwssd. Types with minimums use the same step for their second term. */
#include "ops/cpu/avx512.h"

#define LEN 256    /* values a block */
#define DWORDS 64  /* of codes a row in a block */
#define RUN_MAX 16 /* of 16 values; or 8 of 32 */
#ifndef DIRECT_TILES
#define DIRECT_TILES 1
#endif

/* What stands beside a block's runs. */
struct tail {
    __m512i pair[RUN_MAX / 2]; /* int16 of runs 2i and 2i + 1: minimum, else -offset * scale */
    __m512 d;
    __m512 dmin; /* negated; types with has_min */
};

/* What a block is used for, run by run: codes four a dword, int32 scales; then the rest. */
typedef void (*run_fn)(void *user, uint64_t b, int run, const __m512i *w, __m512i scale);
typedef void (*end_fn)(void *user, uint64_t b, const struct tail *t);
typedef void (*walk_fn)(const struct pn_walk *k, run_fn run, end_fn end, void *user);

/* ---- unpacking ---- */

/* Lines from..from + n of the block b to come, of `bytes` a row. */
INLINE void ahead(const struct pn_walk *k, uint64_t b, uint64_t bytes, int from, int n) {
    if (k->next) pn__prefetch_lines(k->next + b * bytes * ROWS + 64 * from, n);
}

INLINE __m512i byte_unsigned(__m512i v, int i) {
    return _mm512_and_si512(_mm512_srli_epi32(v, (unsigned)(8 * i)), _mm512_set1_epi32(255));
}

INLINE __m512i byte_signed(__m512i v, int i) {
    return _mm512_srai_epi32(_mm512_slli_epi32(v, (unsigned)(24 - 8 * i)), 24);
}

/* Bytes 0 and 1 (or 2 and 3) of each dword as unsigned halves. */
INLINE __m512i low_pair(__m512i v) {
    return _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(_mm_setr_epi8(
                                      0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1)));
}

INLINE __m512i high_pair(__m512i v) {
    return low_pair(_mm512_srli_epi32(v, 16));
}

/* The same of signed bytes, times -offset. */
INLINE __m512i low_pair_offset(__m512i v, int offset) {
    __m512i x = _mm512_srai_epi16(_mm512_slli_epi16(low_pair(v), 8), 8);
    return _mm512_mullo_epi16(x, _mm512_set1_epi16((short)-offset));
}

INLINE __m512 negated(__m512 x) {
    return _mm512_xor_ps(x, _mm512_set1_ps(-0.0f));
}

/* a | (b & mask) */
INLINE __m512i or_masked(__m512i a, __m512i b, __m512i mask) {
    return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}

/* Bits [2i, 2i + 2) of each byte, moved to bits 4 and 5; the rest is rubbish. */
INLINE __m512i two_bits_to_4(__m512i v, int i) {
    return i < 2 ? _mm512_slli_epi32(v, (unsigned)(4 - 2 * i))
                 : _mm512_srli_epi32(v, (unsigned)(2 * i - 4));
}

/* Q4_K and Q5_K open with two halves and eight scales and minimums of 6 bits in 12 bytes: h[1] and
 * h[2] hold the first four of each and above them the top bits of the others, h[3] their nibbles.
 */
INLINE void head_of_12(const __m512i h[4], __m512i scales[2], struct tail *t) {
    const __m512i six = _mm512_set1_epi8(63), four = _mm512_set1_epi8(15);
    const __m512i top = _mm512_set1_epi8(48);
    scales[0] = _mm512_and_si512(h[1], six);
    scales[1] = or_masked(_mm512_and_si512(h[3], four), _mm512_srli_epi32(h[1], 2), top);
    __m512i m0 = _mm512_and_si512(h[2], six);
    __m512i m1 = or_masked(_mm512_and_si512(_mm512_srli_epi32(h[3], 4), four),
                           _mm512_srli_epi32(h[2], 2), top);
    t->pair[0] = low_pair(m0);
    t->pair[1] = high_pair(m0);
    t->pair[2] = low_pair(m1);
    t->pair[3] = high_pair(m1);
    t->d = pn__low_half(h[0]);
    t->dmin = negated(pn__high_half(h[0]));
}

/* Bit s of each byte of `high` as the fifth of codes w. */
INLINE __m512i fifth_bit(__m512i w, __m512i high, int s) {
    const __m512i bit = _mm512_set1_epi8(16);
    return or_masked(w,
                     s < 4 ? _mm512_slli_epi32(high, (unsigned)(4 - s))
                           : _mm512_srli_epi32(high, (unsigned)(s - 4)),
                     bit);
}

INLINE void walk_q45_k(const struct pn_walk *k, run_fn run, end_fn end, void *user, bool five) {
    const __m512i four = _mm512_set1_epi8(15);
    const uint64_t bytes = five ? 176 : 144;
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += bytes) {
        __m512i h[4], high[8], scales[2];
        struct tail t;
        pn__dwords4(p, rs, h);
        head_of_12(h, scales, &t);
        if (five) {
            pn__dwords4(p + 16, rs, high);
            pn__dwords4(p + 32, rs, high + 4);
        }
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const uint8_t *q = p + (five ? 48 : 16) + 32 * j;
            __m512i raw[8], w[8];
            ahead(k, b, bytes, (five ? 11 : 9) * j, five ? 11 : 9);
            pn__dwords4(q, rs, raw);
            pn__dwords4(q + 16, rs, raw + 4);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                w[i] = _mm512_and_si512(raw[i], four);
                if (five) w[i] = fifth_bit(w[i], high[i], 2 * j);
            }
            run(user, b, 2 * j, w, byte_unsigned(scales[j / 2], j % 2 * 2));
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                w[i] = _mm512_and_si512(_mm512_srli_epi32(raw[i], 4), four);
                if (five) w[i] = fifth_bit(w[i], high[i], 2 * j + 1);
            }
            run(user, b, 2 * j + 1, w, byte_unsigned(scales[j / 2], j % 2 * 2 + 1));
        }
        end(user, b, &t);
    }
}

INLINE void walk_q4_k(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    walk_q45_k(k, run, end, user, false);
}

INLINE void walk_q5_k(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    walk_q45_k(k, run, end, user, true);
}

/* Four planes of codes from 16 bytes of each, `base` being the run of the first. */
INLINE void planes_q6_k(const uint8_t *low, const uint8_t *high, size_t rs, run_fn run, void *user,
                        uint64_t b, int base, const __m512i scales[4]) {
    const __m512i four = _mm512_set1_epi8(15), top = _mm512_set1_epi8(48);
    __m512i l[8], h[4], w[4];
    pn__dwords4(low, rs, l);
    pn__dwords4(low + 32, rs, l + 4);
    pn__dwords4(high, rs, h);
#pragma GCC unroll 4
    for (int plane = 0; plane < 4; plane++) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __m512i x = l[plane % 2 * 4 + i];
            x = _mm512_and_si512(plane < 2 ? x : _mm512_srli_epi32(x, 4), four);
            w[i] = or_masked(x, two_bits_to_4(h[i], plane), top);
        }
        int r = base + 2 * plane;
        run(user, b, r, w, byte_signed(scales[r / 4], r % 4));
    }
}

INLINE void walk_q6_k(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += 210) {
        __m512i scales[4], last[4];
        struct tail t;
        pn__dwords4(p + 192, rs, scales);
        pn__dwords4(p + 194, rs, last);
        t.d = pn__high_half(last[3]);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            int half = j / 2, c = j % 2;
            /* 3360 bytes, 52.5 lines; the last may come twice. */
            ahead(k, b, 210, 13 * j, j == 3 ? 14 : 13);
            planes_q6_k(p + 64 * half + 16 * c, p + 128 + 32 * half + 16 * c, rs, run, user, b,
                        8 * half + c, scales);
            t.pair[2 * j] = low_pair_offset(scales[j], 32);
            t.pair[2 * j + 1] = low_pair_offset(_mm512_srli_epi32(scales[j], 16), 32);
        }
        end(user, b, &t);
    }
}

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
        c->f[m] = take(c->f[m], c->sum[m], t, c->run_n, c->has_min, c->d + at,
                       c->sums + at * RUN_MAX);
        c->sum[m] = _mm512_setzero_si512();
    }
}

INLINE void direct_k(const struct pn_walk *k, walk_fn walk, int run_n, bool has_min,
                     const struct pn_acts *a, uint32_t tile_i, uint32_t col_n,
                     __m512 f[PN_TILE]) {
    uint64_t from = (uint64_t)tile_i * k->block_n * a->tile;
    struct direct c = {.q = a->q + from * LEN,
                       .d = a->d + from,
                       .sums = a->sums + from * RUN_MAX,
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
                    bool has_min, const struct pn_acts *a, uint32_t tile_i,
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
        for (int r = 0; r < run_n; r++, w += RUN_BYTES(run_n))
            panel_run(w, group_bytes, group_n, dword_n, q + 4 * r * dword_n, sum);
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

#define K_TYPE(name, run_n, has_min)                                                              \
    INLINE void direct_##name(const struct pn_walk *k, const struct pn_acts *a, uint32_t tile_i,   \
                              uint32_t col_n, __m512 f[PN_TILE]) {                                 \
        direct_k(k, walk_##name, run_n, has_min, a, tile_i, col_n, f);                             \
    }                                                                                              \
    INLINE void pack_##name(const struct pn_walk *k, uint8_t *to) {                                \
        pack_k(k, walk_##name, run_n, has_min, to);                                                \
    }                                                                                              \
    INLINE void panel_##name(const uint8_t *panel, uint64_t group_bytes, uint32_t group_n,         \
                             const struct pn_acts *a, uint32_t tile_i,                             \
                             __m512 f[PANEL_PAIR][PN_TILE]) {                                      \
        panel_k(panel, group_bytes, group_n, run_n, has_min, a, tile_i, f);                        \
    }                                                                                              \
    static void matmul_##name(const struct pn_mm *mm, uint32_t lo, uint32_t hi,                    \
                              const struct pn_thread_scratch *scratch) {                           \
        const struct pn_group_shape shape = {LEN, RECORD_BYTES(run_n), DIRECT_TILES};              \
        pn__matmul16(mm, lo, hi, scratch, shape, direct_##name, pack_##name, panel_##name);        \
    }

K_TYPE(q4_k, 8, true)
K_TYPE(q5_k, 8, true)
K_TYPE(q6_k, 16, false)

void pn__init_avx512_k(struct pn_kernels *k) {
    k->matmul[PN_TYPE_Q4_K] = matmul_q4_k;
    k->matmul[PN_TYPE_Q5_K] = matmul_q5_k;
    k->matmul[PN_TYPE_Q6_K] = matmul_q6_k;
}
