/* Rows of weights taken a register's lanes at a time, and what is fetched ahead of them: what
 * avx2.h and avx512.h have in common. ROWS, the lanes, is theirs. */
#ifndef PN_OPS_CPU_WALK_H
#define PN_OPS_CPU_WALK_H

#include "ops/cpu/fetch.h"

/* Lines are fetched this far ahead of where they are used, in the order of use. */
#define PREFETCH_AHEAD_BYTES 20480

/* A group's blocks, to be walked. */
struct pn_walk {
    const uint8_t *p;    /* first row */
    size_t rs;           /* bytes a row */
    uint64_t block_n;    /* a row */
    const uint8_t *next; /* what to prefetch, a line for each line used; NULL: nothing */
    pn_unit_fn unpack;   /* of types that are unpacked row by row */
};

/* Blocks of the group whose first row is `first`. */
INLINE struct pn_walk pn__walk_of(const struct pn_weight *w, uint32_t first, uint64_t block_len) {
    return (struct pn_walk){.p = w->data + (uint64_t)first * w->row_bytes,
                            .rs = w->row_bytes,
                            .block_n = w->col_n / block_len,
                            .unpack = pn__unit_fn_x86(w->type)};
}

/* Rows from a group to the one that is fetched while it is read. */
INLINE uint32_t pn__rows_ahead(const struct pn_weight *w) {
    return (uint32_t)(PREFETCH_AHEAD_BYTES / (ROWS * w->row_bytes) + 1) * ROWS;
}

/* That one: of this thread's rows, which end at `hi`, or of its next matrix; NULL: not known. */
INLINE const uint8_t *pn__group_ahead(const struct pn_mm *mm, uint32_t row, uint32_t hi,
                                      uint32_t ahead) {
    const struct pn_weight *w = mm->w;
    if (hi - row > ahead) return w->data + (uint64_t)(row + ahead) * w->row_bytes;
    return mm->next ? mm->next + (uint64_t)(row + ahead - hi) * w->row_bytes : NULL;
}

/* Fetches part i of n of what `bytes` a row from byte `at` on have to come: small bursts, or a
 * core's few open misses hold up the loads. Where that is no whole number of lines the last comes
 * twice. */
INLINE void pn__ahead(const struct pn_walk *k, uint64_t at, int bytes, int i, int n) {
    int line_n = (bytes * ROWS + 63) / 64, from = line_n * i / n;
    if (k->next) pn__prefetch_lines(k->next + at * ROWS + 64 * from, line_n * (i + 1) / n - from);
}

/* Unit b of all rows. */
INLINE void pn__unpack_rows(const struct pn_walk *k, uint64_t b, struct pn_unit units[ROWS]) {
    for (int r = 0; r < ROWS; r++)
        k->unpack(k->p + (size_t)r * k->rs, b, &units[r]);
}

/* Weights to come, fetched into the second-level cache bit by bit while others are worked on. */
struct pn_feed {
    const uint8_t *at;
    uint64_t left_n; /* lines */
    uint64_t line_n; /* at a time */
};

INLINE void pn__feed(struct pn_feed *feed) {
    for (uint64_t i = 0; i < feed->line_n && feed->left_n > 0; i++, feed->left_n--, feed->at += 64)
        _mm_prefetch((const char *)feed->at, _MM_HINT_T1);
}

/* What is read after the panel of rows [row, end): the next one's rows, or the next matrix; in
 * feed_n portions. */
INLINE struct pn_feed pn__feed_after(const struct pn_mm *mm, uint32_t row, uint32_t end,
                                     uint32_t hi, uint64_t feed_n) {
    const struct pn_weight *w = mm->w;
    uint32_t row_n = end - row;
    struct pn_feed feed = {.at = mm->next};
    if (end < hi) {
        feed.at = w->data + (uint64_t)end * w->row_bytes;
        if (row_n > hi - end) row_n = hi - end;
    }
    if (feed.at) feed.left_n = row_n * w->row_bytes / 64;
    if (feed_n) feed.line_n = (feed.left_n + feed_n - 1) / feed_n;
    return feed;
}

#endif
