/* How a tile goes through its groups, in one piece or by parts: written once for the reference and
 * for wide_attention.c, which include this behind their struct walk, clip, begin, add_group, merge
 * and finish. What is added to what, and in which order, is theirs. */
#ifndef PN_OPS_CPU_ATT_DRIVE_H
#define PN_OPS_CPU_ATT_DRIVE_H

#include <string.h>

#include "ops/cpu/kernels.h"

/* Group g, which scratch holds, into what is merged so far. */
static void merge_group(struct walk *w, uint32_t g) {
    uint32_t from = g * PN_GROUP_TOKENS;
    for (uint32_t i = 0; i < w->query_n; i++) {
        struct pn_att_span own = clip(w->spans[i], from, from + PN_GROUP_TOKENS - 1);
        if (own.lo <= own.hi) merge(w, i);
    }
}

/* All queries, and the positions that any of them sees. */
static struct pn_att_span begin_all(struct walk *w) {
    struct pn_att_span all = {UINT32_MAX, 0};
    for (uint32_t i = 0; i < w->query_n; i++) {
        begin(w, i);
        if (w->spans[i].lo < all.lo) all.lo = w->spans[i].lo;
        if (w->spans[i].hi > all.hi) all.hi = w->spans[i].hi;
    }
    return all;
}

static struct walk walk_of(const struct pn_att_tile *tile,
                           const struct pn_thread_scratch *scratch) {
    return (struct walk){.tile = tile, .scratch = scratch, .query_n = tile->row_n * tile->head_n};
}

static void attention_group(const struct pn_att_tile *tile, uint32_t g,
                            const struct pn_att_part *part,
                            const struct pn_thread_scratch *scratch) {
    struct pn_thread_scratch own = *scratch;
    struct walk w = walk_of(tile, &own);
    struct pn_att_span all = begin_all(&w);
    own.group_v = part->v;
    own.group_r = part->r;
    add_group(&w, g, all);
    memcpy(part->max, w.max, w.query_n * sizeof *w.max);
    memcpy(part->sum, w.sum, w.query_n * sizeof *w.sum);
}

static void attention_merge(const struct pn_att_tile *tile, uint32_t g,
                            const struct pn_att_part *all, const struct pn_att_part *part,
                            const struct pn_thread_scratch *scratch) {
    struct pn_thread_scratch own = *scratch;
    struct walk w = walk_of(tile, &own);
    own.group_v = part->v;
    own.group_r = part->r;
    own.merged_v = all->v;
    own.merged_r = all->r;
    for (uint32_t i = 0; i < w.query_n; i++) {
        w.spans[i] = pn__att_span(tile, i);
        w.any_q4[i] = pn__att_any_q4(tile, w.spans[i].lo, w.spans[i].hi);
        w.merged_any[i] = w.spans[i].lo / PN_GROUP_TOKENS < g;
    }
    memcpy(w.max, part->max, w.query_n * sizeof *w.max);
    memcpy(w.sum, part->sum, w.query_n * sizeof *w.sum);
    memcpy(w.merged_max, all->max, w.query_n * sizeof *w.max);
    memcpy(w.merged_sum, all->sum, w.query_n * sizeof *w.sum);
    merge_group(&w, g);
    memcpy(all->max, w.merged_max, w.query_n * sizeof *w.max);
    memcpy(all->sum, w.merged_sum, w.query_n * sizeof *w.sum);
}

static void attention_end(const struct pn_att_tile *tile, const struct pn_att_part *all,
                          const struct pn_thread_scratch *scratch) {
    struct pn_thread_scratch own = *scratch;
    struct walk w = walk_of(tile, &own);
    own.merged_v = all->v;
    own.merged_r = all->r;
    for (uint32_t i = 0; i < w.query_n; i++) {
        w.spans[i] = pn__att_span(tile, i);
        w.any_q4[i] = pn__att_any_q4(tile, w.spans[i].lo, w.spans[i].hi);
        w.merged_max[i] = all->max[i];
        w.merged_sum[i] = all->sum[i];
        finish(&w, i);
    }
}

static void attention(const struct pn_att_tile *tile, const struct pn_thread_scratch *scratch) {
    struct walk w = walk_of(tile, scratch);
    struct pn_att_span all = begin_all(&w);
    for (uint32_t g = all.lo / PN_GROUP_TOKENS; g <= all.hi / PN_GROUP_TOKENS; g++) {
        add_group(&w, g, all);
        merge_group(&w, g);
    }
    for (uint32_t i = 0; i < w.query_n; i++)
        finish(&w, i);
}

static void init_drive(struct pn_kernels *k) {
    k->attention = attention;
    k->attention_group = attention_group;
    k->attention_merge = attention_merge;
    k->attention_end = attention_end;
}

#endif
