#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"

/* One read call never asks for more: Linux caps a read at 0x7ffff000 bytes anyway. */
#define READ_MAX_BYTES (1u << 30)

static int sys_open(const char *path, int flags) {
    return open(path, flags);
}

static int sys_fstat(int fd, struct stat *st) {
    return fstat(fd, st);
}

static void *sys_mmap_read(int fd, uint64_t bytes, off_t off) {
    return mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, off);
}

static int sys_munmap(void *p, uint64_t bytes) {
    return munmap(p, bytes);
}

static const struct pn_io io_system = {
    .open = sys_open,
    .close = close,
    .fstat = sys_fstat,
    .pread = pread,
    .mmap_read = sys_mmap_read,
    .munmap = sys_munmap,
};

/* Sync: replaced only while no other thread does I/O. */
static const struct pn_io *io_now = &io_system;

const struct pn_io *pn__io(void) {
    return io_now;
}

const struct pn_io *pn__io_system(void) {
    return &io_system;
}

void pn__io_set(const struct pn_io *io) {
    io_now = io ? io : &io_system;
}

int pn__io_read_exact(int fd, const char *name, void *buf, uint64_t bytes, uint64_t off,
                      struct pn_detail *d) {
    uint64_t done = 0;
    uint64_t end;
    if (pn__add_u64(off, bytes, &end) || end > INT64_MAX) {
        return pn__fail(d, PN_E_IO, "%s: %llu bytes at offset %llu end past any file", name,
                        (unsigned long long)bytes, (unsigned long long)off);
    }
    while (done < bytes) {
        size_t want = (size_t)pn__min_u64(bytes - done, READ_MAX_BYTES);
        ssize_t got = io_now->pread(fd, (uint8_t *)buf + done, want, (off_t)(off + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            return pn__fail(d, PN_E_IO, "%s: reading %llu bytes at offset %llu: %s", name,
                            (unsigned long long)bytes, (unsigned long long)off, strerror(errno));
        }
        if (got == 0) {
            return pn__fail(d, PN_E_IO,
                            "%s: file ends at offset %llu, wanted %llu bytes at offset %llu "
                            "(did it shrink?)",
                            name, (unsigned long long)(off + done), (unsigned long long)bytes,
                            (unsigned long long)off);
        }
        done += (uint64_t)got;
    }
    return 0;
}

long pn__io_read_text(const char *path, char *buf, size_t cap) {
    int fd = io_now->open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    size_t len = 0;
    long rc = 0;
    while (len + 1 < cap) {
        ssize_t got = io_now->pread(fd, buf + len, cap - 1 - len, (off_t)len);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) rc = -errno;
        if (got <= 0) break;
        len += (size_t)got;
    }
    io_now->close(fd);
    buf[rc < 0 ? 0 : len] = '\0';
    return rc < 0 ? rc : (long)len;
}
