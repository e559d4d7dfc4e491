#include "base/arena.h"

#include "base/checked.h"

void pn__arena_init(struct pn_arena *a, void *base, uint64_t cap_bytes) {
    *a = (struct pn_arena){.base = base, .cap_bytes = base ? cap_bytes : UINT64_MAX};
}

void *pn__arena_take(struct pn_arena *a, uint64_t n, uint64_t size) {
    uint64_t bytes;
    uint64_t end;
    if (a->overflow) return NULL;
    if (pn__mul_u64(n, size, &bytes) || pn__align_u64(bytes, PN_ARENA_ALIGN, &bytes) ||
        pn__add_u64(a->used_bytes, bytes, &end) || end > a->cap_bytes) {
        a->overflow = true;
        return NULL;
    }
    void *p = a->base ? a->base + a->used_bytes : NULL;
    a->used_bytes = end;
    return p;
}
