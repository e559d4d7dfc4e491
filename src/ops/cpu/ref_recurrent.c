/* The convolution and the gated delta rule: token by token. */
#include <math.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/lanes.h"

/* Input of channel c at row `at` of the sequence; rows before the first come from the state. */
static float conv_in(const struct pn_conv *v, int64_t at, uint32_t c) {
    if (at >= 0) return v->x[(uint64_t)at * v->x_stride + c];
    return v->state[(uint64_t)(at + v->kernel_n - 1) * v->col_n + c];
}

static void conv_silu(const struct pn_conv *v, uint32_t lo, uint32_t hi) {
    int64_t past_n = (int64_t)v->kernel_n - 1;
    for (int64_t t = 0; t < v->row_n; t++) {
        float *out = v->out + (uint64_t)t * v->out_stride;
        for (uint32_t c = lo; c < hi; c++) {
            float y = 0;
            for (int64_t j = 0; j <= past_n; j++)
                y = fmaf(v->w[(uint64_t)c * v->kernel_n + (uint64_t)j],
                         conv_in(v, t - past_n + j, c), y);
            out[c] = pn__silu(y);
        }
    }
    /* Ascending: a row of the state is read before it is overwritten. */
    for (int64_t i = 0; i < past_n; i++)
        for (uint32_t c = lo; c < hi; c++)
            v->state[(uint64_t)i * v->col_n + c] = conv_in(v, v->row_n - past_n + i, c);
}

static void delta_net(const struct pn_delta *a, uint32_t lo, uint32_t hi) {
    for (uint64_t t = 0; t < a->row_n; t++) {
        const float *q = a->q + t * a->q_stride;
        const float *k = a->k + t * a->k_stride;
        const float *v = a->v + t * a->v_stride;
        float *out = a->out + t * a->out_stride;
        float decay = pn__exp(a->g[t * a->g_stride]);
        float beta = a->beta[t * a->beta_stride];
        for (uint32_t i = lo; i < hi; i++) {
            float *restrict s = a->state + (uint64_t)i * a->k_dim;
            for (uint32_t j = 0; j < a->k_dim; j++)
                s[j] *= decay;
            float u = beta * (v[i] - pn__dot(s, k, a->k_dim));
            for (uint32_t j = 0; j < a->k_dim; j++)
                s[j] = fmaf(u, k[j], s[j]);
            out[i] = pn__dot(s, q, a->k_dim);
        }
    }
}

void PN_K(init_recurrent)(struct pn_kernels *k) {
    k->conv_silu = conv_silu;
    k->delta_net = delta_net;
}
