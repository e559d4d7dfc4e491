#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "text/chat/value.h"

struct pn_jchunk {
    struct pn_jchunk *next;
    size_t used, cap; /* of the bytes that follow */
};

/* Chunks grow with the arena, so their number stays small, up to this size. */
#define CHUNK_MIN 4096
#define CHUNK_MAX (1u << 20)
#define ALIGN 16
#define HEAD ((sizeof(struct pn_jchunk) + ALIGN - 1) & ~(size_t)(ALIGN - 1))

static struct pn_jchunk *add_chunk(struct pn_jarena *a, uint64_t bytes) {
    uint64_t cap = pn__max_u64(CHUNK_MIN, pn__min_u64(a->bytes, CHUNK_MAX));
    cap = pn__max_u64(cap, bytes);
    if (a->bytes > a->bytes_max || cap > a->bytes_max - a->bytes) {
        a->full = true;
        return NULL;
    }
    struct pn_jchunk *k = pn__calloc(1, HEAD + cap);
    if (!k) return NULL;
    a->bytes += cap;
    k->cap = cap;
    /* A big piece alone in its chunk doesn't end the one in use. */
    if (a->chunk && cap == bytes && a->chunk->cap - a->chunk->used > ALIGN) {
        k->next = a->chunk->next;
        a->chunk->next = k;
    } else {
        k->next = a->chunk;
        a->chunk = k;
    }
    return k;
}

void *pn__jarena_take(struct pn_jarena *a, size_t n, size_t size) {
    uint64_t bytes;
    if (pn__mul_u64(n, size, &bytes) || pn__align_u64(bytes, ALIGN, &bytes) ||
        bytes > UINT64_MAX / 2) {
        a->full = true;
        return NULL;
    }
    struct pn_jchunk *k = a->chunk;
    if (!k || k->cap - k->used < bytes) k = add_chunk(a, bytes);
    if (!k) return NULL;
    void *p = (char *)k + HEAD + k->used;
    k->used += bytes;
    return p;
}

void pn__jarena_free(struct pn_jarena *a) {
    while (a->chunk) {
        struct pn_jchunk *next = a->chunk->next;
        pn__free(a->chunk);
        a->chunk = next;
    }
    a->bytes = 0;
}
