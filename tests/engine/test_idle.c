/* Law 1 looked at from outside: with a model loaded, with sessions that hold pages, after they are
 * freed, and without an engine, what the ledger says is committed at host and what the kernel says
 * this process has differ by at most max(2 %, 24 MiB). */
#include "engine/demo.h"
#include "engine/drive.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static char model[512];

static void reconcile(const char *when) {
    pn_host_sample s;
    pn_reconcile r;
    pn_host_signals_sample(NULL, &s);
    pn_ledger_reconcile(&s, &r);
    printf("%-24s committed %11llu, resident %11llu, apart %9lld, allowed %9llu\n", when,
           (unsigned long long)r.committed_bytes, (unsigned long long)r.resident_bytes,
           (long long)(r.resident_bytes - r.committed_bytes), (unsigned long long)r.allowed_bytes);
    assert_true(r.known);
    assert_true(r.within);
}

static void at_idle(void **state) {
    (void)state;
    static const enum pn_weights_choice ways[] = {PN_WEIGHTS_COPY, PN_WEIGHTS_MAP};
    static int32_t ids[600];
    reconcile("nothing loaded");
    for (size_t i = 0; i < PN_ARRAY_N(ways); i++) {
        struct pn_engine_options o = {
            .model_path = model, .slots = 3, .weights = ways[i], .watch = true};
        pn_engine *e = open_engine(&o);
        pn_session *s[3];
        reconcile(ways[i] == PN_WEIGHTS_COPY ? "loaded, copy" : "loaded, map");
        for (int k = 0; k < 3; k++) {
            struct answer a;
            for (int j = 0; j < 600; j++)
                ids[j] = 1 + (j * 31 + k) % 1000;
            s[k] = new_session(e);
            ask(e, s[k], (struct pn_request){.tokens = ids, .token_n = 200 * (uint32_t)(k + 1)},
                PN_STOP_LENGTH, &a);
            answer_free(&a);
        }
        reconcile("three sessions");
        for (int k = 0; k < 3; k++)
            pn_session_free(s[k]);
        reconcile("sessions freed");
        pn_engine_free(e);
        reconcile("engine freed");
    }
    pn_memwatch_stop();
}

/* The figure can fail: bytes booked as committed that nobody has touched. */
static void a_lie_shows(void **state) {
    (void)state;
    pn_host_sample s;
    pn_reconcile r;
    pn_booking lie;
    assert_int_equal(pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_IO, 64 << 20, &lie, NULL), 0);
    assert_int_equal(pn_ledger_commit(&lie, 64 << 20), 0);
    pn_host_signals_sample(NULL, &s);
    pn_ledger_reconcile(&s, &r);
    assert_false(r.within);
    assert_int_equal(pn_ledger_release(&lie), 0);
    s.sources[PN_SOURCE_SELF].status = PN_SOURCE_FAILED;
    pn_ledger_reconcile(&s, &r);
    assert_false(r.known || r.within);
}

int main(void) {
    if (SANITIZED) PN_SKIP_EXIT("a sanitizer's own memory is resident too");
    if (!demo_find(model, sizeof model)) PN_SKIP_EXIT("no demo model: make demo");
    const struct CMUnitTest tests[] = {cmocka_unit_test(at_idle), cmocka_unit_test(a_lie_shows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
