/* Stories about deciding: what a request is told, and what caches are asked for, while pressure
 * comes and goes. */
#include "mem/mem_sim.h"
#include "support/pn_test.h"

#define MIB (1ull << 20)

/* 1 MiB a page of 64 tokens, no more. */
static const pn_admit_cost cost = {.kv = {{MIB, 64, 0}}};

static pn_admit_verdict ask(const struct mem_sim *m, int n_prompt) {
    pn_admit_result r;
    pn_admit_request_cost(&cost, n_prompt, 64, -1, 0, &m->state, &r);
    return r.verdict;
}

/* Takes a ticket through the whole way, watch and ledger, and gives it back. */
static int take(int n_prompt) {
    pn_admit_ticket t = {0};
    pn_admit_result r;
    struct pn_detail d;
    int rc = pn_admit_reserve(&cost, n_prompt, 64, 8192, 0, &t, &r, &d);
    pn_admit_release(&t);
    return rc;
}

/* A load reads everything: all tasks stall for 0.4 % of the time, and there is plenty. */
static void test_load_blip(void **state) {
    struct mem_sim *m = *state;
    mem_sim_psi(m, 3.0, 0.4, 0, 0);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_TIGHT);
    assert_int_equal(ask(m, 4000), PN_ADMIT_VERDICT_ADMIT);
    assert_int_equal(pn_memwatch_start(), 0);
    assert_int_equal(take(4000), 0);
    pn_memwatch_stop();
    /* The guard stands where the seed has it. */
    mem_sim_psi(m, 20.0, 14.99, 0, 0);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_TIGHT);
    assert_int_equal(ask(m, 4000), PN_ADMIT_VERDICT_ADMIT);
    mem_sim_psi(m, 20.0, 15.0, 0, 0);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_CRITICAL);
    assert_int_equal(ask(m, 1), PN_ADMIT_VERDICT_REJECT);
}

/* One poll at CRITICAL, and over: the damped level stays up for seconds, but from the second poll
 * on nobody is refused. */
static void test_dip(void **state) {
    struct mem_sim *m = *state;
    mem_sim_step(m, 250);
    assert_int_equal(ask(m, 1000), PN_ADMIT_VERDICT_ADMIT);
    mem_sim_host(m, 16, 0.9);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_CRITICAL);
    assert_int_equal(ask(m, 1000), PN_ADMIT_VERDICT_REJECT);
    assert_int_equal(take(1000), PN_E_NOFIT);
    mem_sim_host(m, 16, 12);
    for (int i = 0; i < 4 * 60; i++) {
        mem_sim_step(m, 250);
        assert_true(i > 4 || m->state.level == PN_MEM_LEVEL_CRITICAL);
        assert_int_equal(ask(m, 1000), PN_ADMIT_VERDICT_ADMIT);
        assert_int_equal(take(1000), 0);
    }
    assert_int_equal(m->state.level, PN_MEM_LEVEL_OK);
}

/* A dip that is stalls, not bytes: once total= has passed it by, the same. */
static void test_stall_dip(void **state) {
    struct mem_sim *m = *state;
    mem_sim_step(m, 250);
    mem_sim_psi(m, 0, 0, 250, 250); /* everybody stood still for one whole poll */
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_TIGHT); /* 2.5 % of 10 s */
    assert_int_equal(ask(m, 1000), PN_ADMIT_VERDICT_ADMIT);
    assert_int_equal(take(1000), 0);
}

struct cache {
    uint64_t held;
    int asked_n;
};

static uint64_t cache_held(void *user) {
    return ((struct cache *)user)->held;
}

static void cache_shed(void *user, uint64_t bytes) {
    struct cache *c = user;
    c->asked_n++;
    c->held -= bytes < c->held ? bytes : c->held;
}

/* Experts stream from disk: everything stalls on it, up to where requests are refused, and no byte
 * is lacking. Giving up caches would make it worse: nothing shrinks. */
static void test_streaming(void **state) {
    struct mem_sim *m = *state;
    struct cache cache = {.held = 4096 * MIB};
    int id = pn_shed_register("experts", 1, cache_held, 0, cache_shed, &cache);
    assert_true(id >= 0);
    for (int i = 0; i < 400; i++) {
        double full = i % 40; /* 0 to 39 %, again and again */
        mem_sim_psi(m, 2 * full, full, 0, 0);
        mem_sim_step(m, 250);
        assert_int_equal(m->state.deficit_bytes, 0);
        assert_true(full < 15 || m->state.level == PN_MEM_LEVEL_CRITICAL);
        assert_int_equal(pn_shed(m->state.level, m->state.deficit_bytes), 0);
    }
    assert_int_equal(cache.asked_n, 0);
    assert_int_equal(cache.held, 4096 * MIB);
    /* The same stalls with bytes lacking: now it gives, the lacking bytes and no more. */
    mem_sim_host(m, 16, 1.2);
    mem_sim_psi(m, 10, 5, 0, 0);
    mem_sim_step(m, 250);
    uint64_t lacking = m->state.deficit_bytes;
    assert_true(lacking > 0 && lacking < 1024 * MIB);
    assert_int_equal(pn_shed(PN_MEM_LEVEL_TIGHT, lacking), lacking);
    assert_int_equal(cache.held, 4096 * MIB - lacking);
    assert_int_equal(pn_shed_unregister(id), 0);
}

/* A saw-tooth through the reserve once a second: what was admitted at its top is paid for, and what
 * is asked at the bottom is refused by bytes; no level adds to it. */
static void test_saw_tooth(void **state) {
    struct mem_sim *m = *state;
    int admitted_n = 0;
    for (int i = 0; i < 200; i++) {
        bool low = i / 2 % 2;
        mem_sim_host(m, 16, low ? 1.0 : 6.0);
        mem_sim_step(m, 250);
        bool admitted = take(2000) == 0;
        assert_int_equal(admitted, !low);
        assert_int_equal(ask(m, 2000) == PN_ADMIT_VERDICT_ADMIT, !low);
        admitted_n += admitted;
    }
    assert_int_equal(admitted_n, 100);
}

/* 1 GB a second goes to somebody else while we admit what we are asked: promises and neighbour
 * together never go below the reserve. */
static void test_ramp(void **state) {
    struct mem_sim *m = *state;
    pn_admit_ticket tickets[64] = {0};
    int n = 0;
    double avail = 12;
    int refused_n = 0;
    for (int i = 0; i < 48; i++, avail -= 0.25 * 1e9 / GIB) {
        mem_sim_host(m, 16, avail > 0 ? avail : 0);
        mem_sim_step(m, 250);
        pn_admit_result r;
        struct pn_detail d;
        uint64_t before = m->state.headroom_bytes;
        int rc = pn_admit_reserve(&cost, 8192 - 64, 64, 8192, 0, &tickets[n], &r, &d);
        /* 128 pages of it: just what the snapshot's headroom says. */
        assert_int_equal(rc == 0, before >= 128 * MIB);
        if (rc == 0) {
            n++;
        } else {
            refused_n++;
            assert_non_null(strstr(d.text, "host"));
        }
        uint64_t promised = (uint64_t)n * 128 * MIB;
        assert_true(rc != 0 || (uint64_t)(avail * GIB) >= promised + (1ull << 30));
    }
    assert_true(n > 20 && refused_n > 5);
    for (int i = 0; i < n; i++)
        pn_admit_release(&tickets[i]);
}

#define SIM(f) cmocka_unit_test_setup_teardown(f, mem_sim_setup, mem_sim_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        SIM(test_load_blip), SIM(test_dip),       SIM(test_stall_dip),
        SIM(test_streaming), SIM(test_saw_tooth), SIM(test_ramp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
