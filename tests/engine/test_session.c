/* Requests of a session: going on where it stood, stopping, being refused, being cancelled, and a
 * slot that serves again as if it were new. */
#include "base/alloc.h"
#include "engine/drive.h"
#include "engine/golden.h"
#include "engine/tiny.h"

static char tiny_model[128];

static const char *const families[] = {"llama-gqa", "gemma3",   "qwen35",       "gpt-oss",
                                       "deepseek2", "qwen3moe", "qwen35moe-mtp"};

static struct pn_engine_options options_for(const struct golden *g, uint32_t slots,
                                            uint32_t chunk) {
    return (struct pn_engine_options){.model_path = g->model_path,
                                      .ctx = 300,
                                      .slots = slots,
                                      .chunk = chunk,
                                      .threads = 2,
                                      .out_rows = 64};
}

static struct pn_engine_options tiny_options(uint32_t slots) {
    return (struct pn_engine_options){
        .model_path = tiny_model, .ctx = 64, .slots = slots, .threads = 1};
}

static void same_rows(const struct answer *a, size_t a_i, const struct answer *b, size_t b_i,
                      size_t n) {
    assert_true(a_i + n <= a->row_n && b_i + n <= b->row_n);
    assert_int_equal(a->vocab, b->vocab);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(a->positions[a_i + i], b->positions[b_i + i]);
        assert_memory_equal(a->rows + (a_i + i) * a->vocab, b->rows + (b_i + i) * b->vocab,
                            a->vocab * sizeof(float));
    }
}

/* A prompt in two requests, with three tokens produced between them, against the same ids at once.
 */
static void going_on(void **state) {
    (void)state;
    for (size_t f = 0; f < PN_ARRAY_N(families); f++) {
        struct golden g;
        assert_true(golden_load(families[f], false, &g));
        struct pn_engine_options o = options_for(&g, 2, 16);
        pn_engine *e = open_engine(&o);
        struct ids ids = make_ids(g.vocab, 100, 11);
        struct answer whole;
        struct answer first;
        struct answer second;
        pn_session *a = new_session(e);
        pn_session *b = new_session(e);
        ask(e, a, (struct pn_request){.tokens = ids.ids, .token_n = 100, .all_logits = true},
            PN_STOP_LENGTH, &whole);
        assert_int_equal(whole.row_n, 100);
        assert_int_equal(pn_session_length(a), 100);

        /* 37 of the prompt, 3 scripted; the last of them is not computed yet. */
        ask(e, b,
            (struct pn_request){.tokens = ids.ids,
                                .token_n = 37,
                                .max_new = 3,
                                .script = ids.ids + 37,
                                .script_n = 3,
                                .all_logits = true},
            PN_STOP_LENGTH, &first);
        assert_int_equal(first.row_n, 39);
        assert_int_equal(first.done.prompt_n, 37);
        assert_int_equal(first.done.decode_n, 3);
        assert_int_equal(pn_session_length(b), 39);
        same_rows(&whole, 0, &first, 0, 39);
        ask(e, b, (struct pn_request){.tokens = ids.ids + 40, .token_n = 60, .all_logits = true},
            PN_STOP_LENGTH, &second);
        assert_int_equal(second.row_n, 61);
        assert_int_equal(second.done.prompt_n, 61);
        same_rows(&whole, 39, &second, 0, 61);
        answer_free(&whole);
        answer_free(&first);
        answer_free(&second);
        free(ids.ids);
        pn_engine_free(e);
        golden_free(&g);
    }
}

/* What a slot held before must not show: pages and recurrent state start anew. */
static void slot_serves_again(void **state) {
    (void)state;
    for (size_t f = 0; f < PN_ARRAY_N(families); f++) {
        struct golden g;
        assert_true(golden_load(families[f], false, &g));
        struct pn_engine_options o = options_for(&g, 1, 32);
        struct ids before = make_ids(g.vocab, 250, 3);
        struct ids ids = make_ids(g.vocab, 90, 4);
        struct pn_request r = {.tokens = ids.ids, .token_n = 90, .all_logits = true};
        struct answer fresh;
        struct answer again;
        struct answer other;
        pn_engine *e = open_engine(&o);
        pn_session *s = new_session(e);
        ask(e, s, r, PN_STOP_LENGTH, &fresh);
        pn_session_free(s);
        s = new_session(e);
        assert_int_equal(pn_session_length(s), 0);
        ask(e, s, (struct pn_request){.tokens = before.ids, .token_n = 250, .max_new = 3},
            PN_STOP_LENGTH, &other);
        assert_int_equal(other.token_n, 3);
        pn_session_free(s);
        s = new_session(e);
        ask(e, s, r, PN_STOP_LENGTH, &again);
        same_rows(&fresh, 0, &again, 0, 90);
        pn_engine_free(e);
        answer_free(&fresh);
        answer_free(&again);
        answer_free(&other);
        free(before.ids);
        free(ids.ids);
        golden_free(&g);
    }
}

/* A session that went astray after a common beginning is cut back and told the right way: the bits
 * of one that never did, and only what isn't kept is computed. What can't be gone back to is
 * computed anew. */
static void cutting_back(void **state) {
    (void)state;
    static const struct {
        const char *family;
        uint32_t held; /* prompt, of which the last 20 are wrong; then 3 tokens */
        uint32_t cut;
        uint32_t kept;
        enum pn_kv_choice kv;
    } cases[] = {
        {"llama-gqa", 90, 70, 70, 0},
        {"llama-gqa", 90, 64, 64, 0},
        {"llama-gqa", 90, 0, 0, 0},
        {"llama-gqa", 84, 63, 63, 0},
        {"gemma3", 190, 170, 170, 0},
        {"gemma3", 190, 130, 0, 0},
        {"gemma3", 60, 40, 40, 0},
        {"qwen35", 90, 70, 0, 0},
        {"qwen35", 90, 92, 92, 0},
        /* The newest page and the first are held wide, the others in four bits only: a cut into one
         * of those goes on from its start. */
        {"llama-gqa", 200, 195, 195, PN_KV_CHOICE_Q4},
        {"llama-gqa", 200, 192, 192, PN_KV_CHOICE_Q4},
        {"llama-gqa", 200, 150, 128, PN_KV_CHOICE_Q4},
        {"llama-gqa", 200, 128, 128, PN_KV_CHOICE_Q4},
        {"llama-gqa", 200, 127, 64, PN_KV_CHOICE_Q4},
        {"llama-gqa", 200, 50, 50, PN_KV_CHOICE_Q4},
        {"gemma3", 190, 170, 170, PN_KV_CHOICE_Q4},
        {"gemma3", 190, 130, 0, PN_KV_CHOICE_Q4},
        {"qwen35", 200, 150, 0, PN_KV_CHOICE_Q4},
    };
    for (size_t i = 0; i < PN_ARRAY_N(cases); i++) {
        struct golden g;
        assert_true(golden_load(cases[i].family, false, &g));
        struct pn_engine_options o = options_for(&g, 2, 16);
        o.kv = cases[i].kv;
        struct ids ids = make_ids(g.vocab, 250, 21);
        struct ids astray = make_ids(g.vocab, 250, 21);
        struct pn_detail d = {{0}};
        struct pn_engine_stats stats;
        struct answer before;
        struct answer again;
        struct answer whole;
        pn_engine *e = open_engine(&o);
        pn_session *s = new_session(e);
        uint32_t kept = 12345;
        for (uint32_t t = cases[i].held - 20; t < cases[i].held && cases[i].cut < t; t++) {
            astray.ids[t] = (ids.ids[t] + 1) % (int32_t)g.vocab;
        }
        ask(e, s,
            (struct pn_request){.tokens = astray.ids,
                                .token_n = cases[i].held,
                                .max_new = 3,
                                .script = astray.ids + cases[i].held,
                                .script_n = 3},
            PN_STOP_LENGTH, &before);
        assert_int_equal(pn_session_length(s), cases[i].held + 2);
        PN_ASSERT_OK(pn_session_truncate(s, cases[i].cut, &d, &kept), &d);
        if (kept != cases[i].kept) fail_msg("case %zu: %u tokens kept", i, kept);
        assert_int_equal(pn_session_length(s), kept);
        pn_engine_stats_reset(e);
        ask(e, s,
            (struct pn_request){
                .tokens = ids.ids + kept, .token_n = 250 - kept, .all_logits = true},
            PN_STOP_LENGTH, &again);
        pn_engine_stats(e, &stats);
        assert_int_equal(stats.prefill_token_n, 250 - kept);
        ask(e, new_session(e),
            (struct pn_request){.tokens = ids.ids, .token_n = 250, .all_logits = true},
            PN_STOP_LENGTH, &whole);
        same_rows(&whole, kept, &again, 0, 250 - kept);
        answer_free(&before);
        answer_free(&again);
        answer_free(&whole);
        pn_engine_free(e);
        free(ids.ids);
        free(astray.ids);
        golden_free(&g);
    }
}

static void turn(pn_engine *e, bool more_wanted) {
    struct pn_detail d = {{0}};
    bool more;
    PN_ASSERT_OK(pn_engine_turn(e, &more, &d), &d);
    assert_int_equal(more, more_wanted);
}

static void steps_allocate_nothing(void **state) {
    (void)state;
    static const struct pn_sampling ways[] = {{.temp = 0.0f},
                                              {.temp = 0.8f, .top_k = 20, .top_p = 0.9f}};
    for (size_t f = 0; f < PN_ARRAY_N(families); f++) {
        struct golden g;
        assert_true(golden_load(families[f], false, &g));
        struct pn_engine_options o = options_for(&g, 2, 16);
        pn_engine *e = open_engine(&o);
        struct pn_detail d = {{0}};
        struct ids ids = make_ids(g.vocab, 150, 5);
        for (uint32_t i = 0; i < 2; i++) {
            pn_session *s = new_session(e);
            struct pn_request r = {.tokens = ids.ids + i,
                                   .token_n = 40 + 100 * i,
                                   .max_new = 140,
                                   .sampling = ways[i]};
            PN_ASSERT_OK(pn_session_submit(s, &r, &d), &d);
        }
        uint64_t before = pn__alloc_count();
        for (int i = 0; i < 100; i++) {
            turn(e, true);
        }
        assert_int_equal(pn__alloc_count(), before);
        struct pn_engine_stats stats;
        pn_engine_stats(e, &stats);
        assert_int_equal(stats.prefill_token_n, 180);
        assert_true(stats.decode_token_n > 150);
        pn_engine_free(e);
        free(ids.ids);
        golden_free(&g);
    }
}

static void cancel(pn_session *s) {
    struct pn_detail d = {{0}};
    PN_ASSERT_OK(pn_session_cancel(s, &d), &d);
}

/* In the queue, in the prompt, while decoding, and when there is nothing to cancel. */
static void cancelling(void **state) {
    (void)state;
    struct golden g;
    assert_true(golden_load("qwen35", false, &g));
    struct pn_engine_options o = options_for(&g, 1, 8);
    pn_engine *e = open_engine(&o);
    pn_session *s = new_session(e);
    struct pn_detail d = {{0}};
    struct ids ids = make_ids(g.vocab, 100, 6);
    struct answer a;
    struct pn_request r = {.tokens = ids.ids, .token_n = 100, .max_new = 50};
    answer_init(&a, &r);

    /* Nothing under way: forgotten, not kept for the next. */
    struct answer first;
    cancel(s);
    ask(e, s, (struct pn_request){.tokens = ids.ids, .token_n = 3}, PN_STOP_LENGTH, &first);
    pn_session_free(s);
    s = new_session(e);

    PN_ASSERT_OK(pn_session_submit(s, &r, &d), &d);
    cancel(s);
    cancel(s);
    turn(e, false);
    assert_int_equal(a.done_n, 1);
    assert_int_equal(a.done.stop, PN_STOP_CANCELLED);
    assert_int_equal(a.done.prompt_n, 0);
    assert_int_equal(pn_session_length(s), 0);

    answer_init(&a, &r);
    PN_ASSERT_OK(pn_session_submit(s, &r, &d), &d);
    for (int i = 0; i < 3; i++) {
        turn(e, true);
    }
    cancel(s);
    turn(e, false);
    assert_int_equal(a.done_n, 1);
    assert_int_equal(a.done.stop, PN_STOP_CANCELLED);
    assert_int_equal(a.done.prompt_n, 24);
    assert_int_equal(a.token_n, 0);
    assert_int_equal(pn_session_length(s), 24);

    /* What was computed stays: going on from there gives the bits of a prompt never cut. */
    struct answer rest;
    struct answer whole;
    ask(e, s, (struct pn_request){.tokens = ids.ids + 24, .token_n = 76, .all_logits = true},
        PN_STOP_LENGTH, &rest);
    pn_session_free(s);
    s = new_session(e);
    ask(e, s, (struct pn_request){.tokens = ids.ids, .token_n = 100, .all_logits = true},
        PN_STOP_LENGTH, &whole);
    same_rows(&whole, 24, &rest, 0, 76);

    answer_free(&a);
    answer_init(&a, &r);
    r.token_n = 10;
    PN_ASSERT_OK(pn_session_submit(s, &r, &d), &d);
    while (a.token_n < 5) {
        turn(e, true);
    }
    cancel(s);
    turn(e, false);
    assert_int_equal(a.done.stop, PN_STOP_CANCELLED);
    assert_int_equal(a.done_n, 1);
    assert_int_equal(a.done.decode_n, 5);
    assert_int_equal(a.token_n, 5);
    cancel(s);
    turn(e, false);
    assert_int_equal(a.done_n, 1);
    answer_free(&a);
    answer_free(&rest);
    answer_free(&whole);
    free(ids.ids);
    pn_engine_free(e);
    golden_free(&g);
}

static void expect_refusal(pn_session *s, struct pn_request r, int code, const char *named) {
    struct pn_detail d = {{0}};
    struct answer a;
    answer_init(&a, &r);
    assert_int_equal(pn_session_submit(s, &r, &d), code);
    if (!strstr(d.text, named)) fail_msg("'%s' doesn't say '%s'", d.text, named);
    assert_int_equal(a.done_n + a.token_n + a.row_n, 0);
}

static void refusals(void **state) {
    (void)state;
    struct pn_engine_options o = tiny_options(2);
    pn_engine *e = open_engine(&o);
    pn_session *s = new_session(e);
    pn_session *other = new_session(e);
    pn_session *third = s;
    struct pn_detail d = {{0}};
    assert_int_equal(pn_session_new(e, &d, &third), PN_E_BUSY);
    assert_null(third);
    assert_non_null(strstr(d.text, "all 2 slots"));

    int32_t ids[65] = {0};
    expect_refusal(s, (struct pn_request){.tokens = ids}, PN_E_INVALID, "empty prompt");
    expect_refusal(s, (struct pn_request){.token_n = 3}, PN_E_INVALID, "empty prompt");
    static const struct {
        int32_t id;
        const char *named;
    } bad[] = {{-1, "token -1 at position 2"},
               {40, "token 40 at position 2"},
               {INT32_MAX, "token 2147483647 at position 2"},
               {INT32_MIN, "token -2147483648 at position 2"}};
    for (size_t i = 0; i < PN_ARRAY_N(bad); i++) {
        ids[2] = bad[i].id;
        expect_refusal(s, (struct pn_request){.tokens = ids, .token_n = 3}, PN_E_INVALID,
                       bad[i].named);
        struct pn_request r = {
            .tokens = ids, .token_n = 2, .max_new = 9, .script = ids, .script_n = 3};
        expect_refusal(s, r, PN_E_INVALID, "at place 2 of the script: the vocabulary has 0 to 39");
    }
    ids[2] = 39;
    expect_refusal(s, (struct pn_request){.tokens = ids, .token_n = 1, .script_n = 1}, PN_E_INVALID,
                   "script without tokens");
    static const struct pn_sampling ways[] = {
        {.temp = -1.0f},
        {.temp = __builtin_nanf("")},
        {.temp = __builtin_inff()},
        {.top_k = -1},
        {.top_p = 1.5f},
        {.top_p = __builtin_nanf("")},
        {.min_p = -0.1f},
        {.min_p = __builtin_nanf("")},
    };
    for (size_t i = 0; i < PN_ARRAY_N(ways); i++) {
        struct pn_request r = {.tokens = ids, .token_n = 1, .sampling = ways[i]};
        expect_refusal(s, r, PN_E_INVALID, "must be");
    }

    expect_refusal(s, (struct pn_request){.tokens = ids, .token_n = 65}, PN_E_CONTEXT,
                   "65 tokens behind the 0");
    expect_refusal(s, (struct pn_request){.tokens = ids, .token_n = 65}, PN_E_CONTEXT,
                   "the context of 64");
    struct answer a;
    ask(e, s, (struct pn_request){.tokens = ids, .token_n = 10, .max_new = 2}, PN_STOP_LENGTH, &a);
    answer_free(&a);
    /* 10 and a token are computed, one more was handed out. */
    expect_refusal(s, (struct pn_request){.tokens = ids, .token_n = 53}, PN_E_CONTEXT,
                   "53 tokens behind the 12");
    uint32_t kept;
    assert_int_equal(pn_session_truncate(s, 12, &d, &kept), PN_E_INVALID);
    assert_non_null(strstr(d.text, "back to 12 tokens: the session holds 11"));
    assert_int_equal(kept, 11);
    struct pn_request r = {.tokens = ids, .token_n = 52};
    PN_ASSERT_OK(pn_session_submit(s, &r, &d), &d);
    expect_refusal(s, r, PN_E_STATE, "under way");
    assert_int_equal(pn_session_truncate(s, 3, &d, &kept), PN_E_STATE);
    turn(e, false);
    assert_int_equal(pn_session_length(s), 64);
    /* The refusals left the other slot as it was, and a freed slot is free. */
    ask(e, other, (struct pn_request){.tokens = ids, .token_n = 64}, PN_STOP_LENGTH, &a);
    pn_session_free(s);
    PN_ASSERT_OK(pn_session_new(e, &d, &third), &d);
    pn_session_free(NULL);
    pn_engine_free(e);
    pn_engine_free(NULL);
}

static void context_is_full(void **state) {
    (void)state;
    struct pn_engine_options o = tiny_options(1);
    pn_engine *e = open_engine(&o);
    pn_session *s = new_session(e);
    int32_t ids[64] = {0};
    struct answer a;
    ask(e, s, (struct pn_request){.tokens = ids, .token_n = 60, .max_new = 100}, PN_STOP_CONTEXT,
        &a);
    /* Behind each of the positions 59 to 63 a token is chosen. */
    assert_int_equal(a.token_n, 5);
    assert_int_equal(a.done.decode_n, 5);
    assert_int_equal(pn_session_length(s), 64);
    expect_refusal(s, (struct pn_request){.tokens = ids, .token_n = 1}, PN_E_CONTEXT,
                   "1 tokens behind the 65");
    answer_free(&a);
    pn_session_free(s);
    s = new_session(e);
    ask(e, s, (struct pn_request){.tokens = ids, .token_n = 64, .max_new = 1}, PN_STOP_LENGTH, &a);
    assert_int_equal(a.token_n, 1);
    answer_free(&a);
    pn_engine_free(e);
}

static void queue_is_full(void **state) {
    (void)state;
    struct pn_engine_options o = tiny_options(70);
    pn_engine *e = open_engine(&o);
    pn_session *s[70];
    static struct answer a[70];
    struct pn_detail d = {{0}};
    int32_t ids[3] = {1, 2, 3};
    for (int i = 0; i < 70; i++) {
        s[i] = new_session(e);
    }
    for (int i = 0; i < 64; i++) {
        struct pn_request r = {.tokens = ids, .token_n = 3, .max_new = 2};
        answer_init(&a[i], &r);
        PN_ASSERT_OK(pn_session_submit(s[i], &r, &d), &d);
    }
    struct pn_request late = {.tokens = ids, .token_n = 3, .max_new = 2};
    expect_refusal(s[64], late, PN_E_BUSY, "64");
    cancel(s[7]); /* has a place of its own */
    drive(e);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(a[i].done_n, 1);
        assert_int_equal(a[i].done.stop, i == 7 ? PN_STOP_CANCELLED : PN_STOP_LENGTH);
        answer_free(&a[i]);
    }
    ask(e, s[64], late, PN_STOP_LENGTH, &a[64]);
    answer_free(&a[64]);
    pn_engine_free(e);
}

/* With requests queued and under way, an engine gives everything back. */
static void freed_in_the_middle(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    uint64_t before = ledger_reserved();
    struct pn_engine_options o = tiny_options(3);
    pn_engine *e = open_engine(&o);
    int32_t ids[3] = {1, 2, 3};
    struct pn_request r = {.tokens = ids, .token_n = 3, .max_new = 40};
    PN_ASSERT_OK(pn_session_submit(new_session(e), &r, &d), &d);
    turn(e, true);
    turn(e, true);
    PN_ASSERT_OK(pn_session_submit(new_session(e), &r, &d), &d);
    cancel(new_session(e));
    pn_engine_free(e);
    assert_int_equal(ledger_reserved(), before);
}

static int setup(void **state) {
    tiny_tree_setup(state);
    snprintf(tiny_model, sizeof tiny_model, "%s/tiny.gguf", tiny_tree.root);
    tiny_write(&tiny_llama, NULL, tiny_model);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(going_on),
        cmocka_unit_test(slot_serves_again),
        cmocka_unit_test(cancelling),
        cmocka_unit_test(cutting_back),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(refusals),
        cmocka_unit_test(context_is_full),
        cmocka_unit_test(queue_is_full),
        cmocka_unit_test(freed_in_the_middle),
    };
    return cmocka_run_group_tests(tests, setup, tiny_tree_teardown);
}
