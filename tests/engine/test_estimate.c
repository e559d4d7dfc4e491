/* What admission estimates is what a request takes: for one model, at six prompt lengths, the
 * estimate is booked to the byte, and what is then committed is just that. test_estimate MODEL */
#include "engine/drive.h"
#include "engine/golden.h"

#define NEW_N 3u

static const char *name;

static pn_ledger_row taken(void) {
    pn_ledger_view v;
    pn_ledger_row sum = {0};
    pn_ledger_read(&v);
    for (unsigned owner = 0; owner < PN_OWNER_N; owner++) {
        if (owner != PN_OWNER_KV && owner != PN_OWNER_STATE) continue;
        sum.reserved_bytes += v.cells[PN_PLACE_HOST][owner].reserved_bytes;
        sum.committed_bytes += v.cells[PN_PLACE_HOST][owner].committed_bytes;
    }
    return sum;
}

/* All that was committed beside it stays as it was: a step needs no memory of its own. */
static uint64_t committed_beside(void) {
    pn_ledger_view v;
    pn_ledger_read(&v);
    return v.places[PN_PLACE_HOST].committed_bytes - taken().committed_bytes;
}

static void one_length(pn_engine *e, const struct ids *ids, uint32_t n) {
    struct pn_detail d = {{0}};
    pn_admit_cost cost;
    pn_admit_bytes estimate;
    pn_session *s = new_session(e);
    struct answer a;
    struct pn_request r = {
        .tokens = ids->ids, .token_n = n, .max_new = NEW_N, .script = ids->ids, .script_n = NEW_N};
    answer_init(&a, &r);
    r.on_logits = NULL;
    pn_engine_cost(e, &cost);
    /* The last token is handed out and never computed. */
    assert_int_equal(pn_admit_cost_bytes(&cost, (int)n, NEW_N - 1, &estimate), 0);
    uint64_t beside = committed_beside();
    PN_ASSERT_OK(pn_session_submit(s, &r, &d), &d);
    assert_int_equal(taken().reserved_bytes, estimate.all);
    uint64_t peak = 0;
    bool more = true;
    while (more) {
        PN_ASSERT_OK(pn_engine_turn(e, &more, &d), &d);
        assert_true(taken().committed_bytes <= taken().reserved_bytes);
        if (taken().committed_bytes > peak) peak = taken().committed_bytes;
        assert_int_equal(committed_beside(), beside);
    }
    assert_int_equal(a.done.stop, PN_STOP_LENGTH);
    printf("%-16s %5u tokens: %9llu bytes estimated, %9llu taken (%+.2f %%)\n", name, n,
           (unsigned long long)estimate.all, (unsigned long long)peak,
           100.0 * ((double)estimate.all / (double)peak - 1.0));
    assert_int_equal(estimate.all, peak);
    pn_session_free(s);
    assert_int_equal(taken().reserved_bytes, 0);
    answer_free(&a);
}

static void six_lengths(void **state) {
    (void)state;
    static const uint32_t lengths[] = {1, 63, 64, 65, 300, 1000};
    struct golden g;
    if (!golden_load(name, false, &g)) {
        printf("skipped: no golden '%s' here\n", name);
        exit(77);
    }
    static const enum pn_kv_choice kvs[] = {PN_KV_CHOICE_F32, PN_KV_CHOICE_Q4};
    struct ids ids = make_ids(g.vocab, 1000, 17);
    for (size_t k = 0; k < PN_ARRAY_N(kvs); k++) {
        struct pn_engine_options o = {
            .model_path = g.model_path, .slots = 1, .chunk = 256, .kv = kvs[k]};
        pn_engine *e = open_engine(&o);
        assert_true(pn_engine_plan_used(e)->ctx >= lengths[PN_ARRAY_N(lengths) - 1] + NEW_N);
        for (size_t i = 0; i < PN_ARRAY_N(lengths); i++)
            one_length(e, &ids, lengths[i]);
        pn_engine_free(e);
    }
    free(ids.ids);
    golden_free(&g);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    name = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(six_lengths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
