/* Routers: which experts a row uses. */
#include <assert.h>
#include <float.h>
#include <math.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/lanes.h"

static bool finite_bits(float f) {
    return (pn__float_bits(f) & 0x7f800000u) != 0x7f800000u;
}

static bool all_finite(const float *x, uint32_t n) {
    uint32_t worst = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = pn__float_bits(x[i]) & 0x7fffffffu;
        worst = bits > worst ? bits : worst;
    }
    return worst < 0x7f800000u;
}

static float max_of(const float *x, uint32_t n) {
    float max = x[0];
    for (uint32_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

/* Finite in, finite out: the largest element becomes 1 before the division. */
static void softmax(float *x, uint32_t n) {
    float max = max_of(x, n);
    float lanes[PN_LANES] = {0};
    for (uint32_t i = 0; i < n; i++)
        x[i] = pn__exp(x[i] - max);
    for (uint32_t i = 0; i < n; i++)
        lanes[i % PN_LANES] += x[i];
    float sum = pn__lanes_sum(lanes);
    for (uint32_t i = 0; i < n; i++)
        x[i] /= sum;
}

static float score(const struct pn_router *r, const float *p, uint32_t i) {
    return r->select_bias ? p[i] + r->select_bias[i] : p[i];
}

/* The k best of a stream of scores, best first; of equals the one that came first. */
struct best {
    uint32_t n;
    uint32_t k;
    float scores[PN_TOP_K_MAX];
    int32_t ids[PN_TOP_K_MAX];
};

static void best_offer(struct best *b, float score, uint32_t id) {
    if (b->n == b->k && !(score > b->scores[b->k - 1])) return;
    uint32_t at = b->n < b->k ? b->n++ : b->k - 1;
    for (; at > 0 && score > b->scores[at - 1]; at--) {
        b->scores[at] = b->scores[at - 1];
        b->ids[at] = b->ids[at - 1];
    }
    b->scores[at] = score;
    b->ids[at] = (int32_t)id;
}

/* The two best of a group, added. */
static float group_score(const struct pn_router *r, const float *p, uint32_t first, uint32_t n) {
    float a = -INFINITY;
    float b = -INFINITY;
    for (uint32_t i = first; i < first + n; i++) {
        float s = score(r, p, i);
        if (s > a) {
            b = a;
            a = s;
        } else if (s > b) {
            b = s;
        }
    }
    return n > 1 ? a + b : a;
}

/* keep[g]: group g's experts may be taken. */
static void pick_groups(const struct pn_router *r, const float *p, bool *keep) {
    struct best groups = {.k = r->group_used_n};
    uint32_t len = r->expert_n / r->group_n;
    for (uint32_t g = 0; g < r->group_n; g++) {
        keep[g] = false;
        best_offer(&groups, group_score(r, p, g * len, len), g);
    }
    for (uint32_t i = 0; i < groups.n; i++)
        keep[groups.ids[i]] = true;
}

static void pick(const struct pn_router *r, const float *p, struct best *best) {
    *best = (struct best){.k = r->top_k};
    if (r->group_n <= 1) {
        for (uint32_t i = 0; i < r->expert_n; i++)
            best_offer(best, score(r, p, i), i);
        return;
    }
    bool keep[PN_EXPERT_GROUP_MAX] = {false};
    uint32_t len = r->expert_n / r->group_n;
    assert(len > 0);
    pick_groups(r, p, keep);
    for (uint32_t i = 0; i < r->expert_n; i++)
        if (keep[i / len]) best_offer(best, score(r, p, i), i);
}

static void normalise(float *w, uint32_t n, float min) {
    float sum = 0.0f;
    for (uint32_t i = 0; i < n; i++)
        sum += w[i];
    if (sum < min) sum = min;
    for (uint32_t i = 0; i < n; i++)
        w[i] /= sum;
}

static bool route(const struct pn_router *r, float *logits, int32_t *ids, float *weights) {
    struct best best;
    if (!all_finite(logits, r->expert_n)) return false;
    if (r->gating == PN_GATING_SOFTMAX) softmax(logits, r->expert_n);
    if (r->gating == PN_GATING_SIGMOID)
        for (uint32_t i = 0; i < r->expert_n; i++)
            logits[i] = pn__sigmoid(logits[i]);
    if (r->select_bias)
        for (uint32_t i = 0; i < r->expert_n; i++)
            if (!finite_bits(score(r, logits, i))) return false;
    pick(r, logits, &best);
    for (uint32_t i = 0; i < r->top_k; i++) {
        ids[i] = best.ids[i];
        weights[i] = logits[best.ids[i]];
    }
    if (r->gating == PN_GATING_TOPK_SOFTMAX) softmax(weights, r->top_k);
    if (r->normalise) normalise(weights, r->top_k, r->norm_min);
    for (uint32_t i = 0; i < r->top_k; i++)
        weights[i] *= r->scale;
    return all_finite(weights, r->top_k);
}

void PN_K(init_route)(struct pn_kernels *k) {
    k->route = route;
}
