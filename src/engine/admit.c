/* Admission: what a request takes of this engine, and the ticket that it gets for it. Any thread.
 */
#include <string.h>

#include "core/mem/pn_decision.h"
#include "engine/engine_internal.h"

void pn__ladder_now(const pn_engine *e, pn_mem_state *state, pn_ladder_plan *plan) {
    pn_ladder_config cfg = {.max_slots = (int)e->plan.slots, .prefill_window = (int)e->window};
    pn_mem_level level = PN_MEM_LEVEL_OK;
    memset(state, 0, sizeof *state);
    /* A state that can't be read, or is stale, says TIGHT itself. */
    if (pn_memwatch_running() && !pn_ladder_disabled()) {
        (void)pn_memwatch_read(state);
        level = state->byte_level;
    }
    *plan = pn_ladder_plan_for(level, &cfg);
}

/* Rung 3 and what was configured, before any byte is looked at. */
static int check_window(const pn_engine *e, uint32_t n, struct pn_detail *d) {
    pn_ladder_plan plan;
    pn_mem_state state;
    if (n > e->window) {
        return pn__fail(d, PN_E_CONTEXT, "a prompt of %u tokens; the prefill window is %u", n,
                        e->window);
    }
    pn__ladder_now(e, &state, &plan);
    pn_ladder_log_clamp(&plan, (int)e->window);
    if (n <= (uint32_t)plan.prefill_window) return 0;
    pn__decide((pn_decision){.kind = PN_DECISION_CAP,
                             .a = (int)n,
                             .b = plan.prefill_window,
                             .c = n,
                             .d = (uint64_t)plan.prefill_window,
                             .name = "window"});
    return pn__fail(d, PN_E_NOFIT,
                    "a prompt of %u tokens; memory is %s: at most %d are taken at present, %u "
                    "while it is OK",
                    n, pn_mem_level_name(plan.level), plan.prefill_window, e->window);
}

int pn__admit_request(pn_session *s, const struct pn_request *r, const struct admit_from *from,
                      struct pn_detail *d) {
    pn_engine *e = s->engine;
    pn_admit_result result;
    uint32_t n_prompt = from->length + from->pending_n + r->token_n;
    int rc = check_window(e, n_prompt - from->length, d);
    if (rc) return rc;
    /* The figures of loading say nothing about now; the watch, if it runs, has newer ones. */
    if (!pn_memwatch_running()) pn_ledger_sample(e->root);
    /* The last token of an answer is handed out and stays out of the cache. */
    uint32_t room = e->plan.ctx - n_prompt;
    uint32_t n_new = r->max_new ? r->max_new - 1 : 0;
    bool open = r->max_new == PN_NEW_OPEN && room > 0;
    pn_admit_ask ask = {
        .n_prompt = (int)n_prompt,
        .n_new = open ? -1 : (int)(n_new < room ? n_new : room),
        .n_ctx = (int)e->plan.ctx,
        .n_held = (int)from->length,
        .held_kv_bytes = from->kv_bytes,
        .held_state_bytes = from->state_bytes,
    };
    /* Law 3: what a token sees is in the format that its session began with. */
    bool begins = from->length == 0 && from->kv_bytes == 0;
    enum pn_kv_choice kv = begins ? pn__kv_now(e) : s->kv;
    rc = pn_admit_reserve_for(pn__kv_cost_of(e, kv), &ask, &s->ticket, &result, d);
    if (rc) return rc;
    s->kv = kv;
    if (begins) pn__kv_tell(e, kv);
    return 0;
}

void pn_engine_cost(const pn_engine *e, pn_admit_cost *out) {
    *out = *pn__kv_cost_of(e, pn__kv_now(e));
}

enum pn_admit_status pn_admit(const pn_engine *e, uint32_t n_tokens, uint32_t *fit) {
    pn_ladder_plan plan;
    pn_mem_state state;
    pn_admit_result r;
    *fit = n_tokens < e->window ? n_tokens : e->window;
    if (*fit < n_tokens) return PN_ADMIT_CAPPED;
    if (!pn_memwatch_running()) return PN_ADMIT_ADMITTED;
    pn__ladder_now(e, &state, &plan);
    pn_ladder_log_clamp(&plan, (int)e->window);
    if (pn_ladder_disabled()) (void)pn_memwatch_read(&state);
    int window = plan.prefill_window;
    pn_admit_request_cost(pn__kv_cost_of(e, pn__kv_now(e)), (int)n_tokens, 0, -1, window, &state,
                          &r);
    *fit = (uint32_t)r.fit_tokens;
    return r.verdict == PN_ADMIT_VERDICT_ADMIT ? PN_ADMIT_ADMITTED : PN_ADMIT_DENIED;
}
