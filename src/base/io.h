/* The I/O seam: every file that the library reads goes through this table, so that a test can make
 * reads short, interrupted, failing or ended early. */
#ifndef PN_BASE_IO_H
#define PN_BASE_IO_H

#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"

struct pn_io {
    int (*open)(const char *path, int flags);
    int (*close)(int fd);
    int (*fstat)(int fd, struct stat *st);
    ssize_t (*pread)(int fd, void *buf, size_t bytes, off_t off);
    void *(*mmap_read)(int fd, uint64_t bytes, off_t off); /* MAP_SHARED, PROT_READ; MAP_FAILED */
    int (*munmap)(void *p, uint64_t bytes);
};

/* The table in use; never NULL. */
const struct pn_io *pn__io(void);

/* Replaces it (NULL: the system's own calls). Only while no other thread does I/O. */
void pn__io_set(const struct pn_io *io);
const struct pn_io *pn__io_system(void);

/* Reads exactly `bytes` at `off`: short reads are continued, EINTR retried. PN_E_IO with `name`,
 * offset and wanted size when the file ends before or the system reports an error. */
int pn__io_read_exact(int fd, const char *name, void *buf, uint64_t bytes, uint64_t off,
                      struct pn_detail *d) PN_MUST_CHECK;

/* Reads a small text file such as one of /proc whole (at most cap - 1 bytes, NUL added; longer
 * files are cut: the result is cap - 1 then). Returns the length, or -errno with `buf` empty. */
long pn__io_read_text(const char *path, char *buf, size_t cap);

#endif
