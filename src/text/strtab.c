#include "text/strtab.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

uint64_t pn__hash_bytes(const char *s, size_t n) {
    uint64_t h = 0x9E3779B97F4A7C15u ^ n;
    for (; n >= 8; s += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, s, 8);
        h = pn__hash_u64(h ^ w) * 0xD6E8FEB86659FD93u;
    }
    uint64_t w = 0;
    memcpy(&w, s, n);
    return pn__hash_u64(h ^ w);
}

static int grow_slots(struct pn_strtab *t, uint32_t slot_n) {
    uint32_t *slot = pn__calloc(slot_n, sizeof *slot);
    if (!slot) return PN_E_NOMEM;
    for (uint32_t i = 0; i < t->slot_n; i++) {
        if (!t->slot[i]) continue;
        struct pn_str s = pn__strtab_get(t, t->slot[i] - 1);
        uint32_t at = (uint32_t)pn__hash_bytes(s.data, s.len) & (slot_n - 1);
        while (slot[at])
            at = (at + 1) & (slot_n - 1);
        slot[at] = t->slot[i];
    }
    pn__free(t->slot);
    t->slot = slot;
    t->slot_n = slot_n;
    return 0;
}

int pn__strtab_reserve(struct pn_strtab *t, size_t n, size_t bytes) {
    if (n > UINT32_MAX / 4 || bytes > UINT32_MAX) return PN_E_NOMEM;
    if (n > t->cap) {
        uint32_t *end = pn__realloc_array(t->end, n, sizeof *end);
        if (!end) return PN_E_NOMEM;
        t->end = end;
        t->cap = (uint32_t)n;
    }
    if (bytes > t->bytes_cap) {
        char *grown = pn__realloc_array(t->bytes, bytes, 1);
        if (!grown) return PN_E_NOMEM;
        t->bytes = grown;
        t->bytes_cap = bytes;
    }
    uint32_t slot_n = 64;
    while (slot_n < 2 * n)
        slot_n *= 2;
    return slot_n > t->slot_n ? grow_slots(t, slot_n) : 0;
}

void pn__strtab_free(struct pn_strtab *t) {
    pn__free(t->bytes);
    pn__free(t->end);
    pn__free(t->slot);
    memset(t, 0, sizeof *t);
}

/* The slot of an equal string, or the free one where it would go. */
static uint32_t probe(const struct pn_strtab *t, struct pn_str s) {
    uint32_t mask = t->slot_n - 1;
    uint32_t at = (uint32_t)pn__hash_bytes(s.data, s.len) & mask;
    for (; t->slot[at]; at = (at + 1) & mask) {
        struct pn_str have = pn__strtab_get(t, t->slot[at] - 1);
        if (have.len == s.len && memcmp(have.data, s.data, s.len) == 0) break;
    }
    return at;
}

int pn__strtab_add(struct pn_strtab *t, struct pn_str s, uint32_t *found) {
    size_t bytes = t->bytes_n + s.len;
    if (t->n == t->cap || bytes > t->bytes_cap) {
        size_t n = t->n < t->cap ? t->cap : (size_t)t->cap * 2 + 64;
        int rc = pn__strtab_reserve(t, n, bytes + bytes / 2);
        if (rc) return rc;
    }
    *found = PN_STR_NONE;
    if (s.len) {
        uint32_t at = probe(t, s);
        if (t->slot[at])
            *found = t->slot[at] - 1;
        else
            t->slot[at] = t->n + 1;
        memcpy(t->bytes + t->bytes_n, s.data, s.len);
    }
    t->bytes_n = bytes;
    t->end[t->n++] = (uint32_t)bytes;
    return 0;
}

uint32_t pn__strtab_find(const struct pn_strtab *t, struct pn_str s) {
    if (t->slot_n == 0 || s.len == 0) return PN_STR_NONE;
    uint32_t slot = t->slot[probe(t, s)];
    return slot ? slot - 1 : PN_STR_NONE;
}
