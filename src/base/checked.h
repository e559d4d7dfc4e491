/* Checked arithmetic on sizes: true means that the result wrapped and must not be used.
 * Every product or sum whose operands come from a file, a flag or a request goes through these. */
#ifndef PN_BASE_CHECKED_H
#define PN_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool pn__add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return __builtin_add_overflow(a, b, out);
}

static inline bool pn__sub_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return __builtin_sub_overflow(a, b, out);
}

static inline bool pn__mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return __builtin_mul_overflow(a, b, out);
}

/* Rounds up to a multiple of `align`, a power of two. */
static inline bool pn__align_u64(uint64_t a, uint64_t align, uint64_t *out) {
    if (__builtin_add_overflow(a, align - 1, out)) return true;
    *out &= ~(align - 1);
    return false;
}

static inline uint64_t pn__min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static inline uint64_t pn__max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* a - b, or 0 when b is larger. */
static inline uint64_t pn__sub_floor_u64(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

#endif
