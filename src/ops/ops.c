/* Steps, and the operations that work row by row. */
#include "ops/ops.h"

#include <assert.h>
#include <string.h>

#include "ops/cpu/cpu.h"

void pn__step_begin(struct pn_step *s, struct pn_cpu *cpu) {
    assert(!cpu->step_open);
    cpu->step_open = true;
    cpu->trace_i = 0;
    *s = (struct pn_step){.cpu = cpu};
}

void pn__step_end(struct pn_step *s) {
    assert(s->cpu->step_open);
    s->cpu->step_open = false;
}

void pn__step_fetch(struct pn_step *s, struct pn_mat m, uint32_t row_i, float *dst) {
    (void)s;
    assert(row_i < m.row_n);
    memcpy(dst, pn__row_at(&m, row_i), (size_t)m.col_n * sizeof *dst);
}

int64_t pn__logits_best(const struct pn_cpu *cpu, const float *x, uint32_t n) {
    struct pn_kernels ref;
    if (cpu) return cpu->kernels.best(x, n);
    pn__init_logits_ref(&ref);
    return ref.best(x, n);
}

double pn__logits_sum_exp(const struct pn_cpu *cpu, const float *x, uint32_t n, float max,
                          double by) {
    struct pn_kernels ref;
    if (cpu) return cpu->kernels.sum_exp(x, n, max, by);
    pn__init_logits_ref(&ref);
    return ref.sum_exp(x, n, max, by);
}

/* What a slice needs to know; each operation fills what it uses. */
struct row_op {
    const struct pn_kernels *k;
    struct pn_mat x;
    struct pn_mat y;
    struct pn_mat out;
    struct pn_heads heads;
    struct pn_heads gates;
    const struct pn_weight *table;
    const int32_t *ids;
    const uint32_t *rows;
    const float *w;
    const float *w2;
    void (*gate)(float *x, const float *gate, uint32_t n);
    enum pn_act act;
    float f;
    float eps;
};

static uint64_t work_of(const struct pn_mat *m) {
    return (uint64_t)m->row_n * m->col_n;
}

static uint64_t work_of_heads(const struct pn_heads *h) {
    return (uint64_t)h->row_n * h->head_n * h->dim;
}

/* ---- embedding, rows ---- */

static void embed_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct row_op *op = user;
    (void)thread_i;
    for (uint32_t r = lo; r < hi; r++) {
        float *out = pn__row_at(&op->out, r);
        uint64_t row = (uint64_t)op->ids[r];
        assert(row < op->table->row_n);
        pn__dequant_row(op->table->type, op->table->data + row * op->table->row_bytes, out,
                        op->table->col_n);
        op->k->scale(out, op->table->scale, op->table->col_n);
        op->k->scale(out, op->f, op->table->col_n);
    }
}

void pn__op_embed(struct pn_step *s, const struct pn_weight *table, const int32_t *ids,
                  uint32_t row_n, float scale, struct pn_mat out) {
    assert(out.row_n == row_n && out.col_n == table->col_n);
    struct row_op op = {.k = &s->cpu->kernels, .table = table, .ids = ids, .f = scale, .out = out};
    pn__split(s, row_n, 1, work_of(&out), embed_rows, &op);
}

static void take_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct row_op *op = user;
    (void)thread_i;
    for (uint32_t r = lo; r < hi; r++)
        memcpy(pn__row_at(&op->out, r), pn__row_at(&op->x, op->rows[r]),
               (size_t)op->x.col_n * sizeof(float));
}

void pn__op_take_rows(struct pn_step *s, struct pn_mat x, const uint32_t *rows, uint32_t n,
                      struct pn_mat out) {
    assert(out.col_n == x.col_n && out.row_n >= n);
    struct row_op op = {.x = x, .rows = rows, .out = out};
    pn__split(s, n, 1, (uint64_t)n * x.col_n, take_rows, &op);
}

/* ---- norms ---- */

static void rms_norm_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct row_op *op = user;
    (void)thread_i;
    for (uint32_t r = lo; r < hi; r++)
        op->k->rms_norm(pn__row_at(&op->x, r), op->w, op->eps, pn__row_at(&op->out, r),
                        op->x.col_n);
}

void pn__op_rms_norm(struct pn_step *s, struct pn_mat x, const float *w, float eps,
                     struct pn_mat out) {
    assert(out.row_n == x.row_n && out.col_n == x.col_n);
    struct row_op op = {.k = &s->cpu->kernels, .x = x, .w = w, .eps = eps, .out = out};
    pn__split(s, x.row_n, 1, work_of(&x), rms_norm_rows, &op);
}

static void rms_norm_heads(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct row_op *op = user;
    (void)thread_i;
    for (uint32_t r = lo; r < hi; r++) {
        for (uint32_t h = 0; h < op->heads.head_n; h++) {
            float *x = pn__head_at(&op->heads, r, h);
            op->k->rms_norm(x, op->w, op->eps, x, op->heads.dim);
        }
    }
}

void pn__op_rms_norm_heads(struct pn_step *s, struct pn_heads x, const float *w, float eps) {
    struct row_op op = {.k = &s->cpu->kernels, .heads = x, .w = w, .eps = eps};
    pn__split(s, x.row_n, 1, work_of_heads(&x), rms_norm_heads, &op);
}

static void l2_norm_heads(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct row_op *op = user;
    (void)thread_i;
    for (uint32_t r = lo; r < hi; r++)
        for (uint32_t h = 0; h < op->heads.head_n; h++)
            op->k->l2_norm(pn__head_at(&op->heads, r, h), op->eps, op->f, op->heads.dim);
}

void pn__op_l2_norm_heads(struct pn_step *s, struct pn_heads x, float eps, float scale) {
    struct row_op op = {.k = &s->cpu->kernels, .heads = x, .eps = eps, .f = scale};
    pn__split(s, x.row_n, 1, work_of_heads(&x), l2_norm_heads, &op);
}

/* ---- elementwise ---- */

static void add_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct row_op *op = user;
    (void)thread_i;
    for (uint32_t r = lo; r < hi; r++)
        op->k->add(pn__row_at(&op->x, r), pn__row_at(&op->y, r), op->x.col_n);
}

void pn__op_add(struct pn_step *s, struct pn_mat x, struct pn_mat y) {
    assert(x.row_n == y.row_n && x.col_n == y.col_n);
    struct row_op op = {.k = &s->cpu->kernels, .x = x, .y = y};
    pn__split(s, x.row_n, 1, work_of(&x), add_rows, &op);
}

static void scale_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct row_op *op = user;
    (void)thread_i;
    for (uint32_t r = lo; r < hi; r++)
        op->k->scale(pn__row_at(&op->x, r), op->f, op->x.col_n);
}

void pn__op_scale(struct pn_step *s, struct pn_mat x, float f) {
    struct row_op op = {.k = &s->cpu->kernels, .x = x, .f = f};
    pn__split(s, x.row_n, 1, work_of(&x), scale_rows, &op);
}

static void glu_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct row_op *op = user;
    (void)thread_i;
    for (uint32_t r = lo; r < hi; r++)
        op->k->glu[op->act](pn__row_at(&op->x, r), pn__row_at(&op->y, r), pn__row_at(&op->out, r),
                            op->x.col_n);
}

void pn__op_glu(struct pn_step *s, enum pn_act act, struct pn_mat gate, struct pn_mat up,
                struct pn_mat out) {
    assert(gate.row_n == up.row_n && gate.col_n == up.col_n);
    assert(gate.row_n == out.row_n && gate.col_n == out.col_n);
    struct row_op op = {.k = &s->cpu->kernels, .act = act, .x = gate, .y = up, .out = out};
    pn__split(s, gate.row_n, 1, work_of(&gate), glu_rows, &op);
}

static void gate_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct row_op *op = user;
    (void)thread_i;
    for (uint32_t r = lo; r < hi; r++)
        for (uint32_t h = 0; h < op->heads.head_n; h++)
            op->gate(pn__head_at(&op->heads, r, h), pn__head_at(&op->gates, r, h), op->heads.dim);
}

static void gate_heads(struct pn_step *s, struct pn_heads x, struct pn_heads gate,
                       void (*fn)(float *x, const float *gate, uint32_t n)) {
    assert(x.row_n == gate.row_n && x.head_n == gate.head_n && x.dim == gate.dim);
    struct row_op op = {.heads = x, .gates = gate, .gate = fn};
    pn__split(s, x.row_n, 1, work_of_heads(&x), gate_rows, &op);
}

void pn__op_sigmoid_gate(struct pn_step *s, struct pn_heads x, struct pn_heads gate) {
    gate_heads(s, x, gate, s->cpu->kernels.sigmoid_gate);
}

void pn__op_silu_gate(struct pn_step *s, struct pn_heads x, struct pn_heads z) {
    gate_heads(s, x, z, s->cpu->kernels.silu_gate);
}

static void sigmoid_scale_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct row_op *op = user;
    (void)thread_i;
    for (uint32_t r = lo; r < hi; r++)
        op->k->sigmoid_scale(pn__row_at(&op->x, r), *pn__row_at(&op->y, r), op->x.col_n);
}

void pn__op_sigmoid_gate_rows(struct pn_step *s, struct pn_mat x, struct pn_mat gate) {
    assert(x.row_n == gate.row_n && gate.col_n == 1);
    struct row_op op = {.k = &s->cpu->kernels, .x = x, .y = gate};
    pn__split(s, x.row_n, 1, work_of(&x), sigmoid_scale_rows, &op);
}

static void delta_gate_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct row_op *op = user;
    (void)thread_i;
    for (uint32_t r = lo; r < hi; r++)
        op->k->delta_gates(pn__row_at(&op->x, r), pn__row_at(&op->y, r), op->w, op->w2,
                           op->x.col_n);
}

void pn__op_delta_gates(struct pn_step *s, struct pn_mat g, struct pn_mat beta, const float *a,
                        const float *dt) {
    assert(g.row_n == beta.row_n && g.col_n == beta.col_n);
    struct row_op op = {.k = &s->cpu->kernels, .x = g, .y = beta, .w = a, .w2 = dt};
    pn__split(s, g.row_n, 1, work_of(&g), delta_gate_rows, &op);
}
