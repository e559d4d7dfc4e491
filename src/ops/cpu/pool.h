/* The thread pool: a fixed set of threads that run one function together.
 *
 * One run at a time, started by the thread that owns the pool, which takes part as thread 0. A
 * worker without work spins at most 20 us, so that the next operation of a step finds it awake,
 * then sleeps on a futex: a spinning engine would hide stalls from the kernel's pressure figures.
 *
 * Workers block every signal: the process's handlers never run on them.
 */
#ifndef PN_OPS_CPU_POOL_H
#define PN_OPS_CPU_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "ops/ops.h"

struct pn_pool;

/* `thread_n` 1 … PN_THREAD_MAX, the caller included. With `pin` worker i is bound to the i-th CPU
 * of the caller's affinity mask, where there are as many and the system allows it; the caller
 * itself is left alone, since its thread isn't ours. PN_E_NOMEM, PN_E_INVALID; after a failure no
 * thread is left. */
int pn__pool_new(uint32_t thread_n, bool pin, struct pn_detail *d,
                 struct pn_pool **out) PN_MUST_CHECK;
/* Ends and joins the workers. NULL is fine. Not while a run is in progress. */
void pn__pool_free(struct pn_pool *pool);
uint32_t pn__pool_thread_n(const struct pn_pool *pool);
/* Workers that are bound to a CPU. */
uint32_t pn__pool_pinned_n(const struct pn_pool *pool);

/* Calls fn(user, i, thread_n) for i < thread_n, each on its own thread, i = 0 on the caller's.
 * Returns when all have; what they wrote is visible then. Not from inside a run. */
void pn__pool_run(struct pn_pool *pool,
                  void (*fn)(void *user, uint32_t thread_i, uint32_t thread_n), void *user);

#endif
