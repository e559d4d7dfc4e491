/* `pannier run --trace FILE`: which experts each token used.
 *
 * Lines `step TAB layer TAB expert,expert,…`. Step 0 is the prompt: every expert that any of its
 * tokens used, once, in the order of first use. Step i is the i-th token computed after it, its
 * experts best first. Layers count from 0. With several prompts, or turns of a conversation, the
 * steps start again at 0. */
#ifndef PN_CLI_ROUTE_TRACE_H
#define PN_CLI_ROUTE_TRACE_H

#include "base/err.h"
#include "pannier.h"

struct pn_route_trace;

/* Replaces FILE. PN_E_UNSUPPORTED for a model without experts, PN_E_IO, PN_E_NOMEM. */
int pn__route_trace_open(const char *path, const pn_engine *engine, struct pn_detail *d,
                         struct pn_route_trace **out) PN_MUST_CHECK;
/* A prompt starts; what comes until the first token is step 0. */
void pn__route_trace_begin(struct pn_route_trace *t);
/* A token was handed out: what comes is the next step. */
void pn__route_trace_token(struct pn_route_trace *t);
/* One layer's choice for one row. Trouble shows at close. */
void pn__route_trace_add(struct pn_route_trace *t, uint32_t layer, const int32_t *experts,
                         uint32_t n);
/* Writes what is left. PN_E_IO, PN_E_NOMEM. Takes NULL; d may be NULL. */
int pn__route_trace_close(struct pn_route_trace *t, struct pn_detail *d) PN_MUST_CHECK;

#endif
