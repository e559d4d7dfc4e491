/* Reads that are short, interrupted, failing or ended early, through the I/O seam. */
#include "support/pn_test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/io.h"

#define FILE_BYTES 10000

struct script {
    size_t at_most; /* bytes a read gives; 0: all */
    int eintr_n;    /* reads that are interrupted first */
    int fail_errno; /* of the read after them */
    off_t end;      /* the file seems to end here; 0: where it does */
    int read_n;
    int close_n;
};

static struct script script;
static char path[] = "/tmp/pn-test-io-XXXXXX";
static uint8_t content[FILE_BYTES];

static ssize_t scripted_pread(int fd, void *buf, size_t bytes, off_t off) {
    script.read_n++;
    if (script.eintr_n > 0) {
        script.eintr_n--;
        errno = EINTR;
        return -1;
    }
    if (script.fail_errno) {
        errno = script.fail_errno;
        return -1;
    }
    if (script.end && off >= script.end) return 0;
    if (script.end && off + (off_t)bytes > script.end) bytes = (size_t)(script.end - off);
    if (script.at_most && bytes > script.at_most) bytes = script.at_most;
    return pread(fd, buf, bytes, off);
}

static int counted_close(int fd) {
    script.close_n++;
    return close(fd);
}

static int group_setup(void **state) {
    (void)state;
    int fd = mkstemp(path);
    if (fd < 0) return -1;
    for (int i = 0; i < FILE_BYTES; i++)
        content[i] = (uint8_t)('a' + i * 7 % 26);
    bool ok = write(fd, content, FILE_BYTES) == FILE_BYTES;
    close(fd);
    return ok ? 0 : -1;
}

static int group_teardown(void **state) {
    (void)state;
    return unlink(path);
}

static int setup(void **state) {
    static struct pn_io io;
    (void)state;
    script = (struct script){0};
    io = *pn__io_system();
    io.pread = scripted_pread;
    io.close = counted_close;
    pn__io_set(&io);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    pn__io_set(NULL);
    return pn__io() == pn__io_system() ? 0 : -1;
}

static int read_some(uint8_t *buf, uint64_t bytes, uint64_t off, struct pn_detail *d) {
    int fd = pn__io()->open(path, O_RDONLY);
    assert_true(fd >= 0);
    int rc = pn__io_read_exact(fd, "model.gguf", buf, bytes, off, d);
    pn__io()->close(fd);
    return rc;
}

static void test_read_exact(void **state) {
    (void)state;
    static const size_t at_most[] = {0, 1, 7, 999};
    uint8_t buf[FILE_BYTES];
    struct pn_detail d;
    for (size_t i = 0; i < PN_ARRAY_N(at_most); i++) {
        script = (struct script){.at_most = at_most[i], .eintr_n = 3};
        memset(buf, 0, sizeof buf);
        PN_ASSERT_OK(read_some(buf, 5000, 1234, &d), &d);
        assert_memory_equal(buf, content + 1234, 5000);
        assert_int_equal(buf[5000], 0);
    }
    PN_ASSERT_OK(read_some(buf, FILE_BYTES, 0, &d), &d);
    script.read_n = 0;
    PN_ASSERT_OK(read_some(buf, 0, 99999, &d), &d);
    assert_int_equal(script.read_n, 0);
}

static void test_read_fails(void **state) {
    (void)state;
    uint8_t buf[FILE_BYTES];
    struct pn_detail d;
    script = (struct script){.eintr_n = 1, .fail_errno = EIO};
    assert_int_equal(read_some(buf, 500, 77, &d), PN_E_IO);
    assert_non_null(strstr(d.text, "model.gguf"));
    assert_non_null(strstr(d.text, "500"));
    assert_non_null(strstr(d.text, "77"));
    assert_non_null(strstr(d.text, strerror(EIO)));
    assert_int_equal(read_some(buf, 500, 77, NULL), PN_E_IO);

    script = (struct script){.end = 300, .at_most = 64};
    assert_int_equal(read_some(buf, 500, 77, &d), PN_E_IO);
    assert_non_null(strstr(d.text, "ends at offset 300"));
    script = (struct script){0};
    assert_int_equal(read_some(buf, 2, FILE_BYTES - 1, &d), PN_E_IO);
    assert_int_equal(read_some(buf, 1, FILE_BYTES - 1, &d), 0);
}

static void test_read_past_any_file(void **state) {
    (void)state;
    uint8_t buf[1];
    struct pn_detail d;
    assert_int_equal(read_some(buf, UINT64_MAX, 2, &d), PN_E_IO);
    assert_int_equal(read_some(buf, 2, INT64_MAX, &d), PN_E_IO);
    assert_non_null(strstr(d.text, "past any file"));
    assert_int_equal(script.read_n, 0);
}

static void test_read_text(void **state) {
    (void)state;
    char buf[FILE_BYTES + 10];
    script.at_most = 13;
    script.eintr_n = 2;
    assert_int_equal(pn__io_read_text(path, buf, sizeof buf), FILE_BYTES);
    assert_memory_equal(buf, content, FILE_BYTES);
    assert_int_equal(buf[FILE_BYTES], 0);
    assert_int_equal(pn__io_read_text(path, buf, 101), 100);
    assert_int_equal(strlen(buf), 100);
    assert_int_equal(pn__io_read_text(path, buf, 1), 0);
    assert_int_equal(script.close_n, 3);
    script = (struct script){.fail_errno = EOPNOTSUPP};
    assert_int_equal(pn__io_read_text(path, buf, sizeof buf), -EOPNOTSUPP);
    assert_string_equal(buf, "");
    assert_int_equal(script.close_n, 1);
    assert_int_equal(pn__io_read_text("/nonexistent/x", buf, sizeof buf), -ENOENT);
}

static void test_map(void **state) {
    (void)state;
    struct stat st;
    int fd = pn__io()->open(path, O_RDONLY);
    assert_int_equal(pn__io()->fstat(fd, &st), 0);
    assert_int_equal(st.st_size, FILE_BYTES);
    void *p = pn__io()->mmap_read(fd, FILE_BYTES, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    pn__io()->close(fd);
    assert_memory_equal(p, content, FILE_BYTES);
    assert_int_equal(pn__io()->munmap(p, FILE_BYTES), 0);
}

#define SHIMMED(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        SHIMMED(test_read_exact), SHIMMED(test_read_fails), SHIMMED(test_read_past_any_file),
        SHIMMED(test_read_text),  SHIMMED(test_map),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
