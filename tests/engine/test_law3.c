/* Law 3: the same question gets the same bits, whatever the number of threads, the cut of the
 * prompt into chunks, and whoever else is computed in the same steps; and a chunk reads the weights
 * once. usage: test_law3 NAME */
#include "engine/golden.h"

static const char *model_name;

#define PROMPT_N 600
#define SCRIPT_N 6

struct variant {
    uint32_t threads;
    uint32_t chunk;
    uint32_t beside;
};

static const struct variant variants[] = {
    {2, 512, 0}, {3, 512, 0}, {4, 512, 0}, {2, 1, 0},  {1, 7, 0},   {2, 64, 0},
    {1, 600, 0}, {2, 512, 1}, {2, 512, 3}, {1, 64, 7}, {2, 512, 7}, {3, 7, 3},
};

static void compare(const struct run_result *a, const struct run_result *b,
                    const struct variant *v) {
    assert_int_equal(a->row_n, b->row_n);
    for (size_t i = 0; i < a->row_n; i++) {
        if (memcmp(a->rows + i * a->vocab, b->rows + i * a->vocab, a->vocab * sizeof(float))) {
            fail_msg("row %zu differs with %u threads, chunks of %u, beside %u", i, v->threads,
                     v->chunk, v->beside);
        }
    }
}

/* Chunk 512 on 600 tokens is two prompt steps; each reads every matrix once. */
static void check_passes(const struct run_result *r, const struct variant *v) {
    assert_int_equal(r->stats.sweep_n, r->stats.matmul_n);
    if (v->chunk >= 512 && v->beside == 0) {
        assert_int_equal(r->stats.step_n, (PROMPT_N + v->chunk - 1) / v->chunk + SCRIPT_N);
        assert_int_equal(r->stats.batch_max, v->chunk);
    }
}

static void same_bits(void **state) {
    enum pn_kv_choice kv = *(enum pn_kv_choice *)*state;
    struct golden g;
    assert_true(golden_load(model_name, false, &g));
    struct ids prompt = make_ids(g.vocab, PROMPT_N, 1);
    struct ids script = make_ids(g.vocab, SCRIPT_N, 2);
    struct run_options base = {.threads = 1, .chunk = 512, .kv = kv};
    struct run_result want;
    run_model(g.model_path, &prompt, &script, &base, &want);
    for (size_t i = 0; i < PN_ARRAY_N(variants); i++) {
        struct run_options o = {.threads = variants[i].threads,
                                .chunk = variants[i].chunk,
                                .beside = variants[i].beside,
                                .weights = i % 2 ? PN_WEIGHTS_MAP : PN_WEIGHTS_COPY,
                                .kv = kv};
        struct run_result got;
        run_model(g.model_path, &prompt, &script, &o, &got);
        compare(&want, &got, &variants[i]);
        check_passes(&got, &variants[i]);
        run_free(&got);
    }
    struct run_options ref = {.threads = 2, .chunk = 512, .kv = kv, .isa = PN_ISA_CHOICE_REF};
    struct run_result got;
    run_model(g.model_path, &prompt, &script, &ref, &got);
    compare(&want, &got, &(struct variant){2, 512, 0});
    run_free(&got);
    run_free(&want);
    free(prompt.ids);
    free(script.ids);
    golden_free(&g);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    model_name = argv[1];
    golden_require(model_name, false);
    const struct CMUnitTest tests[] = {GOLDEN_KV_CASE(same_bits, F16),
                                       GOLDEN_KV_CASE(same_bits, Q8_0),
                                       GOLDEN_KV_CASE(same_bits, Q4)};
    return cmocka_run_group_tests_name(model_name, tests, NULL, NULL);
}
