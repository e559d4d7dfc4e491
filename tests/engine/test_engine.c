/* Many requests at once: in one thread's callbacks, from many threads, with rows of logits shared
 * out; and a model whose numbers go wrong. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "engine/drive.h"
#include "engine/golden.h"
#include "engine/tiny.h"

static char tiny_model[128];
static char nan_norm_path[128];
static char nan_token_path[128];

#define VOCAB 40u

static struct pn_engine_options options_of(const char *path, uint32_t slots) {
    return (struct pn_engine_options){
        .model_path = path, .ctx = 256, .slots = slots, .chunk = 16, .threads = 2};
}

static void submit(pn_session *s, const struct pn_request *r) {
    struct pn_detail d = {{0}};
    PN_ASSERT_OK(pn_session_submit(s, r, &d), &d);
}

/* ---- callbacks that ask for more ---- */

struct chain {
    pn_session *self;
    pn_session *other;
    struct answer *other_answer;
    uint32_t left;
    uint32_t done_n;
    uint32_t token_n;
    enum pn_stop stops[16];
};

static const int32_t chain_ids[4] = {5, 6, 7, 8};

static void chain_done(void *user, const struct pn_done *done);

static bool chain_token(void *user, int32_t token) {
    struct chain *c = user;
    assert_in_range(token, 0, VOCAB - 1);
    c->token_n++;
    return true;
}

static struct pn_request chain_request(struct chain *c) {
    return (struct pn_request){.tokens = chain_ids,
                               .token_n = 4,
                               .max_new = 3,
                               .on_token = chain_token,
                               .on_done = chain_done,
                               .user = c};
}

static void chain_done(void *user, const struct pn_done *done) {
    struct chain *c = user;
    c->stops[c->done_n++] = done->stop;
    if (c->left == 0) return;
    c->left--;
    struct pn_request r = chain_request(c);
    submit(c->self, &r);
    if (c->left == 2) {
        struct pn_request o = {.tokens = chain_ids, .token_n = 4, .max_new = 2};
        answer_init(c->other_answer, &o);
        submit(c->other, &o);
    }
}

static void next_from_on_done(void **state) {
    (void)state;
    struct pn_engine_options o = options_of(tiny_model, 2);
    pn_engine *e = open_engine(&o);
    struct answer other = {0};
    struct chain c = {
        .self = new_session(e), .other = new_session(e), .other_answer = &other, .left = 5};
    struct pn_request r = chain_request(&c);
    submit(c.self, &r);
    drive(e);
    assert_int_equal(c.done_n, 6);
    assert_int_equal(c.token_n, 18);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(c.stops[i], PN_STOP_LENGTH);
    }
    assert_int_equal(other.done_n, 1);
    assert_int_equal(other.token_n, 2);
    /* The last token of each but the last request is computed with the next one's prompt. */
    assert_int_equal(pn_session_length(c.self), 6 * 4 + 6 * 3 - 1);
    answer_free(&other);
    pn_engine_free(e);
}

static bool stop_at_third(void *user, int32_t token) {
    struct chain *c = user;
    (void)token;
    return ++c->token_n < 3;
}

static bool cancel_at_third(void *user, int32_t token) {
    struct chain *c = user;
    struct pn_detail d = {{0}};
    (void)token;
    if (++c->token_n == 3) PN_ASSERT_OK(pn_session_cancel(c->self, &d), &d);
    return true;
}

static void stopping_from_on_token(void **state) {
    (void)state;
    struct pn_engine_options o = options_of(tiny_model, 1);
    pn_engine *e = open_engine(&o);
    struct chain c = {.self = new_session(e)};
    struct pn_request r = chain_request(&c);
    r.max_new = 20;
    r.on_token = stop_at_third;
    submit(c.self, &r);
    drive(e);
    assert_int_equal(c.token_n, 3);
    assert_int_equal(c.done_n, 1);
    assert_int_equal(c.stops[0], PN_STOP_CALLER);
    c.token_n = 0;
    r.on_token = cancel_at_third;
    submit(c.self, &r);
    drive(e);
    assert_int_equal(c.token_n, 3);
    assert_int_equal(c.done_n, 2);
    assert_int_equal(c.stops[1], PN_STOP_CANCELLED);
    pn_engine_free(e);
}

/* ---- sharing a step ---- */

/* Prompts that want all their rows through room for fewer than there are of them. */
static void rows_are_shared_out(void **state) {
    (void)state;
    struct ids ids = make_ids(VOCAB, 120, 9);
    struct answer alone;
    struct answer a[3];
    struct pn_request r = {.tokens = ids.ids, .token_n = 50, .max_new = 4, .all_logits = true};
    struct pn_engine_options wide = options_of(tiny_model, 1);
    wide.out_rows = 64;
    pn_engine *e = open_engine(&wide);
    ask(e, new_session(e), r, PN_STOP_LENGTH, &alone);
    pn_engine_free(e);
    assert_int_equal(alone.row_n, 53);

    struct pn_engine_options narrow = options_of(tiny_model, 3);
    e = open_engine(&narrow);
    for (int i = 0; i < 3; i++) {
        answer_init(&a[i], &r);
        r.all_logits = i < 2;
        submit(new_session(e), &r);
    }
    drive(e);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(a[i].done_n, 1);
        assert_int_equal(a[i].done.stop, PN_STOP_LENGTH);
        assert_memory_equal(a[i].tokens, alone.tokens, 4 * sizeof(int32_t));
        assert_int_equal(a[i].row_n, i < 2 ? 53 : 4);
        size_t skip = alone.row_n - a[i].row_n;
        for (size_t k = 0; k < a[i].row_n; k++) {
            assert_int_equal(a[i].positions[k], skip + k);
        }
        assert_memory_equal(a[i].rows, alone.rows + skip * VOCAB,
                            a[i].row_n * VOCAB * sizeof(float));
        answer_free(&a[i]);
    }
    answer_free(&alone);
    pn_engine_free(e);
    free(ids.ids);
}

/* A long prompt and a decoding session take turns: neither waits for the other's end. */
static void prompt_beside_decode(void **state) {
    (void)state;
    struct pn_engine_options o = options_of(tiny_model, 2);
    pn_engine *e = open_engine(&o);
    struct ids ids = make_ids(VOCAB, 200, 9);
    struct pn_detail d = {{0}};
    struct answer a;
    struct answer b;
    bool more;
    struct pn_request r = {.tokens = ids.ids, .token_n = 3, .max_new = 100};
    answer_init(&a, &r);
    submit(new_session(e), &r);
    PN_ASSERT_OK(pn_engine_turn(e, &more, &d), &d);
    struct pn_request p = {.tokens = ids.ids, .token_n = 200, .max_new = 1};
    answer_init(&b, &p);
    submit(new_session(e), &p);
    while (b.token_n == 0) {
        PN_ASSERT_OK(pn_engine_turn(e, &more, &d), &d);
    }
    /* 200 tokens in chunks of 16 are 13 steps, each with a row of the other. */
    assert_int_equal(a.token_n, 1 + 13);
    drive(e);
    assert_int_equal(a.token_n, 100);
    answer_free(&a);
    answer_free(&b);
    pn_engine_free(e);
    free(ids.ids);
}

static void seeds(void **state) {
    (void)state;
    struct pn_engine_options o = options_of(tiny_model, 2);
    pn_engine *e = open_engine(&o);
    struct answer a[3];
    struct pn_request r = {.tokens = chain_ids,
                           .token_n = 4,
                           .max_new = 60,
                           .sampling = {.temp = 1.0f, .top_p = 1.0f, .seed = 8}};
    for (int i = 0; i < 3; i++) {
        pn_session *s = new_session(e);
        r.sampling.seed = i < 2 ? 8 : 9;
        ask(e, s, r, PN_STOP_LENGTH, &a[i]);
        if (i) pn_session_free(s); /* the second and third use another slot than the first */
    }
    assert_memory_equal(a[0].tokens, a[1].tokens, 60 * sizeof(int32_t));
    assert_memory_not_equal(a[0].tokens, a[2].tokens, 60 * sizeof(int32_t));
    for (int i = 0; i < 3; i++) {
        answer_free(&a[i]);
    }
    pn_engine_free(e);
}

/* ---- many threads ---- */

#define CLIENTS 4
#define ROUNDS 40

struct client {
    pn_session *session;
    uint32_t number;
    const int32_t *want; /* greedy tokens of a request that isn't cancelled */
    uint32_t token_n;
    int32_t tokens[8];
    uint32_t cancelled_n;
    uint32_t wrong_n;
    uint32_t refused_wrongly_n; /* the driver's */
    _Atomic uint32_t done_n;
    enum pn_stop stop;
};

static _Atomic uint32_t clients_running;

static bool client_token(void *user, int32_t token) {
    struct client *c = user;
    if (c->token_n < PN_ARRAY_N(c->tokens)) c->tokens[c->token_n] = token;
    c->token_n++;
    /* A second request is refused while the first is under way, as it surely is here. */
    struct pn_detail d;
    struct pn_request r = {.tokens = &token, .token_n = 1};
    if (pn_session_submit(c->session, &r, &d) != PN_E_STATE) c->refused_wrongly_n++;
    return true;
}

static void client_done(void *user, const struct pn_done *done) {
    struct client *c = user;
    c->stop = done->stop;
    /* Release: the client's acquire sees tokens and stop. */
    atomic_fetch_add_explicit(&c->done_n, 1, memory_order_release);
}

/* Asserts don't work off the main thread: what is wrong is counted. */
static void *client_main(void *arg) {
    struct client *c = arg;
    struct pn_detail d;
    struct pn_request r = {.tokens = chain_ids,
                           .token_n = 4,
                           .max_new = 1,
                           .on_token = client_token,
                           .on_done = client_done,
                           .user = c};
    for (uint32_t i = 0; i < ROUNDS; i++) {
        bool cancel = (i + c->number) % 3 == 0;
        r.max_new = cancel ? 8 : 3;
        c->token_n = 0;
        if (pn_session_submit(c->session, &r, &d) != 0) {
            c->wrong_n++;
            break;
        }
        if (cancel && pn_session_cancel(c->session, &d) != 0) c->wrong_n++;
        while (atomic_load_explicit(&c->done_n, memory_order_acquire) == i) {
            sched_yield();
        }
        c->cancelled_n += c->stop == PN_STOP_CANCELLED;
        /* The session's first request answers what a lone one does. */
        bool same = i > 0 || c->stop != PN_STOP_LENGTH || cancel ||
                    memcmp(c->tokens, c->want, 3 * sizeof(int32_t)) == 0;
        bool length = cancel || (c->stop == PN_STOP_LENGTH && c->token_n == 3);
        bool context = c->stop == PN_STOP_CONTEXT;
        if (!same || !(length || context) || c->stop == PN_STOP_ERROR) c->wrong_n++;
    }
    atomic_fetch_sub_explicit(&clients_running, 1, memory_order_release);
    return NULL;
}

static void many_threads(void **state) {
    (void)state;
    struct pn_engine_options o = options_of(tiny_model, CLIENTS + 1);
    o.ctx = 0; /* all 2048 of the model, so that no session fills up */
    pn_engine *e = open_engine(&o);
    struct answer alone;
    ask(e, new_session(e), (struct pn_request){.tokens = chain_ids, .token_n = 4, .max_new = 3},
        PN_STOP_LENGTH, &alone);
    static struct client clients[CLIENTS];
    pthread_t threads[CLIENTS];
    atomic_store(&clients_running, CLIENTS);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i].number = i;
        clients[i].want = alone.tokens;
        clients[i].session = new_session(e);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, client_main, &clients[i]), 0);
    }
    bool more = false;
    struct pn_detail d = {{0}};
    while (more || atomic_load_explicit(&clients_running, memory_order_acquire) > 0) {
        PN_ASSERT_OK(pn_engine_turn(e, &more, &d), &d);
    }
    uint32_t cancelled_n = 0;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(clients[i].wrong_n + clients[i].refused_wrongly_n, 0);
        assert_int_equal(atomic_load(&clients[i].done_n), ROUNDS);
        cancelled_n += clients[i].cancelled_n;
    }
    assert_true(cancelled_n > 0);
    answer_free(&alone);
    pn_engine_free(e);
}

/* ---- numbers that go wrong ---- */

/* Whoever chooses the tokens: a row that isn't finite is never shown and ends the request. */
static void not_finite_everywhere(void **state) {
    (void)state;
    struct pn_engine_options o = options_of(nan_norm_path, 1);
    pn_engine *e = open_engine(&o);
    const struct pn_request ways[] = {
        {.tokens = chain_ids, .token_n = 4, .max_new = 5},
        {.tokens = chain_ids, .token_n = 4, .max_new = 5, .sampling = {.temp = 1.0f}},
        {.tokens = chain_ids, .token_n = 4, .max_new = 4, .script = chain_ids, .script_n = 4},
        {.tokens = chain_ids, .token_n = 4, .all_logits = true},
    };
    for (size_t i = 0; i < PN_ARRAY_N(ways); i++) {
        struct answer a;
        pn_session *s = new_session(e);
        ask(e, s, ways[i], PN_STOP_ERROR, &a);
        assert_int_equal(a.done.error, PN_E_NUMERIC);
        assert_non_null(strstr(a.done.detail.text, "nan"));
        assert_int_equal(a.row_n, 0);
        assert_int_equal(a.token_n, 0);
        assert_int_equal(a.done.decode_n, 0);
        pn_session_free(s);
    }
    /* No logits, nothing to look at: the next request of the session finds it. */
    struct answer a;
    pn_session *s = new_session(e);
    ask(e, s, (struct pn_request){.tokens = chain_ids, .token_n = 4}, PN_STOP_LENGTH, &a);
    ask(e, s, (struct pn_request){.tokens = chain_ids, .token_n = 1, .max_new = 1}, PN_STOP_ERROR,
        &a);
    assert_int_equal(a.done.error, PN_E_NUMERIC);
    pn_engine_free(e);
}

/* Token 0 alone has an embedding that isn't finite: who uses it fails, at the row where it shows,
 * and those beside it get the bits that they get alone. */
static void not_finite_beside_others(void **state) {
    (void)state;
    struct answer alone;
    struct answer beside;
    struct answer bad;
    static const int32_t script[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct pn_request r = {.tokens = chain_ids,
                           .token_n = 4,
                           .max_new = 9,
                           .script = script,
                           .script_n = 9,
                           .all_logits = true};
    struct pn_engine_options o = options_of(tiny_model, 1);
    o.out_rows = 16;
    pn_engine *e = open_engine(&o);
    ask(e, new_session(e), r, PN_STOP_LENGTH, &alone);
    pn_engine_free(e);

    o = options_of(nan_token_path, 2);
    o.out_rows = 16;
    e = open_engine(&o);
    pn_session *s = new_session(e);
    const int32_t with_0[5] = {3, 4, 0, 5, 6};
    struct pn_request b = {.tokens = with_0, .token_n = 5, .max_new = 9, .all_logits = true};
    answer_init(&bad, &b);
    submit(s, &b);
    ask(e, new_session(e), r, PN_STOP_LENGTH, &beside);
    assert_int_equal(bad.done_n, 1);
    assert_int_equal(bad.done.stop, PN_STOP_ERROR);
    assert_int_equal(bad.done.error, PN_E_NUMERIC);
    assert_non_null(strstr(bad.done.detail.text, "position 2"));
    assert_int_equal(bad.row_n, 2);
    assert_int_equal(beside.row_n, alone.row_n);
    assert_memory_equal(beside.rows, alone.rows, alone.row_n * VOCAB * sizeof(float));
    /* The slot is as good as new once it is freed. */
    pn_session_free(s);
    answer_free(&beside);
    ask(e, new_session(e), r, PN_STOP_LENGTH, &beside);
    assert_memory_equal(beside.rows, alone.rows, alone.row_n * VOCAB * sizeof(float));
    answer_free(&alone);
    answer_free(&beside);
    answer_free(&bad);
    pn_engine_free(e);
}

static int setup(void **state) {
    struct tiny t = tiny_llama;
    t.ctx = 2048;
    tiny_tree_setup(state);
    snprintf(tiny_model, sizeof tiny_model, "%s/tiny.gguf", tiny_tree.root);
    snprintf(nan_norm_path, sizeof nan_norm_path, "%s/nan-norm.gguf", tiny_tree.root);
    snprintf(nan_token_path, sizeof nan_token_path, "%s/nan-token.gguf", tiny_tree.root);
    tiny_write(&t, NULL, tiny_model);
    tiny_write(&t, &(struct tiny_edit){.not_finite = "blk.1.ffn_norm.weight"}, nan_norm_path);
    tiny_write(&t, &(struct tiny_edit){.not_finite = "token_embd.weight"}, nan_token_path);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_from_on_done),
        cmocka_unit_test(stopping_from_on_token),
        cmocka_unit_test(rows_are_shared_out),
        cmocka_unit_test(prompt_beside_decode),
        cmocka_unit_test(seeds),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(not_finite_everywhere),
        cmocka_unit_test(not_finite_beside_others),
    };
    return cmocka_run_group_tests(tests, setup, tiny_tree_teardown);
}
