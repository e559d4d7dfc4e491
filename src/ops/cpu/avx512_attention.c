/* Attention over pages of F32, F16 and Q8_0.
 *
 * A tile's queries share every load of K and V, widened once into a buffer on the stack: sixteen
 * positions of K at a time, a page of V sixty-four channels at a time. Four queries by four
 * positions (or four by sixty-four channels of V) then stay in registers. The orders are the
 * reference's: sixteen lanes over a dot's elements, positions ascending in every channel. What the
 * buffers hold of positions that a query may not see is computed for its neighbours and never
 * reaches it. */
#include <math.h>

#include "ops/cpu/avx512.h"
#include "ops/cpu/math.h"

#define KEYS 16     /* positions of K in the buffer */
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
    float sum[PN_ATT_QUERIES]; /* of the group */
    float max[PN_ATT_QUERIES];
    float merged_sum[PN_ATT_QUERIES];
    float merged_max[PN_ATT_QUERIES];
    bool merged_any[PN_ATT_QUERIES];
};

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
    const struct pn_page_view *page = &t->table->pages[pos / PN_PAGE_TOKENS - t->table->first];
    const uint8_t *layer = page->data + t->layer_i * pn__kv_layer_bytes(page->format, t->shape);
    uint64_t k_bytes = pn__kv_row_bytes(page->format, t->shape->k_dim);
    uint64_t k_part = (t->shape->head_n * PN_PAGE_TOKENS * k_bytes + 63) & ~(uint64_t)63;
    struct rows r = {.p = layer, .bytes = k_bytes, .dim = t->shape->k_dim, .format = page->format};
    if (value) {
        r.p += k_part;
        r.bytes = pn__kv_row_bytes(page->format, t->shape->v_dim);
        r.dim = t->shape->v_dim;
    }
    r.p += (uint64_t)t->kv_head * PN_PAGE_TOKENS * r.bytes;
    return r;
}

/* Elements i … i + 15 of a vector, those of `mask`, then zeros. A half, or a half times a code, is
 * exact. */
INLINE __m512 widen16(const uint8_t *row, uint32_t i, uint32_t dim, __mmask16 mask,
                      enum pn_kv_format format) {
    if (format == PN_KV_F32) return _mm512_maskz_loadu_ps(mask, row + 4 * (size_t)i);
    if (format == PN_KV_F16)
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, row + 2 * (size_t)i));
    uint16_t d;
    memcpy(&d, row + 2 * (size_t)(i / 32), sizeof d);
    const uint8_t *codes = row + 2 * (size_t)((dim + 31) / 32);
    __m512i c = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, codes + i));
    __m512 scale = _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(d)));
    return _mm512_maskz_mul_ps(mask, scale, _mm512_cvtepi32_ps(c));
}

/* Elements [from, to) of rows [row, row + row_n) into buf, step apart, zeros up to a multiple of
 * sixteen. `format` is a constant where this is inlined. */
INLINE void widen_as(const struct rows *r, uint32_t row, uint32_t row_n, uint32_t from, uint32_t to,
                     float *buf, uint32_t step, enum pn_kv_format format) {
    for (uint32_t t = 0; t < row_n; t++, buf += step) {
        const uint8_t *p = r->p + (row + t) * r->bytes;
        uint32_t i = from;
        for (; i + 16 <= to; i += 16)
            _mm512_store_ps(buf + (i - from), widen16(p, i, r->dim, 0xffff, format));
        if (i < to)
            _mm512_store_ps(buf + (i - from), widen16(p, i, r->dim, first_of_16(to - i), format));
    }
}

static void widen(const struct rows *r, uint32_t row, uint32_t row_n, uint32_t from, uint32_t to,
                  float *buf, uint32_t step) {
    switch (r->format) {
    case PN_KV_F32:
        widen_as(r, row, row_n, from, to, buf, step, PN_KV_F32);
        break;
    case PN_KV_F16:
        widen_as(r, row, row_n, from, to, buf, step, PN_KV_F16);
        break;
    case PN_KV_Q8_0:
        widen_as(r, row, row_n, from, to, buf, step, PN_KV_Q8_0);
        break;
    }
}

/* ---- scores ---- */

/* The trees of sixteen sums: lane j takes j + 8, + 4, + 2, + 1. Lane i of the result is v[i]'s. */
INLINE __m512 sum16(const __m512 v[16]) {
    __m512 a[8], b[4], c[2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        a[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[i], v[i + 8], 0x44),
                             _mm512_shuffle_f32x4(v[i], v[i + 8], 0xee));
    /* Quarters of b[i]: v[i], v[i + 8], v[i + 4], v[i + 12]. */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        b[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[i], a[i + 4], 0x88),
                             _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        c[i] = _mm512_add_ps(_mm512_shuffle_ps(b[i], b[i + 2], 0x44),
                             _mm512_shuffle_ps(b[i], b[i + 2], 0xee));
    /* In each quarter: i = 0, 2 (of c[0]), 1, 3 (of c[1]). */
    __m512 f =
        _mm512_add_ps(_mm512_shuffle_ps(c[0], c[1], 0x88), _mm512_shuffle_ps(c[0], c[1], 0xdd));
    const __m512i order =
        _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
    return _mm512_permutexvar_ps(order, f);
}

/* Widened K: KEYS vectors, elements [from, to) of k_dim. */
struct keys {
    const float *buf;
    uint32_t step;
    uint32_t from;
    uint32_t to;
};

/* 16 / query_n positions by query_n queries (1, 2 or 4, a constant), of which the last may repeat;
 * sums [query][position]. */
INLINE void score_tile(const struct keys *k, uint32_t key, const float *const *q, uint32_t query_n,
                       __m512 sums[16]) {
    const uint32_t key_n = 16 / query_n;
    const float *base = k->buf + key * k->step;
    uint32_t i = k->from;
#pragma GCC unroll 1
    for (; i < k->to; i += 16) {
        __mmask16 mask = first_of_16(k->to - i);
        __m512 x[QUERIES];
#pragma GCC unroll 4
        for (uint32_t m = 0; m < query_n; m++)
            x[m] = _mm512_maskz_loadu_ps(mask, q[m] + i);
#pragma GCC unroll 16
        for (uint32_t t = 0; t < key_n; t++) {
            __m512 y = _mm512_load_ps(base + t * k->step + (i - k->from));
#pragma GCC unroll 4
            for (uint32_t m = 0; m < query_n; m++)
                sums[m * key_n + t] = _mm512_fmadd_ps(x[m], y, sums[m * key_n + t]);
        }
    }
}
