#include "support/io_fault.h"

#include <errno.h>
#include <fcntl.h>

#include "base/io.h"
#include "support/pn_test.h"

struct io_fault fault;

static int f_open(const char *path, int flags) {
    if (fault.open_errno) {
        errno = fault.open_errno;
        return -1;
    }
    assert_int_equal(flags & O_ACCMODE, O_RDONLY);
    assert_int_equal(flags & (O_CREAT | O_TRUNC), 0);
    int fd = pn__io_system()->open(path, flags);
    fault.open_n += fd >= 0;
    return fd;
}

static int f_close(int fd) {
    fault.open_n--;
    return pn__io_system()->close(fd);
}

static int f_fstat(int fd, struct stat *st) {
    if (!fault.fstat_errno) return pn__io_system()->fstat(fd, st);
    errno = fault.fstat_errno;
    return -1;
}

static ssize_t f_pread(int fd, void *buf, size_t bytes, off_t off) {
    fault.read_n++;
    if (fault.eintr_every && fault.read_n % fault.eintr_every == 0) {
        errno = EINTR;
        return -1;
    }
    if ((uint64_t)off + bytes > fault.eio_from) {
        errno = EIO;
        return -1;
    }
    if ((uint64_t)off >= fault.end_at) return 0;
    if (bytes > fault.end_at - (uint64_t)off) bytes = fault.end_at - (uint64_t)off;
    if (fault.short_bytes && bytes > fault.short_bytes) bytes = fault.short_bytes;
    return pn__io_system()->pread(fd, buf, bytes, off);
}

static void *f_mmap(int fd, uint64_t bytes, off_t off) {
    if (!fault.mmap_errno) return pn__io_system()->mmap_read(fd, bytes, off);
    errno = fault.mmap_errno;
    return (void *)-1;
}

static int f_munmap(void *p, uint64_t bytes) {
    return pn__io_system()->munmap(p, bytes);
}

static const struct pn_io shim = {f_open, f_close, f_fstat, f_pread, f_mmap, f_munmap};

void io_fault_reset(void) {
    fault = (struct io_fault){.eio_from = UINT64_MAX, .end_at = UINT64_MAX};
}

int io_fault_arm(void **state) {
    (void)state;
    io_fault_reset();
    pn__io_set(&shim);
    return 0;
}

int io_fault_disarm(void **state) {
    (void)state;
    pn__io_set(NULL);
    assert_int_equal(fault.open_n, 0);
    return 0;
}
