/* Each piece has a head of 16 bytes in front of it, which says how many of its bytes are booked: so
 * what was taken before the hooks were set, or is too small to be booked, is given back without
 * them. 16 bytes keep the alignment that the system's allocator gives. */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct head {
    uint64_t booked_bytes;
    uint64_t pad;
};
#define HEAD_BYTES sizeof(struct head)
_Static_assert(HEAD_BYTES == 16 && _Alignof(max_align_t) <= 16, "what follows is aligned");

/* Sync: relaxed counters; they order nothing. */
static _Atomic uint64_t alloc_n;
static _Atomic uint64_t fail_at;

/* Sync: stored with release, loaded with acquire; what it points to is constant. */
static const struct pn_alloc_hooks *_Atomic hooks_now;

void pn__alloc_set_hooks(const struct pn_alloc_hooks *hooks) {
    atomic_store_explicit(&hooks_now, hooks, memory_order_release);
}

void pn__alloc_fail_nth(uint64_t n) {
    uint64_t at = n ? atomic_load_explicit(&alloc_n, memory_order_relaxed) + n : 0;
    atomic_store_explicit(&fail_at, at, memory_order_relaxed);
}

int pn__alloc_should_fail(void) {
    uint64_t i = atomic_fetch_add_explicit(&alloc_n, 1, memory_order_relaxed) + 1;
    return i == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

uint64_t pn__alloc_count(void) {
    return atomic_load_explicit(&alloc_n, memory_order_relaxed);
}

static const struct pn_alloc_hooks *hooks(void) {
    return atomic_load_explicit(&hooks_now, memory_order_acquire);
}

/* Bytes of a piece of n * size, its head included; false when that wraps. */
static bool whole_bytes(size_t n, size_t size, size_t *out) {
    return !__builtin_mul_overflow(n, size, out) && !__builtin_add_overflow(*out, HEAD_BYTES, out);
}

/* What is to be booked of a piece. */
static uint64_t to_book(size_t bytes) {
    return bytes >= PN_ALLOC_LARGE_BYTES && hooks() ? bytes : 0;
}

void *pn__calloc(size_t n, size_t size) {
    size_t bytes;
    if (pn__alloc_should_fail() || !whole_bytes(n, size, &bytes)) return NULL;
    uint64_t book = to_book(bytes);
    if (book && hooks()->reserve(book) != 0) return NULL;
    struct head *h = calloc(bytes, 1);
    if (!h) {
        if (book) hooks()->release(book);
        return NULL;
    }
    if (book) hooks()->commit(book);
    h->booked_bytes = book;
    return h + 1;
}

/* `more` bytes are booked before the piece grows. */
static struct head *grow(struct head *old, size_t bytes, uint64_t more) {
    if (hooks()->reserve(more) != 0) return NULL;
    struct head *h = realloc(old, bytes);
    if (h) {
        hooks()->commit(more);
    } else {
        hooks()->release(more);
    }
    return h;
}

static struct head *shrink(struct head *old, size_t bytes, uint64_t less) {
    hooks()->vacate(less);
    struct head *h = realloc(old, bytes);
    if (h) {
        hooks()->release(less);
    } else {
        hooks()->commit(less);
    }
    return h;
}

void *pn__realloc_array(void *old, size_t n, size_t size) {
    size_t bytes;
    if (pn__alloc_should_fail() || !whole_bytes(n, size, &bytes)) return NULL;
    struct head *h = old ? (struct head *)old - 1 : NULL;
    uint64_t had = h ? h->booked_bytes : 0;
    uint64_t book = to_book(bytes);
    if (book > had) {
        h = grow(h, bytes, book - had);
    } else if (book < had) {
        h = shrink(h, bytes, had - book);
    } else {
        h = realloc(h, bytes);
    }
    if (!h) return NULL;
    h->booked_bytes = book;
    return h + 1;
}

char *pn__strdup(const char *s) {
    size_t bytes = strlen(s) + 1;
    char *copy = pn__calloc(bytes, 1);
    if (copy) memcpy(copy, s, bytes);
    return copy;
}

void pn__free(void *p) {
    if (!p) return;
    struct head *h = (struct head *)p - 1;
    uint64_t booked = h->booked_bytes;
    if (booked) hooks()->vacate(booked);
    free(h);
    if (booked) hooks()->release(booked);
}
