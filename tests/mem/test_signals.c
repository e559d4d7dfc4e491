/* What each probed file may say, and what becomes of the source when it says something else.
 * Control groups: test_groups. */
#include <errno.h>

#include "base/io.h"
#include "mem/signals.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

#define LIMITS                                                                    \
    "Limit                     Soft Limit           Hard Limit           Units\n" \
    "Max cpu time              unlimited            unlimited            seconds\n"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        SIGNALS_TEST(test_meminfo),
        SIGNALS_TEST(test_meminfo_bad),
        SIGNALS_TEST(test_psi),
        SIGNALS_TEST(test_psi_bad),
        SIGNALS_TEST(test_errno_tells_absent_from_failed),
        SIGNALS_TEST(test_odd_files),
        SIGNALS_TEST(test_rlimit),
        SIGNALS_TEST(test_self),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
