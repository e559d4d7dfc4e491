/* Tickets of a loaded engine: what is estimated is what is booked and taken; refusals say what is
 * lacking; a request that waits for memory goes on with the same bits; the oldest always finishes.
 * The machine is a folder of our own making, and nobody watches it: the engine looks itself. */
#include <pthread.h>
#include <stdatomic.h>

#include "engine/drive.h"
#include "engine/tiny.h"
#include "ops/ops.h"

#define LARGE (8ull << 30)
#define CTX 1024u
#define PAGE 64u

static char llama[128];
static char gemma[128];
static int32_t ids[CTX];

/* What is booked of KV and state, and what of it is committed. */
static pn_ledger_row taken(void) {
    pn_ledger_view v;
    pn_ledger_row sum = {0};
    static const unsigned owners[] = {PN_OWNER_KV, PN_OWNER_STATE};
    pn_ledger_read(&v);
    for (size_t i = 0; i < PN_ARRAY_N(owners); i++) {
        sum.reserved_bytes += v.cells[PN_PLACE_HOST][owners[i]].reserved_bytes;
        sum.committed_bytes += v.cells[PN_PLACE_HOST][owners[i]].committed_bytes;
    }
    return sum;
}

static pn_engine *open_tiny(const char *path, uint32_t slots) {
    struct pn_engine_options o = {
        .model_path = path, .ctx = CTX, .slots = slots, .threads = 1, .root = tiny_tree.root};
    tiny_machine(LARGE);
    return open_engine(&o);
}

/* From the next look on the machine can give `bytes` beyond what is promised already. */
static void leave(uint64_t bytes) {
    pn_ledger_row all;
    pn_ledger_view v;
    pn_ledger_read(&v);
    all = v.places[PN_PLACE_HOST];
    tiny_machine((all.reserved_bytes - all.committed_bytes + bytes) / 1024 * 1024);
    pn_ledger_sample(tiny_tree.root);
}

static uint64_t cost_of(const pn_engine *e, int n_prompt, int n_new) {
    pn_admit_cost cost;
    pn_admit_bytes b;
    pn_engine_cost(e, &cost);
    assert_int_equal(pn_admit_cost_bytes(&cost, n_prompt, n_new, &b), 0);
    return b.all;
}

static bool turn(pn_engine *e) {
    struct pn_detail d = {{0}};
    bool more;
    PN_ASSERT_OK(pn_engine_turn(e, &more, &d), &d);
    return more;
}

static void submit(pn_session *s, struct pn_request r) {
    struct pn_detail d = {{0}};
    PN_ASSERT_OK(pn_session_submit(s, &r, &d), &d);
}

static void refused(pn_session *s, struct pn_request r, int code, const char *named) {
    struct pn_detail d = {{0}};
    uint64_t before = ledger_reserved();
    assert_int_equal(pn_session_submit(s, &r, &d), code);
    if (!strstr(d.text, named)) fail_msg("'%s' doesn't say '%s'", d.text, named);
    assert_int_equal(ledger_reserved(), before);
}

/* ---- what a session takes ---- */

/* A second request of a session pays for what the first didn't. */
static void going_on_pays_the_rest(void **state) {
    (void)state;
    static const char *const paths[] = {llama, gemma};
    for (size_t i = 0; i < PN_ARRAY_N(paths); i++) {
        pn_engine *e = open_tiny(paths[i], 2);
        pn_session *s = new_session(e);
        struct answer a;
        assert_int_equal(taken().reserved_bytes, 0);
        submit(s, (struct pn_request){.tokens = ids, .token_n = 100, .max_new = 30});
        assert_int_equal(taken().reserved_bytes, cost_of(e, 100, 29));
        assert_int_equal(taken().committed_bytes, 0);
        drive(e);
        /* Between requests a session pays for the pages that it has, and for nothing else. */
        assert_int_equal(pn_session_length(s), 129);
        assert_int_equal(taken().reserved_bytes, taken().committed_bytes);
        assert_in_range(taken().reserved_bytes, 1, cost_of(e, 129, 0));
        submit(s, (struct pn_request){.tokens = ids, .token_n = 200, .max_new = 1});
        assert_int_equal(taken().reserved_bytes, cost_of(e, 330, 0));
        drive(e);
        ask(e, new_session(e), (struct pn_request){.tokens = ids, .token_n = 1}, PN_STOP_LENGTH,
            &a);
        answer_free(&a);
        pn_session_free(s);
        assert_int_equal(taken().reserved_bytes, cost_of(e, 1, 0));
        pn_engine_free(e);
        assert_int_equal(ledger_reserved(), 0);
    }
}

static void cancelled_gives_back(void **state) {
    (void)state;
    struct pn_detail d;
    pn_engine *e = open_tiny(llama, 2);
    pn_session *s = new_session(e);
    submit(s, (struct pn_request){.tokens = ids, .token_n = 500, .max_new = 200});
    assert_int_equal(pn_session_cancel(s, &d), 0);
    turn(e);
    assert_int_equal(taken().reserved_bytes, 0);
    submit(s, (struct pn_request){.tokens = ids, .token_n = 500, .max_new = 200});
    turn(e);
    assert_int_equal(pn_session_cancel(s, &d), 0);
    turn(e);
    assert_int_equal(taken().reserved_bytes, taken().committed_bytes);
    assert_int_equal(taken().reserved_bytes, cost_of(e, 500, 0));
    pn_session_free(s);
    assert_int_equal(taken().reserved_bytes, 0);
    pn_engine_free(e);
}

/* ---- refusals ---- */

static void refusals(void **state) {
    (void)state;
    struct pn_engine_options o = {.model_path = llama,
                                  .ctx = CTX,
                                  .slots = 2,
                                  .threads = 1,
                                  .prefill_window = 900,
                                  .root = tiny_tree.root};
    tiny_machine(LARGE);
    pn_engine *e = open_engine(&o);
    pn_session *s = new_session(e);
    struct answer a;
    char want[128];
    /* Never: longer than the context or the window. */
    refused(s, (struct pn_request){.tokens = ids, .token_n = 901}, PN_E_CONTEXT,
            "a prompt of 901 tokens; the prefill window is 900");
    int32_t many[CTX + 1] = {0};
    refused(s, (struct pn_request){.tokens = many, .token_n = CTX + 1}, PN_E_CONTEXT,
            "1025 tokens behind the 0 that the session holds are more than the context of 1024");
    /* Not now: bytes. What is lacking, whose they are, and what would fit. */
    uint64_t need = cost_of(e, 500, 0);
    uint64_t page = cost_of(e, PAGE, 0);
    leave(need - 1024);
    snprintf(want, sizeof want, "%llu bytes", (unsigned long long)need);
    refused(s, (struct pn_request){.tokens = ids, .token_n = 500}, PN_E_NOFIT, want);
    snprintf(want, sizeof want, "host has %llu", (unsigned long long)(need - 1024));
    refused(s, (struct pn_request){.tokens = ids, .token_n = 500}, PN_E_NOFIT, want);
    refused(s, (struct pn_request){.tokens = ids, .token_n = 500}, PN_E_NOFIT,
            "the longest prompt that fits has 448 tokens");
    leave(page - 1024);
    refused(s, (struct pn_request){.tokens = ids, .token_n = 1}, PN_E_NOFIT, "would not fit");
    /* It passes: the same request, a moment later. */
    leave(need);
    ask(e, s, (struct pn_request){.tokens = ids, .token_n = 500}, PN_STOP_LENGTH, &a);
    answer_free(&a);
    /* What is held isn't asked for again: 12 tokens are left in its last page. */
    leave(0);
    ask(e, s, (struct pn_request){.tokens = ids, .token_n = 12}, PN_STOP_LENGTH, &a);
    answer_free(&a);
    leave(0);
    refused(s, (struct pn_request){.tokens = ids, .token_n = 1}, PN_E_NOFIT, "would not fit");
    pn_engine_free(e);
    assert_int_equal(ledger_reserved(), 0);
}

static void asked_without_a_watch(void **state) {
    (void)state;
    uint32_t fit;
    pn_engine *e = open_tiny(llama, 1);
    assert_int_equal(pn_admit(e, CTX, &fit), PN_ADMIT_ADMITTED);
    assert_int_equal(fit, CTX);
    assert_int_equal(pn_admit(e, CTX + 1, &fit), PN_ADMIT_CAPPED);
    assert_int_equal(fit, CTX);
    pn_engine_free(e);
}

/* ---- waiting ---- */

static const struct pn_request open_end = {
    .tokens = ids, .token_n = 10, .max_new = PN_NEW_OPEN, .script = ids, .script_n = CTX};

/* Turns until `n` requests wait for memory. */
static void until_parked(pn_engine *e, uint32_t n) {
    struct pn_engine_pressure p;
    for (uint32_t i = 0; i < 2 * CTX; i++) {
        assert_true(turn(e));
        pn_engine_pressure(e, &p);
        if (p.parked_n == n) return;
    }
    fail_msg("never parked");
}

/* The second of two open answers comes to its 513th token when nothing is left, waits while the
 * first goes on, and goes on itself when that has gone. */
static void parked_goes_on_with_the_same_bits(void **state) {
    (void)state;
    static const char *const paths[] = {llama, gemma};
    for (size_t i = 0; i < PN_ARRAY_N(paths); i++) {
        struct answer alone;
        struct answer first;
        struct answer second;
        struct pn_engine_pressure p;
        struct pn_detail d;
        pn_engine *e = open_tiny(paths[i], 2);
        pn_session *b = new_session(e);
        ask(e, b, open_end, PN_STOP_CONTEXT, &alone);
        pn_session_free(b);

        pn_session *a = new_session(e);
        b = new_session(e);
        struct pn_request r = open_end;
        r.token_n = 1;
        answer_init(&first, &r);
        submit(a, r);
        r = open_end;
        answer_init(&second, &r);
        submit(b, r);
        assert_int_equal(taken().reserved_bytes,
                         cost_of(e, 1, CTX - 1) + cost_of(e, 10, PN_ADMIT_NEW_TOKENS));
        leave(0);
        until_parked(e, 1);
        /* Position 0 to 521 are paid for; the token behind the last of them was handed out. */
        assert_int_equal(pn_session_length(b), 522);
        assert_int_equal(second.token_n, 513);
        uint32_t before = first.token_n;
        for (int k = 0; k < 20; k++)
            assert_true(turn(e));
        assert_int_equal(first.token_n, before + 20);
        assert_int_equal(second.token_n, 513);
        pn_engine_pressure(e, &p);
        assert_int_equal(p.running_n, 1);
        assert_int_equal(p.parked_n, 1);
        assert_int_equal(second.done_n, 0);

        assert_int_equal(pn_session_cancel(a, &d), 0);
        turn(e);
        assert_int_equal(first.done.stop, PN_STOP_CANCELLED);
        pn_session_free(a);
        leave(1 << 20);
        drive(e);
        assert_int_equal(second.done.stop, PN_STOP_CONTEXT);
        assert_int_equal(second.row_n, alone.row_n);
        assert_memory_equal(second.rows, alone.rows,
                            alone.row_n * alone.vocab * sizeof *alone.rows);
        answer_free(&alone);
        answer_free(&first);
        answer_free(&second);
        pn_engine_free(e);
        assert_int_equal(ledger_reserved(), 0);
    }
}

/* With all of them waiting the turn waits too, and a look at the machine that has more again is
 * enough: nobody has to release anything. */
static void more_memory_is_noticed(void **state) {
    (void)state;
    struct answer a[2];
    pn_engine *e = open_tiny(llama, 2);
    pn_engine *other = open_tiny(llama, 1);
    /* The oldest is of an engine that nobody drives. */
    submit(new_session(other), open_end);
    for (int i = 0; i < 2; i++) {
        struct pn_request r = open_end;
        answer_init(&a[i], &r);
        submit(new_session(e), r);
    }
    leave(0);
    until_parked(e, 2);
    for (int i = 0; i < 3; i++)
        assert_true(turn(e));
    assert_int_equal(a[0].done_n + a[1].done_n, 0);
    leave(LARGE);
    tiny_machine(LARGE);
    drive(e);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(a[i].done.stop, PN_STOP_CONTEXT);
        answer_free(&a[i]);
    }
    pn_engine_free(e);
    pn_engine_free(other);
    assert_int_equal(ledger_reserved(), 0);
}

/* Four open answers and memory for hardly more than one: each ends, none with an error, and the
 * first with the whole context. */
static void oldest_finishes(void **state) {
    (void)state;
    struct answer a[4];
    pn_engine *e = open_tiny(llama, 4);
    for (int i = 0; i < 4; i++) {
        struct pn_request r = open_end;
        answer_init(&a[i], &r);
        submit(new_session(e), r);
    }
    leave(0);
    /* Nothing is ever measured to be free: what one gives back is all that the next one gets. */
    tiny_machine(0);
    uint32_t turn_n = 0;
    while (turn(e))
        assert_true(++turn_n < 8 * CTX);
    assert_int_equal(a[0].done.stop, PN_STOP_CONTEXT);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(a[i].done_n, 1);
        if (a[i].done.stop != PN_STOP_CONTEXT) {
            assert_int_equal(a[i].done.stop, PN_STOP_MEMORY);
            assert_non_null(strstr(a[i].done.detail.text, "the request ends at "));
            assert_true(a[i].token_n >= PN_ADMIT_NEW_TOKENS);
        }
        answer_free(&a[i]);
    }
    pn_engine_free(e);
    assert_int_equal(ledger_reserved(), 0);
}

/* An open answer on a machine where even the oldest's way isn't there: it ends earlier, and says
 * so. */
static void shortened(void **state) {
    (void)state;
    struct answer a;
    pn_engine *e = open_tiny(llama, 1);
    leave(cost_of(e, 10, 600));
    pn_session *first = new_session(e);
    ask(e, first, open_end, PN_STOP_MEMORY, &a);
    pn_session_free(first);
    /* Room to the end of the page in which the 610th position lies. */
    assert_int_equal(a.token_n, 640 - 10 + 1);
    assert_string_equal(a.done.detail.text, "the request ends at 640 tokens");
    answer_free(&a);

    /* The same, but there is more again when it comes to that end: it goes on as if nothing had
     * been. */
    pn_session *s = new_session(e);
    leave(cost_of(e, 10, 600));
    struct pn_request r = open_end;
    answer_init(&a, &r);
    submit(s, r);
    turn(e);
    leave(1 << 20);
    drive(e);
    assert_int_equal(a.done.stop, PN_STOP_CONTEXT);
    assert_int_equal(a.token_n, CTX - 10 + 1);
    answer_free(&a);
    pn_engine_free(e);
}

static void parked_can_be_cancelled(void **state) {
    (void)state;
    struct answer a;
    struct pn_detail d;
    pn_engine *e = open_tiny(llama, 2);
    pn_engine *other = open_tiny(llama, 1);
    submit(new_session(other), open_end);
    pn_session *s = new_session(e);
    struct pn_request r = open_end;
    answer_init(&a, &r);
    submit(s, r);
    leave(0);
    until_parked(e, 1);
    assert_int_equal(pn_session_cancel(s, &d), 0);
    assert_false(turn(e));
    assert_int_equal(a.done.stop, PN_STOP_CANCELLED);
    /* In the middle of waiting an engine gives everything back as well. */
    pn_session_free(s);
    leave(1 << 20);
    submit(new_session(e), open_end);
    leave(0);
    until_parked(e, 1);
    answer_free(&a);
    pn_engine_free(e);
    pn_engine_free(other);
    assert_int_equal(ledger_reserved(), 0);
}

/* ---- threads ---- */

struct client {
    pthread_t thread;
    pn_session *s;
    _Atomic bool *stop;
    _Atomic int done_n;
    int refused_n;
    _Atomic int submitted_n;
};

static void count_done(void *user, const struct pn_done *done) {
    struct client *c = user;
    if (done->stop == PN_STOP_LENGTH) c->done_n++;
}

static void *ask_often(void *arg) {
    struct client *c = arg;
    struct pn_request r = {
        .tokens = ids, .token_n = 5, .max_new = 3, .on_done = count_done, .user = c};
    while (!*c->stop) {
        struct pn_detail d;
        int rc = pn_session_submit(c->s, &r, &d);
        c->submitted_n += rc == 0;
        c->refused_n += rc != 0;
        if (rc == PN_E_CONTEXT) break;
    }
    return NULL;
}

/* Submits from four threads while one drives: what is accepted is done, and nothing is left. */
static void many_submit(void **state) {
    (void)state;
    struct client clients[4] = {0};
    _Atomic bool stop = false;
    pn_engine *e = open_tiny(llama, 4);
    for (size_t i = 0; i < PN_ARRAY_N(clients); i++) {
        clients[i].s = new_session(e);
        clients[i].stop = &stop;
        assert_int_equal(pthread_create(&clients[i].thread, NULL, ask_often, &clients[i]), 0);
    }
    /* Until each has come to its turn a few times. */
    bool all = false;
    for (int i = 0; i < 100000 && !all; i++) {
        if (!turn(e)) pn_mem_wait(pn_mem_wake_count(), 1);
        all = true;
        for (size_t k = 0; k < PN_ARRAY_N(clients); k++)
            all = all && clients[k].submitted_n > 2;
    }
    stop = true;
    for (size_t i = 0; i < PN_ARRAY_N(clients); i++)
        assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
    drive(e);
    for (size_t i = 0; i < PN_ARRAY_N(clients); i++) {
        assert_true(clients[i].submitted_n > 2);
        assert_int_equal(clients[i].done_n, clients[i].submitted_n);
    }
    pn_engine_free(e);
    assert_int_equal(ledger_reserved(), 0);
}

static int setup(void **state) {
    struct tiny t = tiny_llama;
    tiny_tree_setup(state);
    t.ctx = CTX;
    snprintf(llama, sizeof llama, "%s/llama.gguf", tiny_tree.root);
    tiny_write(&t, NULL, llama);
    snprintf(gemma, sizeof gemma, "%s/gemma3.gguf", tiny_tree.root);
    tiny_write(&tiny_gemma3, NULL, gemma);
    for (uint32_t i = 0; i < CTX; i++)
        ids[i] = (int32_t)(i * 7 % 40);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(going_on_pays_the_rest),
        cmocka_unit_test(cancelled_gives_back),
        cmocka_unit_test(refusals),
        cmocka_unit_test(asked_without_a_watch),
        cmocka_unit_test(parked_goes_on_with_the_same_bits),
        cmocka_unit_test(more_memory_is_noticed),
        cmocka_unit_test(oldest_finishes),
        cmocka_unit_test(shortened),
        cmocka_unit_test(parked_can_be_cancelled),
        cmocka_unit_test(many_submit),
    };
    return cmocka_run_group_tests(tests, setup, tiny_tree_teardown);
}
