/* Admission's pure part: costs, verdicts in their order, fits that are exact, and words. */
#include "mem/mem_sim.h"
#include "support/pn_test.h"

#define KIB 1024ull
#define MIB (1ull << 20)
#define G (1ull << 30)

static pn_mem_state box(uint64_t total, uint64_t avail) {
    return (pn_mem_state){.host_total_bytes = total, .host_avail_bytes = avail, .seq = 1};
}

static void test_peak(void **state) {
    (void)state;
    static const int anchors[] = {512, 1024, 2048, 4096, 8192, 16384};
    for (size_t i = 0; i < PN_ARRAY_N(anchors); i++) {
        uint64_t n = (uint64_t)anchors[i];
        assert_true(pn_lut_activation_peak(anchors[i]) == 4 * 16 * n * n);
    }
    assert_int_equal(pn_lut_activation_peak(0), 0);
    assert_int_equal(pn_lut_activation_peak(-5), 0);
    assert_int_equal(pn_lut_activation_peak(256), 8 * MIB);
    assert_true(pn_lut_activation_peak(12288) == 10 * G);
    assert_true(pn_lut_activation_peak(32768) == 40 * G); /* the last line goes on */
    uint64_t last = 0;
    for (int n = 0; n < 20000; n++) {
        uint64_t peak = pn_lut_activation_peak(n);
        assert_true(peak >= last);
        if (n <= 16384) assert_true(peak >= 64ull * (uint64_t)n * (uint64_t)n);
        last = peak;
    }
    assert_true(pn_lut_activation_peak(INT32_MAX) < UINT64_MAX);
    assert_true(pn_lut_activation_peak(INT32_MAX) > pn_lut_activation_peak(INT32_MAX - 1));
}

static uint64_t seed_bytes(int n, bool q4) {
    return (uint64_t)n * (q4 ? 5898 : 40960) + pn_lut_activation_peak(n);
}

static void test_host_path(void **state) {
    (void)state;
    pn_admit_result r;
    for (int q4 = 0; q4 < 2; q4++) {
        for (uint64_t budget = 0; budget < 6 * G; budget += 37 * MIB + 12345) {
            pn_mem_state s = box(16 * G, 0);
            s.host_avail_bytes = pn_mem_host_reserve(s.host_total_bytes) + budget;
            const int n = 7000;
            pn_admit_request(n, q4, false, -1, 0, &s, &r);
            if (seed_bytes(n, q4) <= budget) {
                assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
                assert_int_equal(r.fit_tokens, n);
                continue;
            }
            assert_int_equal(r.cause, PN_ADMIT_CAUSE_BYTES);
            assert_true(r.need_bytes == seed_bytes(n, q4) && r.have_bytes == budget);
            assert_string_equal(r.domain, "host");
            if (r.verdict == PN_ADMIT_VERDICT_REJECT) {
                assert_true(seed_bytes(64, q4) > budget);
                assert_int_equal(r.fit_tokens, 0);
                continue;
            }
            assert_true(r.fit_tokens >= 64);
            assert_true(seed_bytes(r.fit_tokens, q4) <= budget);
            assert_true(seed_bytes(r.fit_tokens + 1, q4) > budget);
        }
    }
}

/* A fit of less than a page is none. */
static void test_page(void **state) {
    (void)state;
    pn_admit_result r;
    pn_mem_state s = box(16 * G, pn_mem_host_reserve(16 * G) + seed_bytes(64, true));
    pn_admit_request(65, true, false, -1, 0, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_CAP);
    assert_int_equal(r.fit_tokens, 64);
    s.host_avail_bytes--;
    pn_admit_request(65, true, false, -1, 0, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_REJECT);
    assert_int_equal(r.fit_tokens, 0);
    pn_admit_request(63, true, false, -1, 0, &s, &r); /* but asked for no more, it fits */
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
}

static void test_window(void **state) {
    (void)state;
    pn_admit_result r;
    pn_mem_state s = box(16 * G, 10 * G);
    pn_admit_request(1000, true, false, -1, 400, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_CAP);
    assert_int_equal(r.cause, PN_ADMIT_CAUSE_WINDOW);
    assert_int_equal(r.fit_tokens, 400);
    pn_admit_request(400, true, false, -1, 400, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
    /* Both in the way: what fits is what can be said. */
    s.host_avail_bytes = pn_mem_host_reserve(16 * G) + seed_bytes(300, true);
    pn_admit_request(1000, true, false, -1, 400, &s, &r);
    assert_int_equal(r.cause, PN_ADMIT_CAUSE_BYTES);
    assert_int_equal(r.fit_tokens, 300);
}

/* Stalls come first, then the reserve, then the window. */
static void test_gpu_resident(void **state) {
    (void)state;
    pn_admit_result r;
    char why[256];
    uint64_t reserve = pn_mem_host_reserve(8 * G);
    pn_mem_state s = box(8 * G, reserve + 1);
    pn_admit_request(100000, false, true, 0, 0, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT); /* TIGHT refuses nothing */
    assert_int_equal(r.fit_tokens, 100000);
    assert_int_equal(r.need_bytes, 0);
    pn_admit_request(100000, false, true, 0, 8192, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_CAP);
    assert_int_equal(r.fit_tokens, 8192);
    assert_non_null(strstr(pn_admit_reason(&r, why, sizeof why), "100000 tokens, at most 8192"));
    s.host_avail_bytes = reserve;
    pn_admit_request(1, false, true, 0, 8192, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_REJECT);
    assert_int_equal(r.cause, PN_ADMIT_CAUSE_RESERVE);
    assert_non_null(
        strstr(pn_admit_reason(&r, why, sizeof why), "host is inside its reserve: 1288"));
    s.host_psi_full_avg10 = 15.0;
    pn_admit_request(1, false, true, 0, 8192, &s, &r);
    assert_int_equal(r.cause, PN_ADMIT_CAUSE_STALL);
    assert_non_null(strstr(pn_admit_reason(&r, why, sizeof why), "sustained memory stall"));
    assert_non_null(strstr(why, "15.0 %"));
}

static void test_stall_guard(void **state) {
    (void)state;
    pn_admit_result r;
    pn_mem_state s = box(16 * G, 12 * G);
    s.host_psi_full_avg10 = 14.99;
    pn_admit_request(10, true, false, -1, 0, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
    s.host_psi_full_avg10 = 0.4; /* the blip after a load */
    s.level = s.raw_level = PN_MEM_LEVEL_TIGHT;
    pn_admit_request(10, true, false, -1, 0, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
    s.level = PN_MEM_LEVEL_CRITICAL; /* no level alone refuses anything */
    pn_admit_request(10, true, false, -1, 0, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
    s.psi_full_now = 15.0; /* our group's, or not in avg10 yet */
    pn_admit_request(10, true, false, -1, 0, &s, &r);
    assert_int_equal(r.cause, PN_ADMIT_CAUSE_STALL);
    pn_mem_set_psi_full_reject(40);
    pn_admit_request(10, true, false, -1, 0, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
    pn_mem_set_psi_full_reject(-1);
}

static void test_dies(void **state) {
    (void)state;
    pn_admit_result r;
    pn_mem_state s = box(16 * G, 12 * G);
    s.n_dies = 2;
    s.per_die_free[1] = seed_bytes(200, true);
    s.per_die_budget[1] = 10 * G;
    pn_admit_request(200, true, false, 1, 0, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
    pn_admit_request(201, true, false, 1, 0, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_CAP);
    assert_int_equal(r.fit_tokens, 200);
    assert_string_equal(r.domain, "die 1");
    pn_admit_request(201, true, false, -1, 0, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
    pn_admit_request(201, true, false, 5, 0, &s, &r); /* nothing is known of it */
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_REJECT);
    static const int bad[] = {-2, 16, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < PN_ARRAY_N(bad); i++) {
        for (int gpu = 0; gpu < 2; gpu++) {
            pn_admit_request(1, true, gpu, bad[i], 0, &s, &r);
            assert_int_equal(r.verdict, PN_ADMIT_VERDICT_REJECT);
            assert_int_equal(r.cause, PN_ADMIT_CAUSE_INVALID);
        }
    }
    pn_admit_request(-1, true, false, -1, 0, &s, &r);
    assert_int_equal(r.cause, PN_ADMIT_CAUSE_INVALID);
    pn_admit_request(0, true, false, -1, 0, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
    pn_admit_request(INT32_MAX, true, false, -1, 0, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_CAP);
}

static void test_loads(void **state) {
    (void)state;
    pn_admit_result r;
    char why[256];
    pn_mem_state s = box(16 * G, 12 * G);
    s.per_die_free[2] = 10 * G;
    pn_admit_model_load(6 * G, 2 * G, G, 2, &s, &r); /* + 1 GiB reserve: to the byte */
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
    pn_admit_model_load(6 * G, 2 * G, G + 1, 2, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_REJECT);
    assert_true(r.need_bytes == 9 * G + 1 && r.have_bytes == 9 * G);
    assert_string_equal(r.domain, "die 2");
    assert_non_null(strstr(pn_admit_reason(&r, why, sizeof why), "9663676417 bytes"));
    assert_non_null(strstr(why, "die 2 has 9663676416"));
    pn_admit_model_load_die(8 * G, G / 2, 2, &s, &r); /* + 1.5 GiB, no reserve */
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
    pn_admit_model_load_die(8 * G, G / 2 + 1, 2, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_REJECT);
    pn_admit_model_load(UINT64_MAX, UINT64_MAX, 5, 2, &s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_REJECT);
    pn_admit_model_load(1, 1, 1, -1, &s, &r);
    assert_int_equal(r.cause, PN_ADMIT_CAUSE_INVALID);
    pn_admit_model_load_die(1, 1, 16, &s, &r);
    assert_int_equal(r.cause, PN_ADMIT_CAUSE_INVALID);
    s.host_avail_bytes = pn_mem_host_reserve(16 * G) + PN_ADMIT_LOAD_SPIKE_BYTES_DEFAULT;
    pn_admit_load_spike(&s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
    s.host_avail_bytes--;
    pn_admit_load_spike(&s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_REJECT);
    pn_admit_set_load_spike(G);
    pn_admit_load_spike(&s, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
    assert_true(r.need_bytes == G);
    pn_admit_set_load_spike(UINT64_MAX);
}

static void test_cost(void **state) {
    (void)state;
    pn_admit_bytes b;
    pn_admit_cost c = {.kv = {{100, 64, 0}, {10, 16, 3}}, .state_bytes = 7};
    c.scratch_n = 1;
    c.scratch[0].bytes = 1000;
    assert_int_equal(pn_admit_cost_bytes(&c, 0, 0, &b), 0);
    assert_true(b.kv == 0 && b.state == 7 && b.scratch == 1000 && b.all == 1007);
    assert_int_equal(pn_admit_cost_bytes(&c, 64, 1, &b), 0);
    assert_true(b.kv == 200 + 30); /* the window holds three pages, not five */
    assert_int_equal(pn_admit_cost_bytes(&c, 17, 0, &b), 0);
    assert_true(b.kv == 100 + 20);
    assert_int_equal(pn_admit_cost_bytes(&c, -1, 0, &b), PN_E_INVALID);
    assert_int_equal(pn_admit_cost_bytes(&c, 0, -1, &b), PN_E_INVALID);
    assert_int_equal(pn_admit_cost_bytes(&c, INT32_MAX, INT32_MAX, &b), 0);
    c.kv[0].page_bytes = UINT64_MAX / 2;
    assert_int_equal(pn_admit_cost_bytes(&c, 640, 0, &b), PN_E_INVALID);
    c.kv[0].page_bytes = 0;
    c.scratch_n = 3;
    c.scratch[0].tokens = 10, c.scratch[0].bytes = 100;
    c.scratch[1].tokens = 13, c.scratch[1].bytes = 200;
    c.scratch[2].tokens = 20, c.scratch[2].bytes = 200;
    static const uint64_t want[] = {0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 134, 167, 200, 200};
    for (int n = 0; n < (int)PN_ARRAY_N(want); n++) {
        assert_int_equal(pn_admit_cost_bytes(&c, n, 5, &b), 0);
        assert_int_equal(b.scratch, want[n]); /* rounded up; by the prompt alone */
    }
    c.scratch[1].bytes = 99; /* less for more tokens makes no sense */
    assert_int_equal(pn_admit_cost_bytes(&c, 12, 0, &b), PN_E_INVALID);
    c.scratch[1].bytes = 200;
    c.scratch[2].tokens = 13;
    assert_int_equal(pn_admit_cost_bytes(&c, 50, 0, &b), PN_E_INVALID);
    c.scratch_n = PN_ADMIT_ANCHOR_MAX + 1;
    assert_int_equal(pn_admit_cost_bytes(&c, 1, 0, &b), PN_E_INVALID);
}

/* The general form, with an answer: the longest prompt for any amount of memory, and never less of
 * it for more. */
/* The most that is held at any step, by walking all of them. */
static uint64_t walk(const pn_admit_cost *c, uint64_t n_prompt, uint64_t n_new) {
    uint64_t most = 0;
    for (uint64_t pos = 0; pos < n_prompt + n_new;) {
        uint64_t n = pos < n_prompt ? n_prompt - pos : 1;
        if (n > c->kv[0].step_tokens && pos < n_prompt) n = c->kv[0].step_tokens;
        uint64_t bytes = 0;
        for (int i = 0; i < 3; i++) {
            uint64_t w = c->kv[i].window;
            uint64_t first = w && pos + 1 > w ? (pos + 1 - w) / 64 : 0;
            bytes += ((pos + n + 63) / 64 - first) * c->kv[i].page_bytes;
        }
        if (bytes > most) most = bytes;
        pos += n;
    }
    return most;
}

static void test_windows(void **state) {
    (void)state;
    static const uint32_t windows[] = {1, 8, 64, 65, 100, 1000};
    static const uint32_t steps[] = {1, 7, 64, 96, 256};
    static const int prompts[] = {0, 1, 63, 64, 65, 256, 300, 511, 512, 700, 1500, 2049};
    static const int news[] = {0, 1, 5, 64, 130, 900};
    for (size_t w = 0; w < PN_ARRAY_N(windows); w++) {
        for (size_t k = 0; k < PN_ARRAY_N(steps); k++) {
            pn_admit_cost c = {.kv = {{1000, 64, 0, 0, steps[k]},
                                      {300, 64, 0, windows[w], steps[k]},
                                      {70, 64, 0, 17, steps[k]}}};
            for (size_t i = 0; i < PN_ARRAY_N(prompts) * PN_ARRAY_N(news); i++) {
                int n_prompt = prompts[i % PN_ARRAY_N(prompts)];
                int n_new = news[i / PN_ARRAY_N(prompts)];
                pn_admit_bytes b;
                assert_int_equal(pn_admit_cost_bytes(&c, n_prompt, n_new, &b), 0);
                uint64_t want = walk(&c, (uint64_t)n_prompt, (uint64_t)n_new);
                if (b.kv == want) continue;
                fail_msg("window %u, steps of %u, %d + %d tokens: %llu, walked %llu", windows[w],
                         steps[k], n_prompt, n_new, (unsigned long long)b.kv,
                         (unsigned long long)want);
            }
        }
    }
}

static void test_request_cost(void **state) {
    (void)state;
    pn_admit_result r;
    pn_admit_cost c = {.kv = {{24 * KIB, 64, 0}, {5 * KIB, 64, 8}}, .state_bytes = 3 * KIB};
    c.scratch_n = 2;
    c.scratch[0].tokens = 100, c.scratch[0].bytes = 10 * KIB;
    c.scratch[1].tokens = 4000, c.scratch[1].bytes = 900 * KIB;
    int last = 0;
    for (uint64_t budget = 0; budget < 4 * MIB; budget += 777) {
        pn_mem_state s = box(16 * G, pn_mem_host_reserve(16 * G) + budget);
        pn_admit_bytes b;
        pn_admit_request_cost(&c, 5000, 200, -1, 0, &s, &r);
        assert_true(r.fit_tokens >= last);
        last = r.fit_tokens;
        if (r.fit_tokens == 0) continue;
        assert_int_equal(pn_admit_cost_bytes(&c, r.fit_tokens, 200, &b), 0);
        assert_true(b.all <= budget);
        assert_int_equal(pn_admit_cost_bytes(&c, r.fit_tokens + 1, 200, &b), 0);
        assert_true(r.verdict == PN_ADMIT_VERDICT_ADMIT || b.all > budget);
    }
    assert_int_equal(last, 5000);
    c.scratch[1].tokens = 1;
    pn_mem_state s = box(16 * G, 12 * G);
    pn_admit_request_cost(&c, 5000, 200, -1, 0, &s, &r);
    assert_int_equal(r.cause, PN_ADMIT_CAUSE_INVALID);
}

/* A state from the watch: the domain that leaves least decides and is named; a dip of one poll
 * refuses nothing after the next. */
static void test_from_watch(void **state) {
    struct mem_sim *m = *state;
    pn_admit_result r;
    char why[256];
    mem_sim_group(m, 7, 8, 0, 0);
    mem_sim_step(m, 250);
    pn_admit_request(8192, true, false, -1, 0, &m->state, &r); /* 4 GiB of scores */
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_CAP);
    assert_string_equal(r.domain, "cgroup:/box");
    assert_true(r.have_bytes == G - 64 * MIB);
    assert_non_null(strstr(pn_admit_reason(&r, why, sizeof why), "cgroup:/box has 1006632960"));
    assert_non_null(strstr(why, "the longest prompt that fits has "));
    mem_sim_group(m, 1, 8, 0, 0);
    mem_sim_step(m, 250);
    pn_admit_request(8192, true, false, -1, 0, &m->state, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
    mem_sim_host(m, 16, 0.2);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_CRITICAL);
    pn_admit_request(1000, true, false, -1, 0, &m->state, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_REJECT);
    mem_sim_host(m, 16, 12);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_CRITICAL); /* damped, and yet: */
    pn_admit_request(1000, true, false, -1, 0, &m->state, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_ADMIT);
    /* What is promised and not yet taken is not promised again. */
    pn_booking b;
    assert_int_equal(pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_KV, 6 * G, &b, NULL), 0);
    mem_sim_step(m, 250);
    pn_admit_request(8192, true, false, -1, 0, &m->state, &r);
    assert_int_equal(r.verdict, PN_ADMIT_VERDICT_CAP);
    assert_int_equal(pn_ledger_release(&b), 0);
}

#define SIM(f) cmocka_unit_test_setup_teardown(f, mem_sim_setup, mem_sim_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peak),         cmocka_unit_test(test_host_path),
        cmocka_unit_test(test_page),         cmocka_unit_test(test_window),
        cmocka_unit_test(test_gpu_resident), cmocka_unit_test(test_stall_guard),
        cmocka_unit_test(test_dies),         cmocka_unit_test(test_loads),
        cmocka_unit_test(test_cost),         cmocka_unit_test(test_windows),
        cmocka_unit_test(test_request_cost), SIM(test_from_watch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
