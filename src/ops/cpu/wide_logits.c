/* What sampling asks of a row of logits. */
#include "ops/cpu/math.h"
#include "ops/cpu/wide_math.h"

/* Two walks: the greatest value, then where it is first. */
static int64_t best(const float *x, uint32_t n) {
    const struct w16 infinity = w16_set(INFINITY);
    struct w16 lanes = w16_set(-INFINITY);
    uint32_t good = 0xffff, i = 0;
    for (; i + 16 <= n; i += 16) {
        struct w16 v = w16_load(x + i);
        good &= w16_less(v, infinity);
        lanes = w16_max(v, lanes);
    }
    float of_lanes[16], max = -INFINITY;
    w16_store(of_lanes, lanes);
    for (int j = 0; j < 16; j++)
        max = of_lanes[j] > max ? of_lanes[j] : max;
    for (; i < n; i++) {
        if (!(x[i] < INFINITY)) return -1;
        max = x[i] > max ? x[i] : max;
    }
    if (good != 0xffff || max == -INFINITY) return -1;
    for (i = 0; i + 16 <= n; i += 16) {
        uint32_t lower = w16_less(w16_load(x + i), w16_set(max));
        if (lower != 0xffff) return i + (uint32_t)__builtin_ctz(~lower);
    }
    while (x[i] < max)
        i++;
    return i;
}

static double sum_exp(const float *x, uint32_t n, float max, double by) {
    const struct d8 most = d8_set((double)max), times = d8_set(by);
    struct d8 sum[2] = {d8_set(0.0), d8_set(0.0)};
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        struct d8 v[2];
        w16_to_d8(w16_load(x + i), v);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            sum[h] = d8_add(sum[h], d8_exp(d8_mul(d8_sub(v[h], most), times)));
    }
    double lanes[PN_LANES];
    d8_store(lanes, sum[0]);
    d8_store(lanes + 8, sum[1]);
    for (; i < n; i++)
        lanes[i % PN_LANES] += pn__exp_d(((double)x[i] - (double)max) * by);
    for (int s = PN_LANES / 2; s > 0; s /= 2)
        for (int j = 0; j < s; j++)
            lanes[j] += lanes[j + s];
    return lanes[0];
}

void PN_K(init_wide_logits)(struct pn_kernels *k) {
    k->best = best;
    k->sum_exp = sum_exp;
}
