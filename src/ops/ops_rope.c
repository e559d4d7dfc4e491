/* Rotary position embedding. */
#include <assert.h>
#include <math.h>

#include "ops/cpu/cpu.h"

#define PI 3.14159265358979323846

struct rope_op {
    const struct pn_kernels *k;
    const struct pn_rope *rope;
    const uint32_t *positions;
    struct pn_mat table;
    struct pn_heads x;
};

/* Pair (a real number) that turns `turns` times over the original context: yarn's equation 17 for
 * the dimension. */
static double pair_of_turns(const struct pn_rope *r, double turns) {
    return r->dim_n * log(r->orig_ctx / (turns * 2 * PI)) / (2 * log(r->freq_base));
}

/* Yarn's ramp for pair i: 1 where the frequency stays, 0 where it is interpolated. Its ends are
 * whole pairs inside the head, as in the files' reference engine. */
static double yarn_ramp(const struct pn_rope *r, uint32_t i) {
    double low = fmax(0, floor(pair_of_turns(r, r->beta_fast)));
    double high = fmin(r->dim_n - 1, ceil(pair_of_turns(r, r->beta_slow)));
    double y = (i - low) / fmax(0.001, high - low);
    return 1 - fmin(1, fmax(0, y));
}

/* Angle of pair i at position 1. */
static double pair_angle(const struct pn_rope *r, uint32_t i) {
    double angle = pow(r->freq_base, -2.0 * i / r->dim_n);
    if (r->factors) angle /= (double)r->factors[i];
    if (r->ext_factor == 0) return angle * r->freq_scale;
    double keep = yarn_ramp(r, i) * r->ext_factor;
    return angle * (r->freq_scale * (1 - keep) + keep);
}

static double magnitude(const struct pn_rope *r) {
    if (r->ext_factor == 0) return r->attn_factor;
    return r->attn_factor * (1 + 0.1 * log(1 / r->freq_scale));
}

static void table_pairs(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct rope_op *op = user;
    (void)thread_i;
    double mag = magnitude(op->rope);
    for (uint32_t i = lo; i < hi; i++) {
        double angle = pair_angle(op->rope, i);
        for (uint32_t r = 0; r < op->table.row_n; r++) {
            float *at = pn__row_at(&op->table, r) + 2 * i;
            at[0] = (float)(cos(op->positions[r] * angle) * mag);
            at[1] = (float)(sin(op->positions[r] * angle) * mag);
        }
    }
}

void pn__op_rope_table(struct pn_step *s, const struct pn_rope *rope, const uint32_t *positions,
                       struct pn_mat table) {
    assert(rope->dim_n % 2 == 0 && table.col_n == rope->dim_n);
    struct rope_op op = {.rope = rope, .positions = positions, .table = table};
    /* A sine costs as much as touching some 16 floats. */
    pn__split(s, rope->dim_n / 2, 1, 16 * (uint64_t)rope->dim_n * table.row_n, table_pairs, &op);
}

static void rope_rows(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct rope_op *op = user;
    (void)thread_i;
    for (uint32_t r = lo; r < hi; r++)
        for (uint32_t h = 0; h < op->x.head_n; h++)
            op->k->rope(pn__head_at(&op->x, r, h), pn__row_at(&op->table, r), op->rope->dim_n,
                        op->rope->neox);
}

void pn__op_rope(struct pn_step *s, const struct pn_rope *rope, struct pn_mat table,
                 struct pn_heads x) {
    assert(table.row_n >= x.row_n && table.col_n == rope->dim_n && rope->dim_n <= x.dim);
    struct rope_op op = {.k = &s->cpu->kernels, .rope = rope, .table = table, .x = x};
    pn__split(s, x.row_n, 1, (uint64_t)x.row_n * x.head_n * rope->dim_n, rope_rows, &op);
}
