/* K and V stored in pages, and attention over them. */
#include <math.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/q4.h"
#include "quant/half.h"

/* ---- rows of a page ---- */

static void store_f32(const float *x, uint8_t *row, uint32_t dim) {
    memcpy(row, x, (size_t)dim * sizeof *x);
}

static void store_f16(const float *x, uint8_t *row, uint32_t dim) {
    for (uint32_t i = 0; i < dim; i++) {
        uint16_t h = pn__f32_to_f16(x[i]);
        memcpy(row + 2 * (size_t)i, &h, sizeof h);
    }
}

static void store_q8_0(const float *x, uint8_t *row, uint32_t dim) {
    uint32_t block_n = (dim + 31) / 32;
    for (uint32_t b = 0; b < block_n; b++) {
        uint32_t n = dim - b * 32 < 32 ? dim - b * 32 : 32;
        int8_t q[32];
        uint16_t d = pn__f32_to_f16(pn__quant_block(x + b * 32, q, n));
        memcpy(row + 2 * (size_t)b, &d, sizeof d);
        memcpy(row + 2 * (size_t)block_n + b * 32, q, n);
    }
}

static void round_to_halves(const float *x, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        out[i] = pn__half_widen(pn__half_narrow(x[i]));
}

static void store_q4(const float *x, uint8_t *row, uint32_t dim) {
    pn__q4_store(x, row, dim, (struct pn_q4_ways){round_to_halves, pn__turn_block, pn__q4_block});
}

static void load_q4(const uint8_t *row, float *restrict out, uint32_t dim) {
    uint32_t block_n = (dim + 31) / 32;
    const uint8_t *nibbles = row + 2 * (size_t)block_n;
    for (uint32_t b = 0; b < block_n; b++) {
        uint32_t n = dim - b * 32 < 32 ? dim - b * 32 : 32;
        float d;
        pn__widen_f16(row + 2 * (size_t)b, &d, 1);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t k = b * 32 + i;
            out[k] = d * (float)pn__q4_levels[nibbles[k / 2] >> 4 * (k % 2) & 15];
        }
    }
}

/* A half times a code is exact in float. */
static void load_q8_0(const uint8_t *row, float *restrict out, uint32_t dim) {
    uint32_t block_n = (dim + 31) / 32;
    const uint8_t *codes = row + 2 * (size_t)block_n;
    for (uint32_t b = 0; b < block_n; b++) {
        uint32_t n = dim - b * 32 < 32 ? dim - b * 32 : 32;
        float d;
        pn__widen_f16(row + 2 * (size_t)b, &d, 1);
        for (uint32_t i = 0; i < n; i++)
            out[b * 32 + i] = d * (float)(int8_t)codes[b * 32 + i];
    }
}

/* The vector as floats: in place, or widened into `buf`. */
static const float *load_row(enum pn_kv_format format, const uint8_t *row, float *buf,
                             uint32_t dim) {
    switch (format) {
    case PN_KV_F16:
        pn__widen_f16(row, buf, dim);
        return buf;
    case PN_KV_Q8_0:
        load_q8_0(row, buf, dim);
        return buf;
    case PN_KV_Q4:
        load_q4(row, buf, dim);
        return buf;
    case PN_KV_F32:
        break;
    }
    return (const float *)(const void *)row;
}

/* ---- one tile ---- */

struct walk {
    const struct pn_att_tile *tile;
    const struct pn_thread_scratch *scratch;
    uint32_t query_n;
    struct pn_att_span spans[PN_ATT_QUERIES];
    bool any_q4[PN_ATT_QUERIES]; /* among its positions */
    float sum[PN_ATT_QUERIES];   /* of the group */
    float max[PN_ATT_QUERIES];
    float merged_sum[PN_ATT_QUERIES];
    float merged_max[PN_ATT_QUERIES];
    bool merged_any[PN_ATT_QUERIES];
};

static float *query_at(const struct pn_heads *h, const struct pn_att_tile *t, uint32_t i) {
    return h->data + (t->row_i + i / t->head_n) * h->row_stride +
           (t->head_i + i % t->head_n) * h->head_stride;
}

/* The part of a span inside [from, to]; empty when lo > hi. */
static struct pn_att_span clip(struct pn_att_span s, uint32_t from, uint32_t to) {
    return (struct pn_att_span){s.lo > from ? s.lo : from, s.hi < to ? s.hi : to};
}

static const uint8_t *row_at(const struct pn_att_tile *t, uint32_t pos, bool value,
                             enum pn_kv_format *format) {
    const struct pn_page_view *page = pn__att_page(t, pos / PN_PAGE_TOKENS);
    *format = page->format;
    const uint8_t *layer = page->data + t->layer_i * pn__kv_layer_bytes(page->format, t->shape);
    uint64_t k_bytes = pn__kv_row_bytes(page->format, t->shape->k_dim);
    uint64_t index = (uint64_t)t->kv_head * PN_PAGE_TOKENS + pos % PN_PAGE_TOKENS;
    if (!value || t->shape->v_in_k) return layer + index * k_bytes;
    uint64_t k_part = pn__kv_v_offset(page->format, t->shape);
    return layer + k_part + index * pn__kv_row_bytes(page->format, t->shape->v_dim);
}

/* Scores of positions from … to, to scores[query][position - from]. */
static void score(struct walk *w, uint32_t from, struct pn_att_span all) {
    const struct pn_att_tile *t = w->tile;
    for (uint32_t pos = all.lo; pos <= all.hi; pos++) {
        enum pn_kv_format format;
        const uint8_t *row = row_at(t, pos, false, &format);
        const float *k = load_row(format, row, w->scratch->k_row, t->shape->k_dim);
        for (uint32_t i = 0; i < w->query_n; i++) {
            if (pos < w->spans[i].lo || pos > w->spans[i].hi) continue;
            const float *q = format == PN_KV_Q4 ? w->scratch->turned_q + i * t->shape->k_dim
                                                : query_at(&t->q, t, i);
            float dot = pn__dot(q, k, t->shape->k_dim);
            w->scratch->scores[i * PN_GROUP_TOKENS + pos - from] = dot * t->scale;
        }
    }
}

/* Scores to exp(s - max), with the group's maximum and sum. */
static void soften(struct walk *w, uint32_t i, struct pn_att_span local) {
    float *s = w->scratch->scores + i * PN_GROUP_TOKENS;
    float max = -INFINITY;
    for (uint32_t t = local.lo; t <= local.hi; t++)
        max = s[t] > max ? s[t] : max;
    for (uint32_t t = local.lo; t <= local.hi; t++)
        s[t] = pn__exp(s[t] - max);
    float lanes[PN_LANES] = {0};
    for (uint32_t t = local.lo; t <= local.hi; t++)
        lanes[t % PN_LANES] += s[t];
    w->max[i] = max;
    w->sum[i] = pn__lanes_sum(lanes);
}

static void weigh(struct walk *w, uint32_t from, struct pn_att_span all) {
    const struct pn_att_tile *t = w->tile;
    uint32_t dim = t->shape->v_dim;
    uint32_t row_dim = t->shape->v_in_k ? t->shape->k_dim : dim;
    for (uint32_t pos = all.lo; pos <= all.hi; pos++) {
        enum pn_kv_format format;
        const uint8_t *row = row_at(t, pos, true, &format);
        const float *v = load_row(format, row, w->scratch->k_row, row_dim);
        for (uint32_t i = 0; i < w->query_n; i++) {
            if (pos < w->spans[i].lo || pos > w->spans[i].hi) continue;
            float p = w->scratch->scores[i * PN_GROUP_TOKENS + pos - from];
            float *restrict acc =
                (format == PN_KV_Q4 ? w->scratch->group_r : w->scratch->group_v) + i * dim;
            for (uint32_t c = 0; c < dim; c++)
                acc[c] = fmaf(p, v[c], acc[c]);
        }
    }
}

static void merge_values(const float *restrict group, float *restrict all, uint32_t dim, float a,
                         float b) {
    for (uint32_t c = 0; c < dim; c++)
        all[c] = fmaf(group[c], b, all[c] * a);
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

/* Group g as far as a query has any of it: its maximum, sum and values. */
static void add_group(struct walk *w, uint32_t g, struct pn_att_span all) {
    uint32_t dim = w->tile->shape->v_dim;
    uint32_t from = g * PN_GROUP_TOKENS;
    all = clip(all, from, from + PN_GROUP_TOKENS - 1);
    score(w, from, all);
    for (uint32_t i = 0; i < w->query_n; i++) {
        struct pn_att_span own = clip(w->spans[i], all.lo, all.hi);
        if (own.lo > own.hi) continue;
        soften(w, i, (struct pn_att_span){own.lo - from, own.hi - from});
        memset(w->scratch->group_v + i * dim, 0, dim * sizeof(float));
        if (w->any_q4[i]) memset(w->scratch->group_r + i * dim, 0, dim * sizeof(float));
    }
    weigh(w, from, all);
}

/* A query's positions, and itself rotated if any of them are in Q4. */
static void begin(struct walk *w, uint32_t i) {
    const struct pn_att_tile *t = w->tile;
    w->spans[i] = pn__att_span(t, i);
    w->any_q4[i] = pn__att_any_q4(t, w->spans[i].lo, w->spans[i].hi);
    if (!w->any_q4[i]) return;
    float *q = w->scratch->turned_q + i * t->shape->k_dim;
    memcpy(q, query_at(&t->q, t, i), t->shape->k_dim * sizeof *q);
    pn__turn(q, t->shape->k_dim);
}

static void finish(struct walk *w, uint32_t i) {
    uint32_t dim = w->tile->shape->v_dim;
    float *out = query_at(&w->tile->out, w->tile, i);
    float *v = w->scratch->merged_v + (uint64_t)i * dim;
    float *r = w->scratch->merged_r + (uint64_t)i * dim;
    if (w->any_q4[i]) {
        pn__turn(r, dim);
        for (uint32_t c = 0; c < dim; c++)
            v[c] += r[c];
    }
    float a = w->tile->sinks ? merge_sink(w, i) : 1.0f;
    for (uint32_t c = 0; c < dim; c++)
        out[c] = v[c] * a / w->merged_sum[i];
}

#include "ops/cpu/att_drive.h"

void PN_K(init_attention)(struct pn_kernels *k) {
    k->kv_store[PN_KV_F32] = store_f32;
    k->kv_store[PN_KV_F16] = store_f16;
    k->kv_store[PN_KV_Q8_0] = store_q8_0;
    k->kv_store[PN_KV_Q4] = store_q4;
    init_drive(k);
}
