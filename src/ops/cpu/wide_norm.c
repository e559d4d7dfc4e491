/* Norms of one vector, and the rotation of one head. */
#include <math.h>

#include "ops/cpu/wide.h"

static void rms_norm(const float *x, const float *w, float eps, float *out, uint32_t n) {
    float r = 1.0f / sqrtf(w16_dot(x, x, n) / (float)n + eps);
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16)
        w16_store(out + i, w16_mul(w16_mul(w16_load(x + i), w16_set(r)), w16_load(w + i)));
    for (; i < n; i++)
        out[i] = x[i] * r * w[i];
}

static void l2_norm(float *x, float eps, float scale, uint32_t n) {
    float norm = sqrtf(w16_dot(x, x, n));
    float r = 1.0f / (norm < eps ? eps : norm); /* a NaN stays */
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16)
        w16_store(x + i, w16_mul(w16_mul(w16_load(x + i), w16_set(r)), w16_set(scale)));
    for (; i < n; i++)
        x[i] = x[i] * r * scale;
}

/* One pair. */
INLINE void turn(float *a, float *b, const float *table) {
    float x0 = *a, x1 = *b;
    *a = fmaf(x0, table[0], -(x1 * table[1]));
    *b = fmaf(x0, table[1], x1 * table[0]);
}

static void rope(float *x, const float *table, uint32_t dim_n, bool neox) {
    uint32_t pair_n = dim_n / 2, i = 0;
    if (!neox) {
        for (; i + 8 <= pair_n; i += 8)
            w16_store(x + 2 * i, w16_turn(w16_load(x + 2 * i), w16_load(table + 2 * i)));
        for (; i < pair_n; i++)
            turn(x + 2 * i, x + 2 * i + 1, table + 2 * i);
        return;
    }
    float *y = x + pair_n;
    for (; i + 16 <= pair_n; i += 16) {
        struct w16 c, s, x0 = w16_load(x + i), x1 = w16_load(y + i);
        w16_unzip(table + 2 * i, &c, &s);
        w16_store(x + i, w16_fms(x0, c, w16_mul(x1, s)));
        w16_store(y + i, w16_fma(x0, s, w16_mul(x1, c)));
    }
    for (; i < pair_n; i++)
        turn(x + i, y + i, table + 2 * i);
}

void PN_K(init_wide_norm)(struct pn_kernels *k) {
    k->rms_norm = rms_norm;
    k->l2_norm = l2_norm;
    k->rope = rope;
}
