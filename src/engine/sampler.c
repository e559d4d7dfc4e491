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

/* Why there is no best logit. */
static int no_best(const float *logits, uint32_t n, struct pn_detail *d) {
    for (uint32_t i = 0; i < n; i++)
        if (!(logits[i] < INFINITY))
            return pn__fail(d, PN_E_NUMERIC, "logit of token %u is %g", i, (double)logits[i]);
    return pn__fail(d, PN_E_NUMERIC, "all %u logits are -inf", n);
}

/* ---- candidates in order ----
 * A row has 150,000 logits and a draw is decided among the best few. So they are taken from the row
 * as they are needed: all within some distance of the best, then within more. What was taken is a
 * heap until it is asked for in order. */

struct ranking {
    const float *logits;
    uint32_t n;
    float max;
    float floor; /* everything at or above it was taken; beyond the last round: all */
    uint32_t round;
    struct pn_candidate *all; /* [n]: `ranked` in order, then a heap up to `taken` */
    uint32_t ranked;
    uint32_t taken;
};

static const float distances[] = {8.0f, 16.0f, 32.0f, 64.0f, INFINITY};

static bool before(struct pn_candidate a, struct pn_candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* The heap grows downwards, its best at the end: what is removed leaves the place behind those that
 * are ranked already. */
static void sift(struct ranking *r, uint32_t i) {
    struct pn_candidate *top = r->all + r->taken - 1;
    uint32_t n = r->taken - r->ranked;
    struct pn_candidate x = *(top - i);
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && before(*(top - child - 1), *(top - child))) child++;
        if (!before(*(top - child), x)) break;
        *(top - i) = *(top - child);
        i = child;
    }
    *(top - i) = x;
}

/* Takes what the next distance adds; false when nothing is left to take. */
static bool take_more(struct ranking *r) {
    while (r->taken == r->ranked) {
        if (r->round == sizeof distances / sizeof *distances) return false;
        float above = r->floor;
        r->floor = r->max - distances[r->round];
        for (uint32_t i = 0; i < r->n; i++) {
            if (!(r->logits[i] >= r->floor) || (r->round > 0 && r->logits[i] >= above)) continue;
            r->all[r->taken++] = (struct pn_candidate){.logit = r->logits[i], .id = (int32_t)i};
        }
        r->round++;
    }
    for (uint32_t i = (r->taken - r->ranked) / 2; i-- > 0;)
        sift(r, i);
    return true;
}

/* Sees to it that all[i] is the i-th best; false when there are no more than i. */
static bool rank(struct ranking *r, uint32_t i) {
    while (r->ranked <= i) {
        if (r->ranked == r->taken && !take_more(r)) return false;
        struct pn_candidate best = r->all[r->taken - 1];
        r->all[r->taken - 1] = r->all[r->ranked];
        r->all[r->ranked++] = best;
        if (r->ranked < r->taken) sift(r, 0);
    }
    return true;
}

/* The i-th best less the best. */
static double below(const struct ranking *r, uint32_t i) {
    return (double)r->all[i].logit - (double)r->max;
}

/* ---- sampling ---- */

/* Mass at temperature 1 of the k best. */
static double mass_of(const struct pn_cpu *cpu, struct ranking *r, uint32_t k) {
    if (k == r->n) return pn__logits_sum_exp(cpu, r->logits, r->n, r->max, 1.0);
    double mass = 0.0;
    for (uint32_t i = 0; i < k && rank(r, i); i++)
        mass += exp(below(r, i));
    return mass;
}

/* How many of the best are kept, and their weight at the temperature. */
static uint32_t keep(const struct pn_cpu *cpu, const struct pn_sampling *p, struct ranking *r,
                     double *weight) {
    uint32_t k = p->top_k > 0 && (uint32_t)p->top_k < r->n ? (uint32_t)p->top_k : r->n;
    /* A top_p of 1 is no cut at all: the sums' rounding must not make it one. */
    bool has_top_p = p->top_p < 1.0f;
    if (k == r->n && !has_top_p && p->min_p <= 0.0f) {
        *weight = pn__logits_sum_exp(cpu, r->logits, r->n, r->max, 1.0 / (double)p->temp);
        return k;
    }
    double enough = has_top_p ? (double)p->top_p * mass_of(cpu, r, k) : INFINITY;
    double floor = p->min_p > 0.0f ? log((double)p->min_p) : -INFINITY;
    double head = 0.0;
    uint32_t kept = 0;
    *weight = 0.0;
    for (; kept < k && rank(r, kept); kept++) {
        double rel = below(r, kept);
        if (kept > 0 && (head >= enough || rel < floor || rel == -INFINITY)) break;
        head += exp(rel);
        *weight += exp(rel / (double)p->temp);
    }
    return kept;
}

int pn__sample(const struct pn_cpu *cpu, const struct pn_sampling *p, const float *logits,
               uint32_t n, struct pn_candidate *scratch, uint64_t *rng, struct pn_detail *d,
               int32_t *out) {
    int64_t best = pn__logits_best(cpu, logits, n);
    if (best < 0) return no_best(logits, n, d);
    *out = (int32_t)best;
    if (p->temp <= 0.0f || p->top_k == 1) return 0;

    struct ranking r = {.logits = logits, .n = n, .max = logits[best], .all = scratch};
    double weight;
    uint32_t kept = keep(cpu, p, &r, &weight);
    double at = draw(rng) * weight;
    for (uint32_t i = 0; i < kept && rank(&r, i); i++) {
        if (below(&r, i) == -INFINITY) break; /* at is what rounding left over */
        *out = r.all[i].id;
        at -= exp(below(&r, i) / (double)p->temp);
        if (at < 0.0) break;
    }
    return 0;
}
