/* The ladder over every small configuration; its switch; its log line. */
#include "base/clock.h"
#include "pn_mem.h"
#include "support/pn_test.h"

static void check_not_more(const pn_ladder_plan *low, const pn_ladder_plan *high) {
    assert_true(high->max_slots <= low->max_slots);
    assert_true(high->prefill_window <= low->prefill_window);
    assert_true(high->force_kv_q4 >= low->force_kv_q4);
    assert_true(high->kv_evict >= low->kv_evict);
    assert_true(high->shed_caches >= low->shed_caches);
    assert_true(high->degraded >= low->degraded);
}

static void test_monotone(void **state) {
    (void)state;
    for (int slots = 0; slots <= 40; slots++) {
        for (int window = 0; window <= 70; window++) {
            for (int bits = 0; bits < 4; bits++) {
                pn_ladder_config cfg = {slots, window, bits & 1, bits & 2};
                pn_ladder_plan p[PN_MEM_LEVEL_N];
                for (int l = 0; l < PN_MEM_LEVEL_N; l++) {
                    p[l] = pn_ladder_plan_for((pn_mem_level)l, &cfg);
                    assert_int_equal(p[l].level, l);
                    assert_non_null(p[l].note);
                    if (l > 0) check_not_more(&p[l - 1], &p[l]);
                    /* Limits stay limits: none falls to 0, which would mean "no limit". */
                    assert_int_equal(p[l].max_slots == 0, slots == 0);
                    assert_int_equal(p[l].prefill_window == 0, window == 0);
                }
                assert_int_equal(p[0].max_slots, slots);
                assert_int_equal(p[0].prefill_window, window);
                assert_int_equal(p[0].force_kv_q4, cfg.kv_q4);
                assert_int_equal(p[0].kv_evict, cfg.kv_evict);
                assert_false(p[0].degraded || p[0].shed_caches);
            }
        }
    }
}

static void test_rungs(void **state) {
    (void)state;
    const pn_ladder_config cfg = {8, 16384, false, false};
    pn_ladder_plan p = pn_ladder_plan_for(PN_MEM_LEVEL_WATCH, &cfg);
    assert_true(p.shed_caches && p.force_kv_q4 && p.degraded && !p.kv_evict);
    assert_int_equal(p.max_slots, 8);
    assert_int_equal(p.prefill_window, 16384);
    p = pn_ladder_plan_for(PN_MEM_LEVEL_TIGHT, &cfg);
    assert_true(p.kv_evict);
    assert_int_equal(p.max_slots, 4);
    assert_int_equal(p.prefill_window, 8192);
    p = pn_ladder_plan_for(PN_MEM_LEVEL_CRITICAL, &cfg);
    assert_int_equal(p.max_slots, 1);
    assert_int_equal(p.prefill_window, 4096);
    p = pn_ladder_plan_for((pn_mem_level)77, &cfg);
    assert_int_equal(p.level, PN_MEM_LEVEL_CRITICAL);
}

static void test_from_state(void **state) {
    (void)state;
    const pn_ladder_config cfg = {8, 16384, false, false};
    /* The damped level, not the raw one. */
    const pn_mem_state st = {.level = PN_MEM_LEVEL_TIGHT, .raw_level = PN_MEM_LEVEL_CRITICAL};
    assert_int_equal(pn_ladder_plan_from_state(&st, &cfg).max_slots, 4);
    assert_false(pn_ladder_disabled());
    pn_ladder_set_disabled(true);
    assert_true(pn_ladder_disabled());
    pn_ladder_plan p = pn_ladder_plan_from_state(&st, &cfg);
    assert_int_equal(p.max_slots, 8);
    assert_false(p.degraded || p.shed_caches);
    pn_ladder_set_disabled(false);
    assert_int_equal(pn_ladder_plan_from_state(&st, &cfg).max_slots, 4);
}

static char said[4096];
static int said_n;
static uint64_t now_ns = 1;

static void hear(void *user, enum pn_log_level level, const char *line) {
    (void)user;
    (void)level;
    snprintf(said, sizeof said, "%s", line);
    said_n++;
}

static uint64_t fake_now(void *user) {
    (void)user;
    return now_ns;
}

static void test_clamp_line(void **state) {
    (void)state;
    const pn_ladder_config cfg = {8, 16384, false, false};
    pn_ladder_plan ok = pn_ladder_plan_for(PN_MEM_LEVEL_OK, &cfg);
    pn_ladder_plan tight = pn_ladder_plan_for(PN_MEM_LEVEL_TIGHT, &cfg);
    pn_ladder_plan critical = pn_ladder_plan_for(PN_MEM_LEVEL_CRITICAL, &cfg);
    pn_log_set(hear, NULL, PN_LOG_WARN);
    pn__clock_set(fake_now, NULL);
    pn_ladder_log_clamp(&ok, 16384);
    assert_int_equal(said_n, 0);
    pn_ladder_log_clamp(&tight, 16384);
    assert_int_equal(said_n, 1);
    const char *start = "[ladder] TIGHT -> prefill window clamped 16384 -> 8192 (";
    assert_memory_equal(said, start, strlen(start));
    for (int i = 0; i < 59; i++) {
        now_ns += 1000000000u;
        pn_ladder_log_clamp(&tight, 16384);
    }
    assert_int_equal(said_n, 1);
    now_ns += 1000000000u;
    pn_ladder_log_clamp(&tight, 16384);
    assert_int_equal(said_n, 2);
    assert_non_null(strstr(said, "59 times more"));
    pn_ladder_log_clamp(&critical, 16384);
    assert_int_equal(said_n, 3);
    assert_non_null(strstr(said, "CRITICAL -> prefill window clamped 16384 -> 4096 ("));
    pn_ladder_log_clamp(&ok, 16384);
    pn_ladder_log_clamp(&critical, 16384);
    assert_int_equal(said_n, 4); /* it was lifted in between */
    pn_log_set(NULL, NULL, PN_LOG_WARN);
    pn__clock_set(NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_monotone),
        cmocka_unit_test(test_rungs),
        cmocka_unit_test(test_from_state),
        cmocka_unit_test(test_clamp_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
