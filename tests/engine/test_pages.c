/* What a prompt leaves behind doesn't depend on how it was cut: the rows of every page and the
 * recurrent state after chunks of any size are those after one chunk, byte for byte; and the pages
 * that are held are those that the next token sees. usage: test_pages NAME */
#include "engine/drive.h"
#include "engine/engine_internal.h"
#include "engine/golden.h"

static const char *model_name;

#define PROMPT_N 300

static const uint32_t chunks[] = {1, 3, 16, 17, 64, 100, 299};

struct held {
    pn_engine *e;
    pn_session *s;
};

static void held_free(struct held *h) {
    pn_session_free(h->s);
    pn_engine_free(h->e);
}

static struct held after_prompt(const struct golden *g, const struct ids *prompt, uint32_t chunk,
                                enum pn_kv_choice kv) {
    struct pn_engine_options o = {.model_path = g->model_path,
                                  .ctx = PROMPT_N + 1,
                                  .slots = 1,
                                  .chunk = chunk,
                                  .threads = 2,
                                  .kv = kv};
    struct held h = {.e = open_engine(&o)};
    struct answer a;
    h.s = new_session(h.e);
    ask(h.e, h.s, (struct pn_request){.tokens = prompt->ids, .token_n = PROMPT_N}, PN_STOP_LENGTH,
        &a);
    answer_free(&a);
    assert_int_equal(pn_session_length(h.s), PROMPT_N);
    return h;
}

/* The vector of a head in one layer of a page. */
static const uint8_t *row_of(const struct pn_page_view *p, const struct pn_kv_shape *shape,
                             uint32_t layer_i, uint32_t head, uint32_t pos, bool value) {
    uint64_t bytes = pn__kv_row_bytes(p->format, value ? shape->v_dim : shape->k_dim);
    uint64_t part = value ? pn__kv_v_offset(p->format, shape) : 0;
    return p->data + layer_i * pn__kv_layer_bytes(p->format, shape) + part +
           ((uint64_t)head * PN_PAGE_TOKENS + pos % PN_PAGE_TOKENS) * bytes;
}

static void compare_row(const struct pn_page_spec *spec, const struct pn_page_view *a,
                        const struct pn_page_view *b, uint32_t pos, uint32_t chunk) {
    const struct pn_kv_shape *shape = &spec->shape;
    assert_int_equal(a->format, b->format);
    for (uint32_t layer = 0; layer < spec->layer_n; layer++) {
        for (uint32_t head = 0; head < shape->head_n; head++) {
            for (int value = 0; value < (shape->v_in_k ? 1 : 2); value++) {
                uint64_t n = pn__kv_row_bytes(a->format, value ? shape->v_dim : shape->k_dim);
                if (memcmp(row_of(a, shape, layer, head, pos, value),
                           row_of(b, shape, layer, head, pos, value), n) == 0) {
                    continue;
                }
                fail_msg("%s of position %u, layer %u of its kind, head %u: chunks of %u differ",
                         value ? "V" : "K", pos, layer, head, chunk);
            }
        }
    }
}

/* Rows of positions that both still hold; at least those that the next token sees. */
static void compare_kind(const struct held *a, const struct held *b, int kind, uint32_t chunk) {
    const struct pn_page_spec *spec = &a->e->shape.kv.kinds[kind];
    struct pn_page_table t[PN_PAGE_KIND_N];
    struct pn_page_table u[PN_PAGE_KIND_N];
    if (spec->layer_n == 0) return;
    pn__kv_tables(a->e->kv, 0, t);
    pn__kv_tables(b->e->kv, 0, u);
    const struct pn_page_table *x = &t[kind];
    const struct pn_page_table *y = &u[kind];
    uint32_t first = x->first > y->first ? x->first : y->first;
    uint32_t seen = 0;
    if (spec->window && PROMPT_N + 1 > spec->window) seen = PROMPT_N + 1 - spec->window;
    assert_true(first * PN_PAGE_TOKENS <= seen);
    assert_int_equal(x->first + x->n, (PROMPT_N + PN_PAGE_TOKENS - 1) / PN_PAGE_TOKENS);
    assert_int_equal(y->first + y->n, x->first + x->n);
    for (uint32_t pos = first * PN_PAGE_TOKENS; pos < PROMPT_N; pos++) {
        uint32_t page = pos / PN_PAGE_TOKENS;
        compare_row(spec, &x->pages[page - x->first], &y->pages[page - y->first], pos, chunk);
    }
}

static void compare(const struct held *a, const struct held *b, uint32_t chunk) {
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        compare_kind(a, b, kind, chunk);
    }
    const uint8_t *state = pn__kv_seq(a->e->kv, 0)->state;
    if (state == NULL) return;
    if (memcmp(state, pn__kv_seq(b->e->kv, 0)->state, a->e->shape.kv.state_bytes)) {
        fail_msg("the recurrent state after chunks of %u differs", chunk);
    }
}

static void check(enum pn_kv_choice kv) {
    struct golden g;
    assert_true(golden_load(model_name, false, &g));
    struct ids prompt = make_ids(g.vocab, PROMPT_N, 5);
    struct held whole = after_prompt(&g, &prompt, 512, kv);
    for (size_t i = 0; i < PN_ARRAY_N(chunks); i++) {
        struct held cut = after_prompt(&g, &prompt, chunks[i], kv);
        compare(&whole, &cut, chunks[i]);
        held_free(&cut);
    }
    held_free(&whole);
    free(prompt.ids);
    golden_free(&g);
}

static void test_f32(void **state) {
    (void)state;
    check(PN_KV_CHOICE_F32);
}

static void test_f16(void **state) {
    (void)state;
    check(PN_KV_CHOICE_F16);
}

static void test_q8_0(void **state) {
    (void)state;
    check(PN_KV_CHOICE_Q8_0);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    model_name = argv[1];
    struct golden g;
    if (!golden_load(model_name, false, &g)) {
        PN_SKIP_EXIT("golden %s is neither in tests/data nor in ../shared", model_name);
    }
    golden_free(&g);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_f16),
                                       cmocka_unit_test(test_q8_0)};
    return cmocka_run_group_tests_name(model_name, tests, NULL, NULL);
}
