#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Sync: relaxed counters; they order nothing. */
static _Atomic uint64_t alloc_n;
static _Atomic uint64_t fail_at;

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

void *pn__calloc(size_t n, size_t size) {
    size_t bytes;
    if (pn__alloc_should_fail()) return NULL;
    if (__builtin_mul_overflow(n, size, &bytes)) return NULL;
    return calloc(bytes ? bytes : 1, 1);
}

void *pn__realloc_array(void *old, size_t n, size_t size) {
    size_t bytes;
    if (pn__alloc_should_fail()) return NULL;
    if (__builtin_mul_overflow(n, size, &bytes)) return NULL;
    return realloc(old, bytes ? bytes : 1);
}

char *pn__strdup(const char *s) {
    size_t bytes = strlen(s) + 1;
    char *copy = pn__calloc(bytes, 1);
    if (copy) memcpy(copy, s, bytes);
    return copy;
}

void pn__free(void *p) {
    free(p);
}
