/* Attention over pages of F32, F16, Q8_0 and Q4.
 *
 * A tile's queries share every load of K and V. For the scores K is widened and turned, a lane
 * being a position: element k of sixteen positions is one register, and a dot's sixteen partial
 * sums are sixteen registers, added up in the reference's tree without a shuffle. For the values a
 * lane is a channel; a page of V is widened sixty-four channels at a time, positions ascend. What
 * the buffers hold of positions that a query may not see is computed for its neighbours' sake and
 * never reaches it. Few queries go another way (wide_few.h). */
#include <math.h>

#include "ops/cpu/math.h"
#include "ops/cpu/wide_few.h"
#include "ops/cpu/wide_math.h"

static float *query_at(const struct pn_heads *h, const struct pn_att_tile *t, uint32_t i) {
    return h->data + (t->row_i + i / t->head_n) * h->row_stride +
           (t->head_i + i % t->head_n) * h->head_stride;
}

/* ---- scores ---- */

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
    PN_ALIGNED(64) float q[PN_ATT_QUERIES * K_CHUNK];
    size_t q_stride;
    struct w16 sums[PN_ATT_QUERIES][8]
                   [2 * KEY_REGS]; /* lanes of heads longer than K_CHUNK, carried on */
    uint32_t from;
    uint32_t to;
};

/* Lanes j and j + 8 of query_n dots (a constant) with all positions: f[query][lane][register]. */
INLINE void score_lanes(const struct keys *x, uint32_t j, uint32_t query, uint32_t query_n,
                        struct w16 f[QUERIES][2 * KEY_REGS]) {
    const float *k = x->k + j * KEYS;
    const size_t q_stride = x->q_stride;
    const float *q = x->q + query * q_stride + j;
    uint32_t n = (x->to - x->from + 15) / 16;
#pragma GCC unroll 1
    for (; n > 0; n--, k += 16 * KEYS, q += 16) {
        struct w16 y[2 * KEY_REGS];
#pragma GCC unroll 4
        for (uint32_t i = 0; i < 2 * KEY_REGS; i++)
            y[i] = w16_load(k + i / KEY_REGS * (8 * KEYS) + i % KEY_REGS * 16);
#pragma GCC unroll 4
        for (uint32_t m = 0; m < query_n; m++) {
            struct w16 q0 = w16_set(q[m * q_stride]);
            struct w16 q8 = w16_set(q[m * q_stride + 8]);
#pragma GCC unroll 2
            for (uint32_t i = 0; i < KEY_REGS; i++) {
                f[m][i] = w16_fma(q0, y[i], f[m][i]);
                f[m][KEY_REGS + i] = w16_fma(q8, y[KEY_REGS + i], f[m][KEY_REGS + i]);
            }
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
    struct w16 kept[3][QUERIES][KEY_REGS];
#pragma GCC unroll 1
    for (uint32_t t = 0; t < 8; t++) {
        struct w16 f[QUERIES][2 * KEY_REGS];
        for (uint32_t m = 0; m < query_n; m++)
            for (uint32_t i = 0; i < 2 * KEY_REGS; i++)
                f[m][i] = x->from ? x->sums[query + m][t][i] : w16_set(0);
        score_lanes(x, order[t], query, query_n, f);
        if (!last) {
            for (uint32_t m = 0; m < query_n; m++)
                for (uint32_t i = 0; i < 2 * KEY_REGS; i++)
                    x->sums[query + m][t][i] = f[m][i];
            continue;
        }
        struct w16 s[QUERIES][KEY_REGS];
        for (uint32_t m = 0; m < query_n; m++)
            for (uint32_t i = 0; i < KEY_REGS; i++)
                s[m][i] = w16_add(f[m][i], f[m][KEY_REGS + i]);
        uint32_t level = 0;
        for (; t >> level & 1; level++)
            for (uint32_t m = 0; m < query_n; m++)
                for (uint32_t i = 0; i < KEY_REGS; i++)
                    s[m][i] = w16_add(kept[level][m][i], s[m][i]);
        for (uint32_t m = 0; m < query_n; m++)
            for (uint32_t i = 0; i < KEY_REGS; i++)
                if (t < 7)
                    kept[level][m][i] = s[m][i];
                else
                    w16_store(score_at(w, query + m, at + 16 * i),
                              w16_mul(s[m][i], w16_set(w->tile->scale)));
    }
}

static void score_parts(const struct walk *w, struct keys *x, uint32_t at, struct ahead *ahead) {
    struct part part;
    for (uint32_t q = 0; q < w->query_n; q += part.n) {
        part = part_at(w, q);
        fetch(ahead);
        if (part.n == QUERIES)
            score_part(w, x, at, q, QUERIES);
        else if (part.n == 2)
            score_part(w, x, at, q, 2);
        else
            score_part(w, x, at, q, 1);
    }
}

static void copy_queries(const struct walk *w, struct keys *x, bool turned) {
    x->q_stride = (x->to - x->from + 15) / 16 * 16;
    for (uint32_t m = 0; m < w->query_n; m++) {
        const float *q = w->q[m];
        if (turned) q = w->scratch->turned_q + (uint64_t)m * w->tile->shape->k_dim;
        for (uint32_t i = x->from; i < x->to; i += 16)
            w16_store(x->q + m * x->q_stride + (i - x->from), load_some(q + i, x->to - i));
    }
}

/* Scores of all queries at all positions of the blocks that `all` touches. Where a block sticks out
 * it is still the same page. */
static void score(const struct walk *w, uint32_t from, struct pn_att_span all) {
    struct keys x;
    uint32_t dim = w->tile->shape->k_dim;
    uint32_t part_n = (w->query_n + QUERIES - 1) / QUERIES;
    enum { NONE, PLAIN, TURNED } copied = NONE;
    for (uint32_t pos = all.lo / KEYS * KEYS; pos <= all.hi; pos += KEYS) {
        struct rows rows = rows_of(w->tile, pos, false);
        if (few_scores(w, rows.format)) {
            for (uint32_t i = 0; i < KEYS; i += 16)
                score_few(w, &rows, pos + i, from, all.hi);
            continue;
        }
        bool turned = rows.format == PN_KV_Q4;
        bool other = copied != (turned ? TURNED : PLAIN);
        struct ahead ahead = ahead_of(w, pos + KEYS, KEYS, all.hi, false, part_n);
        for (x.from = 0; x.from < dim; x.from = x.to) {
            x.to = min_u32(dim, x.from + K_CHUNK);
            if (dim > K_CHUNK || other) copy_queries(w, &x, turned);
            turn(&rows, pos % PN_PAGE_TOKENS, x.from, x.to, x.k, KEYS);
            score_parts(w, &x, pos - from, &ahead);
        }
        copied = turned ? TURNED : PLAIN;
    }
}

/* ---- softmax of a group ---- */

static __attribute__((noinline)) void exp_by_steps(struct w16 s[EXP_N / 2]) {
    for (int i = 0; i < EXP_N / 2; i++)
        s[i] = w16_rounded(s[i], d8_exp);
}

/* exp of scores less their maximum: at most 0, or NaN. Where the short way may round otherwise (one
 * value in some sixteen thousand), and where floats are subnormal, the steps of math.h decide. */
INLINE void exp_of(struct w16 s[EXP_N / 2]) {
    struct d8 x[EXP_N], e[EXP_N];
    uint32_t open = 0;
#pragma GCC unroll 8
    for (int i = 0; i < EXP_N / 2; i++) {
        open |= w16_less(s[i], w16_set(-87.0f));
        w16_to_d8(s[i], x + 2 * i);
    }
    d8_exp_near(x, e, EXP_N);
#pragma GCC unroll 8
    for (int i = 0; i < EXP_N; i++)
        open |= d8_near_middle(e[i]);
    if (__builtin_expect(open != 0, 0)) {
        exp_by_steps(s);
        return;
    }
#pragma GCC unroll 8
    for (int i = 0; i < EXP_N / 2; i++)
        s[i] = w16_of_d8(e + 2 * i);
}

/* Of sixteen values for positions t … t + 15 those inside the span, else `other`. */
INLINE struct w16 inside(struct pn_att_span s, uint32_t t, struct w16 x, float other) {
    return w16_between(x, s.lo > t ? s.lo - t : 0, s.hi - t, w16_set(other));
}

/* Scores to exp(s - max), with the group's maximum and sum. A NaN is no maximum. */
static void soften(struct walk *w, uint32_t i, struct pn_att_span local) {
    const uint32_t start = local.lo & ~15u;
    struct w16 max = w16_set(-INFINITY);
    for (uint32_t t = start; t <= local.hi; t += 16)
        max = w16_max(inside(local, t, w16_load(score_at(w, i, t)), -INFINITY), max);
    w->max[i] = w16_top(max);
    const struct w16 top = w16_set(w->max[i]);
    struct w16 sum = w16_set(0);
    for (uint32_t t = start; t <= local.hi; t += 16 * EXP_N / 2) {
        struct w16 p[EXP_N / 2];
        /* Behind the span the last sixteen are done again. */
#pragma GCC unroll 8
        for (uint32_t k = 0; k < EXP_N / 2; k++) {
            uint32_t at = min_u32(t + 16 * k, local.hi & ~15u);
            p[k] = w16_sub(w16_load(score_at(w, i, at)), top);
        }
        exp_of(p);
#pragma GCC unroll 8
        for (uint32_t k = 0; k < EXP_N / 2; k++) {
            uint32_t at = t + 16 * k;
            if (at > local.hi) break;
            w16_store(score_at(w, i, at), p[k]);
            sum = w16_add(sum, inside(local, at, p[k], 0.0f)); /* + 0 changes no sum of these */
        }
    }
    w->sum[i] = w16_sum(sum);
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
INLINE void weigh_tile(const struct walk *w, const struct values *v, uint32_t from,
                       struct pn_att_span s, uint32_t query, uint32_t query_n, uint32_t vec_n) {
    uint32_t dim = w->tile->shape->v_dim;
    float *acc = v->sums + (uint64_t)query * dim + v->c;
    uint32_t last_n = v->c_n - 16 * (vec_n - 1);
    struct w16 f[QUERIES][V_CHUNK / 16];
    for (uint32_t m = 0; m < query_n; m++)
        for (uint32_t c = 0; c < vec_n; c++)
            f[m][c] = load_some(acc + m * dim + 16 * c, c == vec_n - 1 ? last_n : 16);
    const float *row = v->buf + (s.lo - v->pos) * V_CHUNK;
    for (uint32_t pos = s.lo; pos <= s.hi;) {
        const float *p = score_at(w, query, pos - from);
        uint32_t n = min_u32(s.hi - pos + 1, 16 - pos % 16);
        pos += n;
#pragma GCC unroll 1
        for (; n > 0; n--, p++, row += V_CHUNK) {
            struct w16 x[V_CHUNK / 16];
            for (uint32_t c = 0; c < vec_n; c++)
                x[c] = w16_load(row + 16 * c);
            for (uint32_t m = 0; m < query_n; m++) {
                struct w16 y = w16_set(p[16 * m]);
                for (uint32_t c = 0; c < vec_n; c++)
                    f[m][c] = w16_fma(y, x[c], f[m][c]);
            }
        }
    }
    for (uint32_t m = 0; m < query_n; m++)
        for (uint32_t c = 0; c < vec_n; c++)
            store_some(acc + m * dim + 16 * c, f[m][c], c == vec_n - 1 ? last_n : 16);
}

INLINE void weigh_span(const struct walk *w, const struct values *v, uint32_t from,
                       struct pn_att_span s, uint32_t query, uint32_t query_n) {
    if (s.lo > s.hi) return;
    switch ((v->c_n + 15) / 16) {
    case 1:
        weigh_tile(w, v, from, s, query, query_n, 1);
        break;
#if V_CHUNK == 64
    case 2:
        weigh_tile(w, v, from, s, query, query_n, 2);
        break;
    case 3:
        weigh_tile(w, v, from, s, query, query_n, 3);
        break;
#endif
    default:
        weigh_tile(w, v, from, s, query, query_n, V_CHUNK / 16);
    }
}

static void weigh_one(const struct walk *w, const struct values *v, uint32_t from,
                      struct pn_att_span s, uint32_t query) {
    weigh_span(w, v, from, s, query, 1);
}

/* A part's queries over the page's positions in `page`: those that all of them see together, what
 * only some see before and after that one by one. */
INLINE void weigh_part(const struct walk *w, const struct values *v, uint32_t from,
                       struct pn_att_span page, struct part part) {
    struct pn_att_span common = page;
    for (uint32_t m = 0; m < part.n; m++)
        common = clip(common, w->spans[part.i + m].lo, w->spans[part.i + m].hi);
    bool any = common.lo <= common.hi;
    for (uint32_t m = 0; m < part.n; m++) {
        struct pn_att_span own = clip(w->spans[part.i + m], page.lo, page.hi);
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
        struct pn_att_span own = clip(w->spans[part.i + m], page.lo, page.hi);
        own.lo = common.hi + 1;
        weigh_one(w, v, from, own, part.i + m);
    }
}

static void weigh(struct walk *w, uint32_t from, struct pn_att_span all) {
    PN_ALIGNED(64) float buf[PN_PAGE_TOKENS * V_CHUNK];
    uint32_t dim = w->tile->shape->v_dim;
    uint32_t step_n = (dim + V_CHUNK - 1) / V_CHUNK * ((w->query_n + QUERIES - 1) / QUERIES);
    for (uint32_t pos = all.lo / PN_PAGE_TOKENS * PN_PAGE_TOKENS; pos <= all.hi;
         pos += PN_PAGE_TOKENS) {
        struct rows rows = rows_of(w->tile, pos, true);
        struct pn_att_span page = clip(all, pos, pos + PN_PAGE_TOKENS - 1);
        struct ahead ahead =
            ahead_of(w, pos + PN_PAGE_TOKENS, PN_PAGE_TOKENS, all.hi, true, step_n);
        float *sums = rows.format == PN_KV_Q4 ? w->scratch->group_r : w->scratch->group_v;
        for (uint32_t c = 0; c < dim; c += V_CHUNK) {
            struct values v = {
                .buf = buf, .sums = sums, .pos = page.lo, .c = c, .c_n = min_u32(dim - c, V_CHUNK)};
            widen(&rows, page.lo - pos, page.hi - page.lo + 1, c, c + v.c_n, buf, V_CHUNK);
            struct part part;
            for (uint32_t q = 0; q < w->query_n; q += part.n) {
                part = part_at(w, q);
                fetch(&ahead);
                weigh_part(w, &v, from, page, part);
            }
        }
    }
}

/* ---- groups ---- */

static void merge_values(const float *group, float *all, uint32_t dim, float a, float b) {
    for (uint32_t c = 0; c < dim; c += 16) {
        struct w16 old = w16_mul(load_some(all + c, dim - c), w16_set(a));
        struct w16 sum = w16_fma(load_some(group + c, dim - c), w16_set(b), old);
        store_some(all + c, sum, dim - c);
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
        memset(w->scratch->group_v + (uint64_t)i * dim, 0, dim * sizeof(float));
        if (w->any_q4[i]) memset(w->scratch->group_r + (uint64_t)i * dim, 0, dim * sizeof(float));
    }
    if (few_values(w))
        weigh_few(w, from, all);
    else
        weigh(w, from, all);
}

/* A query's positions, and itself rotated if any of them are in Q4. */
static void begin(struct walk *w, uint32_t i) {
    const struct pn_att_tile *t = w->tile;
    w->spans[i] = pn__att_span(t, i);
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
    struct w16 a = w16_set(w->tile->sinks ? merge_sink(w, i) : 1.0f);
    struct w16 sum = w16_set(w->merged_sum[i]);
    for (uint32_t c = 0; c < dim; c += 16) {
        struct w16 f = load_some(v + c, dim - c);
        if (w->any_q4[i]) f = w16_add(f, load_some(r + c, dim - c));
        store_some(out + c, w16_div(w16_mul(f, a), sum), dim - c);
    }
}

#include "ops/cpu/att_drive.h"

void PN_K(init_wide_attention)(struct pn_kernels *k) {
    init_drive(k);
}
