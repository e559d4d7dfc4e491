/* Elementwise kernels. */
#include <float.h>

#include "ops/cpu/wide_math.h"

INLINE struct w16 through_half(struct w16 x) {
    return w16_of_halves(w16_to_halves(x));
}

/* PN_ACT_FN_GELU_HALF; of -infinity NaN, as in math.h. */
INLINE struct w16 gelu_half(struct w16 x) {
    struct w16 y = through_half(w16_gelu(through_half(x)));
    struct w16 low = w16_if_le(w16_set(-FLT_MAX), x, w16_set(0), y);
    y = w16_if_le(x, w16_set(-10), low, y);
    return w16_if_le(w16_set(10), x, x, y);
}

/* ---- kernels ---- */

/* out = fn(x) * y, sixteen at a time. out may be x or y. */
INLINE void map(const float *x, const float *y, float *out, uint32_t n,
                struct w16 (*fn)(struct w16 x)) {
    uint32_t i = 0;
#pragma GCC unroll 1
    for (; i + 16 <= n; i += 16)
        w16_store(out + i, w16_mul(fn(w16_load(x + i)), w16_load(y + i)));
    if (i < n)
        w16_store_n(out + i, w16_mul(fn(w16_load_n(x + i, n - i)), w16_load_n(y + i, n - i)),
                    n - i);
}

/* out = silu(x) * y. out may be x or y. */
static void map_silu(const float *x, const float *y, float *out, uint32_t n) {
    uint32_t i = 0;
#pragma GCC unroll 1
    for (; i + 16 * SILU_N <= n; i += 16 * SILU_N) {
        struct w16 in[SILU_N], silu[SILU_N];
        for (uint32_t k = 0; k < SILU_N; k++)
            in[k] = w16_load(x + i + 16 * k);
        w16_silus(in, silu);
        for (uint32_t k = 0; k < SILU_N; k++)
            w16_store(out + i + 16 * k, w16_mul(silu[k], w16_load(y + i + 16 * k)));
    }
    map(x + i, y + i, out + i, n - i, w16_silu);
}

static void glu_silu(const float *gate, const float *up, float *out, uint32_t n) {
    map_silu(gate, up, out, n);
}

static void glu_gelu(const float *gate, const float *up, float *out, uint32_t n) {
    map(gate, up, out, n, w16_gelu);
}

static void glu_gelu_half(const float *gate, const float *up, float *out, uint32_t n) {
    map(gate, up, out, n, gelu_half);
}

static void sigmoid_gate(float *x, const float *gate, uint32_t n) {
    map(gate, x, x, n, w16_sigmoid);
}

static void silu_gate(float *x, const float *z, uint32_t n) {
    map_silu(z, x, x, n);
}

static void delta_gates(float *g, float *beta, const float *a, const float *dt, uint32_t n) {
    for (uint32_t i = 0; i < n; i += 16) {
        uint32_t m = n - i < 16 ? n - i : 16;
        w16_store_n(beta + i, w16_sigmoid(w16_load_n(beta + i, m)), m);
        struct w16 in = w16_add(w16_load_n(g + i, m), w16_load_n(dt + i, m));
        w16_store_n(g + i, w16_mul(w16_load_n(a + i, m), w16_rounded(in, d8_softplus)), m);
    }
}

void PN_K(init_wide_act)(struct pn_kernels *k) {
    k->glu[PN_ACT_FN_SILU] = glu_silu;
    k->glu[PN_ACT_FN_GELU_TANH] = glu_gelu;
    k->glu[PN_ACT_FN_GELU_HALF] = glu_gelu_half;
    k->sigmoid_gate = sigmoid_gate;
    k->silu_gate = silu_gate;
    k->delta_gates = delta_gates;
}
