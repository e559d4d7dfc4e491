/* What a cache in halves or in eight bits changes, for families in which it has been known to go
 * wrong: attention sinks, windows, latents whose blocks hold two kinds of values (CASES N2). Rows
 * at lengths around a block, a page and far on. usage: test_kv_formats NAME [NAME ...] */
#include "engine/golden.h"

#define PROMPT_N 1000
#define TAIL_N 200

/* In nats, of the tail's rows. The median is what the format costs; in a mixture of experts a
 * rounding may choose another expert, which a few rows show: the mean is for those. A cache that is
 * read wrongly is off by 1 and more. */
#define MEDIAN_MAX_F16 1e-6
#define MEDIAN_MAX_Q8_0 1e-4
#define MEAN_MAX 1e-2
#define ROW_MAX 5e-2       /* at each of the short lengths */
#define SAME_BEST_MIN 0.97 /* rows whose best token is the same */

struct limits {
    enum pn_kv_choice kv;
    const char *name;
    double median;
};

static int name_n;
static char **names;

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double kl_at(const struct run_result *a, const struct run_result *b, uint32_t i) {
    return row_kl(a->rows + (size_t)i * a->vocab, b->rows + (size_t)i * a->vocab, a->vocab);
}

static void check_tail(const char *name, const struct limits *l, const struct run_result *a,
                       const struct run_result *b) {
    double kl[TAIL_N];
    double sum = 0.0;
    uint32_t same_n = 0;
    for (uint32_t i = 0; i < TAIL_N; i++) {
        size_t row = PROMPT_N - TAIL_N + i;
        kl[i] = kl_at(a, b, (uint32_t)row);
        sum += kl[i];
        same_n += row_argmax(a->rows + row * a->vocab, a->vocab) ==
                  row_argmax(b->rows + row * a->vocab, a->vocab);
    }
    qsort(kl, TAIL_N, sizeof *kl, by_size);
    print_message("%s, %s: KL median %.1e, mean %.1e, best token the same in %u of %d\n", name,
                  l->name, kl[TAIL_N / 2], sum / TAIL_N, same_n, TAIL_N);
    assert_true(sum > 0.0 && sum / TAIL_N <= MEAN_MAX);
    assert_true(kl[TAIL_N / 2] <= l->median);
    assert_true(same_n >= SAME_BEST_MIN * TAIL_N);
}

static void check_format(const char *name, const struct golden *g, const struct ids *prompt,
                         const struct run_result *want, const struct limits *l) {
    static const uint32_t lengths[] = {1, 2, 31, 32, 33, 63, 64, 65, 128, 500};
    struct run_options o = {.threads = 2, .chunk = 512, .kv = l->kv};
    struct run_result got;
    run_model(g->model_path, prompt, NULL, &o, &got);
    for (size_t i = 0; i < PN_ARRAY_N(lengths); i++) {
        double kl = kl_at(want, &got, lengths[i] - 1);
        if (!(kl <= ROW_MAX)) fail_msg("%s, %u tokens: KL %g", name, lengths[i], kl);
    }
    check_tail(name, l, want, &got);
    run_free(&got);
}

static void test_families(void **state) {
    (void)state;
    static const struct limits f16 = {PN_KV_CHOICE_F16, "f16", MEDIAN_MAX_F16};
    static const struct limits q8_0 = {PN_KV_CHOICE_Q8_0, "q8_0", MEDIAN_MAX_Q8_0};
    for (int i = 0; i < name_n; i++) {
        struct golden g;
        struct run_result want;
        struct run_options o = {.threads = 2, .chunk = 512, .kv = PN_KV_CHOICE_F32};
        assert_true(golden_load(names[i], false, &g));
        struct ids prompt = make_ids(g.vocab, PROMPT_N, 9);
        run_model(g.model_path, &prompt, NULL, &o, &want);
        check_format(names[i], &g, &prompt, &want, &f16);
        check_format(names[i], &g, &prompt, &want, &q8_0);
        run_free(&want);
        free(prompt.ids);
        golden_free(&g);
    }
}

int main(int argc, char **argv) {
    name_n = argc - 1;
    names = argv + 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
