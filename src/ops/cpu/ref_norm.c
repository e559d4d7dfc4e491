/* Norms of one vector. */
#include <math.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/lanes.h"

static void rms_norm(const float *x, const float *w, float eps, float *out, uint32_t n) {
    float r = 1.0f / sqrtf(pn__dot(x, x, n) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        out[i] = x[i] * r * w[i];
}

static void l2_norm(float *x, float eps, float scale, uint32_t n) {
    float norm = sqrtf(pn__dot(x, x, n));
    float r = 1.0f / (norm < eps ? eps : norm); /* a NaN stays */
    for (uint32_t i = 0; i < n; i++)
        x[i] = x[i] * r * scale;
}

void PN_K(init_norm)(struct pn_kernels *k) {
    k->rms_norm = rms_norm;
    k->l2_norm = l2_norm;
}
