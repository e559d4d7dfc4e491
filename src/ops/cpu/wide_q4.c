/* K and V to pages in four bits: store_q4 of ref_attention.c, sixteen elements at a time. */
#include <math.h>

#include "ops/cpu/q4.h"
#include "ops/cpu/wide.h"

static void round_to_halves(const float *x, float *out, uint32_t n) {
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16)
        w16_store(out + i, w16_of_halves(w16_to_halves(w16_load(x + i))));
    if (i < n) w16_store_n(out + i, w16_of_halves(w16_to_halves(w16_load_n(x + i, n - i))), n - i);
}

/* Partners that are sixteen apart or further go a register at a time. */
static void turn_block(float *x, uint32_t n) {
    if (n < 32) {
        pn__turn_block(x, n);
        return;
    }
    pn__turn_pairs(x, n, 1, 16);
    for (uint32_t h = 16; h < n; h *= 2)
        for (uint32_t i = 0; i < n; i += 2 * h)
            for (uint32_t j = i; j < i + h; j += 16) {
                struct w16 a = w16_load(x + j), b = w16_load(x + j + h);
                w16_store(x + j, w16_add(a, b));
                w16_store(x + j + h, w16_sub(a, b));
            }
    struct w16 f = w16_set(1.0f / sqrtf((float)n));
    for (uint32_t i = 0; i < n; i += 16)
        w16_store(x + i, w16_mul(w16_load(x + i), f));
}

static float block(const float *x, uint8_t *codes, uint32_t n) {
    if (n < 32) return pn__q4_block(x, codes, n);
    const struct w16 none = w16_set(0), one = w16_set(1);
    float f;
    float d = pn__q4_scale(x, 32, codes, &f);
    if (f == 0.0f) return d;
    struct w16 y[2], above[2] = {none, none}; /* midpoints that y lies above */
    for (int i = 0; i < 2; i++)
        y[i] = w16_mul(w16_load(x + 16 * i), w16_set(f));
    for (int j = 0; j < 15; j++)
        for (int i = 0; i < 2; i++)
            above[i] = w16_add(above[i], w16_if_le(y[i], w16_set(pn__q4_midpoint(j)), none, one));
    for (int i = 0; i < 2; i++)
        c16_store(codes + 16 * i, w16_codes(above[i]));
    return d;
}

static void store_q4(const float *x, uint8_t *row, uint32_t dim) {
    pn__q4_store(x, row, dim, (struct pn_q4_ways){round_to_halves, turn_block, block});
}

void PN_K(init_wide_q4)(struct pn_kernels *k) {
    k->kv_store[PN_KV_Q4] = store_q4;
}
