/* Attention over pages of F32, F16, Q8_0 and Q4.
 *
 * A tile's queries share every load of K and V. For the scores K is widened and turned, a lane
 * being a position: element k of sixteen positions is one register, and a dot's sixteen partial
 * sums are sixteen registers, added up in the reference's tree without a shuffle. For the values a
 * lane is a channel; a page of V is widened sixty-four channels at a time, positions ascend. What
 * the buffers hold of positions that a query may not see is computed for its neighbours' sake and
 * never reaches it. */
#include <math.h>

#include "ops/cpu/avx512.h"
#include "ops/cpu/math.h"
#include "ops/cpu/q4.h"

#define KEYS 32     /* positions of K in the buffer, two registers */
#define K_CHUNK 256 /* elements of theirs; longer heads come in pieces */
#define V_CHUNK 64  /* channels of V in the buffer */
#define QUERIES 4   /* that share registers */

/* A query's positions: lo … hi, both included; empty when lo > hi. */
struct span {
    uint32_t lo;
    uint32_t hi;
};

struct walk {
    const struct pn_att_tile *tile;
    const struct pn_thread_scratch *scratch;
    uint32_t query_n;
    struct span spans[PN_ATT_QUERIES];
    const float *q[PN_ATT_QUERIES];
    bool any_q4[PN_ATT_QUERIES]; /* among its positions */
    float sum[PN_ATT_QUERIES];   /* of the group */
    float max[PN_ATT_QUERIES];
    float merged_sum[PN_ATT_QUERIES];
    float merged_max[PN_ATT_QUERIES];
    bool merged_any[PN_ATT_QUERIES];
};

/* A query's score at place t of the group: sixteen positions of all queries lie together, as rows
 * of a group's length would share a set of the first-level cache. */
INLINE float *score_at(const struct walk *w, uint32_t query, uint32_t t) {
    return w->scratch->scores + t / 16 * (16 * PN_ATT_QUERIES) + query * 16 + t % 16;
}

INLINE uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

INLINE uint32_t max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

INLINE struct span clip(struct span s, uint32_t from, uint32_t to) {
    return (struct span){max_u32(s.lo, from), min_u32(s.hi, to)};
}

INLINE __mmask16 first_of_16(uint32_t n) {
    return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffffu);
}

static float *query_at(const struct pn_heads *h, const struct pn_att_tile *t, uint32_t i) {
    return h->data + (t->row_i + i / t->head_n) * h->row_stride +
           (t->head_i + i % t->head_n) * h->head_stride;
}

static struct span span_of(const struct pn_att_tile *t, uint32_t i) {
    uint32_t pos = t->pos + i / t->head_n;
    uint32_t lo = t->window && pos >= t->window ? pos - t->window + 1 : 0;
    return (struct span){lo, pos};
}

/* ---- a page's rows ---- */

/* The K or the V vectors of one head in a page. */
struct rows {
    const uint8_t *p;
    uint64_t bytes; /* a vector */
    uint32_t dim;
    enum pn_kv_format format;
};

static struct rows rows_of(const struct pn_att_tile *t, uint32_t pos, bool value) {
    const struct pn_page_view *page = pn__att_page(t, pos / PN_PAGE_TOKENS);
    const uint8_t *layer = page->data + t->layer_i * pn__kv_layer_bytes(page->format, t->shape);
    uint64_t k_bytes = pn__kv_row_bytes(page->format, t->shape->k_dim);
    uint64_t k_part = pn__kv_v_offset(page->format, t->shape);
    struct rows r = {.p = layer, .bytes = k_bytes, .dim = t->shape->k_dim, .format = page->format};
    if (value && !t->shape->v_in_k) {
        r.p += k_part;
        r.bytes = pn__kv_row_bytes(page->format, t->shape->v_dim);
        r.dim = t->shape->v_dim;
    }
    r.p += (uint64_t)t->kv_head * PN_PAGE_TOKENS * r.bytes;
    return r;
}

/* Sixteen levels of Q4 from eight bytes: each dword gets the half that holds its nibble, shifted
 * down; the table look-up uses the low four bits. */
INLINE __m512 levels16(__m128i bytes) {
    const __m512 table =
        _mm512_setr_ps(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i shifts =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    __m512i x = _mm512_permutexvar_epi32(halves, _mm512_castsi128_si512(bytes));
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(x, shifts), table);
}

/* Elements i … i + 15 of a vector, those of `mask`, then zeros. A half, or a half times a code, is
 * exact. */
INLINE __m512 widen16(const uint8_t *row, size_t i, uint32_t dim, __mmask16 mask,
                      enum pn_kv_format format) {
    if (format == PN_KV_F32) return _mm512_maskz_loadu_ps(mask, row + 4 * i);
    if (format == PN_KV_F16) return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, row + 2 * i));
    uint16_t d;
    memcpy(&d, row + 2 * (i / 32), sizeof d);
    if (format == PN_KV_Q4) {
        const uint8_t *nibbles = row + 2 * (size_t)((dim + 31) / 32) + i / 2;
        uint32_t byte_n = (uint32_t)(__builtin_popcount(mask) + 1) / 2;
        __m128i bytes = mask == 0xffff ? _mm_loadl_epi64((const __m128i *)(const void *)nibbles)
                                       : _mm_maskz_loadu_epi8(first_of_16(byte_n), nibbles);
        __m512 scale = _mm512_cvtph_ps(_mm256_set1_epi16((short)d));
        return _mm512_maskz_mul_ps(mask, scale, levels16(bytes));
    }
    const uint8_t *codes = row + 2 * (size_t)((dim + 31) / 32);
    __m512i c = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, codes + i));
    __m512 scale = _mm512_cvtph_ps(_mm256_set1_epi16((short)d));
    return _mm512_maskz_mul_ps(mask, scale, _mm512_cvtepi32_ps(c));
}

/* Elements [from, to) of rows [row, row + row_n) into buf, V_CHUNK apart, zeros up to a multiple of
 * sixteen. `format` is a constant where this is inlined. */
INLINE void widen_as(const struct rows *r, uint32_t row, uint32_t row_n, uint32_t from, uint32_t to,
                     float *buf, enum pn_kv_format format) {
    const size_t whole_n = (to - from) / 16 * 16;
    const uint8_t *p = r->p + row * r->bytes;
    for (uint32_t t = 0; t < row_n; t++, buf += V_CHUNK, p += r->bytes) {
#pragma GCC unroll 4
        for (size_t i = 0; i < whole_n; i += 16)
            _mm512_store_ps(buf + i, widen16(p, from + i, r->dim, 0xffff, format));
        if (from + whole_n < to)
            _mm512_store_ps(buf + whole_n,
                            widen16(p, from + whole_n, r->dim,
                                    first_of_16((uint32_t)(to - from - whole_n)), format));
    }
}

static void widen(const struct rows *r, uint32_t row, uint32_t row_n, uint32_t from, uint32_t to,
                  float *buf) {
    switch (r->format) {
    case PN_KV_F32:
        widen_as(r, row, row_n, from, to, buf, PN_KV_F32);
        break;
    case PN_KV_F16:
        widen_as(r, row, row_n, from, to, buf, PN_KV_F16);
        break;
    case PN_KV_Q8_0:
        widen_as(r, row, row_n, from, to, buf, PN_KV_Q8_0);
        break;
    case PN_KV_Q4:
        widen_as(r, row, row_n, from, to, buf, PN_KV_Q4);
        break;
    }
}

/* ---- scores ---- */

/* Sixteen rows of sixteen to sixteen columns. */
INLINE void transpose16(const __m512 r[16], __m512 out[16]) {
    __m512 v[4][4]; /* [rows 4g …][k]: elements k, 4 + k, 8 + k, 12 + k of four rows */
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        __m512d u0 = _mm512_castps_pd(_mm512_unpacklo_ps(r[4 * g], r[4 * g + 1]));
        __m512d u1 = _mm512_castps_pd(_mm512_unpackhi_ps(r[4 * g], r[4 * g + 1]));
        __m512d u2 = _mm512_castps_pd(_mm512_unpacklo_ps(r[4 * g + 2], r[4 * g + 3]));
        __m512d u3 = _mm512_castps_pd(_mm512_unpackhi_ps(r[4 * g + 2], r[4 * g + 3]));
        v[g][0] = _mm512_castpd_ps(_mm512_unpacklo_pd(u0, u2));
        v[g][1] = _mm512_castpd_ps(_mm512_unpackhi_pd(u0, u2));
        v[g][2] = _mm512_castpd_ps(_mm512_unpacklo_pd(u1, u3));
        v[g][3] = _mm512_castpd_ps(_mm512_unpackhi_pd(u1, u3));
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m512 a = _mm512_shuffle_f32x4(v[0][k], v[1][k], 0x44);
        __m512 b = _mm512_shuffle_f32x4(v[0][k], v[1][k], 0xee);
        __m512 c = _mm512_shuffle_f32x4(v[2][k], v[3][k], 0x44);
        __m512 d = _mm512_shuffle_f32x4(v[2][k], v[3][k], 0xee);
        out[k] = _mm512_shuffle_f32x4(a, c, 0x88);
        out[4 + k] = _mm512_shuffle_f32x4(a, c, 0xdd);
        out[8 + k] = _mm512_shuffle_f32x4(b, d, 0x88);
        out[12 + k] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

/* Elements [from, to) of KEYS vectors of K, turned: buf[element][position], zeros up to a multiple
 * of sixteen elements. `format` is a constant where this is inlined. */
INLINE void turn_as(const struct rows *r, uint32_t row, uint32_t from, uint32_t to, float *buf,
                    enum pn_kv_format format) {
    for (uint32_t i = from; i < to; i += 16, buf += 16 * KEYS) {
        __mmask16 mask = first_of_16(to - i);
        for (uint32_t half = 0; half < KEYS; half += 16) {
            const uint8_t *p = r->p + (row + half) * r->bytes;
            __m512 x[16], y[16];
#pragma GCC unroll 16
            for (uint32_t t = 0; t < 16; t++)
                x[t] = widen16(p + t * r->bytes, i, r->dim, mask, format);
            transpose16(x, y);
#pragma GCC unroll 16
            for (uint32_t k = 0; k < 16; k++)
                _mm512_store_ps(buf + k * KEYS + half, y[k]);
        }
    }
}

static void turn(const struct rows *r, uint32_t row, uint32_t from, uint32_t to, float *buf) {
    switch (r->format) {
    case PN_KV_F32:
        turn_as(r, row, from, to, buf, PN_KV_F32);
        break;
    case PN_KV_F16:
        turn_as(r, row, from, to, buf, PN_KV_F16);
        break;
    case PN_KV_Q8_0:
        turn_as(r, row, from, to, buf, PN_KV_Q8_0);
        break;
    case PN_KV_Q4:
        turn_as(r, row, from, to, buf, PN_KV_Q4);
        break;
    }
}

/* A part of the walk's queries. */
struct part {
    uint32_t i;
    uint32_t n; /* 1, 2 or QUERIES */
};

INLINE struct part part_at(const struct walk *w, uint32_t i) {
    uint32_t left = w->query_n - i;
    return (struct part){i, left >= QUERIES ? QUERIES : left >= 2 ? 2 : 1};
}

/* Elements [from, to) of KEYS positions and of all queries, zeros up to a multiple of sixteen. */
struct keys {
    PN_ALIGNED(64) float k[K_CHUNK * KEYS];
    PN_ALIGNED(64) float q[PN_ATT_QUERIES][K_CHUNK];
    __m512 sums[PN_ATT_QUERIES][8][4]; /* lanes of heads longer than K_CHUNK, carried on */
    uint32_t from;
    uint32_t to;
};

/* Lanes j and j + 8 of query_n dots (a constant) with all positions: f[query][lane][half]. */
INLINE void score_lanes(const struct keys *x, uint32_t j, uint32_t query, uint32_t query_n,
                        __m512 f[QUERIES][4]) {
    const float *k = x->k + j * KEYS;
    const float *q = x->q[query] + j;
    uint32_t n = (x->to - x->from + 15) / 16;
#pragma GCC unroll 1
    for (; n > 0; n--, k += 16 * KEYS, q += 16) {
        __m512 y[4];
#pragma GCC unroll 4
        for (uint32_t i = 0; i < 4; i++)
            y[i] = _mm512_load_ps(k + i / 2 * (8 * KEYS) + i % 2 * 16);
#pragma GCC unroll 4
        for (uint32_t m = 0; m < query_n; m++) {
            __m512 q0 = _mm512_set1_ps(q[m * K_CHUNK]);
            __m512 q8 = _mm512_set1_ps(q[m * K_CHUNK + 8]);
            f[m][0] = _mm512_fmadd_ps(q0, y[0], f[m][0]);
            f[m][1] = _mm512_fmadd_ps(q0, y[1], f[m][1]);
            f[m][2] = _mm512_fmadd_ps(q8, y[2], f[m][2]);
            f[m][3] = _mm512_fmadd_ps(q8, y[3], f[m][3]);
        }
    }
}

/* All positions, `at` the first one's place in the group, by query_n queries. */
INLINE void score_part(const struct walk *w, struct keys *x, uint32_t at, uint32_t query,
                       uint32_t query_n) {
    /* Lane pairs in the order in which the tree takes them: a sum that waits for its other half is
     * kept, one for each level. */
    static const uint8_t order[8] = {0, 4, 2, 6, 1, 5, 3, 7};
    bool last = x->to == w->tile->shape->k_dim;
    __m512 kept[3][QUERIES][2];
#pragma GCC unroll 1
    for (uint32_t t = 0; t < 8; t++) {
        __m512 f[QUERIES][4];
        for (uint32_t m = 0; m < query_n; m++)
            for (uint32_t i = 0; i < 4; i++)
                f[m][i] = x->from ? x->sums[query + m][t][i] : _mm512_setzero_ps();
        score_lanes(x, order[t], query, query_n, f);
        if (!last) {
            for (uint32_t m = 0; m < query_n; m++)
                for (uint32_t i = 0; i < 4; i++)
                    x->sums[query + m][t][i] = f[m][i];
            continue;
        }
        __m512 s[QUERIES][2];
        for (uint32_t m = 0; m < query_n; m++)
            for (uint32_t i = 0; i < 2; i++)
                s[m][i] = _mm512_add_ps(f[m][i], f[m][i + 2]);
        uint32_t level = 0;
        for (; t >> level & 1; level++)
            for (uint32_t m = 0; m < query_n; m++)
                for (uint32_t i = 0; i < 2; i++)
                    s[m][i] = _mm512_add_ps(kept[level][m][i], s[m][i]);
        for (uint32_t m = 0; m < query_n; m++)
            for (uint32_t i = 0; i < 2; i++)
                if (t < 7)
                    kept[level][m][i] = s[m][i];
                else
                    _mm512_store_ps(score_at(w, query + m, at + 16 * i),
                                    _mm512_mul_ps(s[m][i], _mm512_set1_ps(w->tile->scale)));
    }
}

static void score_parts(const struct walk *w, struct keys *x, uint32_t at) {
    struct part part;
    for (uint32_t q = 0; q < w->query_n; q += part.n) {
        part = part_at(w, q);
        if (part.n == QUERIES)
            score_part(w, x, at, q, QUERIES);
        else if (part.n == 2)
            score_part(w, x, at, q, 2);
        else
            score_part(w, x, at, q, 1);
    }
}

static void copy_queries(const struct walk *w, struct keys *x, bool turned) {
    for (uint32_t m = 0; m < w->query_n; m++) {
        const float *q = w->q[m];
        if (turned) q = w->scratch->turned_q + (uint64_t)m * w->tile->shape->k_dim;
        for (uint32_t i = x->from; i < x->to; i += 16)
            _mm512_store_ps(x->q[m] + (i - x->from),
                            _mm512_maskz_loadu_ps(first_of_16(x->to - i), q + i));
    }
}

/* Scores of all queries at all positions of the blocks that `all` touches. Where a block sticks out
 * it is still the same page. */
static void score(const struct walk *w, uint32_t from, struct span all) {
    struct keys x;
    uint32_t dim = w->tile->shape->k_dim;
    bool turned = false;
    for (uint32_t pos = all.lo / KEYS * KEYS; pos <= all.hi; pos += KEYS) {
        struct rows rows = rows_of(w->tile, pos, false);
        bool other = turned != (rows.format == PN_KV_Q4);
        turned = rows.format == PN_KV_Q4;
        for (x.from = 0; x.from < dim; x.from = x.to) {
            x.to = min_u32(dim, x.from + K_CHUNK);
            if (dim > K_CHUNK || pos <= all.lo || other) copy_queries(w, &x, turned);
            turn(&rows, pos % PN_PAGE_TOKENS, x.from, x.to, x.k);
            score_parts(w, &x, pos - from);
        }
    }
}

/* ---- softmax of a group ---- */

/* Registers of doubles that go through exp side by side: one alone would wait for itself. */
#define EXP_N 16

/* pn__exp of math.h step by step, for scores less their maximum: at most 0, or NaN. So what is done
 * there above 700 is not needed, nor is the zero below -700: as a float e^-700 is one. */
INLINE void exp_of(const __m512d x[EXP_N], __m512d e[EXP_N]) {
    static const double terms[] = {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                                   1.0 / 720,     1.0 / 120,    1.0 / 24,    1.0 / 6,
                                   0.5,           1.0,          1.0};
    const __m512d magic = _mm512_set1_pd(6755399441055744.0);
    __m512d shifted[EXP_N], r[EXP_N];
#pragma GCC unroll 16
    for (int i = 0; i < EXP_N; i++) {
        __m512d in = _mm512_max_pd(_mm512_set1_pd(-700.0), x[i]); /* a NaN stays */
        shifted[i] = _mm512_add_pd(_mm512_mul_pd(in, _mm512_set1_pd(1.4426950408889634)), magic);
        __m512d n = _mm512_sub_pd(shifted[i], magic);
        r[i] = _mm512_sub_pd(in, _mm512_mul_pd(n, _mm512_set1_pd(0x1.62e42fefp-1)));
        r[i] = _mm512_sub_pd(r[i], _mm512_mul_pd(n, _mm512_set1_pd(0x1.473de6af278edp-34)));
        e[i] = _mm512_set1_pd(1.0 / 39916800);
    }
    /* Unrolled, gcc would do one register's chain after the other's. */
#pragma GCC unroll 1
    for (int k = 0; k < 11; k++) {
        __m512d term = _mm512_set1_pd(terms[k]);
#pragma GCC unroll 16
        for (int i = 0; i < EXP_N; i++)
            e[i] = _mm512_add_pd(_mm512_mul_pd(e[i], r[i]), term);
    }
#pragma GCC unroll 16
    for (int i = 0; i < EXP_N; i++) {
        __m512i bits = _mm512_add_epi64(_mm512_castpd_si512(shifted[i]), _mm512_set1_epi64(1023));
        e[i] = _mm512_mul_pd(e[i], _mm512_castsi512_pd(_mm512_slli_epi64(bits, 52)));
    }
}

/* Those of positions t … t + 15 that are in the span. */
INLINE __mmask16 inside(struct span s, uint32_t t) {
    uint32_t mask = first_of_16(s.hi - t + 1);
    return (__mmask16)(s.lo > t ? mask & (0xffffu << (s.lo - t)) : mask);
}

/* Lane j takes j + 8, + 4, + 2, + 1. */
INLINE float tree(__m512 f) {
    f = _mm512_add_ps(f, _mm512_shuffle_f32x4(f, f, 0x4e));
    f = _mm512_add_ps(f, _mm512_shuffle_f32x4(f, f, 0xb1));
    f = _mm512_add_ps(f, _mm512_permute_ps(f, 0x4e));
    f = _mm512_add_ps(f, _mm512_permute_ps(f, 0xb1));
    return _mm512_cvtss_f32(f);
}

/* Scores to exp(s - max), with the group's maximum and sum. A NaN is no maximum. */
static void soften(struct walk *w, uint32_t i, struct span local) {
    const uint32_t start = local.lo & ~15u;
    __m512 max = _mm512_set1_ps(-INFINITY);
    for (uint32_t t = start; t <= local.hi; t += 16)
        max = _mm512_mask_max_ps(max, inside(local, t), _mm512_load_ps(score_at(w, i, t)), max);
    w->max[i] = _mm512_reduce_max_ps(max);
    max = _mm512_set1_ps(w->max[i]);
    __m512 sum = _mm512_setzero_ps();
    for (uint32_t t = start; t <= local.hi; t += 16 * EXP_N / 2) {
        __m512d x[EXP_N];
        /* Behind the span the last sixteen are done again. */
#pragma GCC unroll 8
        for (uint32_t k = 0; k < EXP_N / 2; k++) {
            uint32_t at = min_u32(t + 16 * k, local.hi & ~15u);
            __m512 s = _mm512_sub_ps(_mm512_load_ps(score_at(w, i, at)), max);
            x[2 * k] = _mm512_cvtps_pd(_mm512_castps512_ps256(s));
            x[2 * k + 1] = _mm512_cvtps_pd(_mm512_extractf32x8_ps(s, 1));
        }
        exp_of(x, x);
#pragma GCC unroll 8
        for (uint32_t k = 0; k < EXP_N / 2; k++) {
            uint32_t at = t + 16 * k;
            if (at > local.hi) break;
            __m512 p = _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(x[2 * k])),
                                          _mm512_cvtpd_ps(x[2 * k + 1]), 1);
            _mm512_store_ps(score_at(w, i, at), p);
            sum = _mm512_mask_add_ps(sum, inside(local, at), sum, p);
        }
    }
    w->sum[i] = tree(sum);
}

/* ---- values ---- */

/* A page's V, widened: channels [c, c + V_CHUNK), zeros or nothing behind the last sixteen. */
struct values {
    const float *buf; /* [PN_PAGE_TOKENS][V_CHUNK] */
    float *sums;      /* [query_n][v_dim] where p * v goes */
    uint32_t pos;     /* of the first row */
    uint32_t c;
    uint32_t c_n;
};

/* p * v over positions of `s` into query_n queries' sums; vec_n registers of channels. Both are
 * constants where this is inlined. */
INLINE void weigh_tile(const struct walk *w, const struct values *v, uint32_t from, struct span s,
                       uint32_t query, uint32_t query_n, uint32_t vec_n) {
    uint32_t dim = w->tile->shape->v_dim;
    float *acc = v->sums + (uint64_t)query * dim + v->c;
    __mmask16 last = first_of_16(v->c_n - 16 * (vec_n - 1));
    __m512 f[QUERIES][V_CHUNK / 16];
    for (uint32_t m = 0; m < query_n; m++)
        for (uint32_t c = 0; c < vec_n; c++)
            f[m][c] = _mm512_maskz_loadu_ps(c == vec_n - 1 ? last : 0xffff, acc + m * dim + 16 * c);
    const float *row = v->buf + (s.lo - v->pos) * V_CHUNK;
    for (uint32_t pos = s.lo; pos <= s.hi;) {
        const float *p = score_at(w, query, pos - from);
        uint32_t n = min_u32(s.hi - pos + 1, 16 - pos % 16);
        pos += n;
#pragma GCC unroll 1
        for (; n > 0; n--, p++, row += V_CHUNK) {
            __m512 x[V_CHUNK / 16];
            for (uint32_t c = 0; c < vec_n; c++)
                x[c] = _mm512_load_ps(row + 16 * c);
            for (uint32_t m = 0; m < query_n; m++) {
                __m512 y = _mm512_set1_ps(p[16 * m]);
                for (uint32_t c = 0; c < vec_n; c++)
                    f[m][c] = _mm512_fmadd_ps(y, x[c], f[m][c]);
            }
        }
    }
    for (uint32_t m = 0; m < query_n; m++)
        for (uint32_t c = 0; c < vec_n; c++)
            _mm512_mask_storeu_ps(acc + m * dim + 16 * c, c == vec_n - 1 ? last : 0xffff, f[m][c]);
}

INLINE void weigh_span(const struct walk *w, const struct values *v, uint32_t from, struct span s,
                       uint32_t query, uint32_t query_n) {
    if (s.lo > s.hi) return;
    switch ((v->c_n + 15) / 16) {
    case 1:
        weigh_tile(w, v, from, s, query, query_n, 1);
        break;
    case 2:
        weigh_tile(w, v, from, s, query, query_n, 2);
        break;
    case 3:
        weigh_tile(w, v, from, s, query, query_n, 3);
        break;
    default:
        weigh_tile(w, v, from, s, query, query_n, 4);
    }
}

static void weigh_one(const struct walk *w, const struct values *v, uint32_t from, struct span s,
                      uint32_t query) {
    weigh_span(w, v, from, s, query, 1);
}

/* A part's queries over the page's positions in `page`: those that all of them see together, what
 * only some see before and after that one by one. */
INLINE void weigh_part(const struct walk *w, const struct values *v, uint32_t from,
                       struct span page, struct part part) {
    struct span common = page;
    for (uint32_t m = 0; m < part.n; m++)
        common = clip(common, w->spans[part.i + m].lo, w->spans[part.i + m].hi);
    bool any = common.lo <= common.hi;
    for (uint32_t m = 0; m < part.n; m++) {
        struct span own = clip(w->spans[part.i + m], page.lo, page.hi);
        if (any) own.hi = common.lo - 1;
        if (!any || own.lo < common.lo) weigh_one(w, v, from, own, part.i + m);
    }
    if (!any) return;
    if (part.n == QUERIES)
        weigh_span(w, v, from, common, part.i, QUERIES);
    else if (part.n == 2)
        weigh_span(w, v, from, common, part.i, 2);
    else
        weigh_one(w, v, from, common, part.i);
    for (uint32_t m = 0; m < part.n; m++) {
        struct span own = clip(w->spans[part.i + m], page.lo, page.hi);
        own.lo = common.hi + 1;
        weigh_one(w, v, from, own, part.i + m);
    }
}

static void weigh(struct walk *w, uint32_t from, struct span all) {
    PN_ALIGNED(64) float buf[PN_PAGE_TOKENS * V_CHUNK];
    uint32_t dim = w->tile->shape->v_dim;
    for (uint32_t pos = all.lo / PN_PAGE_TOKENS * PN_PAGE_TOKENS; pos <= all.hi;
         pos += PN_PAGE_TOKENS) {
        struct rows rows = rows_of(w->tile, pos, true);
        struct span page = clip(all, pos, pos + PN_PAGE_TOKENS - 1);
        float *sums = rows.format == PN_KV_Q4 ? w->scratch->group_r : w->scratch->group_v;
        for (uint32_t c = 0; c < dim; c += V_CHUNK) {
            struct values v = {
                .buf = buf, .sums = sums, .pos = page.lo, .c = c, .c_n = min_u32(dim - c, V_CHUNK)};
            widen(&rows, page.lo - pos, page.hi - page.lo + 1, c, c + v.c_n, buf);
            struct part part;
            for (uint32_t q = 0; q < w->query_n; q += part.n) {
                part = part_at(w, q);
                weigh_part(w, &v, from, page, part);
            }
        }
    }
}

/* ---- groups ---- */

static void merge_values(const float *group, float *all, uint32_t dim, float a, float b) {
    for (uint32_t c = 0; c < dim; c += 16) {
        __mmask16 mask = first_of_16(dim - c);
        __m512 old = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, all + c), _mm512_set1_ps(a));
        __m512 sum =
            _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, group + c), _mm512_set1_ps(b), old);
        _mm512_mask_storeu_ps(all + c, mask, sum);
    }
}

static void merge(struct walk *w, uint32_t i) {
    uint32_t dim = w->tile->shape->v_dim;
    uint64_t at = (uint64_t)i * dim;
    const struct pn_thread_scratch *s = w->scratch;
    if (!w->merged_any[i]) {
        w->merged_any[i] = true;
        w->merged_max[i] = w->max[i];
        w->merged_sum[i] = w->sum[i];
        memcpy(s->merged_v + at, s->group_v + at, dim * sizeof(float));
        if (w->any_q4[i]) memcpy(s->merged_r + at, s->group_r + at, dim * sizeof(float));
        return;
    }
    float max = w->max[i] > w->merged_max[i] ? w->max[i] : w->merged_max[i];
    float a = pn__exp(w->merged_max[i] - max);
    float b = pn__exp(w->max[i] - max);
    w->merged_max[i] = max;
    w->merged_sum[i] = fmaf(w->sum[i], b, w->merged_sum[i] * a);
    merge_values(s->group_v + at, s->merged_v + at, dim, a, b);
    if (w->any_q4[i]) merge_values(s->group_r + at, s->merged_r + at, dim, a, b);
}

/* The head's sink as one more group, without values: what the values so far are to be multiplied
 * by. */
static float merge_sink(struct walk *w, uint32_t i) {
    float sink = w->tile->sinks[w->tile->head_i + i % w->tile->head_n];
    float max = sink > w->merged_max[i] ? sink : w->merged_max[i];
    float a = pn__exp(w->merged_max[i] - max);
    w->merged_sum[i] = w->merged_sum[i] * a + pn__exp(sink - max);
    return a;
}

/* Positions from … from + PN_GROUP_TOKENS - 1, as far as a query has any. */
static void group(struct walk *w, uint32_t from, struct span all) {
    uint32_t dim = w->tile->shape->v_dim;
    score(w, from, all);
    for (uint32_t i = 0; i < w->query_n; i++) {
        struct span own = clip(w->spans[i], all.lo, all.hi);
        if (own.lo > own.hi) continue;
        soften(w, i, (struct span){own.lo - from, own.hi - from});
        memset(w->scratch->group_v + (uint64_t)i * dim, 0, dim * sizeof(float));
        if (w->any_q4[i]) memset(w->scratch->group_r + (uint64_t)i * dim, 0, dim * sizeof(float));
    }
    weigh(w, from, all);
    for (uint32_t i = 0; i < w->query_n; i++) {
        struct span own = clip(w->spans[i], all.lo, all.hi);
        if (own.lo <= own.hi) merge(w, i);
    }
}

/* A query's positions, and itself rotated if any of them are in Q4. */
static void begin(struct walk *w, uint32_t i) {
    const struct pn_att_tile *t = w->tile;
    w->spans[i] = span_of(t, i);
    w->q[i] = query_at(&t->q, t, i);
    w->any_q4[i] = pn__att_any_q4(t, w->spans[i].lo, w->spans[i].hi);
    if (!w->any_q4[i]) return;
    float *q = w->scratch->turned_q + (uint64_t)i * t->shape->k_dim;
    memcpy(q, w->q[i], t->shape->k_dim * sizeof *q);
    pn__turn(q, t->shape->k_dim);
}

static void finish(struct walk *w, uint32_t i) {
    uint32_t dim = w->tile->shape->v_dim;
    float *out = query_at(&w->tile->out, w->tile, i);
    const float *v = w->scratch->merged_v + (uint64_t)i * dim;
    float *r = w->scratch->merged_r + (uint64_t)i * dim;
    if (w->any_q4[i]) pn__turn(r, dim);
    __m512 a = _mm512_set1_ps(w->tile->sinks ? merge_sink(w, i) : 1.0f);
    __m512 sum = _mm512_set1_ps(w->merged_sum[i]);
    for (uint32_t c = 0; c < dim; c += 16) {
        __mmask16 mask = first_of_16(dim - c);
        __m512 f = _mm512_maskz_loadu_ps(mask, v + c);
        if (w->any_q4[i]) f = _mm512_add_ps(f, _mm512_maskz_loadu_ps(mask, r + c));
        _mm512_mask_storeu_ps(out + c, mask, _mm512_div_ps(_mm512_mul_ps(f, a), sum));
    }
}

static void attention(const struct pn_att_tile *tile, const struct pn_thread_scratch *scratch) {
    struct walk w = {.tile = tile, .scratch = scratch, .query_n = tile->row_n * tile->head_n};
    struct span all = {UINT32_MAX, 0};
    for (uint32_t i = 0; i < w.query_n; i++) {
        begin(&w, i);
        all.lo = min_u32(all.lo, w.spans[i].lo);
        all.hi = max_u32(all.hi, w.spans[i].hi);
    }
    for (uint32_t g = all.lo / PN_GROUP_TOKENS; g <= all.hi / PN_GROUP_TOKENS; g++) {
        uint32_t from = g * PN_GROUP_TOKENS;
        group(&w, from, clip(all, from, from + PN_GROUP_TOKENS - 1));
    }
    for (uint32_t i = 0; i < w.query_n; i++)
        finish(&w, i);
}

void pn__init_avx512_attention(struct pn_kernels *k) {
    k->attention = attention;
}
