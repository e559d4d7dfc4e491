/* Allocations of structs, tables and strings, and the seam that makes the n-th of them fail. Large
 * memory by plan (weights, KV, state, scratch, buffers) does not come from here: it is reserved in
 * the ledger and mapped as a block, see core/mem/pn_block.h. Tables that grow large with what is in
 * a file or a request do: they are booked through the hooks below. What comes from here goes back
 * by pn__free, never by the system's free. */
#ifndef PN_BASE_ALLOC_H
#define PN_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* NULL on failure, also when n * size wraps. Zeroed. A size of 0 gives a unique pointer. */
void *pn__calloc(size_t n, size_t size) PN_MUST_CHECK;

/* As realloc for an array of `n` elements; the old array stays valid on failure. */
void *pn__realloc_array(void *old, size_t n, size_t size) PN_MUST_CHECK;

char *pn__strdup(const char *s) PN_MUST_CHECK;
void pn__free(void *p);

/* Pieces of this many bytes and more are booked: the size from which the system maps them. */
#define PN_ALLOC_LARGE_BYTES (128u << 10)

/* Who books them; core/mem's are set by pn__account_allocations. Called in this order around the
 * system's calls: reserve (not 0: refused, and the allocation fails), allocate, commit; vacate,
 * free, release. A piece that grows or shrinks is booked by the difference. From any thread. */
struct pn_alloc_hooks {
    int (*reserve)(uint64_t bytes);
    void (*commit)(uint64_t bytes);
    void (*vacate)(uint64_t bytes);
    void (*release)(uint64_t bytes);
};

/* Stays set while anything booked lives; NULL: nothing is booked. */
void pn__alloc_set_hooks(const struct pn_alloc_hooks *hooks);

/* Test seam. The n-th allocation from now (1 = the next one) fails once, as does any
 * address-space mapping that asks pn__alloc_should_fail; 0 switches it off. Process-wide. */
void pn__alloc_fail_nth(uint64_t n);
int pn__alloc_should_fail(void);

/* Allocations made since the process started, failed ones included. A decode step must not move
 * it. */
uint64_t pn__alloc_count(void);

#endif
