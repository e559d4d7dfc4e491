/* Rotation of one head. */
#include <math.h>

#include "ops/cpu/kernels.h"

static void rope(float *x, const float *table, uint32_t dim_n, bool neox) {
    uint32_t pair_n = dim_n / 2;
    for (uint32_t i = 0; i < pair_n; i++) {
        float *a = x + (neox ? i : 2 * i);
        float *b = neox ? a + pair_n : a + 1;
        float c = table[2 * i];
        float s = table[2 * i + 1];
        float x0 = *a;
        float x1 = *b;
        *a = fmaf(x0, c, -(x1 * s));
        *b = fmaf(x0, s, x1 * c);
    }
}

void PN_K(init_rope)(struct pn_kernels *k) {
    k->rope = rope;
}
