/* The I/O seam with faults: reads that are short, interrupted, failing or ended early, and calls
 * that fail. */
#ifndef PN_TESTS_SUPPORT_IO_FAULT_H
#define PN_TESTS_SUPPORT_IO_FAULT_H

#include <stddef.h>
#include <stdint.h>

struct io_fault {
    size_t short_bytes; /* at most so many bytes a read; 0: no limit */
    int eintr_every;    /* each n-th read is interrupted first */
    uint64_t eio_from;  /* reads that reach this offset fail */
    uint64_t end_at;    /* the file ends here, whatever fstat said */
    int open_errno;
    int fstat_errno;
    int mmap_errno;
    int read_n;
    int open_n; /* descriptors open now */
};
extern struct io_fault fault;

/* No faults, nothing counted. */
void io_fault_reset(void);

/* For cmocka, around each test: through the seam from here on, without faults; and the system
 * itself again. Descriptors that are left open fail the test. */
int io_fault_arm(void **state);
int io_fault_disarm(void **state);

#endif
