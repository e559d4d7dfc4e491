/* A walk over K and V for a tile's queries: what its ways have in common. */
#ifndef PN_OPS_CPU_WIDE_WALK_H
#define PN_OPS_CPU_WIDE_WALK_H

#include "ops/cpu/wide_page.h"

/* Positions of K in the buffer, channels of V in its own, queries that share registers, and how
 * many exp go side by side: as much as the level has registers for. */
#ifdef __AVX512F__
#define KEYS 32
#define V_CHUNK 64
#define QUERIES 4
#define EXP_N 8
#define DOT_QUERIES 4
#else
#define KEYS 16
#define V_CHUNK 32
#define QUERIES 2
#define EXP_N 4
#define DOT_QUERIES 1
#endif
#define KEY_REGS (KEYS / 16)
#define K_CHUNK 256 /* elements of K in the buffer; longer heads come in pieces */

struct walk {
    const struct pn_att_tile *tile;
    const struct pn_thread_scratch *scratch;
    uint32_t query_n;
    struct pn_att_span spans[PN_ATT_QUERIES];
    const float *q[PN_ATT_QUERIES];
    bool any_q4[PN_ATT_QUERIES]; /* among its positions */
    float sum[PN_ATT_QUERIES];   /* of the group */
    float max[PN_ATT_QUERIES];
    float merged_sum[PN_ATT_QUERIES];
    float merged_max[PN_ATT_QUERIES];
    bool merged_any[PN_ATT_QUERIES];
};

/* A query's score at place t of the group: sixteen positions of all queries lie together, as rows
 * of a group's length would share a set of the first-level cache; sixteen floats between them, so
 * that a query's don't share one either. */
INLINE float *score_at(const struct walk *w, uint32_t query, uint32_t t) {
    return w->scratch->scores + t / 16 * (16 * PN_ATT_QUERIES + 16) + query * 16 + t % 16;
}

INLINE uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

INLINE uint32_t max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

INLINE struct pn_att_span clip(struct pn_att_span s, uint32_t from, uint32_t to) {
    return (struct pn_att_span){max_u32(s.lo, from), min_u32(s.hi, to)};
}

/* n elements, at most sixteen, then zeros. */
INLINE struct w16 load_some(const float *p, uint32_t n) {
    return n >= 16 ? w16_load(p) : w16_load_n(p, n);
}

INLINE void store_some(float *p, struct w16 x, uint32_t n) {
    if (n >= 16)
        w16_store(p, x);
    else
        w16_store_n(p, x, n);
}

/* Vectors that a walk comes to later. Many hints at once would wait for one another, so they are
 * given in steps, between other work; into the second-level cache, as fetch.h says. */
struct ahead {
    const uint8_t *p;
    const uint8_t *end;
    uint32_t step_n; /* lines */
};

/* n vectors from position pos on, all in one page, in steps; none when pos is behind `end`. */
INLINE struct ahead ahead_of(const struct walk *w, uint32_t pos, uint32_t n, uint32_t end,
                             bool value, uint32_t steps) {
    if (pos > end) return (struct ahead){0};
    struct rows r = rows_of(w->tile, pos, value);
    const uint8_t *p = r.p + pos % PN_PAGE_TOKENS * r.bytes;
    uint32_t bytes = (uint32_t)(n * r.bytes);
    return (struct ahead){p, p + bytes, (bytes + 64 * steps - 1) / (64 * steps)};
}

INLINE void fetch(struct ahead *a) {
    for (uint32_t i = 0; i < a->step_n && a->p < a->end; i++, a->p += 64)
        __builtin_prefetch(a->p, 0, 2); /* into the second-level cache */
}

#endif
