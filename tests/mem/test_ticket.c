/* Tickets: what is estimated is what is booked; no byte is promised twice; a refused extension
 * parks; the oldest always finishes. */
#include <pthread.h>

#include "mem/mem_sim.h"
#include "support/pn_test.h"

#define KIB 1024ull
#define MIB (1ull << 20)

static const pn_admit_cost cost = {
    .kv = {{64 * KIB, 64, 0}, {16 * KIB, 64, 4}},
    .state_bytes = 10 * KIB,
    .scratch = {{0, 100 * KIB}},
    .scratch_n = 1,
};

static int setup(void **state) {
    (void)state;
    for (unsigned i = 0; i < PN_DOMAIN_N; i++)
        pn_ledger_set_domain(i, NULL, UINT64_MAX, 0);
    pn_ledger_set_domain(PN_DOMAIN_HOST, "host", 10 * MIB, 0);
    return 0;
}

static uint64_t held(unsigned owner) {
    pn_ledger_view v;
    pn_ledger_read(&v);
    return v.cells[PN_PLACE_HOST][owner].reserved_bytes;
}

static uint64_t all_held(void) {
    pn_ledger_view v;
    pn_ledger_read(&v);
    return v.places[PN_PLACE_HOST].reserved_bytes;
}

/* Nothing is left behind by any test. */
static int teardown(void **state) {
    (void)state;
    return all_held() == 0 ? 0 : -1;
}

static int reserve(int n_prompt, int n_new, int n_ctx, pn_admit_ticket *t, pn_admit_result *r) {
    struct pn_detail d;
    return pn_admit_reserve(&cost, n_prompt, n_new, n_ctx, 0, t, r, &d);
}

static void test_estimate_is_booked(void **state) {
    (void)state;
    static const int lengths[] = {1, 63, 64, 65, 1000, 4096};
    for (size_t i = 0; i < PN_ARRAY_N(lengths); i++) {
        pn_admit_ticket t;
        pn_admit_result r;
        pn_admit_bytes b;
        assert_int_equal(reserve(lengths[i], 100, 8192, &t, &r), 0);
        assert_int_equal(pn_admit_cost_bytes(&cost, lengths[i], 100, &b), 0);
        assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
        assert_true(r.need_bytes == b.all && all_held() == b.all);
        assert_int_equal(held(PN_OWNER_KV), b.kv);
        assert_int_equal(held(PN_OWNER_STATE), b.state);
        assert_int_equal(held(PN_OWNER_SCRATCH), b.scratch);
        assert_int_equal(t.n_tokens, lengths[i] + 100);
        assert_int_equal(t.end_tokens, t.n_tokens);
        struct pn_detail d;
        assert_int_equal(pn_admit_extend(&t, &d), PN_E_CONTEXT);
        pn_admit_release(&t);
        assert_int_equal(all_held(), 0);
        pn_admit_release(&t); /* none any more */
    }
    pn_admit_release(NULL);
}

static void test_refused(void **state) {
    (void)state;
    pn_admit_ticket a;
    pn_admit_ticket b;
    pn_admit_result r;
    struct pn_detail d;
    pn_decision last;
    assert_int_equal(reserve(5000, 100, 8192, &a, &r), 0);
    uint64_t before = all_held();
    assert_int_equal(pn_admit_reserve(&cost, 5000, 100, 8192, 0, &b, &r, &d), PN_E_NOFIT);
    assert_int_equal(all_held(), before);
    assert_int_equal(b.order, 0);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_CAP);
    assert_non_null(strstr(d.text, "host has "));
    assert_non_null(strstr(d.text, "the longest prompt that fits has "));
    assert_int_equal(pn_decisions_read(&last, 1), 1);
    assert_int_equal(last.kind, PN_DECISION_CAP);
    assert_int_equal(last.b, r.fit_tokens);
    /* The fit is right: it fits, one more doesn't. */
    assert_int_equal(reserve(r.fit_tokens + 1, 100, 8192, &b, &r), PN_E_NOFIT);
    assert_int_equal(reserve(r.fit_tokens, 100, 8192, &b, &r), 0);
    pn_admit_ticket c;
    assert_int_equal(reserve(64, 1, 8192, &c, &r), PN_E_NOFIT);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_REJECT);
    pn_admit_release(&a);
    pn_admit_release(&b);
}

static void test_lengths(void **state) {
    (void)state;
    pn_admit_ticket t;
    pn_admit_result r;
    struct pn_detail d;
    static const struct {
        int n_prompt, n_new, n_ctx, window, rc, fit;
    } rows[] = {
        {64, 0, 64, 0, PN_E_CONTEXT, 63},
        {63, 0, 64, 0, 0, 63},
        {63, 1, 64, 0, 0, 63},
        {63, 2, 64, 0, PN_E_CONTEXT, 62},
        {1000, 0, 64, 0, PN_E_CONTEXT, 63},
        {10, 64, 64, 0, PN_E_CONTEXT, 0},
        {10, 100, 64, 0, PN_E_CONTEXT, 0},
        {50, 5, 64, 20, PN_E_CONTEXT, 20},
        {20, 5, 64, 20, 0, 20},
        {50, 5, 52, 49, PN_E_CONTEXT, 47},
        {-1, 5, 64, 0, PN_E_INVALID, 0},
        {1, -5, 64, 0, PN_E_INVALID, 0},
        {1, 0, 0, 0, PN_E_INVALID, 0},
        {5, INT32_MAX, 0, 0, PN_E_INVALID, 0},
        {1, 5, 0, 0, 0, 1},
        {0, 5, 64, 0, 0, 0},
    };
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        int rc = pn_admit_reserve(&cost, rows[i].n_prompt, rows[i].n_new, rows[i].n_ctx,
                                  rows[i].window, &t, &r, &d);
        if (rc != rows[i].rc) print_error("row %zu\n", i);
        assert_int_equal(rc, rows[i].rc);
        assert_int_equal(r.fit_tokens, rows[i].fit);
        assert_int_equal(r.verdict == PN_ADMIT_VERDICT_ADMIT, rc == 0);
        pn_admit_release(&t);
        assert_int_equal(all_held(), 0);
    }
    assert_int_equal(pn_admit_reserve(&(pn_admit_cost){.scratch_n = 99}, 1, 1, 64, 0, &t, &r, &d),
                     PN_E_INVALID);
    assert_int_equal(pn_admit_extend(&t, &d), PN_E_STATE);
}

/* The oldest takes its whole way at once; the second goes page by page, is parked when there is no
 * more, and goes on when the first has gone. */
static void test_parking(void **state) {
    (void)state;
    pn_admit_ticket a;
    pn_admit_ticket b;
    pn_admit_result r;
    struct pn_detail d;
    pn_admit_bytes way;
    assert_int_equal(pn_admit_cost_bytes(&cost, 0, 4096, &way), 0);
    assert_int_equal(reserve(100, 0, 4096, &a, &r), 0);
    assert_true(a.whole_way);
    assert_int_equal(a.end_tokens, 4096);
    assert_int_equal(a.n_tokens, 100 + PN_ADMIT_NEW_TOKENS);
    assert_int_equal(held(PN_OWNER_KV), way.kv);
    assert_int_equal(reserve(100, 0, 8192, &b, &r), 0);
    assert_false(b.whole_way);
    int n = 0;
    int rc;
    uint64_t before = all_held();
    while ((rc = pn_admit_extend(&b, &d)) == 0) {
        n++;
        assert_int_equal(b.n_tokens, 612 + 64 * n);
        assert_true(all_held() - before == 64 * KIB); /* the window's four pages are long there */
        before = all_held();
    }
    assert_int_equal(rc, PN_E_NOFIT);
    assert_true(b.parked && n > 20);
    assert_int_equal(b.n_tokens, 612 + 64 * n);
    assert_non_null(strstr(d.text, "would not fit"));
    pn_decision last;
    assert_int_equal(pn_decisions_read(&last, 1), 1);
    assert_int_equal(last.kind, PN_DECISION_PARK);
    assert_true(last.c == 64 * KIB && last.d < 64 * KIB);
    /* The oldest isn't touched by that, to its very end. */
    while (a.n_tokens < a.end_tokens)
        assert_int_equal(pn_admit_extend(&a, &d), 0);
    assert_int_equal(a.n_tokens, 4096);
    assert_int_equal(pn_admit_extend(&a, &d), PN_E_CONTEXT);
    assert_int_equal(all_held(), before);
    pn_admit_release(&a);
    assert_true(b.whole_way && !b.parked);
    assert_int_equal(b.end_tokens, 8192);
    while (b.n_tokens < b.end_tokens)
        assert_int_equal(pn_admit_extend(&b, &d), 0);
    pn_admit_release(&b);
}

/* A way that doesn't fit comes nearer, and what is given is enough for it. */
static void test_shorter_end(void **state) {
    (void)state;
    pn_admit_ticket t;
    pn_admit_result r;
    struct pn_detail d;
    pn_decision all[PN_DECISION_N];
    assert_int_equal(reserve(1000, 0, 1 << 20, &t, &r), 0);
    assert_true(t.whole_way);
    assert_true(t.end_tokens < 1 << 20 && t.end_tokens > 9000);
    size_t n = pn_decisions_read(all, PN_DECISION_N);
    assert_true(n >= 2);
    assert_int_equal(all[n - 2].kind, PN_DECISION_SHORTEN);
    assert_int_equal(all[n - 2].b, t.end_tokens);
    pn_admit_bytes b;
    assert_int_equal(pn_admit_cost_bytes(&cost, 1000, t.end_tokens - 1000, &b), 0);
    assert_true(b.all <= 10 * MIB && b.all == all_held());
    assert_int_equal(pn_admit_cost_bytes(&cost, 1000, t.end_tokens - 999, &b), 0);
    assert_true(b.all > 10 * MIB);
    while (t.n_tokens < t.end_tokens)
        assert_int_equal(pn_admit_extend(&t, &d), 0);
    pn_admit_release(&t);
}

/* Blocks take over what the ticket holds; the ticket then gives back the rest only. */
static void test_move(void **state) {
    (void)state;
    pn_admit_ticket t;
    pn_admit_result r;
    pn_booking page = {0};
    pn_booking other;
    assert_int_equal(reserve(64, 64, 8192, &t, &r), 0);
    uint64_t kv = t.kv.reserved_bytes;
    uint64_t all = all_held();
    assert_int_equal(pn_ledger_move(&t.kv, &page, PN_OWNER_KV, 64 * KIB), 0);
    assert_int_equal(pn_ledger_move(&t.kv, &page, PN_OWNER_KV, KIB), 0);
    assert_true(page.live && page.reserved_bytes == 65 * KIB);
    assert_int_equal(t.kv.reserved_bytes, kv - 65 * KIB);
    assert_int_equal(all_held(), all);
    assert_int_equal(pn_ledger_move(&t.kv, &page, PN_OWNER_KV, kv), PN_E_INVALID);
    assert_int_equal(pn_ledger_move(&t.kv, &page, PN_OWNER_STATE, 1), PN_E_INVALID);
    memset(&other, 0, sizeof other);
    assert_int_equal(pn_ledger_move(&t.kv, &other, PN_OWNER_N, 1), PN_E_INVALID);
    assert_int_equal(other.live, 0);
    assert_int_equal(pn_ledger_move(&other, &page, PN_OWNER_KV, 1), PN_E_STATE);
    assert_int_equal(pn_ledger_mapped(&page), 0);
    assert_int_equal(pn_ledger_move(&t.kv, &page, PN_OWNER_KV, 1), PN_E_STATE);
    assert_int_equal(pn_ledger_move(&page, &t.kv, PN_OWNER_KV, 1), PN_E_STATE);
    assert_int_equal(pn_ledger_grow(&page, 1, NULL), PN_E_STATE);
    assert_int_equal(pn_ledger_commit(&page, 65 * KIB), 0);
    pn_admit_release(&t);
    assert_int_equal(all_held(), 65 * KIB);
    assert_int_equal(pn_ledger_release(&page), 0);
}

static void test_stall(void **state) {
    struct mem_sim *m;
    pn_admit_ticket t;
    pn_admit_result r;
    (void)state;
    void *sim;
    assert_int_equal(mem_sim_setup(&sim), 0);
    m = sim;
    mem_sim_psi(m, 60, 50, 0, 0);
    assert_int_equal(pn_memwatch_start(), 0);
    assert_int_equal(reserve(10, 10, 64, &t, &r), PN_E_NOFIT);
    assert_int_equal(r.cause, PN_ADMIT_CAUSE_STALL);
    pn_memwatch_stop();
    assert_int_equal(reserve(10, 10, 64, &t, &r), 0); /* the ledger alone decides */
    pn_admit_release(&t);
    mem_sim_teardown(&sim);
}

struct client {
    pthread_t thread;
    int admitted_n;
    bool over;
};

static void *ask_often(void *arg) {
    struct client *c = arg;
    for (int i = 0; i < 300; i++) {
        pn_admit_ticket t;
        pn_admit_result r;
        if (reserve(1000 + i, 500, 8192, &t, &r) == 0) {
            c->admitted_n++;
            c->over |= all_held() > 10 * MIB;
            pn_admit_release(&t);
        }
    }
    return NULL;
}

/* Never more than there is, and nothing lost. Not each client need get something: others may be put
 * to sleep with all of it in their hands. */
static void test_threads(void **state) {
    (void)state;
    int admitted_n = 0;
    struct client clients[8] = {0};
    for (size_t i = 0; i < PN_ARRAY_N(clients); i++)
        assert_int_equal(pthread_create(&clients[i].thread, NULL, ask_often, &clients[i]), 0);
    for (size_t i = 0; i < PN_ARRAY_N(clients); i++) {
        assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
        assert_false(clients[i].over);
        admitted_n += clients[i].admitted_n;
    }
    assert_true(admitted_n > 0);
    assert_int_equal(all_held(), 0);
}

static void test_ring(void **state) {
    (void)state;
    pn_decision all[PN_DECISION_N + 5];
    char text[256];
    pn_admit_ticket t;
    pn_admit_result r;
    for (int i = 0; i < 300; i++) {
        assert_int_equal(reserve(i, 1, 8192, &t, &r), 0);
        pn_admit_release(&t);
    }
    assert_int_equal(pn_decisions_read(all, PN_DECISION_N + 5), PN_DECISION_N);
    for (int i = 0; i < PN_DECISION_N; i++) {
        assert_int_equal(all[i].a, 300 - PN_DECISION_N + i);
        assert_true(i == 0 || all[i].seq == all[i - 1].seq + 1);
    }
    assert_int_equal(pn_decisions_read(all, 2), 2);
    assert_int_equal(all[1].a, 299);
    pn_decision_text(&all[1], text, sizeof text);
    assert_memory_equal(text, "admitted: prompt 299, answer 1, ", 32);
    for (int k = 0; k < 10; k++) {
        pn_decision e = {.kind = (pn_decision_kind)k, .a = 1, .b = 2, .c = 3, .d = 4};
        assert_true(strlen(pn_decision_text(&e, text, sizeof text)) > 0);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_estimate_is_booked),
        T(test_refused),
        T(test_lengths),
        T(test_parking),
        T(test_shorter_end),
        T(test_move),
        T(test_stall),
        T(test_threads),
        T(test_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
