/* Elementwise kernels. */
#include <float.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/math.h"
#include "quant/half.h"

static void add(float *x, const float *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        x[i] += y[i];
}

static void scale(float *x, float f, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        x[i] *= f;
}

static void glu_silu(const float *gate, const float *up, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        out[i] = pn__silu(gate[i]) * up[i];
}

static void glu_gelu(const float *gate, const float *up, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        out[i] = pn__gelu_tanh(gate[i]) * up[i];
}

static void glu_gelu_half(const float *gate, const float *up, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float x = gate[i];
        float y =
            pn__half_widen(pn__half_narrow(pn__gelu_tanh(pn__half_widen(pn__half_narrow(x)))));
        if (x <= -10.0f && x >= -FLT_MAX) y = 0.0f; /* of -infinity: NaN, as in math.h */
        if (x >= 10.0f) y = x;
        out[i] = y * up[i];
    }
}

static void sigmoid_gate(float *x, const float *gate, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        x[i] *= pn__sigmoid(gate[i]);
}

static void silu_gate(float *x, const float *z, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        x[i] *= pn__silu(z[i]);
}

static void delta_gates(float *g, float *beta, const float *a, const float *dt, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        beta[i] = pn__sigmoid(beta[i]);
        g[i] = a[i] * pn__softplus(g[i] + dt[i]);
    }
}

void PN_K(init_act)(struct pn_kernels *k) {
    k->add = add;
    k->scale = scale;
    k->glu[PN_ACT_FN_SILU] = glu_silu;
    k->glu[PN_ACT_FN_GELU_TANH] = glu_gelu;
    k->glu[PN_ACT_FN_GELU_HALF] = glu_gelu_half;
    k->sigmoid_gate = sigmoid_gate;
    k->silu_gate = silu_gate;
    k->delta_gates = delta_gates;
}
