/* Whole stories, played through the watch poll by poll: what the level does and, as important, what
 * it doesn't do. */
#include <errno.h>

#include "base/io.h"
#include "mem/mem_sim.h"
#include "support/kept_log.h"
#include "support/pn_test.h"

/* Polls `n` times a quarter second apart; how often each damped level stood there in *seen. */
static void hold(struct mem_sim *m, int n, int seen[PN_MEM_LEVEL_N]) {
    memset(seen, 0, sizeof(int) * PN_MEM_LEVEL_N);
    for (int i = 0; i < n; i++) {
        mem_sim_step(m, 250);
        seen[m->state.level]++;
    }
}

/* Half a second at the reserve: seen at once, forgotten slowly, in steps. */
static void test_spike(void **state) {
    struct mem_sim *m = *state;
    int seen[PN_MEM_LEVEL_N];
    mem_sim_step(m, 250);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_OK);
    mem_sim_host(m, 16, 0.9);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_CRITICAL);
    mem_sim_step(m, 250);
    mem_sim_host(m, 16, 12);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_OK);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_CRITICAL);
    assert_int_equal(m->state.deficit_bytes, 0); /* so nothing is shed for what is over */
    hold(m, 4 * 51, seen);
    assert_int_equal(seen[PN_MEM_LEVEL_CRITICAL], 4 * 5 - 1);
    assert_int_equal(seen[PN_MEM_LEVEL_TIGHT], 4 * 15);
    assert_int_equal(seen[PN_MEM_LEVEL_WATCH], 4 * 30);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_OK);
}

/* 1 GB a second: each level is met, in order, before the reserve is gone, and polls come faster. */
static void test_ramp(void **state) {
    struct mem_sim *m = *state;
    double avail = 12;
    pn_mem_level last = PN_MEM_LEVEL_OK;
    pn_memwatch_info info;
    uint32_t shortest = PN_MEMWATCH_POLL_MS;
    double critical_at = 0;
    int met[PN_MEM_LEVEL_N] = {0};
    while (avail > 0.05) {
        mem_sim_host(m, 16, avail);
        pn_memwatch_info_read(&info);
        mem_sim_step(m, info.interval_ms);
        assert_true(m->state.level >= last);
        if (m->state.level == PN_MEM_LEVEL_CRITICAL && last != PN_MEM_LEVEL_CRITICAL) {
            critical_at = avail;
        }
        last = m->state.level;
        met[last]++;
        pn_memwatch_info_read(&info);
        if (info.interval_ms < shortest) shortest = info.interval_ms;
        avail -= 1e9 / GIB * info.interval_ms / 1000.0;
    }
    for (int i = 0; i < PN_MEM_LEVEL_N; i++)
        assert_true(met[i] > 0);
    assert_true(critical_at > 0.95); /* within a poll of the reserve of 1 GiB */
    assert_int_equal(shortest, PN_MEMWATCH_POLL_MS_MIN);
    /* Standing still there is no reason to hurry. */
    for (int i = 0; i < 20; i++)
        mem_sim_step(m, 250);
    pn_memwatch_info_read(&info);
    assert_int_equal(info.interval_ms, PN_MEMWATCH_POLL_MS);
}

static void test_interval(void **state) {
    (void)state;
    const uint64_t gib = 1ull << 30;
    assert_int_equal(pn_memwatch_interval_ms(UINT64_MAX, 1e12), 250);
    assert_int_equal(pn_memwatch_interval_ms(0, 0), 250);
    assert_int_equal(pn_memwatch_interval_ms(0, 1), 20);
    assert_int_equal(pn_memwatch_interval_ms(gib, -5), 250);
    assert_int_equal(pn_memwatch_interval_ms(gib, GIB), 125);
    assert_int_equal(pn_memwatch_interval_ms(2 * gib, GIB), 250);
    assert_int_equal(pn_memwatch_interval_ms(gib, 100 * GIB), 20);
    double zero = 0;
    assert_int_equal(pn_memwatch_interval_ms(gib, zero / zero), 250);
}

/* A hog that pauses for one poll is no all-clear. */
static void test_pause(void **state) {
    struct mem_sim *m = *state;
    pn_memwatch_info info;
    mem_sim_step(m, 250);
    mem_sim_host(m, 16, 2);
    mem_sim_step(m, 250);
    pn_memwatch_info_read(&info);
    assert_int_equal(info.interval_ms, PN_MEMWATCH_POLL_MS_MIN);
    mem_sim_step(m, 20);
    pn_memwatch_info_read(&info);
    assert_true(info.interval_ms < 20 * 2);
}

/* In and out of WATCH every two seconds: no flapping. */
static void test_saw_tooth(void **state) {
    struct mem_sim *m = *state;
    int changes = 0;
    pn_mem_level last = PN_MEM_LEVEL_OK;
    for (int i = 0; i < 400; i++) {
        mem_sim_host(m, 16, i / 8 % 2 ? 1.8 : 5);
        mem_sim_step(m, 250);
        changes += m->state.level != last;
        last = m->state.level;
    }
    assert_int_equal(changes, 1);
    assert_int_equal(last, PN_MEM_LEVEL_WATCH);
}

/* A neighbour outside of our group: host goes down, our group doesn't move; then it goes away. */
static void test_neighbour(void **state) {
    struct mem_sim *m = *state;
    int seen[PN_MEM_LEVEL_N];
    mem_sim_group(m, 1, 8, 0, 0);
    mem_sim_step(m, 250);
    assert_string_equal(m->state.bind_domain, "cgroup:/box");
    assert_true(m->state.headroom_bytes == (uint64_t)(6.9375 * GIB));
    mem_sim_host(m, 16, 1.1);
    mem_sim_step(m, 250);
    assert_string_equal(m->state.bind_domain, "host");
    assert_string_equal(m->state.headroom_domain, "host");
    assert_int_equal(m->state.level, PN_MEM_LEVEL_TIGHT);
    mem_sim_host(m, 16, 12);
    hold(m, 4 * 46, seen);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_OK);
    assert_string_equal(m->state.bind_domain, "cgroup:/box");
}

/* Files on tmpfs are in the group's page cache, and nothing drops them. */
static void test_tmpfs(void **state) {
    struct mem_sim *m = *state;
    mem_sim_group(m, 7.95, 8, 7, 0);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_OK);
    mem_sim_group(m, 7.95, 8, 0, 7);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_CRITICAL);
}

/* A load reads everything and stalls a little: TIGHT, no more, and no bytes are asked for. */
static void test_load_blip(void **state) {
    struct mem_sim *m = *state;
    mem_sim_psi(m, 3.0, 0.4, 0, 0);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_TIGHT);
    assert_int_equal(m->state.deficit_bytes, 0);
    mem_sim_psi(m, 3.0, 0.0, 0, 0);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_WATCH);
}

/* Everyone stands still and avg10 hasn't noticed yet: total= has. */
static void test_stall_before_avg10(void **state) {
    struct mem_sim *m = *state;
    mem_sim_psi(m, 0, 0, 5000, 5000);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_OK);
    unsigned stalled = 0;
    while (m->state.raw_level != PN_MEM_LEVEL_CRITICAL && stalled < 4000) {
        stalled += 250;
        mem_sim_psi(m, 0, 0, 5000 + stalled, 5000 + stalled);
        mem_sim_step(m, 250);
        assert_true(m->state.raw_level >= PN_MEM_LEVEL_TIGHT);
        assert_true(m->state.host_psi_full_avg10 == 0.0);
    }
    assert_int_equal(stalled, 1500); /* 15 % of 10 s */
    assert_true(m->state.psi_full_now >= 15.0);
    for (int i = 0; i < 45; i++)
        mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_OK);
}

/* Our own group stalls at its limit while the machine is idle. */
static void test_group_stall(void **state) {
    struct mem_sim *m = *state;
    mem_sim_group(m, 1, 8, 0, 0);
    mem_tree_write(&m->tree, "sys/fs/cgroup/box/memory.pressure",
                   "some avg10=60.00 total=0\nfull avg10=40.00 total=0\n");
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_CRITICAL);
    assert_true(m->state.psi_full_now == 40.0 && m->state.host_psi_full_avg10 == 0.0);
    assert_int_equal(m->state.deficit_bytes, 0);
}

static struct kept_log heard;

static int count(const char *what) {
    int n = 0;
    for (const char *s = heard.text; (s = strstr(s, what)) != NULL; s++)
        n++;
    return n;
}

/* No PSI at all is a fact, said once; PSI that goes away in mid-run is a failure until it is back.
 */
static void test_psi_absent_and_gone(void **state) {
    struct mem_sim *m = *state;
    heard.text[0] = '\0';
    pn_log_set(kept_log_add, &heard, PN_LOG_INFO);
    mem_tree_remove(&m->tree, "proc/pressure/memory");
    for (int i = 0; i < 5; i++) {
        mem_sim_step(m, 250);
        assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_OK);
        assert_int_equal(m->state.sources[PN_SOURCE_PSI], PN_SOURCE_ABSENT);
    }
    assert_int_equal(count("PSI unavailable, using meminfo"), 1);
    mem_sim_psi(m, 0, 0, 0, 0);
    mem_sim_step(m, 250);
    mem_tree_remove(&m->tree, "proc/pressure/memory");
    for (int i = 0; i < 5; i++) {
        mem_sim_step(m, 250);
        assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_TIGHT);
        assert_int_equal(m->state.sources[PN_SOURCE_PSI], PN_SOURCE_FAILED);
    }
    assert_int_equal(count("psi can't be read (was there before and is gone)"), 1);
    mem_sim_psi(m, 0, 0, 0, 0);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_OK);
    /* Garbage in mid-run. */
    mem_tree_write(&m->tree, "proc/pressure/memory", "some avg10=x\n");
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_TIGHT);
    pn_log_set(NULL, NULL, PN_LOG_WARN);
}

static int no_psi_open(const char *path, int flags) {
    if (strstr(path, "/pressure/")) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return pn__io_system()->open(path, flags);
}

static void test_psi_switched_off(void **state) {
    struct mem_sim *m = *state;
    struct pn_io io = *pn__io_system();
    io.open = no_psi_open;
    pn__io_set(&io);
    mem_sim_step(m, 250);
    pn__io_set(NULL);
    assert_int_equal(m->state.sources[PN_SOURCE_PSI], PN_SOURCE_ABSENT);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_OK);
}

/* A limit lowered while running, and lifted. */
static void test_limit_changes(void **state) {
    struct mem_sim *m = *state;
    mem_sim_group(m, 3, 8, 0, 0);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_OK);
    mem_sim_group(m, 3, 3.05, 0, 0);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_CRITICAL);
    mem_sim_group(m, 3, 0, 0, 0);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_OK);
    assert_string_equal(m->state.bind_domain, "host");
    assert_int_equal(m->state.cgroup_max_bytes, 0);
    assert_true(m->state.cgroup_current_bytes == (uint64_t)(3 * GIB));
    /* The group itself gone: what limits us isn't known. */
    mem_tree_remove(&m->tree, "proc/self/cgroup");
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_TIGHT);
}

#define SIM(f) cmocka_unit_test_setup_teardown(f, mem_sim_setup, mem_sim_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        SIM(test_spike),
        SIM(test_ramp),
        cmocka_unit_test(test_interval),
        SIM(test_pause),
        SIM(test_saw_tooth),
        SIM(test_neighbour),
        SIM(test_tmpfs),
        SIM(test_load_blip),
        SIM(test_stall_before_avg10),
        SIM(test_group_stall),
        SIM(test_psi_absent_and_gone),
        SIM(test_psi_switched_off),
        SIM(test_limit_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
