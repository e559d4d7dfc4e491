/* What a prompt leaves behind, pages and recurrent state, has the same bytes however it was cut
 * into chunks and whatever ran beside it: what comes later can't tell. */
#include "engine/drive.h"
#include "engine/engine_internal.h"
#include "engine/golden.h"

#define PROMPT_N (3 * PN_PAGE_TOKENS) /* whole pages: every byte of them is written */

static const char *const families[] = {"llama-gqa",     "gemma3",    "qwen35",  "qwen3moe",
                                       "qwen35moe-mtp", "llama-moe", "gpt-oss", "deepseek2"};

struct left {
    uint8_t *bytes;
    size_t n;
};

static void keep(struct left *l, const void *bytes, size_t n) {
    l->bytes = realloc(l->bytes, l->n + n + 1);
    assert_non_null(l->bytes);
    memcpy(l->bytes + l->n, bytes, n);
    l->n += n;
}

static void keep_session(struct left *l, pn_engine *e, const pn_session *s) {
    struct pn_page_table tables[PN_PAGE_KIND_N];
    pn__kv_tables(e->kv, s->slot_i, tables);
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        const struct pn_page_spec *spec = &e->shape.kv.kinds[kind];
        for (uint32_t i = 0; i < tables[kind].n; i++) {
            const struct pn_page_view *page = &tables[kind].pages[i];
            /* A window's older pages may be held or not; nobody sees them. */
            uint32_t end = (tables[kind].first + i + 1) * PN_PAGE_TOKENS;
            if (spec->window && end <= PROMPT_N - spec->window) continue;
            keep(l, page->data, spec->layer_n * pn__kv_layer_bytes(page->format, &spec->shape));
        }
    }
    const uint8_t *state = pn__kv_seq(e->kv, s->slot_i)->state;
    if (state) keep(l, state, e->shape.kv.state_bytes);
}

static struct left run(const struct golden *g, const struct ids *prompt, uint32_t chunk,
                       uint32_t threads, bool beside) {
    struct left l = {0};
    struct answer a;
    struct pn_detail d = {{0}};
    pn_engine *e = open_engine(&(struct pn_engine_options){.model_path = g->model_path,
                                                           .ctx = PROMPT_N + 8,
                                                           .slots = 2,
                                                           .chunk = chunk,
                                                           .threads = threads,
                                                           .kv = PN_KV_CHOICE_F16});
    pn_session *s = new_session(e);
    struct pn_request other = {.tokens = prompt->ids + 5, .token_n = 100, .max_new = 20};
    if (beside) PN_ASSERT_OK(pn_session_submit(new_session(e), &other, &d), &d);
    ask(e, s, (struct pn_request){.tokens = prompt->ids, .token_n = PROMPT_N}, PN_STOP_LENGTH, &a);
    assert_int_equal(pn_session_length(s), PROMPT_N);
    keep_session(&l, e, s);
    answer_free(&a);
    pn_engine_free(e);
    return l;
}

static void same_bytes(void **state) {
    (void)state;
    static const struct {
        uint32_t chunk;
        uint32_t threads;
        bool beside;
    } ways[] = {{1, 1, false}, {7, 2, false}, {64, 3, false}, {100, 2, true}};
    for (size_t f = 0; f < PN_ARRAY_N(families); f++) {
        struct golden g;
        assert_true(golden_load(families[f], false, &g));
        struct ids prompt = make_ids(g.vocab, PROMPT_N, 9);
        struct left want = run(&g, &prompt, PROMPT_N, 1, false);
        assert_true(want.n > PROMPT_N);
        for (size_t i = 0; i < PN_ARRAY_N(ways); i++) {
            struct left got = run(&g, &prompt, ways[i].chunk, ways[i].threads, ways[i].beside);
            assert_int_equal(got.n, want.n);
            if (memcmp(got.bytes, want.bytes, want.n) != 0) {
                fail_msg("%s: other bytes after chunks of %u on %u threads", families[f],
                         ways[i].chunk, ways[i].threads);
            }
            free(got.bytes);
        }
        free(want.bytes);
        free(prompt.ids);
        golden_free(&g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
