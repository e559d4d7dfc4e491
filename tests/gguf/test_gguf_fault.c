/* The I/O seam and the allocation seam: reads that are short, interrupted, failing or ended early,
 * and every allocation of an open failing in turn. */
#include <errno.h>

#include "gguf_bytes.h"
#include "support/io_fault.h"

static char set_path[512]; /* the second of three parts, each longer than one read window */
static char one_path[512];

static int setup(void **state) {
    struct pn_detail d;
    static char text[100000];
    if (gb_setup(state)) return -1;
    struct pn_gguf_writer *w = gb_model(9);
    memset(text, 'a', sizeof text - 1);
    pn__gguf_w_str(w, "long", text);
    snprintf(set_path, sizeof set_path, "%s", gb_path("m-00002-of-00003.gguf"));
    snprintf(one_path, sizeof one_path, "%s", gb_path("one.gguf"));
    int rc = pn__gguf_w_split(w, gb_path("m"), 3, &d);
    if (!rc) rc = pn__gguf_w_file(w, one_path, &d);
    pn__gguf_writer_free(w);
    return rc;
}

static int disarm(void **state) {
    pn__alloc_fail_nth(0);
    return io_fault_disarm(state);
}

static void slow_reads(void **state) {
    (void)state;
    const size_t shorts[] = {1, 3, 1000};
    for (size_t i = 0; i < PN_ARRAY_N(shorts); i++) {
        struct pn_detail d;
        struct pn_gguf *g;
        fault.short_bytes = shorts[i];
        fault.eintr_every = 3;
        PN_ASSERT_OK(pn__gguf_open(set_path, &d, &g), &d);
        assert_int_equal(pn__gguf_tensor_n(g), 9);
        assert_int_equal(pn__gguf_shard_n(g), 3);
        pn__gguf_close(g);
    }
    assert_true(fault.read_n > 1000);
}

static void failing_reads(void **state) {
    (void)state;
    const uint64_t from[] = {0, 100, 65536, 90000};
    for (size_t i = 0; i < PN_ARRAY_N(from); i++) {
        fault.eio_from = from[i];
        GB_REFUSED(one_path, PN_E_IO, "one.gguf", "Input/output error", "offset");
    }
    fault.eio_from = UINT64_MAX;
    const uint64_t ends[] = {0, 3, 100, 65536, 90000};
    for (size_t i = 0; i < PN_ARRAY_N(ends); i++) {
        char end[48];
        fault.end_at = ends[i];
        snprintf(end, sizeof end, "ends at offset %d", (int)ends[i]);
        GB_REFUSED(one_path, PN_E_IO, "one.gguf", end);
    }
}

static void failing_calls(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_gguf *g;
    const uint8_t *map;
    fault.open_errno = EACCES;
    GB_REFUSED(one_path, PN_E_IO, "one.gguf", "Permission denied");
    fault.open_errno = EMFILE;
    GB_REFUSED(set_path, PN_E_IO, "m-00002-of-00003.gguf", "Too many open files");
    fault.open_errno = 0;
    fault.fstat_errno = ESTALE;
    GB_REFUSED(one_path, PN_E_IO, "one.gguf", "Stale file handle");
    fault.fstat_errno = 0;
    PN_ASSERT_OK(pn__gguf_open(one_path, &d, &g), &d);
    fault.fstat_errno = ESTALE;
    assert_int_equal(pn__gguf_check_unchanged(g, &d), PN_E_IO);
    gb_assert_has(&d, "Stale file handle");
    fault.mmap_errno = ENOMEM;
    assert_int_equal(pn__gguf_map(g, 0, &d, &map), PN_E_NOMEM);
    gb_assert_has(&d, "one.gguf");
    assert_null(map);
    fault.mmap_errno = ENODEV;
    assert_int_equal(pn__gguf_map(g, 0, &d, &map), PN_E_IO);
    fault.mmap_errno = 0;
    pn__alloc_fail_nth(1);
    assert_int_equal(pn__gguf_map(g, 0, &d, &map), PN_E_NOMEM);
    PN_ASSERT_OK(pn__gguf_map(g, 0, &d, &map), &d);
    pn__gguf_close(g);
}

/* Fails the 1st, 2nd, ... allocation until the open succeeds; leaks show under the sanitizer, open
 * descriptors in disarm(). */
static void open_under_torture(const char *path) {
    struct pn_detail d;
    struct pn_gguf *g;
    int n = 1;
    for (;; n++) {
        uint64_t before = pn__alloc_count();
        pn__alloc_fail_nth((uint64_t)n);
        int rc = pn__gguf_open(path, &d, &g);
        bool reached = pn__alloc_count() - before >= (uint64_t)n;
        pn__alloc_fail_nth(0);
        if (!reached) {
            assert_int_equal(rc, 0);
            break;
        }
        /* Giving back the unread tail of the header is the one allocation that may fail unseen. */
        if (rc == 0) {
            assert_int_equal(pn__gguf_tensor_n(g), 9);
            pn__gguf_close(g);
            continue;
        }
        assert_int_equal(rc, PN_E_NOMEM);
        assert_null(g);
        gb_assert_has(&d, "no memory");
    }
    assert_true(n > 8);
    pn__gguf_close(g);
}

static void failing_allocations(void **state) {
    (void)state;
    open_under_torture(one_path);
    open_under_torture(set_path);
    /* A folder of one set: its names are read into memory too. */
    char dir[512];
    snprintf(dir, sizeof dir, "%s", gb_path("folder"));
    assert_int_equal(mkdir(dir, 0777), 0);
    struct pn_detail d;
    struct pn_gguf_writer *w = gb_model(9);
    PN_ASSERT_OK(pn__gguf_w_split(w, gb_path("folder/m"), 3, &d), &d);
    pn__gguf_writer_free(w);
    open_under_torture(dir);
}

static void writer_allocations(void **state) {
    (void)state;
    const char *path = gb_path("torture.gguf");
    for (int n = 1;; n++) {
        struct pn_detail d;
        struct pn_gguf_writer *w = NULL;
        uint64_t before = pn__alloc_count();
        pn__alloc_fail_nth((uint64_t)n);
        int rc = pn__gguf_writer_new(&w, &d);
        if (!rc) {
            pn__gguf_w_align(w, 64);
            pn__gguf_w_str(w, "key", "value");
            pn__gguf_w_strings(w, "list", (struct pn_str[2]){{"a", 1}, {"b", 1}}, 2);
            pn__gguf_w_tensor(w, "t", PN_TYPE_F32, 1, (uint64_t[1]){100}, NULL);
            pn__gguf_w_tensor(w, "u", PN_TYPE_F32, 1, (uint64_t[1]){100}, NULL);
            rc = pn__gguf_w_file(w, path, &d);
        }
        bool reached = pn__alloc_count() - before >= (uint64_t)n;
        pn__alloc_fail_nth(0);
        pn__gguf_writer_free(w);
        if (!reached) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_int_equal(rc, PN_E_NOMEM);
        gb_assert_has(&d, "no memory");
        assert_int_equal(access(path, F_OK), -1);
    }
    struct pn_gguf *g;
    struct pn_detail d;
    PN_ASSERT_OK(pn__gguf_open(path, &d, &g), &d);
    pn__gguf_close(g);
    struct pn_gguf_writer *w = gb_model(1);
    assert_int_equal(pn__gguf_w_file(w, gb_path("no/such/folder.gguf"), &d), PN_E_IO);
    gb_assert_has(&d, "folder.gguf");
    pn__gguf_writer_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(slow_reads, io_fault_arm, disarm),
        cmocka_unit_test_setup_teardown(failing_reads, io_fault_arm, disarm),
        cmocka_unit_test_setup_teardown(failing_calls, io_fault_arm, disarm),
        cmocka_unit_test_setup_teardown(failing_allocations, io_fault_arm, disarm),
        cmocka_unit_test_setup_teardown(writer_allocations, io_fault_arm, disarm),
    };
    return cmocka_run_group_tests(tests, setup, gb_teardown);
}
