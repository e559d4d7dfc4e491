/* Routers: every way of gating against double, ties, groups, what isn't finite; the same bits
 * everywhere. */
#include "ops/ops_test.h"

#define ROWS 11
#define EXPERTS 288
#define TOP_K 8

struct routing {
    struct pn_router router;
    float logits[ROWS * EXPERTS];
    float bias[EXPERTS];
};

/* ids as floats, then weights, then faults. */
#define OUT_N (ROWS * (2 * TOP_K + 1))

static void run(struct backend *b, void *user, float *out) {
    struct routing *t = user;
    uint32_t k = t->router.top_k;
    float *logits = malloc(sizeof t->logits);
    int32_t ids[ROWS * TOP_K];
    uint32_t faults[ROWS];
    assert_non_null(logits);
    memcpy(logits, t->logits, sizeof t->logits);
    for (int i = 0; i < OUT_N; i++)
        out[i] = 0;
    struct pn_route route = {ids, mat(out + ROWS * TOP_K, ROWS, k), faults, ROWS, k};
    pn__op_route_clear(&b->step, &route);
    struct pn_mat in = {logits, ROWS, t->router.expert_n, EXPERTS};
    pn__op_route(&b->step, &t->router, in, 6, &route);
    for (uint32_t r = 0; r < ROWS; r++) {
        int32_t row[TOP_K];
        pn__step_fetch_experts(&b->step, &route, r, row);
        for (uint32_t i = 0; i < k; i++)
            out[r * k + i] = (float)row[i];
        out[2 * ROWS * TOP_K + r] = (float)pn__step_fetch_fault(&b->step, &route, r);
    }
    free(logits);
}

static struct routing *routing_new(uint64_t seed, enum pn_gating gating, uint32_t expert_n) {
    struct routing *t = calloc(1, sizeof *t);
    assert_non_null(t);
    struct rng r = {seed};
    rng_fill(&r, t->logits, ROWS * EXPERTS, 4);
    rng_fill(&r, t->bias, EXPERTS, 0.3f);
    t->router = (struct pn_router){.gating = gating,
                                   .expert_n = expert_n,
                                   .top_k = TOP_K,
                                   .norm_min = 0x1p-14f,
                                   .scale = 1.0f};
    return t;
}

/* p of each expert, in double. */
static void oracle_p(const struct routing *t, uint32_t row, double *p) {
    const float *x = t->logits + row * EXPERTS;
    double sum = 0;
    for (uint32_t i = 0; i < t->router.expert_n; i++) {
        p[i] = x[i];
        if (t->router.gating == PN_GATING_SIGMOID) p[i] = 1 / (1 + exp(-(double)x[i]));
        if (t->router.gating == PN_GATING_SOFTMAX) p[i] = exp((double)x[i]);
        sum += p[i];
    }
    if (t->router.gating != PN_GATING_SOFTMAX) return;
    for (uint32_t i = 0; i < t->router.expert_n; i++)
        p[i] /= sum;
}

static bool group_kept(const struct routing *t, const double *s, uint32_t expert) {
    const struct pn_router *r = &t->router;
    if (r->group_n <= 1) return true;
    uint32_t len = r->expert_n / r->group_n;
    double scores[PN_EXPERT_GROUP_MAX];
    uint32_t better = 0;
    for (uint32_t g = 0; g < r->group_n; g++) {
        double a = -INFINITY, b = -INFINITY;
        for (uint32_t i = g * len; i < (g + 1) * len; i++) {
            if (s[i] > a)
                b = a, a = s[i];
            else if (s[i] > b)
                b = s[i];
        }
        scores[g] = a + b;
    }
    for (uint32_t g = 0; g < r->group_n; g++)
        better += scores[g] > scores[expert / len];
    return better < r->group_used_n;
}

static void check_row(const struct routing *t, const float *got, uint32_t row) {
    const struct pn_router *r = &t->router;
    double p[EXPERTS], s[EXPERTS], want[TOP_K], sum = 0;
    oracle_p(t, row, p);
    for (uint32_t i = 0; i < r->expert_n; i++)
        s[i] = p[i] + (r->select_bias ? (double)t->bias[i] : 0);
    bool taken[EXPERTS] = {false};
    double soft = 0;
    for (uint32_t k = 0; k < r->top_k; k++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < r->expert_n; i++)
            if (!taken[i] && group_kept(t, s, i) && (best == UINT32_MAX || s[i] > s[best]))
                best = i;
        taken[best] = true;
        assert_int_equal((int)got[row * r->top_k + k], best);
        want[k] = r->gating == PN_GATING_TOPK_SOFTMAX ? exp(p[best]) : p[best];
        soft += want[k];
    }
    for (uint32_t k = 0; k < r->top_k; k++) {
        if (r->gating == PN_GATING_TOPK_SOFTMAX) want[k] /= soft;
        sum += want[k];
    }
    for (uint32_t k = 0; k < r->top_k; k++) {
        if (r->normalise) want[k] /= fmax(sum, (double)r->norm_min);
        want[k] *= (double)r->scale;
        /* The exponent of a logit below 8 is off by 4 U, sums of lanes by a few U. */
        ASSERT_NEAR(got[ROWS * TOP_K + row * r->top_k + k], want[k], 40 * U * want[k]);
    }
}

static void check(struct routing *t) {
    float *got = reference_run(run, t, OUT_N);
    for (uint32_t row = 0; row < ROWS; row++) {
        assert_int_equal((int)got[2 * ROWS * TOP_K + row], 0);
        check_row(t, got, row);
    }
    same_everywhere(run, t, got, OUT_N);
    guarded_free(got);
    free(t);
}

static void test_gating(void **state) {
    (void)state;
    static const uint32_t sizes[] = {8, 9, 128, 256, EXPERTS};
    for (int gating = PN_GATING_SOFTMAX; gating <= PN_GATING_TOPK_SOFTMAX; gating++) {
        for (size_t i = 0; i < PN_ARRAY_N(sizes); i++) {
            for (int how = 0; how < 4; how++) {
                struct routing *t = routing_new(5 + i, (enum pn_gating)gating, sizes[i]);
                t->router.normalise = how & 1;
                t->router.scale = how & 1 ? 2.5f : 1.0f;
                t->router.select_bias = how & 2 ? t->bias : NULL;
                t->router.top_k = how == 3 ? 3 : TOP_K;
                check(t);
            }
        }
    }
}

static void test_groups(void **state) {
    (void)state;
    static const uint32_t shapes[][3] = {{8, 3, 288}, {4, 1, 64}, {16, 16, 256}, {32, 4, 64}};
    for (size_t i = 0; i < PN_ARRAY_N(shapes); i++) {
        struct routing *t = routing_new(90 + i, PN_GATING_SIGMOID, shapes[i][2]);
        t->router.group_n = shapes[i][0];
        t->router.group_used_n = shapes[i][1];
        t->router.select_bias = t->bias;
        t->router.normalise = true;
        check(t);
    }
}

/* Equal scores: the lowest index first, whether they were equal as logits or became so. */
static void test_ties(void **state) {
    (void)state;
    for (int gating = PN_GATING_SOFTMAX; gating <= PN_GATING_TOPK_SOFTMAX; gating++) {
        struct routing *t = routing_new(1, (enum pn_gating)gating, 128);
        for (uint32_t i = 0; i < 128; i++) {
            t->logits[i] = 0; /* all equal */
            t->logits[EXPERTS + i] = i % 16 == 15 ? 2.0f : -1.0f;
            t->logits[2 * EXPERTS + i] = i == 100 ? 80.0f : 60.0f + (float)i / 128;
        }
        float *got = reference_run(run, t, OUT_N);
        for (int i = 0; i < TOP_K; i++) {
            assert_int_equal((int)got[i], i);
            assert_int_equal((int)got[TOP_K + i], 16 * i + 15);
        }
        assert_int_equal((int)got[2 * TOP_K], gating == PN_GATING_SIGMOID ? 0 : 100);
        same_everywhere(run, t, got, OUT_N);
        guarded_free(got);
        free(t);
    }
}

/* A sum below norm_min counts as norm_min. */
static void test_norm_min(void **state) {
    (void)state;
    struct routing *t = routing_new(1, PN_GATING_SIGMOID, 16);
    for (uint32_t i = 0; i < 16; i++)
        t->logits[i] = -30;
    t->router.normalise = true;
    float *got = reference_run(run, t, OUT_N);
    double want = exp(-30.0) / 0x1p-14;
    ASSERT_NEAR(got[ROWS * TOP_K], want, 8 * U * want);
    guarded_free(got);
    free(t);
}

/* A row with a NaN or an infinity has a fault, no experts and NaN weights; the others have what
 * they would have without it. */
static void test_faults(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int gating = PN_GATING_SOFTMAX; gating <= PN_GATING_TOPK_SOFTMAX; gating++) {
        struct routing *t = routing_new(3, (enum pn_gating)gating, 128);
        float *clean = reference_run(run, t, OUT_N);
        for (uint32_t i = 0; i < 3; i++)
            t->logits[(2 * i + 1) * EXPERTS + 50 * i] = bad[i];
        float *got = reference_run(run, t, OUT_N);
        for (uint32_t row = 0; row < ROWS; row++) {
            bool fault = row == 1 || row == 3 || row == 5;
            assert_int_equal((int)got[2 * ROWS * TOP_K + row], fault ? 7 : 0);
            const float *ids = got + row * TOP_K;
            const float *weights = got + ROWS * TOP_K + row * TOP_K;
            for (int i = 0; i < TOP_K && fault; i++)
                assert_true(ids[i] == -1.0f && isnan(weights[i]));
            if (fault) continue;
            assert_true(same_bits(ids, clean + row * TOP_K, TOP_K));
            assert_true(same_bits(weights, clean + ROWS * TOP_K + row * TOP_K, TOP_K));
        }
        same_everywhere(run, t, got, OUT_N);
        guarded_free(clean);
        guarded_free(got);
        free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gating),   cmocka_unit_test(test_groups), cmocka_unit_test(test_ties),
        cmocka_unit_test(test_norm_min), cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
