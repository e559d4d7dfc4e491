/* Elementwise kernels. */
#include <float.h>
#include <math.h>

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

/* Comparisons, not fminf: a NaN stays. */
#define SWIGLU_LIMIT 7.0f
#define SWIGLU_ALPHA 1.702f

static void glu_swiglu_clamped(const float *gate, const float *up, float *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float g = gate[i] > SWIGLU_LIMIT ? SWIGLU_LIMIT : gate[i];
        float u = up[i] > SWIGLU_LIMIT ? SWIGLU_LIMIT : up[i];
        u = u < -SWIGLU_LIMIT ? -SWIGLU_LIMIT : u;
        float a = (float)((double)g * pn__sigmoid_d((double)(SWIGLU_ALPHA * g)));
        out[i] = a * (u + 1.0f);
    }
}

static void sigmoid_gate(float *x, const float *gate, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        x[i] *= pn__sigmoid(gate[i]);
}

static void sigmoid_scale(float *x, float gate, uint32_t n) {
    float f = pn__sigmoid(gate);
    for (uint32_t i = 0; i < n; i++)
        x[i] *= f;
}

static void add_scaled(float *x, float f, const float *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        x[i] = fmaf(f, y[i], x[i]);
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
    k->glu[PN_ACT_FN_SWIGLU_CLAMPED] = glu_swiglu_clamped;
    k->sigmoid_gate = sigmoid_gate;
    k->sigmoid_scale = sigmoid_scale;
    k->add_scaled = add_scaled;
    k->silu_gate = silu_gate;
    k->delta_gates = delta_gates;
}
