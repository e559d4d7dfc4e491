/* The driver under pressure: what the newest snapshot takes away, and waiting for memory. Driving
 * thread only. */
#include "base/log.h"
#include "engine/engine_internal.h"

/* Longest wait of one turn in which nothing can move. */
#define PARK_WAIT_MS 100u

void pn__pressure_follow(pn_engine *e) {
    pn_mem_state state;
    pn__ladder_now(e, &state, &e->ladder);
    if (!e->ladder.shed_caches || state.seq == e->seen_seq) return;
    e->seen_seq = state.seq;
    (void)pn_shed_snapshot(&state);
}

static uint32_t running_n(const pn_engine *e) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->plan.slots; i++) {
        n += e->sessions[i].phase != PHASE_IDLE && !e->sessions[i].parked;
    }
    return n;
}

/* Parked ones don't count: what they wait for may be what the one that is held here gives back. */
bool pn__pressure_may_start(const pn_engine *e) {
    return running_n(e) < (uint32_t)e->ladder.max_slots;
}

void pn__pressure_tell_held(pn_engine *e, uint32_t held_n) {
    int ceiling = e->ladder.max_slots;
    if (held_n == 0) e->told_ceiling = 0;
    if (held_n == 0 || e->told_ceiling == ceiling) return;
    e->told_ceiling = ceiling;
    pn__log(PN_LOG_WARN, "[ladder] refusing %u decode slots for now: %s, at most %d of %u run",
            held_n, pn_mem_level_name(e->ladder.level), ceiling, e->plan.slots);
}

void pn__pressure_wait(pn_engine *e, uint64_t seen) {
    if (pn_mem_wait(seen, PARK_WAIT_MS) != seen || pn_memwatch_running()) return;
    /* Nobody else looks how the machine is. */
    pn_ledger_sample(e->root);
    pn_mem_wake();
}

void pn_engine_pressure(pn_engine *e, struct pn_engine_pressure *out) {
    *out = (struct pn_engine_pressure){.ladder = e->ladder, .running_n = running_n(e)};
    for (uint32_t i = 0; i < e->plan.slots; i++) {
        out->parked_n += e->sessions[i].parked;
    }
    out->held_n = pn__queue_n(e);
}
