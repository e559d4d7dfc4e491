/* levels.json, limits.json and series.json against the watch and the damper; then the edges of the
 * bands, margins, deficits and stalls. */
#include <jansson.h>

#include "core/mem/pn_level.h"
#include "mem/mem_sim.h"
#include "support/pn_test.h"

static json_t *load(const char *name) {
    char path[512];
    json_error_t error;
    snprintf(path, sizeof path, PN_TEST_DATA "/fixtures/%s", name);
    json_t *j = json_load_file(path, 0, &error);
    if (!j) print_error("%s: %s\n", path, error.text);
    assert_non_null(j);
    return j;
}

static const char *env_of(const json_t *row, const char *name) {
    return json_string_value(json_object_get(json_object_get(row, "env"), name));
}

static void host_row(struct mem_sim *m, const json_t *row) {
    char text[160];
    const char *reserve = env_of(row, "PN_HOST_RESERVE_BYTES");
    const char *reject = env_of(row, "PN_PSI_FULL_REJECT");
    assert_int_equal(pn_memwatch_set_root(m->tree.root), 0);
    pn_ledger_set_reserves(reserve ? strtoull(reserve, NULL, 10) : UINT64_MAX, UINT64_MAX);
    pn_mem_set_psi_full_reject(reject ? strtod(reject, NULL) : -1);
    snprintf(text, sizeof text, "MemTotal: %lld kB\nMemAvailable: %lld kB\n",
             (long long)json_integer_value(json_object_get(row, "mem_total_kb")),
             (long long)json_integer_value(json_object_get(row, "mem_available_kb")));
    mem_tree_write(&m->tree, "proc/meminfo", text);
    mem_sim_psi(m, json_number_value(json_object_get(row, "psi_some_avg10")),
                json_number_value(json_object_get(row, "psi_full_avg10")), 0, 0);
    mem_sim_step(m, 250);
    pn_mem_set_psi_full_reject(-1);
    const char *want = json_string_value(json_object_get(row, "raw_level"));
    if (strcmp(pn_mem_level_name(m->state.raw_level), want) != 0) print_error("%s", text);
    assert_string_equal(pn_mem_level_name(m->state.raw_level), want);
    assert_int_equal(m->state.level, m->state.raw_level);
}

static void test_host_rows(void **state) {
    json_t *all = load("levels.json");
    const json_t *rows = json_object_get(all, "host");
    assert_true(json_array_size(rows) >= 60);
    for (size_t i = 0; i < json_array_size(rows); i++)
        host_row(*state, json_array_get(rows, i));
    json_decref(all);
}

static void test_die_rows(void **state) {
    struct mem_sim *m = *state;
    json_t *all = load("levels.json");
    const json_t *rows = json_object_get(all, "die");
    assert_true(json_array_size(rows) >= 30);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        assert_int_equal(pn_memwatch_set_root(m->tree.root), 0);
        mem_sim_step(m, 250);
        pn_memwatch_set_die((int)(i % 16),
                            (uint64_t)json_integer_value(json_object_get(row, "free")),
                            (uint64_t)json_integer_value(json_object_get(row, "budget")), 1);
        mem_sim_read(m);
        assert_string_equal(pn_mem_level_name(m->state.raw_level),
                            json_string_value(json_object_get(row, "level")));
    }
    json_decref(all);
}

static void limits_row(const json_t *row) {
    void *state;
    const char *path;
    json_t *text;
    assert_int_equal(mem_sim_setup(&state), 0);
    struct mem_sim *m = state;
    mem_tree_remove(&m->tree, "proc/pressure/memory");
    json_object_foreach(json_object_get(row, "root"), path, text) {
        mem_tree_write(&m->tree, path, json_string_value(text));
    }
    mem_sim_step(m, 250);
    const char *bind = json_string_value(json_object_get(row, "bind"));
    assert_int_equal(m->state.eff_avail_bytes,
                     json_integer_value(json_object_get(row, "eff_avail_bytes")));
    if (strcmp(bind, "cgroup") == 0) {
        assert_memory_equal(m->state.bind_domain, "cgroup:/", 8);
    } else {
        assert_string_equal(m->state.bind_domain, bind);
    }
    mem_sim_teardown(&state);
}

static void test_limits(void **state) {
    (void)state;
    json_t *all = load("limits.json");
    assert_true(json_array_size(all) >= 12);
    for (size_t i = 0; i < json_array_size(all); i++)
        limits_row(json_array_get(all, i));
    json_decref(all);
}

static void test_series(void **state) {
    (void)state;
    json_t *all = load("series.json");
    const char *name;
    json_t *one;
    assert_true(json_object_size(all) >= 5);
    json_object_foreach(all, name, one) {
        struct pn_damper d = {0};
        const json_t *raw = json_object_get(one, "raw");
        const json_t *level = json_object_get(one, "level");
        uint64_t step_ns = (uint64_t)json_integer_value(json_object_get(one, "poll_ms")) * 1000000u;
        assert_true(json_array_size(raw) > 200);
        assert_int_equal(json_array_size(raw), json_array_size(level));
        for (size_t i = 0; i < json_array_size(raw); i++) {
            pn_mem_level now = (pn_mem_level)json_integer_value(json_array_get(raw, i));
            struct pn_verdict v = {.raw = now, .bytes = now, .margin = now};
            pn_mem_level got = pn__damper_step(&d, &v, 77 + i * step_ns);
            if (got != json_integer_value(json_array_get(level, i))) {
                print_error("'%s' at %zu\n", name, i);
            }
            assert_int_equal(got, json_integer_value(json_array_get(level, i)));
        }
    }
    json_decref(all);
}

/* Within the margin above a band the level doesn't fall, and its clock starts when that is left. */
static void test_margin(void **state) {
    struct mem_sim *m = *state;
    mem_sim_host(m, 16, 1.2); /* 0.2 GiB above the reserve of 1: under a quarter */
    mem_sim_step(m, 250);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_TIGHT);
    mem_sim_host(m, 16, 1.3); /* in WATCH, but within 1/16 of TIGHT */
    for (int i = 0; i < 200; i++) {
        mem_sim_step(m, 250);
        assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_WATCH);
        assert_int_equal(m->state.level, PN_MEM_LEVEL_TIGHT);
    }
    mem_sim_host(m, 16, 1.32);
    mem_sim_step(m, 250);
    for (int i = 0; i < 59; i++)
        mem_sim_step(m, 250);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_TIGHT);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_WATCH);
}

static void test_bands(void **state) {
    (void)state;
    const uint64_t r = 1600;
    assert_int_equal(pn__level_of_bytes(0, r, 0), PN_MEM_LEVEL_CRITICAL);
    assert_int_equal(pn__level_of_bytes(r, r, 0), PN_MEM_LEVEL_CRITICAL);
    assert_int_equal(pn__level_of_bytes(r + 1, r, 0), PN_MEM_LEVEL_TIGHT);
    assert_int_equal(pn__level_of_bytes(r + r / 4 - 1, r, 0), PN_MEM_LEVEL_TIGHT);
    assert_int_equal(pn__level_of_bytes(r + r / 4, r, 0), PN_MEM_LEVEL_WATCH);
    assert_int_equal(pn__level_of_bytes(2 * r - 1, r, 0), PN_MEM_LEVEL_WATCH);
    assert_int_equal(pn__level_of_bytes(2 * r, r, 0), PN_MEM_LEVEL_OK);
    assert_int_equal(pn__level_of_bytes(0, 0, 0), PN_MEM_LEVEL_CRITICAL);
    assert_int_equal(pn__level_of_bytes(1, 0, 0), PN_MEM_LEVEL_OK);
    for (uint64_t a = 0; a < 3 * r; a++)
        assert_true(pn__level_of_bytes(a, r, r / 16) >= pn__level_of_bytes(a, r, 0));
    for (uint64_t a = 0; a < r; a++)
        assert_true(pn__level_of_die(a, r, r / 128) >= pn__level_of_die(a, r, 0));
    assert_true(pn_mem_die_budget(24ull << 30) == 23ull << 30);
    assert_int_equal(pn_mem_die_budget(1), 0);
    pn_mem_set_die_reserve(10);
    assert_int_equal(pn_mem_die_budget(11), 1);
    pn_mem_set_die_reserve(UINT64_MAX);
    assert_string_equal(pn_mem_level_name(PN_MEM_LEVEL_CRITICAL), "CRITICAL");
    assert_string_equal(pn_mem_level_name(4), "?");
}

/* The deficit brings the worst domain to where its level may fall. */
static void test_deficit(void **state) {
    struct mem_sim *m = *state;
    static const double avail[] = {0.0, 0.5, 1.0, 1.1, 1.24, 1.3, 1.9, 2.05, 12.0};
    for (size_t i = 0; i < PN_ARRAY_N(avail); i++) {
        assert_int_equal(pn_memwatch_set_root(m->tree.root), 0);
        mem_sim_host(m, 16, avail[i]);
        mem_sim_step(m, 250);
        pn_mem_level before = m->state.raw_level;
        uint64_t lacks = m->state.deficit_bytes;
        assert_int_equal(lacks != 0, before != PN_MEM_LEVEL_OK);
        if (!lacks) continue;
        uint64_t then = m->state.host_avail_bytes + lacks;
        uint64_t reserve = 1ull << 30;
        assert_true(pn__level_of_bytes(then, reserve, reserve / 16) < before);
        assert_true(pn__level_of_bytes(then - 1, reserve, reserve / 16) >= before);
    }
    /* A stall alone has none: nothing is given back for it. */
    assert_int_equal(pn_memwatch_set_root(m->tree.root), 0);
    mem_sim_psi(m, 50, 40, 0, 0);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_CRITICAL);
    assert_int_equal(m->state.deficit_bytes, 0);
}

static void test_psi_edges(void **state) {
    struct mem_sim *m = *state;
    static const struct {
        double some;
        double full;
        pn_mem_level level;
    } rows[] = {
        {0, 0, PN_MEM_LEVEL_OK},           {0.01, 0, PN_MEM_LEVEL_WATCH},
        {9.99, 0, PN_MEM_LEVEL_WATCH},     {10, 0, PN_MEM_LEVEL_TIGHT},
        {100, 0, PN_MEM_LEVEL_TIGHT},      {0, 0.01, PN_MEM_LEVEL_TIGHT},
        {100, 14.99, PN_MEM_LEVEL_TIGHT},  {0, 15, PN_MEM_LEVEL_CRITICAL},
        {100, 100, PN_MEM_LEVEL_CRITICAL},
    };
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        assert_int_equal(pn_memwatch_set_root(m->tree.root), 0);
        mem_sim_psi(m, rows[i].some, rows[i].full, 0, 0);
        mem_sim_step(m, 250);
        assert_int_equal(m->state.raw_level, rows[i].level);
    }
}

/* Each group, the rlimit and each die is a domain; the worst decides. */
static void test_domains(void **state) {
    struct mem_sim *m = *state;
    pn_memwatch_info info;
    mem_sim_group(m, 3.99, 4, 0, 0);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_CRITICAL);
    pn_memwatch_info_read(&info);
    assert_non_null(strstr(info.why, "cgroup:/box: 0.010 GiB available, 0.062 kept free"));
    assert_string_equal(m->state.headroom_domain, "cgroup:/box");
    assert_int_equal(m->state.headroom_bytes, 0);
    mem_sim_group(m, 3.9, 4, 0, 0); /* slack 0.0375, reserve 0.0625 */
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_WATCH);
    mem_sim_group(m, 3.99, 4, 2, 0);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_OK);
    mem_tree_write(&m->tree, "proc/self/limits",
                   "Max address space         1073741824           unlimited            bytes\n"
                   "Max data size             unlimited            unlimited            bytes\n");
    mem_tree_write(&m->tree, "proc/self/status", "VmSize:\t1047552 kB\nVmData:\t1 kB\n");
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_CRITICAL);
    assert_string_equal(m->state.bind_domain, "rlimit");
    pn_memwatch_info_read(&info);
    assert_non_null(strstr(info.why, "rlimit: "));
}

static void test_failed_source_is_tight(void **state) {
    struct mem_sim *m = *state;
    static const char *const garbage[] = {"", "x", "some avg10=-1 total=0\nfull avg10=0 total=0\n",
                                          "some avg10=0 total=99999999999999999999\n"};
    pn_memwatch_info info;
    for (size_t i = 0; i < PN_ARRAY_N(garbage); i++) {
        assert_int_equal(pn_memwatch_set_root(m->tree.root), 0);
        mem_tree_write(&m->tree, "proc/pressure/memory", garbage[i]);
        mem_sim_step(m, 250);
        assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_TIGHT);
        assert_int_equal(m->state.sources[PN_SOURCE_PSI], PN_SOURCE_FAILED);
        assert_int_equal(m->state.deficit_bytes, 0);
        pn_memwatch_info_read(&info);
        assert_non_null(strstr(info.why, "psi unknown: /proc/pressure/memory"));
    }
    mem_sim_psi(m, 0, 0, 0, 0);
    assert_int_equal(pn_memwatch_set_root(m->tree.root), 0);
    mem_tree_write(&m->tree, "proc/meminfo", "MemTotal: -5 kB\nMemAvailable: 1 kB\n");
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_TIGHT);
    assert_int_equal(m->state.eff_avail_bytes, 0);
    assert_string_equal(m->state.bind_domain, "host");
    /* A failure never hides something worse. */
    mem_sim_group(m, 3.99, 4, 0, 0);
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_CRITICAL);
}

static void test_stall(void **state) {
    (void)state;
    struct pn_stall s = {0};
    double some;
    double full;
    uint64_t ms = 1000000u;
    pn__stall_step(&s, 5000 * ms, 7000000, 3000000, &some, &full);
    assert_true(some == 0.0 && full == 0.0); /* what was before the first sample is no news */
    pn__stall_step(&s, 5250 * ms, 7250000, 3125000, &some, &full);
    assert_true(some == 2.5 && full == 1.25);
    for (int i = 0; i < 40; i++)
        pn__stall_step(&s, (5500 + 250 * (uint64_t)i) * ms, 7250000, 3125000, &some, &full);
    assert_true(some == 0.0 && full == 0.0); /* 10 s later it's over */
    for (uint64_t i = 0; i < 1000;
         i++) /* polls at 20 ms stall throughout: the ring still spans 10 s */
        pn__stall_step(&s, 20000 * ms + i * 20 * ms, 7250000 + i * 20000, 3125000 + i * 10000,
                       &some, &full);
    assert_true(some > 97.0 && some <= 100.0);
    assert_true(full > 48.0 && full <= 50.0);
    pn__stall_step(&s, 50000 * ms, 5, 5, &some, &full);
    assert_true(some == 0.0 && full == 0.0); /* counters that went backwards */
}

#define SIM(f) cmocka_unit_test_setup_teardown(f, mem_sim_setup, mem_sim_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        SIM(test_host_rows),
        SIM(test_die_rows),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_series),
        cmocka_unit_test(test_bands),
        SIM(test_margin),
        SIM(test_deficit),
        SIM(test_psi_edges),
        SIM(test_domains),
        SIM(test_failed_source_is_tight),
        cmocka_unit_test(test_stall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
