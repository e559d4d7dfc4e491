/* Every golden model of the families that run: float ones agree row by row, quantised ones lose no
 * more to their activations than the reference engine does. usage: test_golden NAME short|long */
#include <math.h>

#include "engine/golden.h"

static const char *model_name;
static bool is_long;

#define ROW_TOLERANCE 2e-3 /* of the row's largest |logit| */
#define MARGIN_MIN 0.05    /* smaller margins may flip */
#define KL_FACTOR 1.5
#define KL_FACTOR_QUARTILE 2.0
#define KL_FLIPPED 0.01

/* The golden's first row stands at this prompt position. */
static size_t first_row(const struct golden *g) {
    return g->prompt.n + g->greedy.n - g->row_n;
}

static void compare_rows(const struct golden *g, const struct run_result *r) {
    size_t skip = first_row(g);
    double worst = 0.0;
    for (size_t i = 0; i < g->row_n; i++) {
        const float *want = g->rows + i * g->vocab;
        const float *got = r->rows + (skip + i) * g->vocab;
        double largest = 0.0;
        double off = 0.0;
        for (uint32_t k = 0; k < g->vocab; k++) {
            assert_true(isfinite(got[k]));
            largest = fmax(largest, fabs((double)want[k]));
            off = fmax(off, fabs((double)want[k] - (double)got[k]));
        }
        worst = fmax(worst, off / largest);
        if (off > ROW_TOLERANCE * largest) {
            fail_msg("row %zu: off by %g, %g of its largest logit", i, off, off / largest);
        }
    }
    print_message("%s: worst row off by %.2e of its largest logit\n", model_name, worst);
}

/* Our own choice after each row, as far as the margins make it one. */
static void compare_greedy(const struct golden *g, const struct run_result *r) {
    size_t last_prompt = g->prompt.n - 1;
    for (size_t i = 0; i < g->greedy.n && g->margins[i] >= MARGIN_MIN; i++) {
        assert_int_equal(row_argmax(r->rows + (last_prompt + i) * g->vocab, g->vocab),
                         g->greedy.ids[i]);
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* In a mixture of experts a rounding may flip an expert, and then a row is off by more than the
 * rounding: its mean may be larger as long as most rows are as good as they should be. */
static void compare_kl(const struct golden *g, const struct run_result *r) {
    double kls[64];
    double sum = 0.0;
    assert_true(g->prompt.n <= PN_ARRAY_N(kls));
    for (size_t i = 0; i < g->prompt.n; i++) {
        kls[i] = row_kl(g->rows + i * g->vocab, r->rows + i * g->vocab, g->vocab);
        sum += kls[i];
    }
    double mean = sum / (double)g->prompt.n;
    qsort(kls, g->prompt.n, sizeof *kls, by_value);
    double quartile = kls[g->prompt.n / 4];
    print_message("%s: mean KL %.3g, lower quartile %.3g, the reference engine's mean %.3g (ratio "
                  "%.2f)\n",
                  model_name, mean, quartile, g->kl, mean / g->kl);
    bool flipped = g->mixture && quartile <= KL_FACTOR_QUARTILE * g->kl && mean <= KL_FLIPPED;
    assert_true(mean <= KL_FACTOR * g->kl || flipped);
}

static void test_model(void **state) {
    (void)state;
    struct golden g;
    assert_true(golden_load(model_name, is_long, &g));
    struct run_options o = {.threads = 2, .chunk = 512, .kv = PN_KV_CHOICE_F32};
    struct run_result r;
    run_model(g.model_path, &g.prompt, &g.greedy, &o, &r);
    assert_int_equal(r.vocab, g.vocab);
    if (g.exact_weights) {
        compare_kl(&g, &r);
    } else {
        compare_rows(&g, &r);
        compare_greedy(&g, &r);
    }
    run_free(&r);
    golden_free(&g);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    model_name = argv[1];
    is_long = strcmp(argv[2], "long") == 0;
    golden_require(model_name, is_long);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_model)};
    return cmocka_run_group_tests_name(model_name, tests, NULL, NULL);
}
