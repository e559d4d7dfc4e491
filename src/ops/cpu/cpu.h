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

struct pn_cpu {
    struct pn_pool *pool;
    struct pn_cpu_config config; /* thread_n resolved */
    struct pn_kernels kernels;
    struct pn_acts acts; /* memory only; the shape is set for each matmul */
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

static inline float *pn__head_at(const struct pn_heads *h, uint64_t row, uint64_t head) {
    return h->data + row * h->row_stride + head * h->head_stride;
}

static inline float *pn__row_at(const struct pn_mat *m, uint64_t row) {
    return m->data + row * m->stride;
}

#endif
