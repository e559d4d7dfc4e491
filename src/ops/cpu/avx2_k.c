/* Matmul of weights in blocks of 256: Q2_K to Q6_K and IQ4_XS.
 *
 * A block is runs of 16 or 32 codes under an integer scale each, so its sum is
 *     I = sum over runs of scale * (codes . q)
 * in int32, all of it exact. A scale is multiplied in where vpmaddwd widens the sums of codes to
 * int32. Codes are taken as the file has them, so too high by a type's offset, which comes out
 * through the activation's own sums: I += sum over runs of (-offset * scale) * (sum of q), two runs
 * a vpmaddwd. Types with minimums use the same step for their second term. */
#include "ops/cpu/avx2.h"

#define LEN 256    /* values a block */
#define DWORDS 64  /* of codes a row in a block */
#define RUN_MAX 16 /* of 16 values; or 8 of 32 */

/* What stands beside a block's runs. */
struct tail {
    __m256i pair[RUN_MAX / 2]; /* int16 of runs 2i and 2i + 1: minimum, else -offset * scale */
    __m256 d;
    __m256 dmin; /* negated; types with has_min */
};

/* What a block is used for, run by run: codes four a dword, the scale as int16 twice a dword; then
 * the rest. */
typedef void (*run_fn)(void *user, uint64_t b, int run, const __m256i *w, __m256i scale);
typedef void (*end_fn)(void *user, uint64_t b, const struct tail *t);
typedef void (*walk_fn)(const struct pn_walk *k, run_fn run, end_fn end, void *user);

/* A type's integer sums; constants where they are used. */
struct sums {
    struct pn_form form;
    int run_n;
    bool has_pairs; /* minimums, or an offset */
    bool has_min;
};

/* ---- unpacking ---- */

/* Byte i of each dword in both halves of it. */
INLINE __m256i byte_unsigned(__m256i v, int i) {
    char c = (char)i;
    return pn__shuffle(v, _mm_setr_epi8(c, -1, c, -1, (char)(4 + c), -1, (char)(4 + c), -1,
                                        (char)(8 + c), -1, (char)(8 + c), -1, (char)(12 + c), -1,
                                        (char)(12 + c), -1));
}

INLINE __m256i byte_signed(__m256i v, int i) {
    return _mm256_srai_epi16(_mm256_slli_epi16(byte_unsigned(v, i), 8), 8);
}

/* Bytes 0 and 1 (or 2 and 3) of each dword as unsigned halves. */
INLINE __m256i low_pair(__m256i v) {
    return pn__shuffle(v, _mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1));
}

INLINE __m256i high_pair(__m256i v) {
    return low_pair(_mm256_srli_epi32(v, 16));
}

/* The same of signed bytes, times -offset. */
INLINE __m256i low_pair_offset(__m256i v, int offset) {
    __m256i x = _mm256_srai_epi16(_mm256_slli_epi16(low_pair(v), 8), 8);
    return _mm256_mullo_epi16(x, _mm256_set1_epi16((short)-offset));
}

INLINE __m256 negated(__m256 x) {
    return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
}

/* a | (b & mask) */
INLINE __m256i or_masked(__m256i a, __m256i b, __m256i mask) {
    return _mm256_or_si256(a, _mm256_and_si256(b, mask));
}

/* Bits [2i, 2i + 2) of each byte, moved to bits 4 and 5; the rest is rubbish. */
INLINE __m256i two_bits_to_4(__m256i v, int i) {
    return i < 2 ? _mm256_slli_epi32(v, 4 - 2 * i) : pn__shifted_right(v, 2 * i - 4);
}

/* Bit `from` of each byte, moved to bit `to`; the rest is rubbish. */
INLINE __m256i bit_to(__m256i v, int from, int to) {
    return from < to ? _mm256_slli_epi32(v, to - from) : pn__shifted_right(v, from - to);
}

/* Q4_K and Q5_K open with two halves and eight scales and minimums of 6 bits in 12 bytes: h[1] and
 * h[2] hold the first four of each and above them the top bits of the others, h[3] their nibbles.
 */
INLINE void head_of_12(const __m256i h[4], __m256i scales[2], struct tail *t) {
    const __m256i six = _mm256_set1_epi8(63), four = _mm256_set1_epi8(15);
    const __m256i top = _mm256_set1_epi8(48);
    scales[0] = _mm256_and_si256(h[1], six);
    scales[1] = or_masked(_mm256_and_si256(h[3], four), _mm256_srli_epi32(h[1], 2), top);
    __m256i m0 = _mm256_and_si256(h[2], six);
    __m256i m1 = or_masked(_mm256_and_si256(_mm256_srli_epi32(h[3], 4), four),
                           _mm256_srli_epi32(h[2], 2), top);
    t->pair[0] = low_pair(m0);
    t->pair[1] = high_pair(m0);
    t->pair[2] = low_pair(m1);
    t->pair[3] = high_pair(m1);
    __m256 dmin;
    pn__halves_of(h[0], &t->d, &dmin);
    t->dmin = negated(dmin);
}

INLINE void walk_q45_k(const struct pn_walk *k, run_fn run, end_fn end, void *user, bool five) {
    const __m256i four = _mm256_set1_epi8(15), fifth = _mm256_set1_epi8(16);
    const int bytes = five ? 176 : 144;
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += bytes) {
        __m256i h[4], high[8], scales[2];
        struct tail t;
        pn__dwords4(p, rs, h);
        head_of_12(h, scales, &t);
        if (five) pn__dwords8(p + 16, rs, high);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const uint8_t *q = p + (five ? 48 : 16) + 32 * j;
            __m256i raw[8], w[8];
            pn__ahead(k, b * (uint64_t)bytes, bytes, 2 * j, 8);
            pn__dwords8(q, rs, raw);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                w[i] = _mm256_and_si256(raw[i], four);
                if (five) w[i] = or_masked(w[i], bit_to(high[i], 2 * j, 4), fifth);
            }
            run(user, b, 2 * j, w, byte_unsigned(scales[j / 2], j % 2 * 2));
            pn__ahead(k, b * (uint64_t)bytes, bytes, 2 * j + 1, 8);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                w[i] = _mm256_and_si256(_mm256_srli_epi32(raw[i], 4), four);
                if (five) w[i] = or_masked(w[i], bit_to(high[i], 2 * j + 1, 4), fifth);
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
INLINE void planes_q6_k(const struct pn_walk *k, const uint8_t *low, const __m256i high[8],
                        run_fn run, void *user, uint64_t b, int half, int plane,
                        const __m256i scales[4]) {
    const __m256i four = _mm256_set1_epi8(15), top = _mm256_set1_epi8(48);
    __m256i l[8], w[4];
    pn__dwords8(low, k->rs, l);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        int at = plane + i / 2 * 2, c = i % 2, r = 8 * half + 2 * at + c;
        pn__ahead(k, b * 210, 210, 8 * half + 4 * plane + i, 16);
#pragma GCC unroll 4
        for (int n = 4 * c; n < 4 * c + 4; n++) {
            __m256i x = _mm256_and_si256(pn__shifted_right(l[n], i / 2 * 4), four);
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
        __m256i scales[4], last[4], high[8];
        __m256 before;
        struct tail t;
        pn__dwords4(p + 192, rs, scales);
        pn__dwords4(p + 194, rs, last);
        pn__halves_of(last[3], &before, &t.d);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            t.pair[2 * i] = low_pair_offset(scales[i], 32);
            t.pair[2 * i + 1] = low_pair_offset(_mm256_srli_epi32(scales[i], 16), 32);
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
    const __m256i two = _mm256_set1_epi8(3), four = _mm256_set1_epi8(15);
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += 84) {
        __m256i head[4], last[4], raw[8], w[4];
        __m256 dmin;
        struct tail t;
        pn__dwords4(p, rs, head);
        pn__dwords4(p + 68, rs, last);
        pn__halves_of(last[3], &t.d, &dmin);
        t.dmin = negated(dmin);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __m256i mins = _mm256_and_si256(_mm256_srli_epi32(head[i], 4), four);
            t.pair[2 * i] = low_pair(mins);
            t.pair[2 * i + 1] = high_pair(mins);
            head[i] = _mm256_and_si256(head[i], four);
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            pn__dwords8(p + 16 + 32 * half, rs, raw);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                int r = 8 * half + i;
                if (i % 2 == 0) pn__ahead(k, b * 84, 84, r / 2, 8);
#pragma GCC unroll 4
                for (int n = 0; n < 4; n++)
                    w[n] = _mm256_and_si256(pn__shifted_right(raw[i % 2 * 4 + n], i / 2 * 2), two);
                run(user, b, r, w, byte_unsigned(head[r / 4], r % 4));
            }
        }
        end(user, b, &t);
    }
}

/* The dword that begins in the middle of a. */
INLINE __m256i straddling(__m256i a, __m256i b) {
    return _mm256_blend_epi16(_mm256_srli_epi32(a, 16), _mm256_slli_epi32(b, 16), 0xaa);
}

/* Q3_K's sixteen scales from the twelve bytes behind t[0]'s first two. */
INLINE void scales_q3_k(const __m256i t[4], __m256i scales[4]) {
    const __m256i four = _mm256_set1_epi8(15), top = _mm256_set1_epi8(48);
    __m256i high = straddling(t[2], t[3]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m256i low = straddling(t[i % 2], t[i % 2 + 1]);
        low = _mm256_and_si256(pn__shifted_right(low, i / 2 * 4), four);
        scales[i] =
            _mm256_sub_epi8(or_masked(low, two_bits_to_4(high, i), top), _mm256_set1_epi8(32));
    }
}

/* Codes of 0 to 7, 4 too high. */
INLINE void walk_q3_k(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    const __m256i two = _mm256_set1_epi8(3), third = _mm256_set1_epi8(4);
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += 110) {
        __m256i scales[4], last[4], high[8], raw[8], w[4];
        __m256 before;
        struct tail t;
        pn__dwords8(p, rs, high);
        pn__dwords4(p + 94, rs, last);
        scales_q3_k(last, scales);
        pn__halves_of(last[3], &before, &t.d);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            t.pair[2 * i] = low_pair_offset(scales[i], 4);
            t.pair[2 * i + 1] = low_pair_offset(_mm256_srli_epi32(scales[i], 16), 4);
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            pn__dwords8(p + 32 + 32 * half, rs, raw);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                int r = 8 * half + i;
                if (i % 2 == 0) pn__ahead(k, b * 110, 110, r / 2, 8);
#pragma GCC unroll 4
                for (int n = 0; n < 4; n++) {
                    __m256i h = bit_to(high[i % 2 * 4 + n], r / 2, 2);
                    w[n] = pn__shifted_right(raw[i % 2 * 4 + n], i / 2 * 2);
                    w[n] = or_masked(_mm256_and_si256(w[n], two), h, third);
                }
                run(user, b, r, w, byte_signed(scales[r / 4], r % 4));
            }
        }
        end(user, b, &t);
    }
}

/* Run r's scale: nibble r of `low`, above it bits 16 + 2r and 17 + 2r of `head`; 32 too high. */
INLINE __m256i scale_iq4_xs(__m256i head, __m256i low, int r) {
    __m256i x = _mm256_and_si256(pn__shifted_right(low, 4 * r), _mm256_set1_epi32(15));
    x = or_masked(x, pn__shifted_right(head, 12 + 2 * r), _mm256_set1_epi32(48));
    x = _mm256_sub_epi16(x, _mm256_set1_epi16(32));
    return _mm256_blend_epi16(x, _mm256_slli_epi32(x, 16), 0xaa);
}

/* Nibbles through a table of values. */
INLINE void walk_iq4_xs(const struct pn_walk *k, run_fn run, end_fn end, void *user) {
    const __m256i table = _mm256_broadcastsi128_si256(pn__table_iq4());
    const uint8_t *p = k->p;
    size_t rs = k->rs;
#pragma GCC unroll 1
    for (uint64_t b = 0; b < k->block_n; b++, p += 136) {
        __m256i head[4], raw[8], w[8];
        __m256 after;
        struct tail t;
        pn__dwords4(p, rs, head);
        pn__halves_of(head[0], &t.d, &after);
#pragma GCC unroll 8
        for (int r = 0; r < 8; r++) {
            pn__ahead(k, b * 136, 136, r, 8);
            if (r % 2 == 0) pn__dwords8(p + 8 + 16 * r, rs, raw);
            pn__nibbles(raw + r % 2 * 4, w);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                w[i] = _mm256_shuffle_epi8(table, w[i]);
            run(user, b, r, w, scale_iq4_xs(head[0], head[1], r));
        }
        end(user, b, &t);
    }
}

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

/* Up to PN_TILE columns, weights straight from registers. */
struct direct {
    const int8_t *q; /* [block_n][tile][LEN] */
    const float *d;
    const int16_t *sums;
    uint32_t tile;
    uint32_t col_n; /* constant where this is inlined */
    struct sums form;
    __m256i sum[PN_TILE];
    __m256 f[PN_TILE];
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
    struct direct c = {
        .q = a->q, .d = a->d, .sums = a->sums, .tile = a->tile, .col_n = col_n, .form = form};
    for (uint32_t m = 0; m < col_n; m++) {
        c.sum[m] = _mm256_setzero_si256();
        c.f[m] = _mm256_setzero_ps();
    }
    walk(k, direct_run, direct_end, &c);
    for (uint32_t m = 0; m < col_n; m++)
        f[m] = c.f[m];
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

INLINE void put_register(uint8_t *to, __m256i x) {
    _mm256_store_si256((__m256i *)(void *)to, x);
}

INLINE __m256i get_register(const uint8_t *from) {
    return _mm256_load_si256((const __m256i *)(const void *)from);
}

INLINE void pack_run(void *user, uint64_t b, int run, const __m256i *w, __m256i scale) {
    struct packing *c = user;
    int run_n = c->form.run_n;
    uint8_t *to = c->to + b * RECORD_BYTES(run_n) + (uint64_t)run * RUN_BYTES(run_n);
#pragma GCC unroll 8
    for (int i = 0; i < DWORDS / run_n; i++)
        put_register(to + 32 * i, w[i]);
    put_register(to + RUN_BYTES(run_n) - 32, scale);
}

INLINE void pack_end(void *user, uint64_t b, const struct tail *t) {
    struct packing *c = user;
    int run_n = c->form.run_n;
    uint8_t *to = c->to + b * RECORD_BYTES(run_n) + TAIL_AT(run_n);
    if (c->form.has_pairs)
#pragma GCC unroll 8
        for (int i = 0; i < run_n / 2; i++)
            put_register(to + 32 * i, t->pair[i]);
    to += 16 * run_n;
    put_register(to, _mm256_castps_si256(t->d));
    if (c->form.has_min) put_register(to + 32, _mm256_castps_si256(t->dmin));
}

INLINE void pack_k(const struct pn_walk *k, walk_fn walk, struct sums form, uint8_t *to) {
    struct packing c = {to, form};
    walk(k, pack_run, pack_end, &c);
}

INLINE void load_tail(const uint8_t *from, struct sums form, struct tail *t) {
    if (form.has_pairs)
#pragma GCC unroll 8
        for (int i = 0; i < form.run_n / 2; i++)
            t->pair[i] = get_register(from + 32 * i);
    from += 16 * form.run_n;
    t->d = _mm256_castsi256_ps(get_register(from));
    if (form.has_min) t->dmin = _mm256_castsi256_ps(get_register(from + 32));
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
                scale[g] = get_register(w + g * group_bytes + 32 * dword_n);
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

/* Form, runs, pairs, minimums. Codes of fewer than 4 bits do as those of 4. */
K_TYPE(q2_k, FORM_U4, 16, true, true)
K_TYPE(q3_k, FORM_U4, 16, true, false)
K_TYPE(q4_k, FORM_U4, 8, true, true)
K_TYPE(q5_k, FORM_U5, 8, true, true)
K_TYPE(q6_k, FORM_U6, 16, true, false)
K_TYPE(iq4_xs, FORM_S8, 8, false, false)

void pn__init_avx2_k(struct pn_kernels *k) {
    k->matmul[PN_TYPE_Q2_K] = matmul_q2_k;
    k->matmul[PN_TYPE_Q3_K] = matmul_q3_k;
    k->matmul[PN_TYPE_Q4_K] = matmul_q4_k;
    k->matmul[PN_TYPE_Q5_K] = matmul_q5_k;
    k->matmul[PN_TYPE_Q6_K] = matmul_q6_k;
    k->matmul[PN_TYPE_IQ4_XS] = matmul_iq4_xs;
}
