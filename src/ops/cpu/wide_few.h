/* Attention of few queries, as decoding has them. What K, V and the memory cost is all there is
 * then: vectors are read once, in order, without a buffer, and fetched ahead. */
#ifndef PN_OPS_CPU_WIDE_FEW_H
#define PN_OPS_CPU_WIDE_FEW_H

#include "ops/cpu/wide_walk.h"

/* ---- scores of few queries ---- */

/* Scores of sixteen positions from the page's row `row` on by query_n queries; `at` is the first
 * one's place in the group. Constants where this is inlined: query_n, format. */
INLINE void dots_as(const struct walk *w, const struct rows *r, uint32_t row, uint32_t at,
                    uint32_t query, uint32_t query_n, enum pn_kv_format format,
                    struct ahead *ahead) {
    const float *q[DOT_QUERIES];
    struct w16 quarters[DOT_QUERIES][4];
    const uint32_t whole_n = r->dim / 16 * 16;
#pragma GCC unroll 4
    for (uint32_t m = 0; m < query_n; m++)
        q[m] = format == PN_KV_Q4 ? w->scratch->turned_q + (uint64_t)(query + m) * r->dim
                                  : w->q[query + m];
#pragma GCC unroll 1
    for (uint32_t t = 0; t < 4; t++) {
        /* Every fourth position, so that in the end their sums stand in order. */
        const uint8_t *p = r->p + (row + t) * r->bytes;
        fetch(ahead);
        struct w16 f[DOT_QUERIES][4], k[4];
#pragma GCC unroll 4
        for (uint32_t m = 0; m < query_n; m++)
#pragma GCC unroll 4
            for (uint32_t i = 0; i < 4; i++)
                f[m][i] = w16_set(0);
#pragma GCC unroll 1
        for (uint32_t c = 0; c < whole_n; c += 16) {
#pragma GCC unroll 4
            for (uint32_t i = 0; i < 4; i++)
                k[i] = widen16(p + 4 * i * r->bytes, c, r->dim, 16, format);
#pragma GCC unroll 4
            for (uint32_t m = 0; m < query_n; m++) {
                struct w16 x = w16_load(q[m] + c);
#pragma GCC unroll 4
                for (uint32_t i = 0; i < 4; i++)
                    f[m][i] = w16_fma(x, k[i], f[m][i]);
            }
        }
        if (whole_n < r->dim) {
            uint32_t n = r->dim - whole_n;
            for (uint32_t i = 0; i < 4; i++)
                k[i] = widen16(p + 4 * i * r->bytes, whole_n, r->dim, n, format);
            for (uint32_t m = 0; m < query_n; m++)
                for (uint32_t i = 0; i < 4; i++)
                    f[m][i] = w16_fma(w16_load_n(q[m] + whole_n, n), k[i], f[m][i]);
        }
#pragma GCC unroll 4
        for (uint32_t m = 0; m < query_n; m++)
            quarters[m][t] = w16_quarters(f[m]);
    }
#pragma GCC unroll 4
    for (uint32_t m = 0; m < query_n; m++)
        w16_store(score_at(w, query + m, at),
                  w16_mul(w16_ones(quarters[m]), w16_set(w->tile->scale)));
}

INLINE void dots_of(const struct walk *w, const struct rows *r, uint32_t row, uint32_t at,
                    enum pn_kv_format format, struct ahead *ahead) {
    uint32_t i = 0;
    for (; i + DOT_QUERIES <= w->query_n; i += DOT_QUERIES)
        dots_as(w, r, row, at, i, DOT_QUERIES, format, ahead);
#if DOT_QUERIES > 2
    for (; i + 2 <= w->query_n; i += 2)
        dots_as(w, r, row, at, i, 2, format, ahead);
#endif
    for (; i < w->query_n; i++)
        dots_as(w, r, row, at, i, 1, format, ahead);
}

/* Whether turning K costs more than it saves. Where dots take one query at a time, each of them
 * unpacks K. */
INLINE bool few_scores(const struct walk *w, enum pn_kv_format format) {
    bool unpacked = format == PN_KV_F32 || format == PN_KV_F16;
    if (DOT_QUERIES == 1 && w->query_n > (unpacked ? 4 : 2)) return false;
    return w->query_n * 8 <= w->tile->shape->k_dim;
}

/* Positions between use and fetching. */
#define FETCH_AHEAD 32

/* Sixteen positions from pos on, by dots in lane order as they stand. */
INLINE void score_few(const struct walk *w, const struct rows *r, uint32_t pos, uint32_t from,
                      uint32_t end) {
    uint32_t row = pos % PN_PAGE_TOKENS;
    struct ahead ahead = ahead_of(w, pos + FETCH_AHEAD, 16, end, false, 4);
    switch (r->format) {
    case PN_KV_F32:
        dots_of(w, r, row, pos - from, PN_KV_F32, &ahead);
        break;
    case PN_KV_F16:
        dots_of(w, r, row, pos - from, PN_KV_F16, &ahead);
        break;
    case PN_KV_Q8_0:
        dots_of(w, r, row, pos - from, PN_KV_Q8_0, &ahead);
        break;
    case PN_KV_Q4:
        dots_of(w, r, row, pos - from, PN_KV_Q4, &ahead);
        break;
    }
}

/* ---- values for few queries of one row ---- */

/* p * v of positions `s`, all in one page, for channels [c, c + 16 vec_n), of the last sixteen n.
 * Constants where this is inlined: query_n, vec_n, format, and n but at the end of a vector. */
INLINE void add_values(const struct walk *w, const struct rows *r, uint32_t from,
                       struct pn_att_span s, uint32_t c, uint32_t n, uint32_t query_n,
                       uint32_t vec_n, enum pn_kv_format format, struct ahead *ahead) {
    const uint32_t dim = w->tile->shape->v_dim;
    float *acc = (format == PN_KV_Q4 ? w->scratch->group_r : w->scratch->group_v) + c;
    struct w16 f[QUERIES][V_CHUNK / 16];
#pragma GCC unroll 4
    for (uint32_t m = 0; m < query_n; m++)
#pragma GCC unroll 4
        for (uint32_t i = 0; i < vec_n; i++)
            f[m][i] = load_some(acc + m * dim + 16 * i, i == vec_n - 1 ? n : 16);
    const uint8_t *row = r->p + s.lo % PN_PAGE_TOKENS * r->bytes;
    for (uint32_t pos = s.lo; pos <= s.hi;) {
        const float *p = score_at(w, 0, pos - from);
        uint32_t left = min_u32(s.hi - pos + 1, 16 - pos % 16);
        pos += left;
#pragma GCC unroll 1
        for (; left > 0; left--, p++, row += r->bytes) {
            struct w16 x[V_CHUNK / 16];
            fetch(ahead);
#pragma GCC unroll 4
            for (uint32_t i = 0; i < vec_n; i++)
                x[i] = widen16(row, c + 16 * i, r->dim, i == vec_n - 1 ? n : 16, format);
#pragma GCC unroll 4
            for (uint32_t m = 0; m < query_n; m++) {
                struct w16 y = w16_set(p[16 * m]);
#pragma GCC unroll 4
                for (uint32_t i = 0; i < vec_n; i++)
                    f[m][i] = w16_fma(y, x[i], f[m][i]);
            }
        }
    }
#pragma GCC unroll 4
    for (uint32_t m = 0; m < query_n; m++)
#pragma GCC unroll 4
        for (uint32_t i = 0; i < vec_n; i++)
            store_some(acc + m * dim + 16 * i, f[m][i], i == vec_n - 1 ? n : 16);
}

INLINE void add_page(const struct walk *w, const struct rows *r, uint32_t from,
                     struct pn_att_span s, uint32_t query_n, enum pn_kv_format format,
                     struct ahead *ahead) {
    const uint32_t dim = w->tile->shape->v_dim;
    uint32_t c = 0;
    for (; c + V_CHUNK <= dim; c += V_CHUNK)
        add_values(w, r, from, s, c, 16, query_n, V_CHUNK / 16, format, ahead);
    for (; c + 16 <= dim; c += 16)
        add_values(w, r, from, s, c, 16, query_n, 1, format, ahead);
    if (c < dim) add_values(w, r, from, s, c, dim - c, query_n, 1, format, ahead);
}

INLINE void add_page_as(const struct walk *w, const struct rows *r, uint32_t from,
                        struct pn_att_span s, enum pn_kv_format format, struct ahead *ahead) {
    switch (w->query_n) {
    case 1:
        add_page(w, r, from, s, 1, format, ahead);
        break;
    case 2:
        add_page(w, r, from, s, 2, format, ahead);
        break;
#if QUERIES == 4
    case 3:
        add_page(w, r, from, s, 3, format, ahead);
        break;
    case 4:
        add_page(w, r, from, s, 4, format, ahead);
        break;
#endif
    }
}

/* All see the same positions, and each value is widened once. */
INLINE bool few_values(const struct walk *w) {
    return w->query_n <= QUERIES && w->tile->row_n == 1;
}

/* What `weigh` does, without the buffer. */
static void weigh_few(const struct walk *w, uint32_t from, struct pn_att_span all) {
    const uint32_t chunk_n = (w->tile->shape->v_dim + V_CHUNK - 1) / V_CHUNK;
    for (uint32_t pos = all.lo; pos <= all.hi; pos = (pos | (PN_PAGE_TOKENS - 1)) + 1) {
        struct rows rows = rows_of(w->tile, pos, true);
        struct pn_att_span s = {pos, min_u32(all.hi, pos | (PN_PAGE_TOKENS - 1))};
        struct ahead ahead =
            ahead_of(w, s.hi + 1, PN_PAGE_TOKENS, all.hi, true, PN_PAGE_TOKENS * chunk_n);
        switch (rows.format) {
        case PN_KV_F32:
            add_page_as(w, &rows, from, s, PN_KV_F32, &ahead);
            break;
        case PN_KV_F16:
            add_page_as(w, &rows, from, s, PN_KV_F16, &ahead);
            break;
        case PN_KV_Q8_0:
            add_page_as(w, &rows, from, s, PN_KV_Q8_0, &ahead);
            break;
        case PN_KV_Q4:
            add_page_as(w, &rows, from, s, PN_KV_Q4, &ahead);
            break;
        }
    }
}

#endif
