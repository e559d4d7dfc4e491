#include "mem/mem_sim.h"

#include "base/clock.h"
#include "support/pn_test.h"

static uint64_t now(void *user) {
    return ((struct mem_sim *)user)->now_ns;
}

int mem_sim_setup(void **state) {
    struct mem_sim *m = calloc(1, sizeof *m);
    if (!m) return -1;
    mem_tree_new(&m->tree);
    m->now_ns = 1000000000;
    pn__clock_set(now, m);
    pn_ledger_set_reserves(1ull << 30, 64ull << 20);
    mem_sim_host(m, 16, 12);
    mem_sim_psi(m, 0, 0, 0, 0);
    /* The ledger outlives a test; a domain of an earlier one must not refuse in the next. */
    for (unsigned i = 0; i < PN_DOMAIN_N; i++)
        pn_ledger_set_domain(i, NULL, UINT64_MAX, 0);
    assert_int_equal(pn_memwatch_set_root(m->tree.root), 0);
    *state = m;
    return 0;
}

int mem_sim_teardown(void **state) {
    struct mem_sim *m = *state;
    pn_memwatch_stop();
    pn_memwatch_set_root(NULL);
    pn_ledger_set_reserves(UINT64_MAX, UINT64_MAX);
    pn__clock_set(NULL, NULL);
    mem_tree_free(&m->tree);
    free(m);
    return 0;
}

void mem_sim_host(struct mem_sim *m, double total, double avail) {
    char text[128];
    snprintf(text, sizeof text, "MemTotal: %.0f kB\nMemAvailable: %.0f kB\n", total * 1048576.0,
             avail * 1048576.0);
    mem_tree_write(&m->tree, "proc/meminfo", text);
}

void mem_sim_psi(struct mem_sim *m, double some, double full, uint64_t some_ms, uint64_t full_ms) {
    char text[160];
    snprintf(text, sizeof text, "some avg10=%.2f total=%llu\nfull avg10=%.2f total=%llu\n", some,
             (unsigned long long)some_ms * 1000, full, (unsigned long long)full_ms * 1000);
    mem_tree_write(&m->tree, "proc/pressure/memory", text);
}

void mem_sim_group(struct mem_sim *m, double current, double max, double file, double shmem) {
    char text[256];
    mem_tree_write(&m->tree, "proc/self/cgroup", "0::/box\n");
    snprintf(text, sizeof text, "%.0f\n", current * GIB);
    mem_tree_write(&m->tree, "sys/fs/cgroup/box/memory.current", text);
    mem_tree_write(&m->tree, "sys/fs/cgroup/box/memory.high", "max\n");
    snprintf(text, sizeof text, "%.0f\n", max * GIB);
    mem_tree_write(&m->tree, "sys/fs/cgroup/box/memory.max", max > 0 ? text : "max\n");
    snprintf(text, sizeof text,
             "anon 1\nshmem %.0f\nfile_dirty 0\nfile_writeback 0\ninactive_file %.0f\n"
             "active_file 0\n",
             shmem * GIB, file * GIB);
    mem_tree_write(&m->tree, "sys/fs/cgroup/box/memory.stat", text);
}

void mem_sim_read(struct mem_sim *m) {
    assert_int_equal(pn_memwatch_read(&m->state), 0);
}

void mem_sim_step(struct mem_sim *m, unsigned ms) {
    m->now_ns += (uint64_t)ms * 1000000u;
    pn_memwatch_poll_now();
    mem_sim_read(m);
}
