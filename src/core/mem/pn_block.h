/* Blocks: the one way to get large anonymous memory. A block is reserved in the ledger, then
 * mapped, then committed (touched) in whole or page by page.
 *
 * Nothing is mapped that the ledger didn't grant, and mappings are never MAP_NORESERVE: where the
 * system counts promises itself (strict overcommit, RLIMIT_AS, RLIMIT_DATA) it refuses here, as a
 * value, and not later by killing somebody.
 *
 * A *space* is address space without a booking: pieces of it are committed against the bookings of
 * those who use them. So what several may need at once can have its place early and be paid for
 * late. */
#ifndef PN_CORE_MEM_BLOCK_H
#define PN_CORE_MEM_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "pn_mem.h"

/* The system's page: what blocks are whole numbers of. A power of two. */
uint64_t pn__system_page(void);

/* Bytes of this process's anonymous memory that the system holds in huge pages now; 0 where it
 * doesn't say. Advice (PN_BLOCK_HUGE) is only advice: this is what was granted. */
uint64_t pn__self_huge_bytes(void);

/* Sync: a block belongs to one thread at a time; its bytes may be shared. */
struct pn_block {
    uint8_t *data;  /* page-aligned (2 MiB with PN_BLOCK_HUGE), zero-filled; NULL when empty */
    uint64_t bytes; /* a multiple of the system's page */
    pn_booking booking;
    bool huge; /* huge pages were advised and the system took the advice */
};

enum {
    PN_BLOCK_COMMIT = 1, /* touch every page before returning */
    /* Advise huge pages where the system has them. For blocks that are committed whole: a first
     * touch takes 2 MiB then, whatever was booked. */
    PN_BLOCK_HUGE = 2,
};

/* `bytes` is rounded up to whole pages; a block of 0 bytes is valid and empty. PN_E_NOFIT (the
 * ledger's words), PN_E_NOMEM when the system refuses; `out` is zeroed then. */
int pn__block_new(unsigned owner, uint64_t bytes, unsigned flags, struct pn_detail *d,
                  struct pn_block *out) PN_MUST_CHECK;

/* Touches [off, off + bytes), whole pages, and books them as committed. The caller names each page
 * once between uncommits. What is in them stays. PN_E_INVALID for a bad range or more than there
 * is left to commit, PN_E_NOMEM when the system has no memory for them: they are as before then. */
int pn__block_commit(struct pn_block *b, uint64_t off, uint64_t bytes) PN_MUST_CHECK;

/* Gives the pages of [off, off + bytes), committed before, back to the system; they stay promised
 * and read as zero when committed again. Errors as for commit; nothing changes then. */
int pn__block_uncommit(struct pn_block *b, uint64_t off, uint64_t bytes) PN_MUST_CHECK;

/* Address space alone, nothing of it reserved. PN_E_NOMEM; `out` is zeroed then. */
int pn__space_new(unsigned owner, uint64_t bytes, struct pn_detail *d,
                  struct pn_block *out) PN_MUST_CHECK;

/* Like commit and uncommit, but what is touched is `payer`'s, which must have as many bytes that
 * aren't committed: PN_E_INVALID. */
int pn__space_commit(struct pn_block *b, uint64_t off, uint64_t bytes,
                     pn_booking *payer) PN_MUST_CHECK;
int pn__space_uncommit(struct pn_block *b, uint64_t off, uint64_t bytes,
                       pn_booking *payer) PN_MUST_CHECK;

/* Unmaps and releases; takes NULL and zeroed blocks; zeroes `b`. Of a space nothing may be
 * committed any more. */
void pn__block_free(struct pn_block *b);

#endif
