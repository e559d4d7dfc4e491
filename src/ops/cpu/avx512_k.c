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

/* Fetches part i of n of the block b to come, of `bytes` a row: small bursts, or a core's few open
 * misses hold up the loads. Where 16 blocks are no whole number of lines the last comes twice. */
INLINE void ahead(const struct pn_walk *k, uint64_t b, int bytes, int i, int n) {
    int line_n = (bytes * ROWS + 63) / 64, from = line_n * i / n;
    if (k->next)
        pn__prefetch_lines(k->next + b * (uint64_t)(bytes * ROWS) + 64 * from,
                           line_n * (i + 1) / n - from);
}

/* By a constant, which may be 0. */
INLINE __m512i shifted_right(__m512i v, int n) {
    return n == 0 ? v : _mm512_srli_epi32(v, (unsigned)n);
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
    return i < 2 ? _mm512_slli_epi32(v, (unsigned)(4 - 2 * i)) : shifted_right(v, 2 * i - 4);
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
    return or_masked(
        w, s < 4 ? _mm512_slli_epi32(high, (unsigned)(4 - s)) : shifted_right(high, s - 4), bit);
}

INLINE void walk_q45_k(const struct pn_walk *k, run_fn run, end_fn end, void *user, bool five) {
    const __m512i four = _mm512_set1_epi8(15);
    const int bytes = five ? 176 : 144;
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += bytes) {
        __m512i h[4], high[8], scales[2];
        struct tail t;
        pn__dwords4(p, rs, h);
        head_of_12(h, scales, &t);
        if (five) {
            pn__dwords8(p + 16, rs, high);
        }
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const uint8_t *q = p + (five ? 48 : 16) + 32 * j;
            __m512i raw[8], w[8];
            ahead(k, b, bytes, 2 * j, 8);
            pn__dwords8(q, rs, raw);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                w[i] = _mm512_and_si512(raw[i], four);
                if (five) w[i] = fifth_bit(w[i], high[i], 2 * j);
            }
            run(user, b, 2 * j, w, byte_unsigned(scales[j / 2], j % 2 * 2));
            ahead(k, b, bytes, 2 * j + 1, 8);
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

/* 32 bytes of low nibbles are planes `plane` and plane + 2 of a half, four runs. */
INLINE void planes_q6_k(const struct pn_walk *k, const uint8_t *low, const __m512i high[8],
                        run_fn run, void *user, uint64_t b, int half, int plane,
                        const __m512i scales[4]) {
    const __m512i four = _mm512_set1_epi8(15), top = _mm512_set1_epi8(48);
    __m512i l[8], w[4];
    pn__dwords8(low, k->rs, l);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        int at = plane + i / 2 * 2, c = i % 2, r = 8 * half + 2 * at + c;
        ahead(k, b, 210, 8 * half + 4 * plane + i, 16);
#pragma GCC unroll 4
        for (int n = 4 * c; n < 4 * c + 4; n++) {
            __m512i x = _mm512_and_si512(shifted_right(l[n], i / 2 * 4), four);
            w[n % 4] = or_masked(x, two_bits_to_4(high[n], at), top);
        }
        run(user, b, r, w, byte_signed(scales[r / 4], r % 4));
    }
}

INLINE void walk_q6_k(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += 210) {
        __m512i scales[4], last[4], high[8];
        struct tail t;
        pn__dwords4(p + 192, rs, scales);
        pn__dwords4(p + 194, rs, last);
        t.d = pn__high_half(last[3]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            t.pair[2 * i] = low_pair_offset(scales[i], 32);
            t.pair[2 * i + 1] = low_pair_offset(_mm512_srli_epi32(scales[i], 16), 32);
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            pn__dwords8(p + 128 + 32 * half, rs, high);
            planes_q6_k(k, p + 64 * half, high, run, user, b, half, 0, scales);
            planes_q6_k(k, p + 64 * half + 32, high, run, user, b, half, 1, scales);
        }
        end(user, b, &t);
    }
}

/* Scales and minimums are nibbles, low and high; d and dmin end the block. */
INLINE void walk_q2_k(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    const __m512i two = _mm512_set1_epi8(3), four = _mm512_set1_epi8(15);
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += 84) {
        __m512i head[4], last[4], raw[8], w[4];
        struct tail t;
        pn__dwords4(p, rs, head);
        pn__dwords4(p + 68, rs, last);
        t.d = pn__low_half(last[3]);
        t.dmin = negated(pn__high_half(last[3]));
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __m512i mins = _mm512_and_si512(_mm512_srli_epi32(head[i], 4), four);
            t.pair[2 * i] = low_pair(mins);
            t.pair[2 * i + 1] = high_pair(mins);
            head[i] = _mm512_and_si512(head[i], four);
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            pn__dwords8(p + 16 + 32 * half, rs, raw);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                int r = 8 * half + i;
                if (i % 2 == 0) ahead(k, b, 84, r / 2, 8);
#pragma GCC unroll 4
                for (int n = 0; n < 4; n++)
                    w[n] = _mm512_and_si512(shifted_right(raw[i % 2 * 4 + n], i / 2 * 2), two);
                run(user, b, r, w, byte_unsigned(head[r / 4], r % 4));
            }
        }
        end(user, b, &t);
    }
}

/* Q3_K's sixteen scales from the twelve bytes behind t[0]'s first two. */
INLINE void scales_q3_k(const __m512i t[4], __m512i scales[4]) {
    const __m512i four = _mm512_set1_epi8(15), top = _mm512_set1_epi8(48);
    __m512i bits[3];
    pn__from_half(t, 3, bits);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512i low = _mm512_and_si512(shifted_right(bits[i % 2], i / 2 * 4), four);
        scales[i] =
            _mm512_sub_epi8(or_masked(low, two_bits_to_4(bits[2], i), top), _mm512_set1_epi8(32));
    }
}

/* Codes of 0 to 7, 4 too high. */
INLINE void walk_q3_k(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    const __m512i two = _mm512_set1_epi8(3), third = _mm512_set1_epi8(4);
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += 110) {
        __m512i scales[4], last[4], high[8], raw[8], w[4];
        struct tail t;
        pn__dwords8(p, rs, high);
        pn__dwords4(p + 94, rs, last);
        scales_q3_k(last, scales);
        t.d = pn__high_half(last[3]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            t.pair[2 * i] = low_pair_offset(scales[i], 4);
            t.pair[2 * i + 1] = low_pair_offset(_mm512_srli_epi32(scales[i], 16), 4);
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            pn__dwords8(p + 32 + 32 * half, rs, raw);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                int r = 8 * half + i, bit = r / 2;
                if (i % 2 == 0) ahead(k, b, 110, r / 2, 8);
#pragma GCC unroll 4
                for (int n = 0; n < 4; n++) {
                    __m512i h = high[i % 2 * 4 + n];
                    h = bit < 2 ? _mm512_slli_epi32(h, (unsigned)(2 - bit))
                                : shifted_right(h, bit - 2);
                    w[n] = shifted_right(raw[i % 2 * 4 + n], i / 2 * 2);
                    w[n] = or_masked(_mm512_and_si512(w[n], two), h, third);
                }
                run(user, b, r, w, byte_signed(scales[r / 4], r % 4));
            }
        }
        end(user, b, &t);
    }
}

/* Run r's scale: nibble r of `low`, above it bits 16 + 2r and 17 + 2r of `head`; 32 too high. */
INLINE __m512i scale_iq4_xs(__m512i head, __m512i low, int r) {
    __m512i x = _mm512_and_si512(shifted_right(low, 4 * r), _mm512_set1_epi32(15));
    x = or_masked(x, shifted_right(head, 12 + 2 * r), _mm512_set1_epi32(48));
    return _mm512_sub_epi32(x, _mm512_set1_epi32(32));
}

/* Nibbles through a table of values, which is 128 too high here. */
INLINE void walk_iq4_xs(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    const __m512i table = _mm512_broadcast_i32x4(
        _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153, (char)166,
                      (char)181, (char)197, (char)217, (char)241));
    const __m512i low_halves = _mm512_set1_epi32(0xffff);
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += 136) {
        __m512i head[4], raw[8], w[8], scale[2];
        struct tail t;
        pn__dwords4(p, rs, head);
        t.d = pn__low_half(head[0]);
#pragma GCC unroll 8
        for (int r = 0; r < 8; r++) {
            ahead(k, b, 136, r, 8);
            if (r % 2 == 0) pn__dwords8(p + 8 + 16 * r, rs, raw);
            pn__nibbles(raw + r % 2 * 4, w);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                w[i] = _mm512_shuffle_epi8(table, w[i]);
            scale[r % 2] = scale_iq4_xs(head[0], head[1], r);
            run(user, b, r, w, scale[r % 2]);
            if (r % 2 == 0) continue;
            __m512i both = or_masked(_mm512_slli_epi32(scale[1], 16), scale[0], low_halves);
            t.pair[r / 2] = _mm512_mullo_epi16(both, _mm512_set1_epi16(-128));
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
        panel_k(panel, group_bytes, group_n, run_n, has_min, a, tile_i, feed, f);               \
    }                                                                                           \
    static void matmul_##name(const struct pn_mm *mm, uint32_t lo, uint32_t hi,                 \
                              const struct pn_thread_scratch *scratch) {                        \
        const struct pn_group_shape shape = {LEN, RECORD_BYTES(run_n)};                         \
        pn__matmul16(mm, lo, hi, scratch, shape, direct_##name, pack_##name, panel_##name);     \
    }

K_TYPE(q2_k, 16, true)
K_TYPE(q3_k, 16, false)
K_TYPE(q4_k, 8, true)
K_TYPE(q5_k, 8, true)
K_TYPE(q6_k, 16, false)
K_TYPE(iq4_xs, 8, false)

void pn__init_avx512_k(struct pn_kernels *k) {
    k->matmul[PN_TYPE_Q2_K] = matmul_q2_k;
    k->matmul[PN_TYPE_Q3_K] = matmul_q3_k;
    k->matmul[PN_TYPE_Q4_K] = matmul_q4_k;
    k->matmul[PN_TYPE_Q5_K] = matmul_q5_k;
    k->matmul[PN_TYPE_Q6_K] = matmul_q6_k;
    k->matmul[PN_TYPE_IQ4_XS] = matmul_iq4_xs;
}
