/* Blocks: booked, mapped, touched; and every way in which they are refused. */
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "core/mem/pn_block.h"
#include "mem/child.h"
#include "support/pn_test.h"

#define MIB (1ull << 20)

static struct pn_detail detail;
static uint64_t page;

static int setup(void **state) {
    (void)state;
    page = (uint64_t)sysconf(_SC_PAGESIZE);
    pn_ledger_set_domain(PN_DOMAIN_HOST, "host", 64 * MIB, 0);
    return 0;
}

static pn_ledger_row kv_row(void) {
    static pn_ledger_view v;
    pn_ledger_read(&v);
    return v.cells[PN_PLACE_HOST][PN_OWNER_KV];
}

static int teardown(void **state) {
    (void)state;
    pn__alloc_fail_nth(0);
    pn_ledger_row row = kv_row();
    return row.reserved_bytes == 0 && row.committed_bytes == 0 ? 0 : -1;
}

static bool resident(const uint8_t *p) {
    unsigned char in = 0;
    assert_int_equal(mincore((void *)(uintptr_t)p, page, &in), 0);
    return in & 1;
}

static void test_empty(void **state) {
    (void)state;
    struct pn_block b;
    PN_ASSERT_OK(pn__block_new(PN_OWNER_KV, 0, PN_BLOCK_COMMIT, &detail, &b), &detail);
    assert_null(b.data);
    assert_int_equal(b.bytes, 0);
    assert_int_equal(pn__block_commit(&b, 0, 0), 0);
    assert_int_equal(pn__block_commit(&b, 0, page), PN_E_INVALID);
    pn__block_free(&b);
    pn__block_free(NULL);
}

static void test_rounds_to_pages(void **state) {
    (void)state;
    struct pn_block b;
    PN_ASSERT_OK(pn__block_new(PN_OWNER_KV, page + 1, PN_BLOCK_COMMIT, &detail, &b), &detail);
    assert_int_equal(b.bytes, 2 * page);
    assert_int_equal((uintptr_t)b.data % page, 0);
    assert_int_equal(b.booking.reserved_bytes, 2 * page);
    assert_int_equal(kv_row().committed_bytes, 2 * page);
    for (uint64_t i = 0; i < b.bytes; i++)
        assert_int_equal(b.data[i], 0);
    memset(b.data, 0xab, b.bytes);
    pn__block_free(&b);
    assert_null(b.data);
    assert_int_equal(b.booking.live, 0);
    pn__block_free(&b);
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* qemu's user mode says yes to every advice and passes on few. */
static bool advice_is_heard(void) {
    void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    bool heard = madvise(p, page, MADV_POPULATE_WRITE) != 0 || resident(p);
    munmap(p, page);
    return heard;
}

static void test_commit_page_by_page(void **state) {
    (void)state;
    struct pn_block b;
    if (!advice_is_heard()) PN_SKIP_TEST("MADV_POPULATE_WRITE is accepted, but does nothing");
    PN_ASSERT_OK(pn__block_new(PN_OWNER_KV, 16 * page, 0, &detail, &b), &detail);
    assert_int_equal(kv_row().reserved_bytes, 16 * page);
    assert_int_equal(kv_row().committed_bytes, 0);
    assert_false(resident(b.data + 4 * page));
    assert_int_equal(pn__block_commit(&b, 4 * page, 3 * page), 0);
    assert_int_equal(kv_row().committed_bytes, 3 * page);
    assert_false(resident(b.data + 3 * page));
    for (int i = 4; i < 7; i++)
        assert_true(resident(b.data + (uint64_t)i * page));
    assert_false(resident(b.data + 7 * page));
    /* Committing again after giving back reads as zero; the other pages keep what they hold. */
    b.data[4 * page] = 1;
    b.data[5 * page] = 2;
    assert_int_equal(pn__block_uncommit(&b, 4 * page, page), 0);
    assert_int_equal(kv_row().committed_bytes, 2 * page);
    assert_int_equal(kv_row().reserved_bytes, 16 * page);
    assert_false(resident(b.data + 4 * page));
    assert_int_equal(pn__block_commit(&b, 4 * page, page), 0);
    assert_int_equal(b.data[4 * page], 0);
    assert_int_equal(b.data[5 * page], 2);

    static const uint64_t bad[][2] = {{0, 17}, {16, 1}, {15, 2}, {UINT64_MAX / 8192, 1}};
    for (size_t i = 0; i < PN_ARRAY_N(bad); i++) {
        assert_int_equal(pn__block_commit(&b, bad[i][0] * page, bad[i][1] * page), PN_E_INVALID);
        assert_int_equal(pn__block_uncommit(&b, bad[i][0] * page, bad[i][1] * page), PN_E_INVALID);
    }
    assert_int_equal(pn__block_commit(&b, 1, page), PN_E_INVALID);
    assert_int_equal(pn__block_commit(&b, 0, page - 1), PN_E_INVALID);
    assert_int_equal(pn__block_commit(&b, 0, UINT64_MAX - page + 1), PN_E_INVALID);
    assert_int_equal(pn__block_uncommit(&b, 0, 4 * page), PN_E_INVALID);
    /* More than there is left to commit by the books: some page is named twice. */
    assert_int_equal(pn__block_commit(&b, 0, 14 * page), PN_E_INVALID);
    assert_int_equal(b.data[5 * page], 2);
    assert_int_equal(kv_row().committed_bytes, 3 * page);
    pn__block_free(&b);
}

static void test_huge(void **state) {
    (void)state;
    struct pn_block b;
    PN_ASSERT_OK(pn__block_new(PN_OWNER_KV, 5 * MIB, PN_BLOCK_HUGE | PN_BLOCK_COMMIT, &detail, &b),
                 &detail);
    assert_int_equal(b.bytes, 5 * MIB);
    assert_int_equal((uintptr_t)b.data % (2 * MIB), 0);
    b.data[5 * MIB - 1] = 1;
    pn__block_free(&b);
    /* Too small for it to matter. */
    PN_ASSERT_OK(pn__block_new(PN_OWNER_KV, MIB, PN_BLOCK_HUGE, &detail, &b), &detail);
    assert_false(b.huge);
    pn__block_free(&b);
}

static void assert_refused(uint64_t bytes, unsigned flags, int code) {
    struct pn_block b;
    memset(&b, 0xff, sizeof b);
    assert_int_equal(pn__block_new(PN_OWNER_KV, bytes, flags, &detail, &b), code);
    assert_null(b.data);
    assert_int_equal(b.bytes, 0);
    assert_int_equal(b.booking.live, 0);
    assert_int_equal(kv_row().reserved_bytes, 0);
    assert_int_equal(kv_row().committed_bytes, 0);
}

static void test_refused_by_the_ledger(void **state) {
    (void)state;
    assert_refused(64 * MIB + 1, 0, PN_E_NOFIT);
    assert_non_null(strstr(detail.text, "host lacks"));
    assert_refused(UINT64_MAX, 0, PN_E_NOFIT);
    assert_refused(UINT64_MAX - page, 0, PN_E_NOFIT);
}

static void test_refused_by_the_system(void **state) {
    (void)state;
    pn__alloc_fail_nth(1);
    assert_refused(MIB, PN_BLOCK_COMMIT, PN_E_NOMEM);
    assert_non_null(strstr(detail.text, "kv: the system refused to map 1048576 bytes"));
    /* A hole in the address space this large doesn't exist; no limit keeps the ledger from
     * granting it. */
    pn_ledger_set_domain(PN_DOMAIN_HOST, "host", UINT64_MAX, 0);
    assert_refused(1ull << 59, 0, PN_E_NOMEM);
    assert_refused(1ull << 59, PN_BLOCK_HUGE, PN_E_NOMEM);
}

/* Runs `body` in a child of its own, so that its limits are its own; it exits with 0 if all held.
 */
static bool holds_in_child(int (*body)(void)) {
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(body());
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) print_error("child: status %#x\n", status);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void in_child(int (*body)(void)) {
    assert_true(holds_in_child(body));
}

/* Lets `resource` grow by `bytes` from what /proc/self/status says is used. */
static int set_limit_above(int resource, const char *key, uint64_t bytes) {
    char line[256];
    unsigned long long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) return -1;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), ": %llu", &kb);
    }
    fclose(f);
    struct rlimit r = {.rlim_cur = kb * 1024 + bytes, .rlim_max = RLIM_INFINITY};
    return kb ? setrlimit(resource, &r) : -1;
}

/* An emulator may keep a limit to itself. */
static int body_limit_is_held(void) {
    CHECK(set_limit_above(RLIMIT_AS, "VmSize", 64 * MIB) == 0);
    CHECK(mmap(NULL, 256 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    return 0;
}

/* The ledger didn't know of the limit: the system's refusal is a value with the limit in it. */
static int body_system_refuses(void) {
    struct pn_block b;
    pn_ledger_set_domain(PN_DOMAIN_HOST, "host", 1024 * MIB, 0);
    CHECK(set_limit_above(RLIMIT_AS, "VmSize", 64 * MIB) == 0);
    CHECK(pn__block_new(PN_OWNER_KV, 256 * MIB, PN_BLOCK_COMMIT, &detail, &b) == PN_E_NOMEM);
    CHECK(strstr(detail.text, "268435456 bytes") && !strstr(detail.text, "RLIMIT_AS unlimited"));
    CHECK(kv_row().reserved_bytes == 0);
    CHECK(pn__block_new(PN_OWNER_KV, 8 * MIB, PN_BLOCK_COMMIT, &detail, &b) == 0);
    pn__block_free(&b);
    return 0;
}

static int limited(int resource, const char *key) {
    struct pn_block a;
    struct pn_block b;
    CHECK(set_limit_above(resource, key, 256 * MIB) == 0);
    pn_ledger_set_reserves(0, 16 * MIB);
    pn_ledger_sample(NULL);
    CHECK(pn__block_new(PN_OWNER_KV, 250 * MIB, 0, &detail, &b) == PN_E_NOFIT);
    CHECK(strstr(detail.text, "rlimit lacks") != NULL);
    /* What is granted can be had, and mapped bytes count once, not twice. */
    CHECK(pn__block_new(PN_OWNER_KV, 100 * MIB, 0, &detail, &a) == 0);
    uint64_t before = pn_ledger_headroom(PN_DOMAIN_RLIMIT);
    pn_ledger_sample(NULL);
    uint64_t after = pn_ledger_headroom(PN_DOMAIN_RLIMIT);
    CHECK(before > 100 * MIB && after + 8 * MIB > before && after < before + 8 * MIB);
    CHECK(pn__block_new(PN_OWNER_KV, 100 * MIB, 0, &detail, &b) == 0);
    pn__block_free(&b);
    pn__block_free(&a);
    pn_ledger_sample(NULL);
    CHECK(pn_ledger_headroom(PN_DOMAIN_RLIMIT) > 200 * MIB);
    return 0;
}

/* A file of 100 MiB, booked and then mapped, takes as much of RLIMIT_AS; a reservation that
 * succeeds beside it can be had. */
static int file_beside(void) {
    char path[] = "/tmp/pn-block-XXXXXX";
    struct pn_block b;
    pn_booking f;
    int fd = mkstemp(path);
    CHECK(fd >= 0 && unlink(path) == 0 && ftruncate(fd, 100 * MIB) == 0);
    pn_ledger_sample(NULL);
    uint64_t before = pn_ledger_headroom(PN_DOMAIN_RLIMIT);
    CHECK(before > 150 * MIB && before < 256 * MIB);
    CHECK(pn_ledger_reserve(PN_PLACE_FILE, PN_OWNER_WEIGHTS, 100 * MIB, &f, &detail) == 0);
    CHECK(pn_ledger_headroom(PN_DOMAIN_RLIMIT) == before - 100 * MIB);
    /* Fits the limit alone, but not beside the file: refused before anything is mapped. */
    CHECK(pn__block_new(PN_OWNER_KV, 150 * MIB, 0, &detail, &b) == PN_E_NOFIT);
    void *map = mmap(NULL, 100 * MIB, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && pn_ledger_mapped(&f) == 0);
    pn_ledger_sample(NULL);
    uint64_t mapped = pn_ledger_headroom(PN_DOMAIN_RLIMIT);
    CHECK(mapped + 108 * MIB > before && mapped < before - 92 * MIB);
    CHECK(pn__block_new(PN_OWNER_KV, 150 * MIB, 0, &detail, &b) == PN_E_NOFIT);
    CHECK(pn__block_new(PN_OWNER_KV, mapped / MIB * MIB, 0, &detail, &b) == 0);
    pn__block_free(&b);
    CHECK(pn_ledger_vacate(&f) == 0 && munmap(map, 100 * MIB) == 0);
    CHECK(pn_ledger_release(&f) == 0);
    close(fd);
    return 0;
}

static uint64_t headroom_now(void) {
    pn_ledger_sample(NULL);
    return pn_ledger_headroom(PN_DOMAIN_RLIMIT);
}

/* Address space that is there before its bytes are reserved doesn't count twice, and what is
 * committed in it is its payer's. */
static int space_beside(void) {
    struct pn_block b;
    pn_booking payer;
    uint64_t before = headroom_now();
    CHECK(pn__space_new(PN_OWNER_KV, 64 * MIB, &detail, &b) == 0);
    uint64_t mapped = headroom_now();
    CHECK(mapped + MIB > before && mapped < before + MIB);
    CHECK(pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_KV, 32 * MIB, &payer, &detail) == 0);
    CHECK(pn__space_commit(&b, 16 * MIB, 32 * MIB, &payer) == 0);
    CHECK(payer.committed_bytes == 32 * MIB);
    b.data[16 * MIB] = b.data[48 * MIB - 1] = 7;
    uint64_t taken = headroom_now();
    CHECK(taken + 33 * MIB > before && taken < before - 31 * MIB);
    CHECK(pn__space_commit(&b, 0, MIB, &payer) == PN_E_INVALID);
    CHECK(pn__space_uncommit(&b, 16 * MIB, 16 * MIB, &payer) == 0);
    CHECK(payer.committed_bytes == 16 * MIB && b.data[16 * MIB] == 0);
    CHECK(pn__space_uncommit(&b, 32 * MIB, 16 * MIB, &payer) == 0);
    CHECK(pn__space_uncommit(&b, 0, MIB, &payer) == PN_E_INVALID);
    CHECK(pn_ledger_release(&payer) == 0);
    pn__block_free(&b);
    uint64_t after = headroom_now();
    CHECK(after + MIB > before && after < before + MIB);
    return 0;
}

static int body_limit_as(void) {
    int rc = limited(RLIMIT_AS, "VmSize");
    if (rc == 0) rc = file_beside();
    return rc ? rc : space_beside();
}

static int body_limit_data(void) {
    return limited(RLIMIT_DATA, "VmData");
}

static void test_limits_of_the_process(void **state) {
    (void)state;
    if (!holds_in_child(body_limit_is_held)) PN_SKIP_TEST("limits on memory aren't held here");
    in_child(body_system_refuses);
    in_child(body_limit_as);
    in_child(body_limit_data);
}

static void test_space(void **state) {
    (void)state;
    struct pn_block b;
    pn_booking none = {0};
    struct pn_detail d;
    assert_int_equal(pn__space_new(PN_OWNER_KV, 0, &d, &b), 0);
    assert_null(b.data);
    assert_int_equal(pn__space_new(PN_OWNER_KV, 1, &d, &b), 0);
    assert_int_equal(b.bytes, pn__system_page());
    assert_int_equal(pn__space_commit(&b, 0, b.bytes, &none), PN_E_INVALID);
    pn__block_free(&b);
    assert_int_equal(pn__space_new(PN_OWNER_KV, UINT64_MAX, &d, &b), PN_E_NOMEM);
    assert_null(b.data);
}

#define BOOKED(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        BOOKED(test_empty),
        BOOKED(test_rounds_to_pages),
        BOOKED(test_commit_page_by_page),
        BOOKED(test_huge),
        BOOKED(test_refused_by_the_ledger),
        BOOKED(test_refused_by_the_system),
        BOOKED(test_limits_of_the_process),
        BOOKED(test_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
