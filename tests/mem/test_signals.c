/* What each probed file may say, and what becomes of the source when it says something else. */
#include <errno.h>

#include "base/io.h"
#include "mem/mem_tree.h"
#include "pn_mem.h"
#include "support/pn_test.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

#define MEMINFO "MemTotal: 67108864 kB\nMemFree: 1 kB\nMemAvailable: 48118784 kB\n"
#define PSI                                                                               \
    "some avg10=1.50 avg60=0.00 avg300=0.00 total=123\nfull avg10=0.25 avg60=0 avg300=0 " \
    "total=45\n"
#define LIMITS                                                                    \
    "Limit                     Soft Limit           Hard Limit           Units\n" \
    "Max cpu time              unlimited            unlimited            seconds\n"

struct file {
    const char *path;
    const char *text; /* NULL: the file is taken away */
};

static struct mem_tree tree;
static pn_host_sample sample;

static int setup(void **state) {
    (void)state;
    mem_tree_new(&tree);
    mem_tree_write(&tree, "proc/meminfo", MEMINFO);
    mem_tree_write(&tree, "proc/pressure/memory", PSI);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    pn__io_set(NULL);
    mem_tree_free(&tree);
    return 0;
}

static void put(const char *path, const char *text) {
    mem_tree_write(&tree, path, text);
}

/* A v2 group: current and limits as text, and reclaimable bytes. */
static void put_v2(const char *dir, const char *current, const char *high, const char *max,
                   uint64_t file_bytes) {
    char path[256];
    char stat[256];
    snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.current", dir);
    put(path, current);
    snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.high", dir);
    put(path, high);
    snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.max", dir);
    put(path, max);
    snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.stat", dir);
    snprintf(stat, sizeof stat,
             "anon 1\nfile_dirty 0\nfile_writeback 0\ninactive_file %llu\nactive_file 0\n",
             (unsigned long long)file_bytes);
    put(path, stat);
}

static enum pn_source_status take(enum pn_mem_source source) {
    pn_host_signals_sample(tree.root, &sample);
    const pn_source_state *s = &sample.sources[source];
    /* A failure says why; the other states have nothing to say. */
    assert_int_equal(s->status == PN_SOURCE_FAILED, s->why[0] != '\0');
    return s->status;
}

static void test_meminfo(void **state) {
    (void)state;
    assert_int_equal(take(PN_SOURCE_MEMINFO), PN_SOURCE_UP);
    assert_true(sample.host_total_bytes == 64 * GIB);
    assert_true(sample.host_avail_bytes == 48118784ull * 1024);
    put("proc/meminfo", "MemAvailable:\t5 kB\nMemTotal:       9 kB");
    assert_int_equal(take(PN_SOURCE_MEMINFO), PN_SOURCE_UP);
    assert_int_equal(sample.host_avail_bytes, 5 * 1024);
    put("proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 0 kB\n");
    assert_int_equal(take(PN_SOURCE_MEMINFO), PN_SOURCE_UP);
    assert_int_equal(sample.host_avail_bytes, 0);
}

static void test_meminfo_bad(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "garbage",
        "MemTotal: 100 kB\n",
        "MemAvailable: 100 kB\n",
        "MemTotal: 0 kB\nMemAvailable: 0 kB\n",
        "MemTotal: 100 kB\nMemAvailable: -1 kB\n",
        "MemTotal: 100 kB\nMemAvailable: +1 kB\n",
        "MemTotal: 100 kB\nMemAvailable: 101 kB\n",
        "MemTotal: 100 kB\nMemAvailable: 5\n",
        "MemTotal: 100 kB\nMemAvailable: 5 MB\n",
        "MemTotal: 100 kB\nMemAvailable: 5 kBx\n",
        "MemTotal: 100 kB\nMemAvailable: 0x5 kB\n",
        "MemTotal: 100 kB\nMemAvailable: 5.5 kB\n",
        "MemTotal: 100 kB\nMemAvailable: kB\n",
        "MemTotal: 100 kB\nXMemAvailable: 5 kB\n",
        "MemTotal: 18446744073709551615 kB\nMemAvailable: 5 kB\n",
        "MemTotal: 18446744073709551616 kB\nMemAvailable: 5 kB\n",
        "MemTotal: 99999999999999999999999999 kB\nMemAvailable: 5 kB\n",
        "MemTotal: 1125899906842625 kB\nMemAvailable: 5 kB\n", /* a little more than 1 EiB */
    };
    for (size_t i = 0; i < PN_ARRAY_N(bad); i++) {
        put("proc/meminfo", bad[i]);
        if (take(PN_SOURCE_MEMINFO) != PN_SOURCE_FAILED) print_error("taken: '%s'\n", bad[i]);
        assert_int_equal(sample.sources[PN_SOURCE_MEMINFO].status, PN_SOURCE_FAILED);
        assert_non_null(strstr(sample.sources[PN_SOURCE_MEMINFO].why, "/proc/meminfo"));
        assert_int_equal(sample.host_total_bytes, 0);
        assert_int_equal(sample.host_avail_bytes, 0);
        /* The others are read all the same. */
        assert_int_equal(sample.sources[PN_SOURCE_PSI].status, PN_SOURCE_UP);
        unsigned domain;
        assert_int_equal(pn_host_eff_avail(&sample, &domain), 0);
        assert_int_equal(domain, PN_DOMAIN_HOST);
    }
    mem_tree_remove(&tree, "proc/meminfo");
    assert_int_equal(take(PN_SOURCE_MEMINFO), PN_SOURCE_FAILED);
}

static void test_psi(void **state) {
    (void)state;
    assert_int_equal(take(PN_SOURCE_PSI), PN_SOURCE_UP);
    assert_true(sample.host_psi_some_avg10 == 1.5);
    assert_true(sample.host_psi_full_avg10 == 0.25);
    assert_int_equal(sample.host_psi_some_total_usec, 123);
    assert_int_equal(sample.host_psi_full_total_usec, 45);
    /* Fields that a later kernel may add, another order, no avg60 and no total. */
    put("proc/pressure/memory",
        "full avg900=7.00 total=9 avg10=100.00 new=x\nsome avg10=0\nother avg10=5\n");
    assert_int_equal(take(PN_SOURCE_PSI), PN_SOURCE_UP);
    assert_true(sample.host_psi_some_avg10 == 0.0);
    assert_true(sample.host_psi_full_avg10 == 100.0);
    assert_int_equal(sample.host_psi_full_total_usec, 9);
    mem_tree_remove(&tree, "proc/pressure/memory");
    assert_int_equal(take(PN_SOURCE_PSI), PN_SOURCE_ABSENT);
}

static void test_psi_bad(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        "some avg60=0.00 total=0\nfull avg10=0.00 total=0\n",
        "some avg10=-0.50 total=0\nfull avg10=0.00 total=0\n",
        "some avg10=nan total=0\nfull avg10=0.00 total=0\n",
        "some avg10=inf total=0\nfull avg10=0.00 total=0\n",
        "some avg10=1e1 total=0\nfull avg10=0.00 total=0\n",
        "some avg10=0,50 total=0\nfull avg10=0.00 total=0\n",
        "some avg10= total=0\nfull avg10=0.00 total=0\n",
        "some avg10=1. total=0\nfull avg10=0.00 total=0\n",
        "some avg10=100.01 total=0\nfull avg10=0.00 total=0\n",
        "some avg10=0.00 total=-1\nfull avg10=0.00 total=0\n",
        "some avg10=0.00 total=1x\nfull avg10=0.00 total=0\n",
        "some avg10=0.00 total=99999999999999999999\nfull avg10=0.00 total=0\n",
        "sometimes avg10=0.00 total=0\nfull avg10=0.00 total=0\n",
    };
    for (size_t i = 0; i < PN_ARRAY_N(bad); i++) {
        put("proc/pressure/memory", bad[i]);
        if (take(PN_SOURCE_PSI) != PN_SOURCE_FAILED) print_error("taken: '%s'\n", bad[i]);
        assert_int_equal(sample.sources[PN_SOURCE_PSI].status, PN_SOURCE_FAILED);
        assert_true(sample.host_psi_some_avg10 == 0.0 && sample.host_psi_full_avg10 == 0.0);
    }
}

/* Errors by file: reading `path` fails with `error`. */
static struct {
    const char *path;
    int open_errno;
    int read_errno;
    int fd;
} broken;

static int broken_open(const char *path, int flags) {
    size_t n = strlen(path);
    size_t want = strlen(broken.path);
    bool hit = n >= want && strcmp(path + n - want, broken.path) == 0;
    if (hit && broken.open_errno) {
        errno = broken.open_errno;
        return -1;
    }
    int fd = pn__io_system()->open(path, flags);
    if (hit) broken.fd = fd;
    return fd;
}

static ssize_t broken_pread(int fd, void *buf, size_t bytes, off_t off) {
    if (fd == broken.fd && broken.read_errno) {
        errno = broken.read_errno;
        return -1;
    }
    return pn__io_system()->pread(fd, buf, bytes, off);
}

static int broken_close(int fd) {
    if (fd == broken.fd) broken.fd = -1;
    return pn__io_system()->close(fd);
}

static void break_file(const char *path, int open_errno, int read_errno) {
    static struct pn_io io;
    io = *pn__io_system();
    io.open = broken_open;
    io.pread = broken_pread;
    io.close = broken_close;
    broken.path = path;
    broken.open_errno = open_errno;
    broken.read_errno = read_errno;
    broken.fd = -1;
    pn__io_set(&io);
}

static void test_errno_tells_absent_from_failed(void **state) {
    (void)state;
    put("proc/self/cgroup", "0::/app\n");
    put_v2("/app", "1000", "max", "1073741824", 0);
    put("proc/self/limits",
        LIMITS "Max data size             unlimited            unlimited            bytes\n"
               "Max address space         unlimited            unlimited            bytes\n");
    static const struct {
        const char *path;
        int open_errno;
        int read_errno;
        enum pn_mem_source source;
        enum pn_source_status status;
    } rows[] = {
        {"/proc/meminfo", EACCES, 0, PN_SOURCE_MEMINFO, PN_SOURCE_FAILED},
        {"/proc/meminfo", 0, EIO, PN_SOURCE_MEMINFO, PN_SOURCE_FAILED},
        {"/proc/meminfo", ENOENT, 0, PN_SOURCE_MEMINFO, PN_SOURCE_FAILED},
        {"/proc/pressure/memory", 0, EOPNOTSUPP, PN_SOURCE_PSI, PN_SOURCE_ABSENT},
        {"/proc/pressure/memory", EOPNOTSUPP, 0, PN_SOURCE_PSI, PN_SOURCE_ABSENT},
        {"/proc/pressure/memory", EACCES, 0, PN_SOURCE_PSI, PN_SOURCE_FAILED},
        {"/proc/pressure/memory", 0, EIO, PN_SOURCE_PSI, PN_SOURCE_FAILED},
        {"/proc/self/cgroup", ENOENT, 0, PN_SOURCE_CGROUP, PN_SOURCE_ABSENT},
        {"/proc/self/cgroup", EACCES, 0, PN_SOURCE_CGROUP, PN_SOURCE_FAILED},
        {"/app/memory.max", EACCES, 0, PN_SOURCE_CGROUP, PN_SOURCE_FAILED},
        {"/app/memory.max", ENOENT, 0, PN_SOURCE_CGROUP, PN_SOURCE_ABSENT},
        {"/app/memory.high", ENOENT, 0, PN_SOURCE_CGROUP, PN_SOURCE_UP},
        {"/app/memory.high", EACCES, 0, PN_SOURCE_CGROUP, PN_SOURCE_FAILED},
        {"/app/memory.current", ENOENT, 0, PN_SOURCE_CGROUP, PN_SOURCE_FAILED},
        {"/app/memory.current", 0, ENODEV, PN_SOURCE_CGROUP, PN_SOURCE_FAILED},
        {"/app/memory.stat", ENOENT, 0, PN_SOURCE_CGROUP, PN_SOURCE_FAILED},
        {"/proc/self/limits", ENOENT, 0, PN_SOURCE_RLIMIT, PN_SOURCE_ABSENT},
        {"/proc/self/limits", EPERM, 0, PN_SOURCE_RLIMIT, PN_SOURCE_FAILED},
    };
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        break_file(rows[i].path, rows[i].open_errno, rows[i].read_errno);
        enum pn_source_status got = take(rows[i].source);
        if (got != rows[i].status) print_error("%s, row %zu\n", rows[i].path, i);
        assert_int_equal(got, rows[i].status);
        for (int j = 0; j <= PN_SOURCE_RLIMIT; j++) {
            if (j == (int)rows[i].source) continue;
            assert_int_equal(sample.sources[j].status, PN_SOURCE_UP);
        }
    }
}

static void test_odd_files(void **state) {
    (void)state;
    char *big = malloc(40000);
    assert_non_null(big);
    memset(big, 'x', 39999);
    big[39999] = '\0';
    put("proc/meminfo", big);
    assert_int_equal(take(PN_SOURCE_MEMINFO), PN_SOURCE_FAILED);
    free(big);
    /* A folder where a file should be. */
    put("proc/self/cgroup/x", "");
    assert_int_equal(take(PN_SOURCE_CGROUP), PN_SOURCE_FAILED);
}

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

#define ROW(name, soft) name "             " soft "            unlimited            bytes\n"

static void test_rlimit(void **state) {
    (void)state;
    put("proc/self/limits",
        LIMITS ROW("Max data size", "unlimited") ROW("Max address space", "unlimited"));
    assert_int_equal(take(PN_SOURCE_RLIMIT), PN_SOURCE_UP);
    assert_int_equal(sample.rlimit_bytes, 0);
    put("proc/self/status", "VmSize:\t     200 kB\nVmData:\t      50 kB\n");
    put("proc/self/limits",
        LIMITS ROW("Max data size", "100000") ROW("Max address space", "240000"));
    assert_int_equal(take(PN_SOURCE_RLIMIT), PN_SOURCE_UP);
    assert_int_equal(sample.rlimit_bytes, 240000);
    assert_int_equal(sample.rlimit_avail_bytes, 240000 - 200 * 1024);
    unsigned domain;
    assert_int_equal(pn_host_eff_avail(&sample, &domain), 240000 - 200 * 1024);
    assert_int_equal(domain, PN_DOMAIN_RLIMIT);
    put("proc/self/limits", LIMITS ROW("Max data size", "0") ROW("Max address space", "240000"));
    assert_int_equal(take(PN_SOURCE_RLIMIT), PN_SOURCE_UP);
    assert_int_not_equal(sample.rlimit_bytes, 0);
    assert_int_equal(sample.rlimit_avail_bytes, 0);
    /* A limit without a size to hold against it. */
    put("proc/self/status", "VmSize:\t     200 kB\n");
    assert_int_equal(take(PN_SOURCE_RLIMIT), PN_SOURCE_FAILED);
    mem_tree_remove(&tree, "proc/self/status");
    assert_int_equal(take(PN_SOURCE_RLIMIT), PN_SOURCE_FAILED);
    put("proc/self/limits", LIMITS ROW("Max data size", "-5") ROW("Max address space", "9"));
    assert_int_equal(take(PN_SOURCE_RLIMIT), PN_SOURCE_FAILED);
    put("proc/self/limits", LIMITS ROW("Max data size", "9"));
    assert_int_equal(take(PN_SOURCE_RLIMIT), PN_SOURCE_FAILED);
}

/* The machine that this runs on, whatever it is: nothing fails. */
static void test_this_machine(void **state) {
    (void)state;
    pn_host_signals_sample(NULL, &sample);
    for (int i = 0; i < PN_SOURCE_N; i++) {
        if (sample.sources[i].why[0]) print_error("%s\n", sample.sources[i].why);
        assert_int_not_equal(sample.sources[i].status, PN_SOURCE_FAILED);
    }
    assert_int_equal(sample.sources[PN_SOURCE_MEMINFO].status, PN_SOURCE_UP);
    assert_int_equal(sample.sources[PN_SOURCE_RLIMIT].status, PN_SOURCE_UP);
    assert_true(sample.host_total_bytes >= 64 * MIB);
    assert_true(sample.host_avail_bytes > 0 && sample.host_avail_bytes <= sample.host_total_bytes);
    assert_string_equal(pn_mem_source_name(PN_SOURCE_CGROUP), "cgroup");
    assert_string_equal(pn_mem_source_name(PN_SOURCE_N), "?");
}

#define STATUS(swap)                                                                  \
    "Name:\tx\nVmSize:\t9 kB\nVmData:\t9 kB\nRssAnon:\t   10 kB\nRssFile:\t  20 kB\n" \
    "RssShmem:\t  30 kB\n" swap

static void test_self(void **state) {
    (void)state;
    assert_int_equal(take(PN_SOURCE_SELF), PN_SOURCE_ABSENT);
    put("proc/self/status", STATUS("VmSwap:\t  40 kB\n"));
    assert_int_equal(take(PN_SOURCE_SELF), PN_SOURCE_UP);
    assert_int_equal(sample.rss_anon_bytes, 10 * 1024);
    assert_int_equal(sample.rss_file_bytes, 20 * 1024);
    assert_int_equal(sample.rss_shmem_bytes, 30 * 1024);
    assert_int_equal(sample.swap_bytes, 40 * 1024);
    /* Before Linux 4.5. */
    put("proc/self/status", "Name:\tx\nVmRSS:\t10 kB\nVmSwap:\t1 kB\n");
    assert_int_equal(take(PN_SOURCE_SELF), PN_SOURCE_ABSENT);
    static const char *const bad[] = {
        STATUS(""),
        STATUS("VmSwap:\t-1 kB\n"),
        STATUS("VmSwap:\t1 MB\n"),
        "RssAnon:\n",
    };
    for (size_t i = 0; i < PN_ARRAY_N(bad); i++) {
        put("proc/self/status", bad[i]);
        assert_int_equal(take(PN_SOURCE_SELF), PN_SOURCE_FAILED);
        assert_int_equal(sample.rss_anon_bytes, 0);
    }
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

#define IN_TREE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_TREE(test_meminfo),
        IN_TREE(test_meminfo_bad),
        IN_TREE(test_psi),
        IN_TREE(test_psi_bad),
        IN_TREE(test_errno_tells_absent_from_failed),
        IN_TREE(test_odd_files),
        IN_TREE(test_ancestors),
        IN_TREE(test_namespace_root),
        IN_TREE(test_cgroup_path_bad),
        IN_TREE(test_v2_bad),
        IN_TREE(test_available),
        IN_TREE(test_v1_unlimited),
        IN_TREE(test_v1_unseen_ancestor),
        IN_TREE(test_long_path),
        IN_TREE(test_deep),
        IN_TREE(test_rlimit),
        IN_TREE(test_self),
        IN_TREE(test_group_psi),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
