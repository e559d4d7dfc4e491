/* A matrix for each head, where every head has rows of its own: latent attention's way into the
 * latent space and out of it. Each thread takes whole heads and prepares their rows in its own
 * scratch, so that a step's 2 x head_n small matrices cost two meetings of the threads. */
#include <assert.h>
#include <string.h>

#include "ops/cpu/cpu.h"

struct heads_op {
    struct pn_step *s;
    const struct pn_head_weights *w;
    struct pn_heads x;
    struct pn_heads out;
};

static struct pn_weight weight_of(const struct heads_op *op, uint32_t head) {
    struct pn_weight w = op->w->w;
    w.data += head * op->w->head_bytes;
    if (op->w->scales) w.scale = op->w->scales[head];
    return w;
}

static void apply_heads(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct heads_op *op = user;
    struct pn_cpu *cpu = op->s->cpu;
    struct pn_thread_slot *slot = &cpu->slots[thread_i];
    enum pn_act_kind kind = pn__type_info(op->w->w.type)->act;
    uint32_t row_n = op->x.row_n;
    struct pn_acts acts = slot->scratch.head_acts;
    acts.x_stride = op->x.row_stride;
    acts.row_n = row_n;
    acts.col_n = op->x.dim;
    acts.tile = pn__act_tile(&cpu->kernels, row_n);
    for (uint32_t h = lo; h < hi; h++) {
        struct pn_weight w = weight_of(op, h);
        acts.x = pn__head_at(&op->x, 0, h);
        if (cpu->kernels.prepare[kind]) cpu->kernels.prepare[kind](&acts, 0, row_n);
        struct pn_mm mm = {
            .acts = &acts,
            .w = &w,
            .next = h + 1 < hi ? w.data + op->w->head_bytes : NULL,
            .out = {pn__head_at(&op->out, 0, h), row_n, w.row_n, op->out.row_stride}};
        pn__mm_run(cpu, &mm, 0, w.row_n, &slot->scratch);
        slot->swept_n[0] += w.row_n;
    }
}

/* Rows of W as floats, one after the other, each added to the outputs of all rows. */
static void apply_heads_t(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct heads_op *op = user;
    struct pn_cpu *cpu = op->s->cpu;
    struct pn_thread_slot *slot = &cpu->slots[thread_i];
    float *row = slot->scratch.k_row;
    for (uint32_t h = lo; h < hi; h++) {
        struct pn_weight w = weight_of(op, h);
        for (uint32_t r = 0; r < op->x.row_n; r++)
            memset(pn__head_at(&op->out, r, h), 0, op->out.dim * sizeof(float));
        for (uint32_t i = 0; i < w.row_n; i++) {
            pn__dequant_row(w.type, w.data + i * w.row_bytes, row, w.col_n);
            for (uint32_t r = 0; r < op->x.row_n; r++)
                cpu->kernels.add_scaled(pn__head_at(&op->out, r, h), pn__head_at(&op->x, r, h)[i],
                                        row, w.col_n);
        }
        for (uint32_t r = 0; r < op->x.row_n; r++)
            cpu->kernels.scale(pn__head_at(&op->out, r, h), w.scale, op->out.dim);
        slot->swept_n[0] += w.row_n;
    }
}

/* All heads' matrices count as one. */
static void count(struct heads_op *op) {
    struct pn_step_stats *stats = &op->s->stats;
    const struct pn_weight *w = &op->w->w;
    uint64_t swept_n = 0;
    for (uint32_t t = 0; t < op->s->cpu->config.thread_n; t++) {
        swept_n += op->s->cpu->slots[t].swept_n[0];
        op->s->cpu->slots[t].swept_n[0] = 0;
    }
    stats->matmul_n++;
    stats->sweep_n += swept_n / ((uint64_t)w->row_n * op->x.head_n);
    stats->weight_bytes += swept_n * w->row_bytes;
    if (op->x.row_n > stats->row_max) stats->row_max = op->x.row_n;
}

static void run(struct heads_op *op, pn_slice_fn fn) {
    struct pn_weight unknown = {0};
    const struct pn_cpu_config *c = &op->s->cpu->config;
    assert(op->x.row_n <= c->row_max && op->x.dim <= c->head_col_max);
    assert(op->x.row_n == op->out.row_n && op->x.head_n == op->out.head_n);
    (void)c;
    if (op->x.row_n == 0) return;
    (void)pn__trace(op->s->cpu, &unknown);
    const struct pn_weight *w = &op->w->w;
    uint64_t work = (uint64_t)w->row_n * w->col_n * op->x.head_n * op->x.row_n;
    pn__split(op->s, op->x.head_n, 1, work, fn, op);
    count(op);
}

void pn__op_matmul_heads(struct pn_step *s, struct pn_heads x, const struct pn_head_weights *w,
                         struct pn_heads out) {
    assert(x.dim == w->w.col_n && out.dim == w->w.row_n);
    struct heads_op op = {.s = s, .w = w, .x = x, .out = out};
    run(&op, apply_heads);
}

void pn__op_matmul_heads_t(struct pn_step *s, struct pn_heads x, const struct pn_head_weights *w,
                           struct pn_heads out) {
    assert(x.dim == w->w.row_n && out.dim == w->w.col_n && out.dim <= s->cpu->config.dim_max);
    struct heads_op op = {.s = s, .w = w, .x = x, .out = out};
    run(&op, apply_heads_t);
}

static void copy_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct heads_op *op = user;
    (void)thread_i;
    for (uint32_t r = lo; r < hi; r++)
        for (uint32_t h = 0; h < op->x.head_n; h++)
            memcpy(pn__head_at(&op->out, r, h), pn__head_at(&op->x, r, h),
                   op->x.dim * sizeof(float));
}

void pn__op_copy_heads(struct pn_step *s, struct pn_heads x, struct pn_heads out) {
    assert(x.row_n == out.row_n && x.head_n == out.head_n && x.dim == out.dim);
    struct heads_op op = {.s = s, .x = x, .out = out};
    pn__split(s, x.row_n, 1, (uint64_t)x.row_n * x.head_n * x.dim, copy_rows, &op);
}
