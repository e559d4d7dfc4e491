/* Mixtures of experts: routing, and the chosen experts' feed-forward.
 *
 * One way for one row and for a prompt of hundreds. The pairs of a row and one of its experts are
 * ordered by expert; then, for all experts that any row uses,
 *   1. the rows are prepared once and copied to where their pairs stand,
 *   2. gate and up: threads share the sequence of (expert, weight rows), each a contiguous part of
 *      about the same cost, and go through it reading each weight once,
 *   3. act(gate) * up and its preparation, by pairs,
 *   4. down: each thread has output rows of its own, computes them for every expert, and sums every
 *      row's experts in router order.
 * No sum depends on the grouping: a pair's dots are matmul's, and step 4 adds in router order. So a
 * row has the same bits whoever shares its experts (law 3), and no thread waits for another inside
 * a phase.
 *
 * With one row there is nothing to copy: every pair reads the same prepared row, and pairs stand in
 * router order. Each matrix call is told what its thread reads next, across experts and phases;
 * only the first expert can't be foretold.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "ops/cpu/cpu.h"

/* ---- routing ---- */

struct route_op {
    const struct pn_kernels *k;
    const struct pn_router *router;
    struct pn_mat logits;
    uint32_t tag;
    const struct pn_route *route;
};

void pn__op_route_clear(struct pn_step *s, const struct pn_route *route) {
    (void)s;
    memset(route->faults, 0, (size_t)route->row_n * sizeof *route->faults);
}

static void route_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct route_op *op = user;
    (void)thread_i;
    uint32_t k = op->router->top_k;
    for (uint32_t r = lo; r < hi; r++) {
        int32_t *ids = op->route->ids + (uint64_t)r * op->route->top_k;
        float *weights = pn__row_at(&op->route->weights, r);
        if (op->k->route(op->router, pn__row_at(&op->logits, r), ids, weights)) continue;
        for (uint32_t i = 0; i < k; i++) {
            ids[i] = -1;
            weights[i] = NAN;
        }
        if (op->route->faults[r] == 0) op->route->faults[r] = 1 + op->tag;
    }
}

void pn__op_route(struct pn_step *s, const struct pn_router *router, struct pn_mat logits,
                  uint32_t tag, const struct pn_route *route) {
    assert(logits.row_n == route->row_n && logits.col_n == router->expert_n);
    assert(router->top_k == route->top_k && router->top_k <= router->expert_n);
    assert(router->top_k > 0 && router->top_k <= PN_TOP_K_MAX);
    assert(router->group_n <= PN_EXPERT_GROUP_MAX);
    struct route_op op = {&s->cpu->kernels, router, logits, tag, route};
    pn__split(s, logits.row_n, 1, (uint64_t)logits.row_n * logits.col_n, route_rows, &op);
}

void pn__step_fetch_experts(struct pn_step *s, const struct pn_route *route, uint32_t row_i,
                            int32_t *ids) {
    (void)s;
    assert(row_i < route->row_n);
    memcpy(ids, route->ids + (uint64_t)row_i * route->top_k, route->top_k * sizeof *ids);
}

uint32_t pn__step_fetch_fault(struct pn_step *s, const struct pn_route *route, uint32_t row_i) {
    (void)s;
    assert(row_i < route->row_n);
    return route->faults[row_i];
}

/* ---- experts ---- */

enum which { GATE, UP, DOWN };

struct experts_op {
    struct pn_step *s;
    struct pn_moe_scratch *m;
    const struct pn_experts *e;
    const struct pn_route *route;
    struct pn_mat x;
    struct pn_mat out;
    uint32_t group_n;
    uint32_t pair_n;               /* places, the gaps that whole tiles leave among them */
    uint64_t row_total;            /* pairs without the gaps */
    uint64_t cost_total;           /* of gate and up */
    enum pn_act_kind kind;         /* of the phase under way */
    struct pn_acts row_acts;       /* x prepared */
    const struct pn_weight *after; /* what the next matmul starts with, or NULL */
};

static const struct pn_expert_part *part_of(const struct pn_experts *e, enum which which) {
    return which == GATE ? &e->gate : which == UP ? &e->up : &e->down;
}

static enum pn_act_kind kind_of(const struct pn_expert_part *p) {
    return pn__type_info(p->w.type)->act;
}

static const uint8_t *data_of(const struct pn_experts *e, enum which which, uint32_t id) {
    const struct pn_expert_part *p = part_of(e, which);
    if (!e->views) return p->w.data + id * p->expert_bytes;
    const struct pn_expert_view *v = &e->views[id];
    return which == GATE ? v->gate : which == UP ? v->up : v->down;
}

static struct pn_weight weight_of(const struct pn_experts *e, enum which which, uint32_t id) {
    const struct pn_expert_part *p = part_of(e, which);
    struct pn_weight w = p->w;
    w.data = data_of(e, which, id);
    if (p->scales) w.scale = p->scales[id];
    return w;
}

static const float *bias_of(const struct pn_experts *e, enum which which, uint32_t id) {
    const struct pn_expert_part *p = part_of(e, which);
    return p->bias ? p->bias + id * p->bias_stride : NULL;
}

/* Places that a group takes: whole tiles, which a kernel reads. */
static uint32_t place_n(uint32_t row_n) {
    return row_n <= PN_TILE ? row_n : (row_n + PN_TILE - 1) / PN_TILE * PN_TILE;
}

/* What sixteen weight rows of an expert with row_n rows cost: reading and unpacking them is worth
 * about as much as COST_READ rows of arithmetic. */
#define COST_READ 8u
#define COST_ROWS 16u

static uint64_t cost_of(const struct pn_expert_group *g) {
    return COST_READ + g->row_n;
}

/* Counting sort of the pairs by expert. Rows with a fault have none. */
static void group_pairs(struct experts_op *op) {
    struct pn_moe_scratch *m = op->m;
    const int32_t *ids = op->route->ids;
    uint32_t k_n = op->route->top_k;
    uint64_t id_n = (uint64_t)op->x.row_n * k_n;
    uint64_t unit_n = (op->e->gate.w.row_n + COST_ROWS - 1) / COST_ROWS;
    memset(m->cursors, 0, op->e->expert_n * sizeof *m->cursors);
    for (uint64_t i = 0; i < id_n; i++) {
        assert(ids[i] < (int32_t)op->e->expert_n);
        if (ids[i] >= 0) m->cursors[ids[i]]++;
    }
    for (uint32_t id = 0; id < op->e->expert_n; id++) {
        struct pn_expert_group g = {.id = id, .first = op->pair_n, .row_n = m->cursors[id]};
        if (g.row_n == 0) continue;
        m->groups[op->group_n++] = g;
        m->cursors[id] = g.first;
        op->pair_n += place_n(g.row_n);
        op->row_total += g.row_n;
        op->cost_total += unit_n * cost_of(&g);
    }
    for (uint64_t i = 0; i < id_n; i++) {
        if (ids[i] < 0) continue;
        m->places[i] = m->cursors[ids[i]]++;
        m->pair_rows[m->places[i]] = (uint32_t)(i / k_n);
    }
}

static uint32_t act_block(enum pn_act_kind kind) {
    return kind == PN_ACT_Q256 ? 256 : 32;
}

/* A group's part of the pairs' prepared rows, col_n wide. `x`: its rows as floats. */
static struct pn_acts group_acts(const struct experts_op *op, const struct pn_expert_group *g,
                                 uint32_t col_n, const float *x, uint64_t x_stride) {
    struct pn_acts a = op->m->acts;
    uint64_t first = g->first;
    a.x = x ? x + first * x_stride : NULL;
    a.x_stride = x_stride;
    a.row_n = g->row_n;
    a.col_n = col_n;
    a.tile = pn__act_tile(&op->s->cpu->kernels, g->row_n);
    if (a.q) {
        a.q += first * col_n;
        a.d += first * (col_n / act_block(op->kind));
        a.sums += first * (col_n / PN_ACT_SUM_LEN);
    }
    if (a.bf) a.bf += first * ((col_n + 31) & ~31u);
    return a;
}

/* The input rows of a group. One row needs no copy. */
static struct pn_acts input_acts(const struct experts_op *op, const struct pn_expert_group *g) {
    if (op->x.row_n == 1) return op->row_acts;
    return group_acts(op, g, op->x.col_n, op->m->x, op->x.col_n);
}

/* ---- 1: rows prepared, and copied to their pairs ---- */

static void prepare_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    struct experts_op *op = user;
    (void)thread_i;
    op->s->cpu->kernels.prepare[op->kind](&op->row_acts, lo, hi);
}

/* Row to_row of `to` is the pair's. */
static void copy_row(const struct experts_op *op, const struct pn_acts *to, uint32_t to_row,
                     uint32_t pair) {
    const struct pn_acts *from = &op->row_acts;
    uint32_t from_row = op->m->pair_rows[pair];
    uint32_t col_n = from->col_n;
    if (op->kind == PN_ACT_F32) {
        memcpy(op->m->x + (uint64_t)pair * col_n, from->x + from_row * from->x_stride,
               col_n * sizeof(float));
        return;
    }
    if (op->kind == PN_ACT_BF16) {
        uint64_t wide_n = (col_n + 31) & ~31u;
        memcpy(to->bf + to_row * wide_n, from->bf + from_row * wide_n, wide_n * sizeof *to->bf);
        return;
    }
    uint32_t len = act_block(op->kind);
    uint32_t sum_n = len / PN_ACT_SUM_LEN;
    uint64_t block_n = col_n / len;
    uint64_t dst = pn__act_at(to, block_n, 0, to_row);
    uint64_t src = pn__act_at(from, block_n, 0, from_row);
    uint32_t dst_step = pn__act_step(to, to_row), src_step = pn__act_step(from, from_row);
    for (uint64_t b = 0; b < block_n; b++, dst += dst_step, src += src_step) {
        if (len == 32) {
            memcpy(to->q + dst * 32, from->q + src * 32, 32);
            memcpy(to->sums + dst * 2, from->sums + src * 2, 2 * sizeof *to->sums);
        } else {
            memcpy(to->q + dst * len, from->q + src * len, len);
            memcpy(to->sums + dst * sum_n, from->sums + src * sum_n, sum_n * sizeof *to->sums);
        }
        to->d[dst] = from->d[src];
    }
}

static void copy_groups(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    struct experts_op *op = user;
    (void)thread_i;
    for (uint32_t i = lo; i < hi; i++) {
        const struct pn_expert_group *g = &op->m->groups[i];
        struct pn_acts to = input_acts(op, g);
        for (uint32_t r = 0; r < g->row_n; r++)
            copy_row(op, &to, r, g->first + r);
    }
}

static void prepare_input(struct experts_op *op) {
    uint64_t work = (uint64_t)op->x.row_n * op->x.col_n;
    op->row_acts = op->s->cpu->acts;
    op->row_acts.x = op->x.data;
    op->row_acts.x_stride = op->x.stride;
    op->row_acts.row_n = op->x.row_n;
    op->row_acts.col_n = op->x.col_n;
    op->row_acts.tile = pn__act_tile(&op->s->cpu->kernels, op->x.row_n);
    if (op->s->cpu->kernels.prepare[op->kind])
        pn__split(op->s, op->x.row_n, 1, work, prepare_rows, op);
    if (op->x.row_n > 1)
        pn__split_dynamic(op->s, op->group_n, work * op->route->top_k, copy_groups, op);
}

/* ---- 2: gate and up ---- */

/* Weight rows of one expert that a thread takes. */
struct segment {
    const struct pn_expert_group *g; /* NULL: no more */
    uint32_t from;
    uint32_t to;
};

struct cost_walk {
    const struct experts_op *op;
    uint64_t lo; /* costs */
    uint64_t hi;
    uint64_t at; /* where group group_i starts */
    uint32_t group_i;
};

/* Of a group that starts at `at`: the weight row where cost `c` falls. */
static uint32_t row_at_cost(const struct cost_walk *w, const struct pn_expert_group *g,
                            uint64_t c) {
    uint64_t row_n = w->op->e->gate.w.row_n;
    if (c <= w->at) return 0;
    uint64_t row = (c - w->at) / cost_of(g) * COST_ROWS;
    return (uint32_t)(row < row_n ? row : row_n);
}

static struct segment next_segment(struct cost_walk *w) {
    uint64_t unit_n = (w->op->e->gate.w.row_n + COST_ROWS - 1) / COST_ROWS;
    while (w->group_i < w->op->group_n && w->at < w->hi) {
        const struct pn_expert_group *g = &w->op->m->groups[w->group_i++];
        struct segment seg = {g, row_at_cost(w, g, w->lo), row_at_cost(w, g, w->hi)};
        w->at += unit_n * cost_of(g);
        if (seg.from < seg.to) return seg;
    }
    return (struct segment){0};
}

static const uint8_t *row_data(const struct pn_experts *e, enum which which, uint32_t id,
                               uint32_t row) {
    return data_of(e, which, id) + row * part_of(e, which)->w.row_bytes;
}

static void run_part(struct experts_op *op, struct pn_thread_slot *slot, enum which which,
                     const struct segment *seg, const struct pn_acts *acts, const uint8_t *next) {
    struct pn_weight w = weight_of(op->e, which, seg->g->id);
    uint64_t stride = (w.row_n + 15u) & ~15u;
    float *to = (which == GATE ? op->m->gate : op->m->up) + seg->g->first * stride;
    struct pn_mm mm = {.acts = acts,
                       .w = &w,
                       .bias = bias_of(op->e, which, seg->g->id),
                       .next = next,
                       .out = {to, seg->g->row_n, w.row_n, stride}};
    pn__mm_run(op->s->cpu, &mm, seg->from, seg->to, &slot->scratch);
    slot->swept_n[which] += seg->to - seg->from;
}

/* Where this thread's rows of down's first expert are. */
static const uint8_t *first_down(const struct experts_op *op, uint32_t share_i) {
    const struct pn_expert_part *down = &op->e->down;
    uint32_t row = pn__share_bound(share_i, op->s->cpu->config.thread_n, down->w.row_n);
    return row_data(op->e, DOWN, op->m->groups[0].id, row);
}

static void gate_up_share(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    struct experts_op *op = user;
    struct pn_thread_slot *slot = &op->s->cpu->slots[thread_i];
    uint32_t share_n = op->s->cpu->config.thread_n;
    bool gate = kind_of(&op->e->gate) == op->kind;
    bool up = kind_of(&op->e->up) == op->kind;
    struct cost_walk walk = {
        .op = op, .lo = op->cost_total * lo / share_n, .hi = op->cost_total * hi / share_n};
    struct segment seg = next_segment(&walk);
    while (seg.g) {
        struct segment then = next_segment(&walk);
        const uint8_t *next = first_down(op, lo);
        if (then.g) next = row_data(op->e, gate ? GATE : UP, then.g->id, then.from);
        struct pn_acts acts = input_acts(op, seg.g);
        if (gate) {
            const uint8_t *up_rows = row_data(op->e, UP, seg.g->id, seg.from);
            run_part(op, slot, GATE, &seg, &acts, up ? up_rows : next);
        }
        if (up) run_part(op, slot, UP, &seg, &acts, next);
        seg = then;
    }
}

/* ---- 3: the hidden values ---- */

/* act(gate) * up into gate, and prepared, for rows [lo, hi) counted over all groups. */
static void hidden_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    struct experts_op *op = user;
    const struct pn_kernels *k = &op->s->cpu->kernels;
    uint32_t ff = op->e->gate.w.row_n;
    uint64_t stride = (ff + 15u) & ~15u;
    uint32_t at = 0; /* rows of earlier groups */
    (void)thread_i;
    for (uint32_t i = 0; i < op->group_n && at < hi; i++) {
        const struct pn_expert_group *g = &op->m->groups[i];
        uint32_t from = lo > at ? lo - at : 0;
        uint32_t to = hi - at < g->row_n ? hi - at : g->row_n;
        at += g->row_n;
        if (from >= to) continue;
        for (uint32_t r = from; r < to; r++) {
            float *gate = op->m->gate + (g->first + r) * stride;
            k->glu[op->e->act](gate, op->m->up + (g->first + r) * stride, gate, ff);
        }
        struct pn_acts acts = group_acts(op, g, ff, op->m->gate, stride);
        if (k->prepare[op->kind]) k->prepare[op->kind](&acts, from, to);
    }
}

/* ---- 4: down, and the sum ---- */

static void sum_experts(const struct experts_op *op, const float *y, uint32_t row, uint32_t row_n) {
    const struct pn_kernels *k = &op->s->cpu->kernels;
    const struct pn_route *route = op->route;
    for (uint32_t r = 0; r < op->x.row_n; r++) {
        float *out = pn__row_at(&op->out, r) + row;
        const float *weights = pn__row_at(&route->weights, r);
        const uint32_t *places = op->m->places + (uint64_t)r * route->top_k;
        bool fault = route->ids[(uint64_t)r * route->top_k] < 0;
        for (uint32_t i = 0; i < row_n; i++)
            out[i] = fault ? NAN : 0.0f;
        for (uint32_t i = 0; i < route->top_k && !fault; i++)
            k->add_scaled(out, weights[i], y + (uint64_t)places[i] * row_n, row_n);
    }
}

/* Output rows [row, row + row_n) for every expert. `next`: what comes after. */
static void down_block(struct experts_op *op, struct pn_thread_slot *slot, uint32_t row,
                       uint32_t row_n, const uint8_t *next) {
    const struct pn_experts *e = op->e;
    uint64_t stride = (e->down.w.col_n + 15u) & ~15u;
    float *y = slot->scratch.expert_y;
    for (uint32_t i = 0; i < op->group_n; i++) {
        const struct pn_expert_group *g = &op->m->groups[i];
        struct pn_acts acts = group_acts(op, g, e->down.w.col_n, op->m->gate, stride);
        struct pn_weight w = weight_of(e, DOWN, g->id);
        const float *bias = bias_of(e, DOWN, g->id);
        w.data += row * w.row_bytes;
        w.row_n = row_n;
        bool last = i + 1 == op->group_n;
        struct pn_mm mm = {.acts = &acts,
                           .w = &w,
                           .bias = bias ? bias + row : NULL,
                           .next = last ? next : row_data(e, DOWN, g[1].id, row),
                           .out = {y + (uint64_t)g->first * row_n, g->row_n, row_n, row_n}};
        pn__mm_run(op->s->cpu, &mm, 0, row_n, &slot->scratch);
        slot->swept_n[DOWN] += row_n;
    }
    sum_experts(op, y, row, row_n);
}

/* Output rows that a thread computes at once for all pairs: as many as its scratch holds, in whole
 * groups of a panel where there is a choice. */
static uint32_t block_rows(const struct experts_op *op, const struct pn_thread_slot *slot) {
    uint64_t n = op->pair_n ? slot->scratch.expert_y_n / op->pair_n : UINT32_MAX;
    if (n > op->out.col_n) return op->out.col_n;
    uint64_t panel = (uint64_t)PN_PANEL_GROUPS * PN_NARROW_ROWS;
    return (uint32_t)(n >= panel ? n / panel * panel : n / PN_NARROW_ROWS * PN_NARROW_ROWS);
}

static void down_share(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    struct experts_op *op = user;
    struct pn_thread_slot *slot = &op->s->cpu->slots[thread_i];
    uint32_t share_n = op->s->cpu->config.thread_n;
    uint32_t from = pn__share_bound(lo, share_n, op->out.col_n);
    uint32_t to = pn__share_bound(hi, share_n, op->out.col_n);
    uint32_t block = block_rows(op, slot);
    const struct pn_weight *w = op->after;
    const uint8_t *after = NULL;
    if (w && w->data) after = w->data + pn__share_bound(lo, share_n, w->row_n) * w->row_bytes;
    for (uint32_t row = from; row < to; row += block) {
        uint32_t row_n = to - row < block ? to - row : block;
        const uint8_t *next = after;
        if (row + row_n < to && op->group_n)
            next = row_data(op->e, DOWN, op->m->groups[0].id, row + row_n);
        down_block(op, slot, row, row_n, next);
    }
}

/* ---- all together ---- */

static void count(struct experts_op *op) {
    struct pn_step_stats *stats = &op->s->stats;
    for (int which = GATE; which <= DOWN; which++) {
        const struct pn_weight *w = &part_of(op->e, (enum which)which)->w;
        uint64_t swept_n = 0;
        for (uint32_t t = 0; t < op->s->cpu->config.thread_n; t++) {
            swept_n += op->s->cpu->slots[t].swept_n[which];
            op->s->cpu->slots[t].swept_n[which] = 0;
        }
        stats->matmul_n += op->group_n;
        stats->sweep_n += swept_n / w->row_n;
        stats->weight_bytes += swept_n * w->row_bytes;
    }
    for (uint32_t i = 0; i < op->group_n; i++)
        if (op->m->groups[i].row_n > stats->row_max) stats->row_max = op->m->groups[i].row_n;
}

static void check(const struct experts_op *op) {
    const struct pn_cpu_config *c = &op->s->cpu->config;
    const struct pn_experts *e = op->e;
    assert(op->x.row_n <= c->row_max && op->route->row_n == op->x.row_n);
    assert(op->route->top_k <= c->top_k_max && e->expert_n <= c->expert_max);
    assert(e->gate.w.row_n <= c->expert_ff_max && e->gate.w.row_n == e->up.w.row_n);
    assert(e->gate.w.col_n == op->x.col_n && e->up.w.col_n == op->x.col_n);
    assert(e->down.w.col_n == e->gate.w.row_n && e->down.w.row_n == op->out.col_n);
    assert(op->out.row_n == op->x.row_n && op->out.data != op->x.data);
    for (int which = GATE; which <= DOWN; which++)
        assert(c->expert_acts & 1u << kind_of(part_of(e, (enum which)which)));
    (void)c;
    (void)e;
}

void pn__op_experts(struct pn_step *s, struct pn_mat x, const struct pn_experts *e,
                    const struct pn_route *route, struct pn_mat out) {
    struct experts_op op = {.s = s, .m = &s->cpu->moe, .e = e, .route = route, .x = x, .out = out};
    check(&op);
    if (x.row_n == 0) return;
    struct pn_weight unknown = {0};
    op.after = pn__trace(s->cpu, &unknown);
    group_pairs(&op);
    uint32_t share_n = s->cpu->config.thread_n;
    uint64_t work = op.row_total * e->gate.w.row_n * x.col_n;
    enum pn_act_kind kinds[2] = {kind_of(&e->gate), kind_of(&e->up)};
    for (int i = 0; i < 2 && op.group_n; i++) {
        if (i == 1 && kinds[1] == kinds[0]) break;
        op.kind = kinds[i];
        prepare_input(&op);
        pn__split(s, share_n, 1, 2 * work, gate_up_share, &op);
    }
    op.kind = kind_of(&e->down);
    pn__split(s, (uint32_t)op.row_total, 1, op.row_total * e->gate.w.row_n, hidden_rows, &op);
    pn__split(s, share_n, 1, work, down_share, &op);
    count(&op);
}
