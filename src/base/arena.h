/* A bump allocator over memory that somebody else owns, or that only counts.
 *
 * One function lays out an object's buffers by carving them from an arena. Run on a counting arena
 * it gives the exact size; run again on a block of that size it gives the pointers. So what is
 * planned and what is taken can't differ. */
#ifndef PN_BASE_ARENA_H
#define PN_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pn_arena {
    uint8_t *base; /* NULL: counting only */
    uint64_t cap_bytes;
    uint64_t used_bytes;
    bool overflow; /* a carve wrapped or went past the end; it and all later ones gave NULL */
};

/* base NULL and cap 0: counting. `base` must be aligned to PN_ARENA_ALIGN. */
void pn__arena_init(struct pn_arena *a, void *base, uint64_t cap_bytes);

/* `n` elements of `size` bytes, aligned to PN_ARENA_ALIGN, not cleared. NULL when counting or on
 * overflow. */
#define PN_ARENA_ALIGN 64
void *pn__arena_take(struct pn_arena *a, uint64_t n, uint64_t size);

#endif
