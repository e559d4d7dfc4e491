/* Control groups, as the host's files tell of them: the tightest of all ancestors, v1 and v2, and
 * what becomes of the source when a file says something else. */
#include "mem/signals.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

struct file {
    const char *path;
    const char *text; /* NULL: the file is taken away */
};

/* CASES M2: our own group has no limit, the parent 8 GiB, its parent 4 GiB. */
static void test_ancestors(void **state) {
    (void)state;
    put("proc/self/cgroup", "0::/a/b/c\n");
    put_v2("/a/b/c", "1073741824", "max", "max", 0);
    put_v2("/a/b", "2147483648", "max", "8589934592", 0);
    put_v2("/a", "3221225472", "max", "4294967296", 0);
    assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_UP);
    assert_int_equal(sample.cgroup_limit_n, 2);
    assert_string_equal(sample.cgroup_limits[0].path, "/a/b");
    assert_true(sample.cgroup_limits[0].avail_bytes == 6 * GIB);
    assert_string_equal(sample.cgroup_path, "/a");
    assert_true(sample.cgroup_max_bytes == 4 * GIB);
    assert_true(sample.cgroup_current_bytes == 3 * GIB);
    assert_int_equal(sample.cgroup_high_bytes, 0);
    assert_true(sample.cgroup_avail_bytes == GIB);
    /* The limit is lowered while we run: below what is used, nothing is left. */
    put("sys/fs/cgroup/a/b/memory.max", "1073741824\n");
    assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_UP);
    assert_string_equal(sample.cgroup_path, "/a/b");
    assert_int_equal(sample.cgroup_avail_bytes, 0);
    /* No limit: our own group's use is shown. */
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/memory.max", "max\n");
    assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_UP);
    assert_int_equal(sample.cgroup_limit_n, 0);
    assert_string_equal(sample.cgroup_path, "/a/b/c");
    assert_true(sample.cgroup_current_bytes == GIB);
    assert_int_equal(sample.cgroup_max_bytes, 0);
}

/* A namespace shows our group as "/", or names folders that aren't mounted here. */
static void test_namespace_root(void **state) {
    (void)state;
    put_v2("", "1073741824", "max", "2147483648", 536870912);
    static const char *const paths[] = {"0::/\n", "0::/docker/abc\n", "0::/x (deleted)\n"};
    for (size_t i = 0; i < PN_ARRAY_N(paths); i++) {
        put("proc/self/cgroup", paths[i]);
        assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_UP);
        assert_string_equal(sample.cgroup_path, "/");
        assert_true(sample.cgroup_avail_bytes == GIB + 512 * MIB);
    }
    /* v2 beside v1, without v1's memory controller. */
    put("proc/self/cgroup", "3:cpu,cpuacct:/\n2:name=memory:/\n0::/box\n");
    mem_tree_remove(&tree, "sys/fs/cgroup/memory.max");
    put_v2("/unified/box", "0", "max", "1048576", 0);
    assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_UP);
    assert_string_equal(sample.cgroup_path, "/box");
    assert_int_equal(sample.cgroup_avail_bytes, MIB);
}

static void test_cgroup_path_bad(void **state) {
    (void)state;
    char longest[3400] = "0::/";
    memset(longest + 4, 'x', 3200);
    const char *const bad[] = {"garbage\n", "0:/\n",       "x::/\n",           "0::relative\n",
                               "-1::/\n",   "0::/../up\n", "4:memory:/a/..\n", longest};
    for (size_t i = 0; i < PN_ARRAY_N(bad); i++) {
        put("proc/self/cgroup", bad[i]);
        if (take(PN_SOURCE_CGROUP) != PN_SOURCE_FAILED) print_error("taken: '%s'\n", bad[i]);
        assert_int_equal(sample.sources[PN_SOURCE_CGROUP].status, PN_SOURCE_FAILED);
    }
    put("proc/self/cgroup", "0::/a..b/..c\n");
    assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_ABSENT);
    put("proc/self/cgroup", "");
    assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_ABSENT);
}

static void test_v2_bad(void **state) {
    (void)state;
    static const struct file bad[] = {
        {"memory.max", ""},
        {"memory.max", "garbage\n"},
        {"memory.max", "-1\n"},
        {"memory.max", "1 2\n"},
        {"memory.max", "maximum\n"},
        {"memory.max", "18446744073709551616\n"},
        {"memory.high", "1.5\n"},
        {"memory.current", "max\n"},
        {"memory.current", "-4096\n"},
        {"memory.current", "18446744073709551615\n"},
        {"memory.current", NULL},
        {"memory.stat", ""},
        {"memory.stat", NULL},
        {"memory.stat", "inactive_file 5\nactive_file 5\nfile_dirty 0\n"},
        {"memory.stat", "inactive_file -5\nactive_file 5\nfile_dirty 0\nfile_writeback 0\n"},
        {"memory.stat", "inactive_file x\nactive_file 5\nfile_dirty 0\nfile_writeback 0\n"},
        {"memory.stat",
         "inactive_file 1152921504606846977\nactive_file 5\nfile_dirty 0\nfile_writeback 0\n"},
    };
    put("proc/self/cgroup", "0::/p/app\n");
    for (size_t i = 0; i < PN_ARRAY_N(bad); i++) {
        char path[128];
        put_v2("/p/app", "1000", "max", "max", 0);
        put_v2("/p", "1000", "max", "8192", 0);
        snprintf(path, sizeof path, "sys/fs/cgroup/p/%s", bad[i].path);
        if (bad[i].text) {
            put(path, bad[i].text);
        } else {
            mem_tree_remove(&tree, path);
        }
        if (take(PN_SOURCE_CGROUP) != PN_SOURCE_FAILED) print_error("taken: row %zu\n", i);
        assert_int_equal(sample.sources[PN_SOURCE_CGROUP].status, PN_SOURCE_FAILED);
        assert_non_null(strstr(sample.sources[PN_SOURCE_CGROUP].why, bad[i].path));
        unsigned domain;
        assert_int_equal(pn_host_eff_avail(&sample, &domain), 0);
        assert_int_equal(domain, PN_DOMAIN_CGROUP);
    }
}

/* Dirty pages must be written first, and batched counters can disagree: never below 0, never more
 * than the limit. */
static void test_available(void **state) {
    (void)state;
    static const struct {
        const char *current;
        const char *stat;
        uint64_t avail;
    } rows[] = {
        {"600", "inactive_file 300\nactive_file 100\nfile_dirty 50\nfile_writeback 25\n", 725},
        {"600", "inactive_file 10\nactive_file 10\nfile_dirty 50\nfile_writeback 25\n", 400},
        {"600", "inactive_file 700\nactive_file 100\nfile_dirty 0\nfile_writeback 0\n", 1000},
        {"5000", "inactive_file 700\nactive_file 100\nfile_dirty 0\nfile_writeback 0\n", 0},
        {"1000", "inactive_file 0\nactive_file 0\nfile_dirty 0\nfile_writeback 0\n", 0},
    };
    put("proc/self/cgroup", "0::/app\n");
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        put_v2("/app", rows[i].current, "max", "1000", 0);
        put("sys/fs/cgroup/app/memory.stat", rows[i].stat);
        assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_UP);
        assert_int_equal(sample.cgroup_avail_bytes, rows[i].avail);
    }
    put_v2("/app", "0", "max", "0", 0);
    assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_UP);
    assert_int_equal(sample.cgroup_limit_n, 1);
    assert_int_equal(pn_host_eff_avail(&sample, NULL), 0);
}

#define V1 "sys/fs/cgroup/memory"
#define V1_STAT "total_inactive_file 0\ntotal_active_file 0\ntotal_dirty 0\ntotal_writeback 0\n"

static void test_v1_unlimited(void **state) {
    (void)state;
    static const char *const none[] = {"9223372036854771712\n", "9223372036854710272\n",
                                       "9223372036854775807\n", "18446744073709551615\n"};
    put("proc/self/cgroup", "5:cpu,memory:/job\n0::/\n");
    put(V1 "/job/memory.usage_in_bytes", "4096\n");
    for (size_t i = 0; i < PN_ARRAY_N(none); i++) {
        char stat[256];
        snprintf(stat, sizeof stat, "hierarchical_memory_limit %s" V1_STAT, none[i]);
        put(V1 "/job/memory.limit_in_bytes", none[i]);
        put(V1 "/job/memory.stat", stat);
        assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_UP);
        assert_int_equal(sample.cgroup_limit_n, 0);
        assert_int_equal(sample.cgroup_current_bytes, 4096);
        assert_string_equal(sample.cgroup_path, "/job");
    }
    put(V1 "/job/memory.stat", V1_STAT);
    assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_FAILED);
    put(V1 "/job/memory.limit_in_bytes", "-1\n");
    assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_FAILED);
}

/* The limit belongs to an ancestor that isn't visible; only the stat file tells of it. */
static void test_v1_unseen_ancestor(void **state) {
    (void)state;
    put("proc/self/cgroup", "5:memory:/job\n");
    put(V1 "/job/memory.usage_in_bytes", "1000\n");
    put(V1 "/job/memory.limit_in_bytes", "9000\n");
    put(V1 "/job/memory.stat", "hierarchical_memory_limit 5000\n" V1_STAT);
    assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_UP);
    assert_int_equal(sample.cgroup_limit_n, 2);
    assert_int_equal(sample.cgroup_avail_bytes, 4000);
    assert_int_equal(sample.cgroup_max_bytes, 5000);
}

static void test_long_path(void **state) {
    (void)state;
    char dir[256] = "/";
    char text[300];
    memset(dir + 1, 'y', 200);
    strcpy(dir + 201, "/the-end");
    snprintf(text, sizeof text, "0::%s\n", dir);
    put("proc/self/cgroup", text);
    put_v2(dir, "0", "max", "8192", 0);
    assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_UP);
    size_t len = strlen(sample.cgroup_path);
    assert_true(len < PN_DOMAIN_NAME_BYTES - strlen("cgroup:"));
    assert_memory_equal(sample.cgroup_path, "...yyy", 6);
    assert_string_equal(sample.cgroup_path + len - 8, "/the-end");
}

/* More limited groups than the table holds: those with the least left are kept. */
static void test_deep(void **state) {
    (void)state;
    char dir[256] = "";
    char text[300];
    bool kept[25] = {false};
    for (int i = 0; i < 25; i++) {
        char max[32];
        snprintf(dir + strlen(dir), sizeof dir - strlen(dir), "/g%d", i);
        snprintf(max, sizeof max, "%d", 10000 + (i * 7 + 24) % 25);
        put_v2(dir, "0", "max", max, 0);
    }
    snprintf(text, sizeof text, "0::%s\n", dir);
    put("proc/self/cgroup", text);
    assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_UP);
    assert_int_equal(sample.cgroup_limit_n, PN_CGROUP_LIMIT_MAX);
    for (int i = 0; i < PN_CGROUP_LIMIT_MAX; i++) {
        assert_in_range(sample.cgroup_limits[i].limit_bytes, 10000,
                        10000 + PN_CGROUP_LIMIT_MAX - 1);
        kept[sample.cgroup_limits[i].limit_bytes - 10000] = true;
    }
    for (int i = 0; i < PN_CGROUP_LIMIT_MAX; i++)
        assert_true(kept[i]);
    assert_int_equal(sample.cgroup_avail_bytes, 10000);
}

static void test_group_psi(void **state) {
    (void)state;
    assert_int_equal(take(PN_SOURCE_GROUP_PSI), PN_SOURCE_ABSENT);
    put("proc/self/cgroup", "0::/p/app\n");
    put_v2("/p/app", "1000", "max", "max", 0);
    put_v2("/p", "1000", "max", "1073741824", 0);
    assert_int_equal(take(PN_SOURCE_GROUP_PSI), PN_SOURCE_ABSENT);
    /* Our own group's, not that of the parent with the limit. */
    put("sys/fs/cgroup/p/memory.pressure", "some avg10=9.00 total=9\nfull avg10=9.00 total=9\n");
    assert_int_equal(take(PN_SOURCE_GROUP_PSI), PN_SOURCE_ABSENT);
    put("sys/fs/cgroup/p/app/memory.pressure",
        "some avg10=2.50 total=7\nfull avg10=1.25 total=6\n");
    assert_int_equal(take(PN_SOURCE_GROUP_PSI), PN_SOURCE_UP);
    assert_true(sample.group_psi_some_avg10 == 2.5 && sample.group_psi_full_avg10 == 1.25);
    assert_int_equal(sample.group_psi_some_total_usec, 7);
    assert_int_equal(sample.group_psi_full_total_usec, 6);
    assert_true(sample.host_psi_some_avg10 == 1.5);
    put("sys/fs/cgroup/p/app/memory.pressure", "some avg10=2.50 total=7\n");
    assert_int_equal(take(PN_SOURCE_GROUP_PSI), PN_SOURCE_FAILED);
    assert_true(sample.group_psi_some_avg10 == 0.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SIGNALS_TEST(test_ancestors),
        SIGNALS_TEST(test_namespace_root),
        SIGNALS_TEST(test_cgroup_path_bad),
        SIGNALS_TEST(test_v2_bad),
        SIGNALS_TEST(test_available),
        SIGNALS_TEST(test_v1_unlimited),
        SIGNALS_TEST(test_v1_unseen_ancestor),
        SIGNALS_TEST(test_long_path),
        SIGNALS_TEST(test_deep),
        SIGNALS_TEST(test_group_psi),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
