/* What a prompt leaves behind doesn't depend on how it was cut, on how many threads, or beside
 * whom: the rows of every page, full pages as a whole, and the recurrent state are those after one
 * chunk, byte for byte; and the pages that are held are those that the next token sees. usage:
 * test_pages NAME */
#include "engine/drive.h"
#include "engine/engine_internal.h"
#include "engine/golden.h"

static const char *model_name;

#define PROMPT_N 300

struct way {
    uint32_t chunk;
    uint32_t threads;
    bool beside; /* another session in the same steps */
};

static const struct way ways[] = {
    {1, 2, false},   {3, 2, false}, {16, 2, false}, {17, 2, false}, {64, 2, false}, {100, 2, false},
    {299, 2, false}, {1, 1, false}, {7, 2, false},  {64, 3, false}, {100, 2, true},
};

struct held {
    pn_engine *e;
    pn_session *s;
};

static void held_free(struct held *h) {
    pn_session_free(h->s);
    pn_engine_free(h->e);
}

static struct held after_prompt(const struct golden *g, const struct ids *prompt,
                                const struct way *way, enum pn_kv_choice kv) {
    struct pn_engine_options o = {.model_path = g->model_path,
                                  .ctx = PROMPT_N + 1,
                                  .slots = 2,
                                  .chunk = way->chunk,
                                  .threads = way->threads,
                                  .kv = kv};
    struct held h = {.e = open_engine(&o)};
    struct answer a;
    struct pn_detail d = {{0}};
    struct pn_request other = {.tokens = prompt->ids + 5, .token_n = 100, .max_new = 20};
    h.s = new_session(h.e);
    if (way->beside) PN_ASSERT_OK(pn_session_submit(new_session(h.e), &other, &d), &d);
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
                        const struct pn_page_view *b, uint32_t pos, const struct way *way) {
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
                fail_msg("%s at %u, layer %u of its kind, head %u: other with chunks of %u on %u "
                         "threads",
                         value ? "V" : "K", pos, layer, head, way->chunk, way->threads);
            }
        }
    }
}

/* Rows of positions that both still hold; at least those that the next token sees. */
static void compare_kind(const struct held *a, const struct held *b, int kind,
                         const struct way *way) {
    const struct pn_page_spec *spec = &a->e->shape.kv.kinds[kind];
    struct pn_page_table t[PN_PAGE_KIND_N];
    struct pn_page_table u[PN_PAGE_KIND_N];
    if (spec->layer_n == 0) return;
    pn__kv_tables(a->e->kv, a->s->slot_i, t);
    pn__kv_tables(b->e->kv, b->s->slot_i, u);
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
        const struct pn_page_view *one = &x->pages[page - x->first];
        const struct pn_page_view *other = &y->pages[page - y->first];
        compare_row(spec, one, other, pos, way);
        /* Of a full page every byte is written. */
        if (pos % PN_PAGE_TOKENS == PN_PAGE_TOKENS - 1) {
            assert_memory_equal(one->data, other->data,
                                spec->layer_n * pn__kv_layer_bytes(one->format, &spec->shape));
        }
    }
}

static void compare(const struct held *a, const struct held *b, const struct way *way) {
    uint32_t layer_n = 0;
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        compare_kind(a, b, kind, way);
        layer_n += a->e->shape.kv.kinds[kind].layer_n;
    }
    assert_true(layer_n > 0);
    const uint8_t *state = pn__kv_seq(a->e->kv, a->s->slot_i)->state;
    if (state == NULL) return;
    if (memcmp(state, pn__kv_seq(b->e->kv, b->s->slot_i)->state, a->e->shape.kv.state_bytes)) {
        fail_msg("the recurrent state after chunks of %u on %u threads differs", way->chunk,
                 way->threads);
    }
}

static void same_bytes(void **state) {
    enum pn_kv_choice kv = *(enum pn_kv_choice *)*state;
    struct golden g;
    assert_true(golden_load(model_name, false, &g));
    struct ids prompt = make_ids(g.vocab, PROMPT_N, 5);
    struct held whole = after_prompt(&g, &prompt, &(struct way){512, 2, false}, kv);
    for (size_t i = 0; i < PN_ARRAY_N(ways); i++) {
        struct held cut = after_prompt(&g, &prompt, &ways[i], kv);
        compare(&whole, &cut, &ways[i]);
        held_free(&cut);
    }
    held_free(&whole);
    free(prompt.ids);
    golden_free(&g);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    model_name = argv[1];
    golden_require(model_name, false);
    const struct CMUnitTest tests[] = {GOLDEN_KV_CASE(same_bytes, F32),
                                       GOLDEN_KV_CASE(same_bytes, F16),
                                       GOLDEN_KV_CASE(same_bytes, Q8_0)};
    return cmocka_run_group_tests_name(model_name, tests, NULL, NULL);
}
