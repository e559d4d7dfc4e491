/* The demo model against its own weights computed exactly: token ids of its prompts, what its
 * quantised file loses in KL, and the text that it goes on with.
 *
 * The model is where `make demo` keeps it; the exact logits (6 MB) are no part of the project. */
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

#include "engine/demo.h"
#include "engine/drive.h"
#include "engine/golden.h"
#include "text/text.h"

#define ROW_N 8 /* last positions of each prompt, of which the exact logits are given */
#define PROMPT_MAX 4
#define GREEDY_N 48
#define KL_FACTOR 1.5
/* Eight-bit activations move a logit by some sigma, and KL is sigma^2 / 2 of it: the difference of
 * two moves by 2 sqrt(KL). A margin of six times that stands. */
#define CLEAR_MARGIN(kl) (6 * 2 * sqrt(kl))

struct prompt {
    const char *name;
    const char *text;
    struct ids ids;
    struct ids greedy;
    double margins[GREEDY_N];
    size_t first_row; /* in exact.f32 */
    double kl;        /* what the reference engine loses */
    float *rows;      /* ours: [ROW_N + GREEDY_N, vocab], the prompt's last and one a token */
};

static char model_path[512];
static json_t *golden;
static uint32_t vocab_n;
static struct prompt prompts[PROMPT_MAX];
static size_t prompt_n;
static pn_engine *engine;

static struct ids ids_of(json_t *list) {
    struct ids out = {.n = json_array_size(list)};
    out.ids = calloc(out.n + 1, sizeof *out.ids);
    assert_non_null(out.ids);
    for (size_t i = 0; i < out.n; i++) {
        out.ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    }
    return out;
}

static void read_prompts(void) {
    const char *name;
    json_t *entry;
    json_error_t error;
    golden = json_load_file(PN_TEST_DATA "/smollm2/golden.json", 0, &error);
    assert_non_null(golden);
    vocab_n = (uint32_t)json_integer_value(json_object_get(golden, "vocab"));
    assert_int_equal(json_integer_value(json_object_get(golden, "rows_each")), ROW_N);
    json_object_foreach(json_object_get(golden, "prompts"), name, entry) {
        assert_true(prompt_n < PROMPT_MAX);
        struct prompt *p = &prompts[prompt_n++];
        p->name = name;
        p->text = json_string_value(json_object_get(entry, "text"));
        p->ids = ids_of(json_object_get(entry, "prompt"));
        p->greedy = ids_of(json_object_get(entry, "greedy"));
        assert_int_equal(p->greedy.n, GREEDY_N);
        for (size_t i = 0; i < GREEDY_N; i++) {
            p->margins[i] = json_number_value(json_array_get(json_object_get(entry, "margins"), i));
        }
        p->first_row = (size_t)json_integer_value(json_object_get(entry, "first_row"));
        p->kl = json_number_value(json_object_get(entry, "reference_engine_kl"));
    }
    assert_int_equal(prompt_n, PROMPT_MAX);
}

static void token_ids(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    struct pn_gguf *g;
    struct pn_vocab *v;
    struct stat st;
    assert_int_equal(stat(model_path, &st), 0);
    assert_int_equal(st.st_size, json_integer_value(json_object_get(golden, "bytes")));
    PN_ASSERT_OK(pn__gguf_open(model_path, &d, &g), &d);
    PN_ASSERT_OK(pn__vocab_load(g, NULL, &d, &v), &d);
    pn__gguf_close(g);
    assert_int_equal(pn__vocab_n(v), vocab_n);
    for (size_t i = 0; i < prompt_n; i++) {
        const struct prompt *p = &prompts[i];
        struct pn_ids ids = {0};
        PN_ASSERT_OK(pn__tokenize(v, p->text, strlen(p->text), PN_TOKENIZE_SPECIAL, &ids, &d), &d);
        assert_int_equal(ids.n, p->ids.n);
        assert_memory_equal(ids.ids, p->ids.ids, ids.n * sizeof(int32_t));
        pn__ids_free(&ids);
    }
    pn__vocab_free(v);
}

/* The prompt but for its last positions, then these with their logits and the exact weights' own
 * greedy tokens fed one by one. */
static void run_prompts(void **state) {
    (void)state;
    for (size_t i = 0; i < prompt_n; i++) {
        struct prompt *p = &prompts[i];
        struct answer head;
        struct answer tail;
        pn_session *s = new_session(engine);
        uint32_t head_n = (uint32_t)p->ids.n - ROW_N;
        ask(engine, s, (struct pn_request){.tokens = p->ids.ids, .token_n = head_n}, PN_STOP_LENGTH,
            &head);
        ask(engine, s,
            (struct pn_request){.tokens = p->ids.ids + head_n,
                                .token_n = ROW_N,
                                .max_new = GREEDY_N,
                                .script = p->greedy.ids,
                                .script_n = GREEDY_N,
                                .all_logits = true},
            PN_STOP_LENGTH, &tail);
        assert_int_equal(tail.vocab, vocab_n);
        assert_int_equal(tail.row_n, ROW_N + GREEDY_N - 1);
        assert_int_equal(tail.positions[0], head_n);
        print_message("%s: %zu tokens in %.1f s, %d more in %.1f s\n", p->name, p->ids.n,
                      head.done.prefill_s + tail.done.prefill_s, GREEDY_N, tail.done.decode_s);
        p->rows = tail.rows;
        pn_session_free(s);
    }
}

static void kl_to_exact_weights(void **state) {
    (void)state;
    FILE *f = fopen(PN_TEST_SHARED "/goldens/smollm2/exact.f32", "rb");
    if (!f) PN_SKIP_TEST("../shared/goldens/smollm2/exact.f32 is absent");
    float *exact = malloc(vocab_n * sizeof *exact);
    assert_non_null(exact);
    double sum = 0.0;
    double reference = 0.0;
    for (size_t i = 0; i < prompt_n; i++) {
        const struct prompt *p = &prompts[i];
        assert_non_null(p->rows);
        double own = 0.0;
        for (size_t r = 0; r < ROW_N; r++) {
            long at = (long)((p->first_row + r) * vocab_n * sizeof *exact);
            assert_int_equal(fseek(f, at, SEEK_SET), 0);
            assert_int_equal(fread(exact, sizeof *exact, vocab_n, f), vocab_n);
            own += row_kl(exact, p->rows + r * vocab_n, vocab_n) / ROW_N;
        }
        print_message("%s: mean KL %.3g, the reference engine's %.3g\n", p->name, own, p->kl);
        sum += own;
        reference += p->kl;
    }
    fclose(f);
    free(exact);
    print_message("mean KL %.3g, the reference engine's %.3g (ratio %.2f)\n", sum / PROMPT_MAX,
                  reference / PROMPT_MAX, sum / reference);
    assert_true(sum <= KL_FACTOR * reference);
}

/* Behind the exact weights' own text, our choice is theirs wherever theirs is clear. */
static void greedy_text(void **state) {
    (void)state;
    uint32_t clear_n = 0;
    for (size_t i = 0; i < prompt_n; i++) {
        const struct prompt *p = &prompts[i];
        assert_non_null(p->rows);
        for (size_t k = 0; k < GREEDY_N; k++) {
            if (p->margins[k] <= CLEAR_MARGIN(p->kl)) continue;
            clear_n++;
            const float *row = p->rows + (ROW_N - 1 + k) * vocab_n;
            if ((int32_t)row_argmax(row, vocab_n) == p->greedy.ids[k]) continue;
            fail_msg("%s, token %zu: %u, not %d (margin %g)", p->name, k, row_argmax(row, vocab_n),
                     p->greedy.ids[k], p->margins[k]);
        }
    }
    print_message("%u of %d greedy tokens are clear\n", clear_n, PROMPT_MAX * GREEDY_N);
    assert_true(clear_n > PROMPT_MAX * GREEDY_N / 2);
}

static int setup(void **state) {
    (void)state;
    read_prompts();
    struct pn_engine_options o = {.model_path = model_path,
                                  .ctx = 1100,
                                  .slots = 1,
                                  .out_rows = ROW_N,
                                  .kv = PN_KV_CHOICE_F32};
    engine = open_engine(&o);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    pn_engine_free(engine);
    for (size_t i = 0; i < prompt_n; i++) {
        free(prompts[i].ids.ids);
        free(prompts[i].greedy.ids);
        free(prompts[i].rows);
    }
    json_decref(golden);
    return 0;
}

int main(void) {
    if (!demo_find(model_path, sizeof model_path)) {
        PN_SKIP_EXIT("the demo model isn't there yet: make demo fetches it (%s)", model_path);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(token_ids),
        cmocka_unit_test(run_prompts),
        cmocka_unit_test(kl_to_exact_weights),
        cmocka_unit_test(greedy_text),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
