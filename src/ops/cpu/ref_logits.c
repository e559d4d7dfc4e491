/* What sampling asks of a row of logits. */
#include "ops/cpu/kernels.h"
#include "ops/cpu/math.h"

static int64_t best(const float *x, uint32_t n) {
    int64_t at = -1;
    float max = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (!(x[i] < INFINITY)) return -1;
        if (x[i] > max) {
            max = x[i];
            at = i;
        }
    }
    return at;
}

static double sum_exp(const float *x, uint32_t n, float max, double by) {
    double lanes[PN_LANES] = {0};
    for (uint32_t i = 0; i < n; i++)
        lanes[i % PN_LANES] += pn__exp_d(((double)x[i] - (double)max) * by);
    for (int s = PN_LANES / 2; s > 0; s /= 2)
        for (int j = 0; j < s; j++)
            lanes[j] += lanes[j + s];
    return lanes[0];
}

void PN_K(init_logits)(struct pn_kernels *k) {
    k->best = best;
    k->sum_exp = sum_exp;
}
