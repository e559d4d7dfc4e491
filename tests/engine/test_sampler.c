/* The sampler against another way of writing it (sort everything, then cut), and its draws against
 * the probabilities they should have. */
#include "engine/sampler.h"

#include <float.h>
#include <math.h>

#include "base/alloc.h"
#include "support/pn_test.h"

#define N_MAX 3000u
#define SOME 150u /* as many as are counted one by one */

static struct pn_candidate scratch[N_MAX];

static uint64_t lcg(uint64_t *x) {
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

static double unit(uint64_t *x) {
    return (double)(lcg(x) % 1000003) / 1000003.0;
}

static int32_t sample(const struct pn_sampling *p, const float *logits, uint32_t n, uint64_t *rng) {
    struct pn_detail d = {{0}};
    int32_t out = -1;
    PN_ASSERT_OK(pn__sample(NULL, p, logits, n, scratch, rng, &d, &out), &d);
    assert_in_range(out, 0, n - 1);
    return out;
}

/* ---- the other way ---- */

static const float *sorting;

static int by_rank(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a;
    int32_t k = *(const int32_t *)b;
    if (sorting[i] != sorting[k]) return sorting[i] > sorting[k] ? -1 : 1;
    return i < k ? -1 : 1;
}

/* Probability of each token. Sets *near when a cut falls within rounding of a token, so that the
 * two ways may differ. */
static void expect(const struct pn_sampling *p, const float *logits, uint32_t n, double *prob,
                   bool *near) {
    static int32_t order[N_MAX];
    static double flat[N_MAX];
    *near = false;
    for (uint32_t i = 0; i < n; i++) {
        order[i] = (int32_t)i;
        prob[i] = 0.0;
    }
    sorting = logits;
    qsort(order, n, sizeof *order, by_rank);
    uint32_t k = p->top_k > 0 && (uint32_t)p->top_k < n ? (uint32_t)p->top_k : n;
    double sum = 0.0;
    double max = (double)logits[order[0]];
    for (uint32_t i = 0; i < k; i++) {
        flat[i] = exp((double)logits[order[i]] - max);
        sum += flat[i];
    }
    double head = 0.0;
    uint32_t kept = 0;
    for (; kept < k; kept++) {
        if (kept > 0 && p->top_p < 1.0f) {
            if (fabs(head - (double)p->top_p) < 1e-12) *near = true;
            if (head >= (double)p->top_p) break;
        }
        if (p->min_p > 0.0f && fabs(flat[kept] - (double)p->min_p) < 1e-12) *near = true;
        if (kept > 0 && flat[kept] < (double)p->min_p) break;
        head += flat[kept] / sum;
    }
    double total = 0.0;
    for (uint32_t i = 0; i < kept; i++) {
        prob[order[i]] = exp(((double)logits[order[i]] - max) / (double)p->temp);
        total += prob[order[i]];
    }
    for (uint32_t i = 0; i < n; i++) {
        prob[i] /= total;
    }
}

/* ---- tests ---- */

static void greedy(void **state) {
    (void)state;
    float logits[9] = {-3.0f, 2.0f, 2.0f, -INFINITY, 1.0f, 2.0f, -0.0f, 0.0f, 1.5f};
    struct pn_sampling p = {.temp = 0.0f};
    uint64_t rng = 7;
    assert_int_equal(sample(&p, logits, 9, &rng), 1);
    assert_int_equal(rng, 7);
    p = (struct pn_sampling){.temp = 2.0f, .top_k = 1, .top_p = 1.0f};
    assert_int_equal(sample(&p, logits, 9, &rng), 1);
    logits[8] = 2.5f;
    assert_int_equal(sample(&p, logits, 9, &rng), 8);
    /* top_p 0 keeps the best alone, equals or not. */
    logits[8] = 2.0f;
    p = (struct pn_sampling){.temp = 1.0f, .top_p = 0.0f};
    for (int i = 0; i < 50; i++) {
        assert_int_equal(sample(&p, logits, 9, &rng), 1);
    }
    const float one[1] = {-1e30f};
    p = (struct pn_sampling){.temp = 1.0f, .top_p = 1.0f};
    assert_int_equal(sample(&p, one, 1, &rng), 0);
}

static void not_finite(void **state) {
    (void)state;
    static const float bad[] = {NAN, -NAN, INFINITY};
    static const struct pn_sampling ways[] = {
        {.temp = 0.0f}, {.temp = 1.0f, .top_p = 1.0f}, {.temp = 1.0f, .top_p = 1.0f, .top_k = 1}};
    for (size_t w = 0; w < PN_ARRAY_N(ways); w++) {
        for (size_t b = 0; b < PN_ARRAY_N(bad); b++) {
            for (uint32_t at = 0; at < 20; at++) {
                struct pn_detail d = {{0}};
                float logits[20];
                char want[32];
                uint64_t rng = 1;
                int32_t out = -7;
                for (uint32_t i = 0; i < 20; i++) {
                    logits[i] = (float)i;
                }
                logits[at] = bad[b];
                assert_int_equal(pn__sample(NULL, &ways[w], logits, 20, scratch, &rng, &d, &out),
                                 PN_E_NUMERIC);
                snprintf(want, sizeof want, "token %u is", at);
                assert_non_null(strstr(d.text, want));
            }
        }
        struct pn_detail d = {{0}};
        float none[5] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
        uint64_t rng = 1;
        int32_t out;
        assert_int_equal(pn__sample(NULL, &ways[w], none, 5, scratch, &rng, &d, &out),
                         PN_E_NUMERIC);
        assert_non_null(strstr(d.text, "all 5 logits"));
    }
}

static void random_row_of(float *logits, uint32_t n, double most, uint64_t *x) {
    double spread = unit(x) * most;
    for (uint32_t i = 0; i < n; i++) {
        logits[i] = (float)((unit(x) - 0.5) * spread);
        if (lcg(x) % 8 == 0 && i > 0) logits[i] = logits[i - 1]; /* equals */
        if (lcg(x) % 40 == 0 && i > 0) logits[i] = -INFINITY;
    }
}

static void random_row(float *logits, uint32_t n, uint64_t *x) {
    random_row_of(logits, n, 12.0, x);
}

static struct pn_sampling random_way(uint64_t *x, uint32_t n) {
    struct pn_sampling p = {.temp = (float)(0.2 + 2.0 * unit(x)), .top_p = 1.0f};
    if (lcg(x) % 2) p.top_k = (int32_t)(1 + lcg(x) % (n + 2));
    if (lcg(x) % 2) p.top_p = (float)unit(x);
    if (lcg(x) % 2) p.min_p = (float)(unit(x) * unit(x));
    return p;
}

/* No draw outside of what the other way keeps. That all of it is kept is for `distribution`. Rows
 * of up to n_max logits, of which the lowest are `most` below the best. */
static void check_cuts(uint32_t row_n, uint32_t n_max, double most) {
    uint64_t x = 42;
    uint32_t compared = 0;
    for (uint32_t row = 0; row < row_n; row++) {
        static float logits[N_MAX];
        static double prob[N_MAX];
        bool near;
        uint32_t n = 1 + (uint32_t)(lcg(&x) % n_max);
        random_row_of(logits, n, most, &x);
        struct pn_sampling p = random_way(&x, n);
        expect(&p, logits, n, prob, &near);
        if (near) continue;
        compared++;
        for (int i = 0; i < 10; i++) {
            int32_t got = sample(&p, logits, n, &x);
            if (prob[got] > 0.0) continue;
            fail_msg("row %u: token %d of %u (temp %g, top_k %d, top_p %g, min_p %g) was cut", row,
                     got, n, (double)p.temp, p.top_k, (double)p.top_p, (double)p.min_p);
        }
    }
    assert_true(compared > row_n - row_n / 30);
}

static void cuts(void **state) {
    (void)state;
    check_cuts(1500, SOME, 12.0);
}

/* Candidates that are taken from the row in several rounds. */
static void cuts_of_many(void **state) {
    (void)state;
    check_cuts(60, N_MAX, 300.0);
    check_cuts(60, N_MAX, 40.0);
}

/* Counts of many draws. With m kept tokens chi-square has mean m - 1 and variance 2 (m - 1); tokens
 * expected less than 10 times are counted as one. */
static void check_counts(const struct pn_sampling *p, const float *logits, uint32_t n,
                         uint64_t seed) {
    enum { DRAWS = 20000 };
    double prob[SOME];
    uint32_t counts[SOME] = {0};
    bool near;
    uint64_t rng = seed;
    expect(p, logits, n, prob, &near);
    assert_false(near);
    for (int i = 0; i < DRAWS; i++) {
        counts[sample(p, logits, n, &rng)]++;
    }
    double chi = 0.0;
    double rare = 0.0;
    double rare_want = 0.0;
    uint32_t classes = 0;
    for (uint32_t i = 0; i < n; i++) {
        double want = prob[i] * DRAWS;
        if (want < 10.0) {
            rare += counts[i];
            rare_want += want;
            continue;
        }
        chi += (counts[i] - want) * (counts[i] - want) / want;
        classes++;
    }
    if (rare_want >= 10.0) {
        chi += (rare - rare_want) * (rare - rare_want) / rare_want;
        classes++;
    } else {
        assert_true(rare <= rare_want + 6.0 * sqrt(rare_want + 1.0));
    }
    double mean = classes - 1.0;
    if (chi > mean + 5.0 * sqrt(2.0 * mean) + 5.0) {
        fail_msg("temp %g, top_k %d, top_p %g, min_p %g: chi-square %g over %u classes",
                 (double)p->temp, p->top_k, (double)p->top_p, (double)p->min_p, chi, classes);
    }
}

static void distribution(void **state) {
    (void)state;
    static const struct pn_sampling ways[] = {
        {.temp = 1.0f, .top_p = 1.0f},
        {.temp = 0.5f, .top_p = 1.0f},
        {.temp = 3.0f, .top_p = 1.0f},
        {.temp = 1.0f, .top_p = 1.0f, .top_k = 2},
        {.temp = 1.0f, .top_p = 1.0f, .top_k = 5},
        {.temp = 1.0f, .top_p = 0.5f},
        {.temp = 1.0f, .top_p = 0.9f},
        {.temp = 2.0f, .top_p = 0.9f, .top_k = 7},
        {.temp = 1.0f, .top_p = 1.0f, .min_p = 0.2f},
        {.temp = 1.5f, .top_p = 0.95f, .top_k = 9, .min_p = 0.05f},
    };
    uint64_t x = 5;
    for (size_t w = 0; w < PN_ARRAY_N(ways); w++) {
        float few[12];
        float many[SOME];
        for (uint32_t i = 0; i < 12; i++) {
            few[i] = (float)(unit(&x) * 4.0);
        }
        random_row(many, SOME, &x);
        check_counts(&ways[w], few, 12, 1000 + w);
        check_counts(&ways[w], many, SOME, 2000 + w);
    }
}

/* Draws of a flat row, so that a generator that is bad for some seeds shows: first draws of seeds
 * that follow each other must be as even as draws of one. */
static void seeds(void **state) {
    (void)state;
    const float flat[16] = {0};
    struct pn_sampling p = {.temp = 1.0f, .top_p = 1.0f};
    uint32_t counts[16] = {0};
    for (uint64_t seed = 0; seed < 16000; seed++) {
        uint64_t rng = seed;
        counts[sample(&p, flat, 16, &rng)]++;
    }
    double chi = 0.0;
    for (int i = 0; i < 16; i++) {
        chi += (counts[i] - 1000.0) * (counts[i] - 1000.0) / 1000.0;
    }
    assert_true(chi < 15.0 + 5.0 * sqrt(30.0) + 5.0);
    uint64_t a = 99;
    uint64_t b = 99;
    uint64_t c = 100;
    uint32_t differ = 0;
    for (int i = 0; i < 100; i++) {
        int32_t first = sample(&p, flat, 16, &a);
        assert_int_equal(first, sample(&p, flat, 16, &b));
        differ += first != sample(&p, flat, 16, &c);
    }
    assert_true(differ > 50);
}

static void allocates_nothing(void **state) {
    (void)state;
    uint64_t x = 3;
    float logits[SOME];
    random_row(logits, SOME, &x);
    uint64_t before = pn__alloc_count();
    for (int i = 0; i < 100; i++) {
        struct pn_sampling p = random_way(&x, SOME);
        sample(&p, logits, SOME, &x);
    }
    assert_int_equal(pn__alloc_count(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(cuts),
        cmocka_unit_test(cuts_of_many),
        cmocka_unit_test(distribution),
        cmocka_unit_test(seeds),
        cmocka_unit_test(allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
