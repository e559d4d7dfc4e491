/* Law 6 by table: every file that is probed, spoilt in every way a file can be, at start-up and in
 * mid-run. Each time the source says FAILED with the file in its words, the level is at least
 * TIGHT, the log says so once, nothing is granted that isn't known, and all of it goes again when
 * the file is right again. Never a crash, never a silent OK. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "mem/mem_sim.h"
#include "support/kept_log.h"
#include "support/pn_test.h"

#define TEXT_BYTES 20000

/* ---- the machines -------------------------------------------------------------------------- */

struct probed {
    const char *path;
    const char *text;
    enum pn_mem_source source;
    bool scalar; /* half of a number is a number, half of a path a path: no one can notice */
    bool may_go; /* gone in mid-run it is what a kernel may do: no such limit any more */
    bool absent_at_start; /* not there from the start: the kernel doesn't have it */
};

#define MEMINFO "MemTotal:       16777216 kB\nMemFree: 5 kB\nMemAvailable:   12582912 kB\n"
#define PSI                                                  \
    "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234567\n" \
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=1234\n"
#define LIMITS                                                                         \
    "Limit                     Soft Limit           Hard Limit           Units     \n" \
    "Max data size             unlimited            unlimited            bytes     \n" \
    "Max address space         34359738368          unlimited            bytes     \n"
#define STATUS                                                                       \
    "Name:\tpannier\nRssAnon:\t 1024 kB\nVmSize:\t 1048576 kB\nRssFile:\t 2048 kB\n" \
    "RssShmem:\t 0 kB\nVmData:\t 524288 kB\nVmSwap:\t 0 kB\n"
#define V2 "sys/fs/cgroup/box/"
#define V1 "sys/fs/cgroup/memory/box/"

static const struct probed v2_machine[] = {
    {"proc/meminfo", MEMINFO, PN_SOURCE_MEMINFO, false, false, false},
    {"proc/pressure/memory", PSI, PN_SOURCE_PSI, false, false, true},
    {"proc/self/cgroup", "0::/box\n", PN_SOURCE_CGROUP, true, false, true},
    {"proc/self/limits", LIMITS, PN_SOURCE_RLIMIT, false, false, true},
    {"proc/self/status", STATUS, PN_SOURCE_RLIMIT, false, false, false},
    {"proc/self/status", STATUS, PN_SOURCE_SELF, false, false, true},
    {V2 "memory.max", "8589934592\n", PN_SOURCE_CGROUP, true, false, true},
    {V2 "memory.high", "max\n", PN_SOURCE_CGROUP, true, true, true},
    {V2 "memory.current", "1073741824\n", PN_SOURCE_CGROUP, true, false, false},
    {V2 "memory.stat",
     "anon 5\ninactive_file 4096\nactive_file 4096\nfile_dirty 0\nfile_writeback 0\n",
     PN_SOURCE_CGROUP, false, false, false},
    {V2 "memory.pressure", PSI, PN_SOURCE_GROUP_PSI, false, false, true},
};

static const struct probed v1_machine[] = {
    {"proc/meminfo", MEMINFO, PN_SOURCE_MEMINFO, false, false, false},
    {"proc/self/cgroup", "3:cpu,memory:/box\n", PN_SOURCE_CGROUP, false, false, true},
    {V1 "memory.limit_in_bytes", "8589934592\n", PN_SOURCE_CGROUP, true, false, true},
    {V1 "memory.usage_in_bytes", "1073741824\n", PN_SOURCE_CGROUP, true, false, false},
    {V1 "memory.stat",
     "hierarchical_memory_limit 8589934592\ntotal_inactive_file 4096\ntotal_active_file 4096\n"
     "total_dirty 0\ntotal_writeback 0\n",
     PN_SOURCE_CGROUP, false, false, false},
};

/* ---- ways to spoil a file ------------------------------------------------------------------- */

enum spoil {
    EMPTY,
    GARBAGE,
    BINARY,   /* a NUL byte inside */
    NEGATIVE, /* each number */
    HUGE,     /* each number, beyond 64 bits */
    LONG,     /* longer than any such file */
    CUT,      /* at the half */
    FORBIDDEN,
    BROKEN, /* opens, but can't be read */
    MISSING,
    SPOIL_N,
};

static const char *const spoil_names[SPOIL_N] = {"empty",  "garbage", "binary", "negative",
                                                 "huge",   "long",    "cut",    "forbidden",
                                                 "broken", "missing"};

static char spoilt[TEXT_BYTES + 64];

/* Every run of digits, with something in front of it or something else in its place. */
static size_t change_numbers(const char *text, const char *front, const char *instead) {
    size_t n = 0;
    for (const char *s = text; *s;) {
        size_t digits = strspn(s, "0123456789");
        if (digits == 0) {
            spoilt[n++] = *s++;
            continue;
        }
        n += (size_t)snprintf(spoilt + n, sizeof spoilt - n, "%s%.*s", front,
                              instead ? (int)strlen(instead) : (int)digits, instead ? instead : s);
        s += digits;
    }
    return n;
}

/* The spoilt text in `spoilt`; its length. */
static size_t spoil_text(const char *text, enum spoil how) {
    size_t len = strlen(text);
    switch (how) {
    case GARBAGE:
        return (size_t)snprintf(spoilt, sizeof spoilt, "\x01?? not what it was\n");
    case BINARY:
        memcpy(spoilt, text, len + 1);
        spoilt[len / 2] = '\0';
        return len;
    case NEGATIVE:
        return change_numbers(text, "-", NULL);
    case HUGE:
        return change_numbers(text, "", "99999999999999999999999");
    case LONG:
        memset(spoilt, '7', TEXT_BYTES);
        return TEXT_BYTES;
    case CUT:
        memcpy(spoilt, text, len);
        return len / 2;
    default:
        return 0;
    }
}

/* "memory.high" says "max", which has no number to be spoilt. */
static bool changes(const struct probed *f, enum spoil how) {
    if (how == CUT) return !f->scalar;
    if (how == NEGATIVE || how == HUGE) return strpbrk(f->text, "0123456789") != NULL;
    return true;
}

static void write_bytes(const struct mem_sim *m, const char *path, const char *bytes, size_t n) {
    char full[256];
    mem_tree_write(&m->tree, path, ""); /* makes its folders */
    snprintf(full, sizeof full, "%s/%s", m->tree.root, path);
    FILE *f = fopen(full, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static const char *io_path; /* whom the hooks below refuse; NULL: nobody */
static enum spoil io_how;
static int io_fd = -1;

static int hooked_open(const char *path, int flags) {
    bool mine = io_path && strstr(path, io_path);
    if (mine && io_how == FORBIDDEN) {
        errno = EACCES;
        return -1;
    }
    int fd = pn__io_system()->open(path, flags);
    if (mine) io_fd = fd;
    return fd;
}

static ssize_t hooked_pread(int fd, void *buf, size_t bytes, off_t off) {
    if (fd == io_fd) {
        errno = EIO;
        return -1;
    }
    return pn__io_system()->pread(fd, buf, bytes, off);
}

static int hooked_close(int fd) {
    if (fd == io_fd) io_fd = -1;
    return pn__io_system()->close(fd);
}

static void spoil(const struct mem_sim *m, const struct probed *f, enum spoil how) {
    if (how == FORBIDDEN || how == BROKEN) {
        io_path = f->path;
        io_how = how;
    } else if (how == MISSING) {
        mem_tree_remove(&m->tree, f->path);
    } else {
        size_t n = spoil_text(f->text, how);
        write_bytes(m, f->path, spoilt, n);
    }
}

static void mend(const struct mem_sim *m, const struct probed *f) {
    io_path = NULL;
    mem_tree_write(&m->tree, f->path, f->text);
}

/* ---- what must come of it -------------------------------------------------------------------- */

static struct kept_log heard;

static int complaint_n(void) {
    int n = 0;
    static const char *const words[] = {"can't be read", "figures any more"};
    for (size_t i = 0; i < PN_ARRAY_N(words); i++) {
        for (const char *s = heard.text; (s = strstr(s, words[i])) != NULL; s++)
            n++;
    }
    return n;
}

static void check_failed(struct mem_sim *m, const struct probed *f, const char *where,
                         const char *how) {
    pn_memwatch_info info;
    pn_memwatch_info_read(&info);
    const pn_source_state *s = &info.sample.sources[f->source];
    bool named = strstr(s->why, strrchr(f->path, '/') + 1) || strstr(s->why, "is gone");
    bool good = s->status == PN_SOURCE_FAILED && m->state.sources[f->source] == PN_SOURCE_FAILED &&
                m->state.raw_level >= PN_MEM_LEVEL_TIGHT && named && complaint_n() > 0;
    if (!good) {
        print_error("%s, %s, %s: status %d, level %s, why '%s', log:\n%s", f->path, how, where,
                    (int)s->status, pn_mem_level_name(m->state.raw_level), s->why, heard.text);
    }
    assert_true(good);
    /* Said once, however long it lasts. */
    int said = complaint_n();
    mem_sim_step(m, 250);
    mem_sim_step(m, 250);
    assert_int_equal(complaint_n(), said);
    assert_true(m->state.raw_level >= PN_MEM_LEVEL_TIGHT);
}

static void check_well(struct mem_sim *m, const struct probed *f, const char *how) {
    mem_sim_step(m, 250);
    if (m->state.raw_level != PN_MEM_LEVEL_OK || m->state.sources[f->source] != PN_SOURCE_UP) {
        pn_memwatch_info info;
        pn_memwatch_info_read(&info);
        print_error("%s after %s: %s\n", f->path, how, info.why);
    }
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_OK);
    assert_int_equal(m->state.sources[f->source], PN_SOURCE_UP);
    assert_true(m->state.headroom_bytes > 0);
}

static void forget(struct mem_sim *m) {
    for (unsigned i = 0; i < PN_DOMAIN_N; i++)
        pn_ledger_set_domain(i, NULL, UINT64_MAX, 0);
    assert_int_equal(pn_memwatch_set_root(m->tree.root), 0);
    heard.text[0] = '\0';
}

static void in_mid_run(struct mem_sim *m, const struct probed *f, enum spoil how) {
    forget(m);
    check_well(m, f, "the start");
    heard.text[0] = '\0';
    spoil(m, f, how);
    mem_sim_step(m, 250);
    if (how == MISSING && f->may_go) {
        assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_OK);
    } else {
        uint64_t before = m->state.headroom_bytes;
        check_failed(m, f, "in mid-run", spoil_names[how]);
        assert_true(m->state.headroom_bytes <= before); /* the last figures, never better ones */
    }
    mend(m, f);
    check_well(m, f, spoil_names[how]);
}

static void from_the_start(struct mem_sim *m, const struct probed *f, enum spoil how) {
    forget(m);
    spoil(m, f, how);
    mem_sim_step(m, 250);
    /* A kernel with groups of which none is mounted prints nothing. */
    bool no_groups = how == EMPTY && strcmp(f->path, "proc/self/cgroup") == 0;
    if (no_groups || (how == MISSING && f->absent_at_start)) {
        assert_true(m->state.sources[f->source] != PN_SOURCE_FAILED);
    } else {
        check_failed(m, f, "at the start", spoil_names[how]);
        bool grants = f->source == PN_SOURCE_MEMINFO || f->source == PN_SOURCE_CGROUP ||
                      f->source == PN_SOURCE_RLIMIT;
        if (grants) assert_int_equal(m->state.headroom_bytes, 0);
    }
    mend(m, f);
    check_well(m, f, spoil_names[how]);
}

static void spoil_all(struct mem_sim *m, const struct probed *machine, size_t n) {
    static struct pn_io io; /* outlives a test that fails */
    io = *pn__io_system();
    io.open = hooked_open;
    io.close = hooked_close;
    io.pread = hooked_pread;
    for (size_t i = 0; i < n; i++)
        mem_tree_write(&m->tree, machine[i].path, machine[i].text);
    pn__io_set(&io);
    pn_log_set(kept_log_add, &heard, PN_LOG_INFO);
    for (size_t i = 0; i < n; i++) {
        for (int how = 0; how < SPOIL_N; how++) {
            if (!changes(&machine[i], how)) continue;
            in_mid_run(m, &machine[i], how);
            from_the_start(m, &machine[i], how);
        }
    }
    pn_log_set(NULL, NULL, PN_LOG_WARN);
    pn__io_set(NULL);
}

static void test_v2(void **state) {
    spoil_all(*state, v2_machine, PN_ARRAY_N(v2_machine));
}

static void test_v1(void **state) {
    struct mem_sim *m = *state;
    mem_tree_remove(&m->tree, "proc/pressure/memory");
    spoil_all(m, v1_machine, PN_ARRAY_N(v1_machine));
}

/* What a kernel may print and we have never seen is no failure. */
static void test_unknown_fields(void **state) {
    struct mem_sim *m = *state;
    mem_tree_write(&m->tree, "proc/pressure/memory",
                   "some avg10=0.00 avg900=7.00 colour=blue total=5\n"
                   "full avg10=0.00 avg900=7.00 total=5\nnone avg10=99.00 total=5\n");
    mem_tree_write(&m->tree, "proc/meminfo",
                   "MemTotal: 16777216 kB\nMemNew: -5 GB\nMemAvailable: 12582912 kB\nPages: x\n");
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_OK);
    assert_int_equal(m->state.sources[PN_SOURCE_PSI], PN_SOURCE_UP);
}

#define SIM(f) cmocka_unit_test_setup_teardown(f, mem_sim_setup, mem_sim_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {SIM(test_v2), SIM(test_v1), SIM(test_unknown_fields)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
