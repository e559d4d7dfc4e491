/* Recurrent layers: how the work is cut. Each thread takes whole channels or heads through all
 * tokens of a sequence. */
#include <assert.h>

#include "ops/cpu/cpu.h"

struct conv_op {
    const struct pn_kernels *k;
    const struct pn_batch *b;
    struct pn_mat x;
    struct pn_mat out;
    const float *w;
    uint64_t state_off;
    uint32_t kernel_n;
};

/* A state entry is aligned and its parts are at multiples of 4. */
static float *state_at(const struct pn_seq *seq, uint64_t off) {
    return (float *)(void *)(seq->state + off);
}

static void conv_channels(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct conv_op *op = user;
    (void)thread_i;
    for (uint32_t i = 0; i < op->b->seq_n; i++) {
        const struct pn_seq *seq = &op->b->seqs[i];
        struct pn_conv conv = {.x = pn__row_at(&op->x, seq->row_i),
                               .out = pn__row_at(&op->out, seq->row_i),
                               .x_stride = op->x.stride,
                               .out_stride = op->out.stride,
                               .state = state_at(seq, op->state_off),
                               .w = op->w,
                               .row_n = seq->row_n,
                               .col_n = op->x.col_n,
                               .kernel_n = op->kernel_n};
        op->k->conv_silu(&conv, lo, hi);
    }
}

void pn__op_conv_silu(struct pn_step *s, const struct pn_batch *b, uint64_t state_off,
                      struct pn_mat x, const float *w, uint32_t kernel_n, struct pn_mat out) {
    assert(kernel_n > 0 && x.col_n == out.col_n && x.data != out.data);
    struct conv_op op = {.k = &s->cpu->kernels,
                         .b = b,
                         .x = x,
                         .out = out,
                         .w = w,
                         .state_off = state_off,
                         .kernel_n = kernel_n};
    pn__split(s, x.col_n, PN_LANES, (uint64_t)b->row_n * x.col_n * kernel_n, conv_channels, &op);
}

struct delta_op {
    const struct pn_kernels *k;
    const struct pn_batch *b;
    struct pn_heads q;
    struct pn_heads key;
    struct pn_heads v;
    struct pn_heads out;
    struct pn_mat g;
    struct pn_mat beta;
    uint64_t state_off;
};

static void delta_heads(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i) {
    const struct delta_op *op = user;
    (void)thread_i;
    for (uint32_t item = lo; item < hi; item++) {
        const struct pn_seq *seq = &op->b->seqs[item / op->v.head_n];
        uint32_t h = item % op->v.head_n;
        uint32_t kh = h % op->key.head_n;
        uint64_t head_floats = (uint64_t)op->v.dim * op->key.dim;
        struct pn_delta delta = {.state = state_at(seq, op->state_off) + h * head_floats,
                                 .q = pn__head_at(&op->q, seq->row_i, kh),
                                 .k = pn__head_at(&op->key, seq->row_i, kh),
                                 .v = pn__head_at(&op->v, seq->row_i, h),
                                 .out = pn__head_at(&op->out, seq->row_i, h),
                                 .g = pn__row_at(&op->g, seq->row_i) + h,
                                 .beta = pn__row_at(&op->beta, seq->row_i) + h,
                                 .q_stride = op->q.row_stride,
                                 .k_stride = op->key.row_stride,
                                 .v_stride = op->v.row_stride,
                                 .out_stride = op->out.row_stride,
                                 .g_stride = op->g.stride,
                                 .beta_stride = op->beta.stride,
                                 .row_n = seq->row_n,
                                 .k_dim = op->key.dim,
                                 .v_dim = op->v.dim};
        op->k->delta_net(&delta, 0, op->v.dim);
    }
}

void pn__op_delta_net(struct pn_step *s, const struct pn_batch *b, uint64_t state_off,
                      struct pn_heads q, struct pn_heads k, struct pn_heads v, struct pn_mat g,
                      struct pn_mat beta, struct pn_heads out) {
    assert(q.dim == k.dim && q.head_n == k.head_n);
    assert(v.head_n == out.head_n && v.dim == out.dim && v.head_n % k.head_n == 0);
    assert(g.col_n == v.head_n && beta.col_n == v.head_n);
    struct delta_op op = {.k = &s->cpu->kernels,
                          .b = b,
                          .q = q,
                          .key = k,
                          .v = v,
                          .out = out,
                          .g = g,
                          .beta = beta,
                          .state_off = state_off};
    uint64_t work = (uint64_t)b->row_n * v.head_n * v.dim * k.dim;
    pn__split(s, b->seq_n * v.head_n, 1, work, delta_heads, &op);
}
