/* From probed files to what is granted: reserves, the tightest group, and sources that fail. */
#include "base/log.h"
#include "mem/mem_tree.h"
#include "pn_mem.h"
#include "support/kept_log.h"
#include "support/pn_test.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

#define MEMINFO_64G "MemTotal: 67108864 kB\nMemAvailable: 48118784 kB\n"
#define HOST_AVAIL (48118784ull * 1024)

static struct mem_tree tree;
static struct pn_detail detail;
static struct kept_log heard;

static int setup(void **state) {
    (void)state;
    for (unsigned i = 0; i < PN_DOMAIN_N; i++)
        pn_ledger_set_domain(i, NULL, UINT64_MAX, 0);
    pn_ledger_set_reserves(UINT64_MAX, UINT64_MAX);
    mem_tree_new(&tree);
    mem_tree_write(&tree, "proc/meminfo", MEMINFO_64G);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    pn_log_set(NULL, NULL, PN_LOG_ERROR);
    mem_tree_free(&tree);
    return 0;
}

static void put_group(const char *dir, uint64_t current, const char *max) {
    char path[256];
    char text[64];
    snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.max", dir);
    mem_tree_write(&tree, path, max);
    snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.current", dir);
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)current);
    mem_tree_write(&tree, path, text);
    snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.stat", dir);
    mem_tree_write(&tree, path, "inactive_file 0\nactive_file 0\nfile_dirty 0\nfile_writeback 0\n");
}

static int try_reserve(uint64_t bytes) {
    pn_booking b;
    int rc = pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_KV, bytes, &b, &detail);
    if (rc == 0) assert_int_equal(pn_ledger_release(&b), 0);
    return rc;
}

static void test_reserves(void **state) {
    (void)state;
    assert_true(pn_mem_host_reserve(0) == GIB);
    assert_true(pn_mem_host_reserve(4 * GIB) == GIB);
    assert_true(pn_mem_host_reserve(64 * GIB) == 10307921510ull); /* 15 %, rounded down */
    assert_true(pn_mem_host_reserve(1ull << 60) == 172938225691027046ull);
    assert_true(pn_mem_limit_reserve(0) == 64 * MIB);
    assert_true(pn_mem_limit_reserve(GIB) == 64 * MIB);
    assert_true(pn_mem_limit_reserve(GIB + 16) == 64 * MIB + 1);
    assert_true(pn_mem_limit_reserve(32 * GIB) == 2 * GIB);
    pn_ledger_set_reserves(5, 0);
    assert_int_equal(pn_mem_host_reserve(64 * GIB), 5);
    assert_int_equal(pn_mem_limit_reserve(64 * GIB), 0);
}

static void test_host_only(void **state) {
    (void)state;
    unsigned domain;
    pn_ledger_sample(tree.root);
    assert_true(pn_ledger_headroom(PN_DOMAIN_HOST) == HOST_AVAIL - 10307921510ull);
    assert_true(pn_ledger_headroom(PN_DOMAIN_CGROUP) == UINT64_MAX);
    assert_true(pn_ledger_headroom(PN_DOMAIN_RLIMIT) == UINT64_MAX);
    assert_true(pn_ledger_place_headroom(PN_PLACE_HOST, &domain) == HOST_AVAIL - 10307921510ull);
    assert_int_equal(domain, PN_DOMAIN_HOST);
    pn_ledger_set_reserves(100 * MIB, UINT64_MAX);
    pn_ledger_sample(tree.root);
    assert_true(pn_ledger_headroom(PN_DOMAIN_HOST) == HOST_AVAIL - 100 * MIB);
}

/* Each group has its own reserve: the one that can give least isn't always the one with the least
 * available. */
static void test_group_that_gives_least(void **state) {
    (void)state;
    pn_domain_view v;
    mem_tree_write(&tree, "proc/self/cgroup", "0::/big/small\n");
    put_group("/big", 30 * GIB, "34359738368\n");       /* 2 GiB left, 2 GiB kept free */
    put_group("/big/small", 512 * MIB, "2147483648\n"); /* 1.5 GiB left, 128 MiB kept free */
    pn_ledger_sample(tree.root);
    pn_ledger_domain(PN_DOMAIN_CGROUP, &v);
    assert_string_equal(v.name, "cgroup:/big");
    assert_true(v.available_bytes == 2 * GIB);
    assert_true(v.reserve_bytes == 2 * GIB);
    assert_int_equal(v.headroom_bytes, 0);
    assert_int_equal(try_reserve(1), PN_E_NOFIT);
    assert_non_null(strstr(detail.text, "cgroup:/big lacks 1 bytes"));
    pn_ledger_set_reserves(UINT64_MAX, 16 * MIB);
    pn_ledger_sample(tree.root);
    pn_ledger_domain(PN_DOMAIN_CGROUP, &v);
    assert_string_equal(v.name, "cgroup:/big/small");
    assert_true(v.headroom_bytes == 1536 * MIB - 16 * MIB);
    /* The limit goes away while we run, and comes back lower. */
    put_group("/big/small", 512 * MIB, "max\n");
    put_group("/big", 30 * GIB, "max\n");
    pn_ledger_sample(tree.root);
    assert_true(pn_ledger_headroom(PN_DOMAIN_CGROUP) == UINT64_MAX);
    put_group("/big/small", 512 * MIB, "536870912\n");
    pn_ledger_sample(tree.root);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_CGROUP), 0);
}

/* CASES M1: an 18 GiB plan is admitted where page cache fills the group, and refused where what
 * fills it can't be dropped. */
static void test_plan_of_18_gib(void **state) {
    (void)state;
    mem_tree_write(&tree, "proc/self/cgroup", "0::/app\n");
    put_group("/app", 28 * GIB, "34359738368\n");
    mem_tree_write(&tree, "sys/fs/cgroup/app/memory.stat",
                   "anon 36700160\nshmem 0\nfile_dirty 0\nfile_writeback 0\n"
                   "inactive_file 22548578304\nactive_file 0\nunevictable 0\n");
    pn_ledger_sample(tree.root);
    assert_int_equal(try_reserve(18 * GIB), 0);
    mem_tree_write(&tree, "sys/fs/cgroup/app/memory.stat",
                   "anon 36700160\nshmem 22548578304\nfile_dirty 0\nfile_writeback 0\n"
                   "inactive_file 0\nactive_file 0\nunevictable 22548578304\n");
    pn_ledger_sample(tree.root);
    assert_int_equal(try_reserve(18 * GIB), PN_E_NOFIT);
    assert_non_null(strstr(detail.text, "cgroup:/app"));
    put_group("/app", 28 * GIB, "max\n");
    pn_ledger_sample(tree.root);
    assert_int_equal(try_reserve(18 * GIB), 0);
    /* LXC: MemFree is small, MemAvailable isn't. */
    mem_tree_write(&tree, "proc/meminfo",
                   "MemTotal: 67108864 kB\nMemFree: 12582912 kB\nMemAvailable: 32505856 kB\n");
    pn_ledger_sample(tree.root);
    assert_int_equal(try_reserve(18 * GIB), 0);
}

static void test_failed_from_the_start(void **state) {
    (void)state;
    mem_tree_write(&tree, "proc/self/cgroup", "0::/app\n");
    put_group("/app", 0, "garbage\n");
    heard.text[0] = '\0';
    pn_log_set(kept_log_add, &heard, PN_LOG_INFO);
    pn_ledger_sample(tree.root);
    pn_ledger_sample(tree.root);
    assert_int_equal(try_reserve(4096), PN_E_NOFIT);
    assert_non_null(strstr(detail.text, "cgroup (unreadable)"));
    const char *said = strstr(heard.text, "1 memory: cgroup figures can't be read");
    assert_non_null(said);
    assert_non_null(strstr(said, "/app/memory.max"));
    assert_non_null(strstr(said, "granting nothing"));
    assert_null(strstr(said + strlen("1 memory: cgroup figures can't be read"), "can't be read"));
    /* It comes to its senses. */
    put_group("/app", 0, "1073741824\n");
    pn_ledger_sample(tree.root);
    assert_true(pn_ledger_headroom(PN_DOMAIN_CGROUP) == GIB - 64 * MIB);
    assert_non_null(strstr(heard.text, "2 memory: cgroup figures are back"));
}

/* Fails or is gone in mid-run: the last figures stay, and what we do ourselves still counts. */
static void test_failed_in_mid_run(void **state) {
    (void)state;
    pn_booking b;
    mem_tree_write(&tree, "proc/self/cgroup", "0::/app\n");
    put_group("/app", 0, "1073741824\n");
    pn_ledger_sample(tree.root);
    heard.text[0] = '\0';
    pn_log_set(kept_log_add, &heard, PN_LOG_WARN);
    mem_tree_write(&tree, "proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: -5 kB\n");
    mem_tree_remove(&tree, "proc/self/cgroup");
    pn_ledger_sample(tree.root);
    assert_true(pn_ledger_headroom(PN_DOMAIN_HOST) == HOST_AVAIL - 10307921510ull);
    assert_true(pn_ledger_headroom(PN_DOMAIN_CGROUP) == 960 * MIB);
    assert_non_null(strstr(heard.text, "host figures can't be read"));
    assert_non_null(strstr(heard.text, "keeping the last ones"));
    assert_non_null(strstr(heard.text, "no cgroup figures any more"));
    PN_ASSERT_OK(pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_KV, 900 * MIB, &b, &detail), &detail);
    assert_int_equal(try_reserve(61 * MIB), PN_E_NOFIT);
    assert_int_equal(pn_ledger_release(&b), 0);
    assert_int_equal(try_reserve(960 * MIB), 0);
}

static void test_rlimit(void **state) {
    (void)state;
    mem_tree_write(&tree, "proc/self/limits",
                   "Max data size             unlimited            unlimited            bytes\n"
                   "Max address space         1073741824           unlimited            bytes\n");
    mem_tree_write(&tree, "proc/self/status", "VmSize: 524288 kB\nVmData: 1 kB\n");
    pn_ledger_sample(tree.root);
    assert_true(pn_ledger_headroom(PN_DOMAIN_RLIMIT) == 448 * MIB);
    assert_int_equal(try_reserve(449 * MIB), PN_E_NOFIT);
    assert_non_null(strstr(detail.text, "rlimit lacks 1048576 bytes"));
}

/* Both limits: files count against address space only, and each is enforced, not just the one that
 * leaves less now. */
static void test_both_rlimits(void **state) {
    (void)state;
    pn_booking f;
    mem_tree_write(&tree, "proc/self/limits",
                   "Max data size             209715200            unlimited            bytes\n"
                   "Max address space         1073741824           unlimited            bytes\n");
    mem_tree_write(&tree, "proc/self/status", "VmSize: 524288 kB\nVmData: 0 kB\n");
    pn_ledger_set_reserves(UINT64_MAX, 0);
    pn_ledger_sample(tree.root);
    assert_true(pn_ledger_headroom(PN_DOMAIN_RLIMIT) == 200 * MIB);
    assert_true(pn_ledger_place_headroom(PN_PLACE_FILE, NULL) == 512 * MIB);
    PN_ASSERT_OK(pn_ledger_reserve(PN_PLACE_FILE, PN_OWNER_WEIGHTS, 400 * MIB, &f, &detail),
                 &detail);
    assert_true(pn_ledger_headroom(PN_DOMAIN_RLIMIT) == 112 * MIB);
    assert_int_equal(try_reserve(113 * MIB), PN_E_NOFIT);
    assert_int_equal(pn_ledger_release(&f), 0);
    assert_int_equal(try_reserve(200 * MIB), 0);
    assert_int_equal(try_reserve(200 * MIB + 1), PN_E_NOFIT);
    pn_ledger_set_reserves(UINT64_MAX, UINT64_MAX);
}

/* A sample that was begun before the one in use doesn't overwrite it. */
static void test_slow_sampler(void **state) {
    (void)state;
    pn_ledger_mark early;
    pn_host_sample old;
    pn_ledger_mark_now(&early);
    pn_host_signals_sample(tree.root, &old);
    mem_tree_write(&tree, "proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 20971520 kB\n");
    pn_ledger_sample(tree.root);
    uint64_t now = pn_ledger_headroom(PN_DOMAIN_HOST);
    pn_ledger_apply(&old, &early);
    assert_true(pn_ledger_headroom(PN_DOMAIN_HOST) == now);
}

#define IN_TREE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_TREE(test_reserves),
        IN_TREE(test_host_only),
        IN_TREE(test_group_that_gives_least),
        IN_TREE(test_plan_of_18_gib),
        IN_TREE(test_failed_from_the_start),
        IN_TREE(test_failed_in_mid_run),
        IN_TREE(test_rlimit),
        IN_TREE(test_both_rlimits),
        IN_TREE(test_slow_sampler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
