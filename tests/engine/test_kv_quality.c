/* What four bits change: nothing while a sequence has no old page, then little. The figures of
 * docs/KERNELS.md are made by bench/kv_quality.py; this sees to it that the families on the Q4-safe
 * list belong there. usage: test_kv_quality NAME [NAME ...] */
#include "engine/engine_internal.h"
#include "engine/golden.h"

#define PROMPT_N 1000
#define TAIL_N 64 /* each place in a page once */
/* Tokens before the first that reads a page in four bits: two pages. */
#define SAME_N ((1 + PN_KV_WIDE_PAGES) * PN_PAGE_TOKENS)

static int name_n;
static char **names;

/* Mean over the last rows of one prompt; one prompt is a small sample, hence the factor. */
static void check_family(const char *name, uint64_t seed) {
    struct golden g;
    struct pn_detail d = {{0}};
    struct model_file f;
    assert_true(golden_load(name, false, &g));
    struct pn_engine_options o = {.model_path = g.model_path};
    PN_ASSERT_OK(pn__model_file_open(&o, &d, &f), &d);
    bool safe = pn__kv_q4_safe(f.family);
    double known = f.family->kv_q4_kl;
    pn__model_file_close(&f);

    struct ids prompt = make_ids(g.vocab, PROMPT_N, seed);
    struct run_options wide = {.threads = 2, .chunk = 512, .kv = PN_KV_CHOICE_F16};
    struct run_options narrow = {.threads = 2, .chunk = 512, .kv = PN_KV_CHOICE_Q4};
    struct run_result a;
    struct run_result b;
    run_model(g.model_path, &prompt, NULL, &wide, &a);
    run_model(g.model_path, &prompt, NULL, &narrow, &b);
    size_t row_bytes = a.vocab * sizeof(float);
    assert_memory_equal(a.rows, b.rows, SAME_N * row_bytes);
    assert_memory_not_equal(a.rows + SAME_N * a.vocab, b.rows + SAME_N * a.vocab,
                            (PROMPT_N - SAME_N) * row_bytes);
    double kl = 0;
    for (size_t i = PROMPT_N - TAIL_N; i < PROMPT_N; i++) {
        kl += row_kl(a.rows + i * a.vocab, b.rows + i * a.vocab, a.vocab) / TAIL_N;
    }
    print_message("%s: mean KL %.6f, known for the family %.6f\n", name, kl, known);
    if (safe && kl > PN_KV_Q4_KL_MAX) fail_msg("%s is on the Q4-safe list", name);
    if (known > 0 && kl > 2 * known) fail_msg("%s: KL %g, %g is known", name, kl, known);
    run_free(&a);
    run_free(&b);
    free(prompt.ids);
    golden_free(&g);
}

static void test_families(void **state) {
    (void)state;
    for (int i = 0; i < name_n; i++) {
        check_family(names[i], 1);
    }
}

int main(int argc, char **argv) {
    name_n = argc - 1;
    names = argv + 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
