#include "engine/sampler.h"

#include <math.h>
#include <stdbool.h>

/* splitmix64 (Steele, Lea, Flood 2014): one word of state, every seed good. */
static double draw(uint64_t *rng) {
    uint64_t z = (*rng += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

static int check(const float *logits, uint32_t n, struct pn_detail *d, int32_t *best) {
    int32_t arg = -1;
    float max = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        float x = logits[i];
        if (!(x < INFINITY)) {
            return pn__fail(d, PN_E_NUMERIC, "logit of token %u is %g", i, (double)x);
        }
        if (x > max) {
            max = x;
            arg = (int32_t)i;
        }
    }
    if (arg < 0) return pn__fail(d, PN_E_NUMERIC, "all %u logits are -inf", n);
    *best = arg;
    return 0;
}

static bool before(struct pn_candidate a, struct pn_candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift(struct pn_candidate *heap, uint32_t n, uint32_t i) {
    struct pn_candidate x = heap[i];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], x)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = x;
}

/* Moves the best of heap[0, n) behind the heap, to heap[n - 1]. So the best come out last to first:
 * the k-th best ends up at index (total - 1 - k). */
static void pop(struct pn_candidate *heap, uint32_t n) {
    struct pn_candidate best = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = best;
    sift(heap, n - 1, 0);
}

int pn__sample(const struct pn_sampling *p, const float *logits, uint32_t n,
               struct pn_candidate *scratch, uint64_t *rng, struct pn_detail *d, int32_t *out) {
    int32_t best = 0;
    int rc = check(logits, n, d, &best);
    if (rc) return rc;
    if (p->temp <= 0.0f || p->top_k == 1) {
        *out = best;
        return 0;
    }
    double max = (double)logits[best];
    for (uint32_t i = 0; i < n; i++) {
        scratch[i] = (struct pn_candidate){.logit = logits[i], .id = (int32_t)i};
    }
    for (uint32_t i = n / 2; i-- > 0;) {
        sift(scratch, n, i);
    }
    uint32_t k = p->top_k > 0 && (uint32_t)p->top_k < n ? (uint32_t)p->top_k : n;

    /* Mass at temperature 1 of what top_k keeps: everything when it keeps all. */
    double mass = 0.0;
    uint32_t popped = 0;
    if (k == n) {
        for (uint32_t i = 0; i < n; i++) {
            mass += exp((double)logits[i] - max);
        }
    } else {
        while (popped < k) {
            pop(scratch, n - popped);
            mass += exp((double)scratch[n - 1 - popped].logit - max);
            popped++;
        }
    }

    /* The kept head, best first, stands at scratch[n - 1], scratch[n - 2], … */
    uint32_t kept = 0;
    double head = 0.0;
    double floor = p->min_p > 0.0f ? log((double)p->min_p) : -INFINITY;
    /* 1 is no cut at all: the sums' rounding must not make it one. */
    double enough = p->top_p < 1.0f ? (double)p->top_p * mass : INFINITY;
    double weight = 0.0;
    while (kept < k) {
        if (kept == popped) {
            pop(scratch, n - popped);
            popped++;
        }
        double rel = (double)scratch[n - 1 - kept].logit - max;
        if (kept > 0 && (head >= enough || rel < floor || rel == -INFINITY)) break;
        head += exp(rel);
        weight += exp(rel / (double)p->temp);
        kept++;
    }

    double at = draw(rng) * weight;
    uint32_t i = 0;
    for (; i + 1 < kept; i++) {
        at -= exp(((double)scratch[n - 1 - i].logit - max) / (double)p->temp);
        if (at < 0.0) break;
    }
    *out = scratch[n - 1 - i].id;
    return 0;
}
