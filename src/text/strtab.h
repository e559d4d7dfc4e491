/* A table of distinct byte strings, numbered from 0 in the order they were added: token texts and
 * the symbols that merges are made of. Open addressing over one blob of bytes. */
#ifndef PN_TEXT_STRTAB_H
#define PN_TEXT_STRTAB_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "gguf/gguf.h"

#define PN_STR_NONE UINT32_MAX

struct pn_strtab {
    char *bytes;
    size_t bytes_n;
    size_t bytes_cap;
    uint32_t *end;  /* [n]: string i is bytes[end[i - 1], end[i]) */
    uint32_t *slot; /* [slot_n], a power of two: number + 1, or 0 */
    uint32_t n;
    uint32_t cap;
    uint32_t slot_n;
};

/* Makes room for `n` strings of `bytes` bytes together. PN_E_NOMEM. */
int pn__strtab_reserve(struct pn_strtab *t, size_t n, size_t bytes) PN_MUST_CHECK;
void pn__strtab_free(struct pn_strtab *t);

/* Appends a string under the next number. A string that is there already, and an empty one, get
 * the number too but cannot be found by it. Returns PN_E_NOMEM; *found is the number of an equal
 * string from before, or PN_STR_NONE. */
int pn__strtab_add(struct pn_strtab *t, struct pn_str s, uint32_t *found) PN_MUST_CHECK;

/* The number of an equal string, or PN_STR_NONE. */
uint32_t pn__strtab_find(const struct pn_strtab *t, struct pn_str s);

static inline struct pn_str pn__strtab_get(const struct pn_strtab *t, uint32_t i) {
    uint32_t from = i ? t->end[i - 1] : 0;
    return (struct pn_str){t->bytes + from, t->end[i] - from};
}

uint64_t pn__hash_bytes(const char *s, size_t n);

static inline uint64_t pn__hash_u64(uint64_t x) {
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    return x;
}

#endif
