/* Matmul: rows prepared once for each kind of weights, each weight matrix swept once. */
#include <assert.h>
#include <string.h>

#include "ops/cpu/cpu.h"

/* Weight rows that a share is a multiple of: room for kernels that take 16 at once. */
#define SHARE_ROWS 16

struct matmul_op {
    struct pn_step *s;
    struct pn_acts acts;
    enum pn_act_kind kind;
    const struct pn_matmul *parts;
    uint32_t n;
    uint32_t share_n;              /* of the longest part */
    const struct pn_weight *after; /* what the next matmul starts with; NULL: not known */
};

static enum pn_act_kind kind_of(const struct pn_matmul *part) {
    return pn__type_info(part->w->type)->act;
}

static void prepare_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    struct matmul_op *op = user;
    (void)thread_i;
    op->s->cpu->kernels.prepare[op->kind](&op->acts, lo, hi);
}

uint32_t pn__share_bound(uint32_t at, uint32_t share_n, uint32_t row_n) {
    uint64_t own_n = ((uint64_t)row_n + SHARE_ROWS - 1) / SHARE_ROWS;
    uint64_t row = own_n * at / share_n * SHARE_ROWS;
    return row < row_n ? (uint32_t)row : row_n;
}

/* Where this thread will read when it is through with part i: the next part of the sweep, else the
 * next matmul as the last step had it. */
static const uint8_t *next_weights(const struct matmul_op *op, uint32_t i, uint32_t lo) {
    const struct pn_weight *w = op->after;
    for (uint32_t k = i + 1; k < op->n; k++) {
        if (kind_of(&op->parts[k]) != op->kind) continue;
        w = op->parts[k].w;
        break;
    }
    if (!w || !w->data) return NULL;
    return w->data + (uint64_t)pn__share_bound(lo, op->share_n, w->row_n) * w->row_bytes;
}

void pn__mm_run(const struct pn_cpu *cpu, const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                const struct pn_thread_scratch *scratch) {
    const struct pn_kernels *k = &cpu->kernels;
    unsigned type = mm->w->type;
    if (mm->w->row_n < PN_NARROW_ROWS && k->matmul_narrow[type])
        k->matmul_narrow[type](mm, lo, hi, scratch);
    else if (mm->acts->row_n > PN_TILE && k->matmul_many[type])
        k->matmul_many[type](mm, lo, hi, scratch);
    else
        k->matmul[type](mm, lo, hi, scratch);
}

static void sweep_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    struct matmul_op *op = user;
    struct pn_thread_slot *slot = &op->s->cpu->slots[thread_i];
    for (uint32_t i = 0; i < op->n; i++) {
        const struct pn_matmul *part = &op->parts[i];
        if (kind_of(part) != op->kind) continue;
        uint32_t from = pn__share_bound(lo, op->share_n, part->w->row_n);
        uint32_t to = pn__share_bound(hi, op->share_n, part->w->row_n);
        if (from == to) continue;
        struct pn_mm mm = {.acts = &op->acts,
                           .w = part->w,
                           .bias = part->bias,
                           .next = next_weights(op, i, lo),
                           .out = part->out};
        pn__mm_run(op->s->cpu, &mm, from, to, &slot->scratch);
        slot->swept_n[i] += to - from;
    }
}

/* All parts of one kind. */
static void matmul_kind(struct matmul_op *op) {
    uint64_t work = 0;
    op->share_n = 0;
    for (uint32_t i = 0; i < op->n; i++) {
        if (kind_of(&op->parts[i]) != op->kind) continue;
        uint32_t share_n = (op->parts[i].w->row_n + SHARE_ROWS - 1) / SHARE_ROWS;
        if (share_n > op->share_n) op->share_n = share_n;
        work += (uint64_t)op->parts[i].w->row_n * op->acts.col_n * op->acts.row_n;
    }
    if (op->share_n == 0) return;
    if (op->s->cpu->kernels.prepare[op->kind])
        pn__split(op->s, op->acts.row_n, 1, (uint64_t)op->acts.row_n * op->acts.col_n, prepare_rows,
                  op);
    pn__split(op->s, op->share_n, 1, work, sweep_rows, op);
}

/* Counts what the threads say they read. */
static void count(struct matmul_op *op) {
    struct pn_step_stats *stats = &op->s->stats;
    for (uint32_t i = 0; i < op->n; i++) {
        const struct pn_weight *w = op->parts[i].w;
        uint64_t swept_n = 0;
        for (uint32_t t = 0; t < op->s->cpu->config.thread_n; t++) {
            swept_n += op->s->cpu->slots[t].swept_n[i];
            op->s->cpu->slots[t].swept_n[i] = 0;
        }
        stats->matmul_n++;
        stats->sweep_n += swept_n / w->row_n;
        stats->weight_bytes += swept_n * w->row_bytes;
    }
    if (op->acts.row_n > stats->row_max) stats->row_max = op->acts.row_n;
}

const struct pn_weight *pn__trace(struct pn_cpu *cpu, const struct pn_weight *w) {
    uint32_t i = cpu->trace_i++;
    if (i >= PN_TRACE_MAX) return NULL;
    bool known = i < cpu->trace_n && cpu->trace[i].data == w->data;
    cpu->trace[i] = *w;
    if (!known) {
        cpu->trace_n = i + 1;
        return NULL;
    }
    return &cpu->trace[i + 1 < cpu->trace_n ? i + 1 : 0];
}

void pn__op_matmul(struct pn_step *s, struct pn_mat x, const struct pn_matmul *parts, uint32_t n) {
    assert(n <= PN_MATMUL_MAX);
    assert(x.row_n <= s->cpu->config.row_max && x.col_n <= s->cpu->config.col_max);
    if (x.row_n == 0) return;
    struct matmul_op op = {.s = s,
                           .acts = s->cpu->acts,
                           .parts = parts,
                           .n = n,
                           .after = pn__trace(s->cpu, parts[0].w)};
    op.acts.x = x.data;
    op.acts.x_stride = x.stride;
    op.acts.row_n = x.row_n;
    op.acts.col_n = x.col_n;
    op.acts.tile = pn__act_tile(&s->cpu->kernels, x.row_n);
    for (uint32_t i = 0; i < n; i++) {
        assert(parts[i].w->col_n == x.col_n && parts[i].out.col_n == parts[i].w->row_n);
        assert(parts[i].out.row_n == x.row_n && s->cpu->kernels.matmul[parts[i].w->type]);
    }
    for (int kind = PN_ACT_F32; kind < PN_ACT_KIND_N; kind++) {
        op.kind = (enum pn_act_kind)kind;
        matmul_kind(&op);
    }
    count(&op);
}
