/* The CPU backend's insides: threads, kernels, scratch, and how operations are split. */
#ifndef PN_OPS_CPU_CPU_H
#define PN_OPS_CPU_CPU_H

#include <stdatomic.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/pool.h"
#include "ops/ops.h"

/* What a thread did in the operation under way, read by the owner after it.
 * Sync: written by its thread during a run, by the owner between runs. */
struct pn_thread_slot {
    struct pn_thread_scratch scratch; /* constant after init */
    uint64_t swept_n[PN_MATMUL_MAX];  /* weight rows read, by part */
    uint32_t slice_n;                 /* slices or items with work in them */
    char pad[PN_CACHE_LINE];
};

/* Matmuls of a step whose order is remembered. */
#define PN_TRACE_MAX 1024

/* An expert that rows of a step use, and where its pairs stand. A pair is a row and one of its
 * experts; an expert's pairs stand together, rows ascending. */
struct pn_expert_group {
    uint32_t id;
    uint32_t first;
    uint32_t row_n;
};

/* Memory of the experts' operation. pair_max allows for whole tiles. */
struct pn_moe_scratch {
    struct pn_expert_group *groups; /* [expert_max] experts in use, ids ascending */
    uint32_t *cursors;              /* [expert_max] */
    uint32_t *pair_rows;            /* [pair_max] the row of each pair */
    uint32_t *places;               /* [row_max, top_k_max] where a row's pairs stand */
    struct pn_acts acts;            /* of pairs, prepared: memory only */
    float *x;                       /* [pair_max, col_max] rows of pairs, for float weights */
    float *gate;                    /* [pair_max, expert_ff_max up to a multiple of 16] */
    float *up;                      /* the same */
};

struct pn_cpu {
    struct pn_pool *pool;
    struct pn_cpu_config config; /* thread_n resolved */
    struct pn_kernels kernels;
    struct pn_acts acts; /* memory only; the shape is set for each matmul */
    struct pn_moe_scratch moe;
    struct pn_att_part parts; /* [PN_ATT_PARTS * thread_n] queries, of dim_max values each */
    struct pn_thread_slot *slots;
    _Atomic uint32_t next_item; /* of a dynamic split */
    /* The first weights of each matmul of the last step, in order: one step is much like the next,
     * so a matmul knows what comes after it and its threads can prefetch that. Owner only. */
    struct pn_weight trace[PN_TRACE_MAX]; /* copies: whose weights they were may be gone */
    uint32_t trace_n;
    uint32_t trace_i; /* of the matmul under way */
    bool step_open;
};

/* Items [lo, hi) on thread `thread_i`. */
typedef void (*pn_slice_fn)(void *user, uint32_t lo, uint32_t hi, uint32_t thread_i);

/* Below this much work (floats touched, roughly) waking other threads costs more than it gives. */
#define PN_SPLIT_WORK_MIN 4096

/* Runs fn over items [0, item_n), a contiguous share for each thread whose bounds are multiples of
 * `grain`; on the caller alone when that leaves one share or `work` is small. */
void pn__split(struct pn_step *s, uint32_t item_n, uint32_t grain, uint64_t work, pn_slice_fn fn,
               void *user);
/* The same with single items handed out as threads come free: for items of unequal cost. */
void pn__split_dynamic(struct pn_step *s, uint32_t item_n, uint64_t work, pn_slice_fn fn,
                       void *user);

/* Notes an operation that starts with these weights (data NULL: not to be foretold) and says what
 * followed it in the last step; NULL: not known. */
const struct pn_weight *pn__trace(struct pn_cpu *cpu, const struct pn_weight *w);

/* Share `at` of share_n of row_n weight rows starts there: a multiple of the rows that a kernel
 * takes at once, or row_n. */
uint32_t pn__share_bound(uint32_t at, uint32_t share_n, uint32_t row_n);

/* Outputs [lo, hi) of a matmul, by the kernel for its type and height. */
void pn__mm_run(const struct pn_cpu *cpu, const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                const struct pn_thread_scratch *scratch);

static inline float *pn__head_at(const struct pn_heads *h, uint64_t row, uint64_t head) {
    return h->data + row * h->row_stride + head * h->head_stride;
}

static inline float *pn__row_at(const struct pn_mat *m, uint64_t row) {
    return m->data + row * m->stride;
}

#endif
