/* What the pure part of admission lends to the tickets. The interface is public, see pn_mem.h. */
#ifndef PN_CORE_MEM_ADMISSION_H
#define PN_CORE_MEM_ADMISSION_H

#include "pn_mem.h"

/* Fills a zeroed result: does prompt and answer fit `budget` bytes of domain `name`, and if not,
 * what prompt does? */
void pn__admit_fit(const pn_admit_cost *cost, int n_prompt, int n_new, int max_window,
                   uint64_t budget, const char *name, pn_admit_result *r);

/* The most pages that a window kind holds at once while a prompt is computed, as said at
 * pn_admit_cost. A step that starts elsewhere and has fewer rows can need more; single rows can't.
 */
uint64_t pn__window_pages(uint32_t window, uint32_t step, uint32_t page, uint64_t n_prompt);

/* True, and the result says so, when the state's full stalls refuse everything. */
bool pn__admit_stalled(const pn_mem_state *s, pn_admit_result *r);

#endif
