/* Blocks: the one way to get large anonymous memory. A block is reserved in the ledger, then
 * mapped, then committed (touched) in whole or page by page. */
#ifndef PN_CORE_MEM_BLOCK_H
#define PN_CORE_MEM_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "pn_mem.h"

struct pn_block {
    uint8_t *data;  /* page-aligned, zero-filled; NULL when empty */
    uint64_t bytes; /* a multiple of the system's page */
    pn_booking booking;
    bool huge; /* huge pages were advised and the system took the advice */
};

enum {
    PN_BLOCK_COMMIT = 1, /* touch every page before returning */
    PN_BLOCK_HUGE = 2,   /* advise huge pages where the system has them */
};

/* PN_E_NOFIT (ledger's words), PN_E_NOMEM when the system refuses the mapping; `out` is zeroed
 * then. A block of 0 bytes is valid and empty. */
int pn__block_new(unsigned owner, uint64_t bytes, unsigned flags, struct pn_detail *d,
                  struct pn_block *out) PN_MUST_CHECK;

/* Touches the pages of [off, off + bytes) that are not yet touched by the caller's account and
 * books them as committed. The caller names each byte once: ranges are whole pages. */
int pn__block_commit(struct pn_block *b, uint64_t off, uint64_t bytes) PN_MUST_CHECK;

/* Unmaps and releases; takes NULL and zeroed blocks; zeroes `b`. */
void pn__block_free(struct pn_block *b);

#endif
