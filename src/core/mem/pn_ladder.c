/* The ladder: which level takes away what. Pure, but for the switch and the log's memory. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "pn_mem.h"

#define CLAMP_LOG_NS 60000000000ull

static _Atomic bool disabled; /* Sync: relaxed */

void pn_ladder_set_disabled(bool off) {
    atomic_store_explicit(&disabled, off, memory_order_relaxed);
}

bool pn_ladder_disabled(void) {
    return atomic_load_explicit(&disabled, memory_order_relaxed);
}

/* At least 1, but what isn't limited (0), or is nonsense, stays as it is. */
static int divided(int configured, int by) {
    if (configured <= 1) return configured;
    return configured / by > 1 ? configured / by : 1;
}

pn_ladder_plan pn_ladder_plan_for(pn_mem_level level, const pn_ladder_config *cfg) {
    static const char *const notes[PN_MEM_LEVEL_N] = {
        "as configured",
        "caches give, KV in 4 bits where it is still free",
        "half the slots, half the window, caches give",
        "one slot, a quarter of the window, caches to their floors",
    };
    if (level > PN_MEM_LEVEL_CRITICAL) level = PN_MEM_LEVEL_CRITICAL;
    pn_ladder_plan p = {.level = level,
                        .max_slots = cfg->max_slots,
                        .force_kv_q4 = cfg->kv_q4 || level >= PN_MEM_LEVEL_WATCH,
                        .kv_evict = cfg->kv_evict || level >= PN_MEM_LEVEL_TIGHT,
                        .prefill_window = cfg->prefill_window,
                        .note = notes[level],
                        .shed_caches = level >= PN_MEM_LEVEL_WATCH};
    if (level == PN_MEM_LEVEL_TIGHT) {
        p.max_slots = divided(cfg->max_slots, 2);
        p.prefill_window = divided(cfg->prefill_window, 2);
    } else if (level == PN_MEM_LEVEL_CRITICAL) {
        p.max_slots = cfg->max_slots > 1 ? 1 : cfg->max_slots;
        p.prefill_window = divided(cfg->prefill_window, 4);
    }
    p.degraded = p.max_slots != cfg->max_slots || p.prefill_window != cfg->prefill_window ||
                 p.force_kv_q4 != cfg->kv_q4 || p.kv_evict != cfg->kv_evict;
    return p;
}

pn_ladder_plan pn_ladder_plan_from_state(const pn_mem_state *state, const pn_ladder_config *cfg) {
    return pn_ladder_plan_for(pn_ladder_disabled() ? PN_MEM_LEVEL_OK : state->level, cfg);
}

void pn_ladder_log_clamp(const pn_ladder_plan *plan, int configured) {
    /* Sync: under clamp_lock. */
    static pthread_mutex_t clamp_lock = PTHREAD_MUTEX_INITIALIZER;
    static pn_mem_level last_level;
    static int last_from;
    static int last_to;
    static uint64_t last_ns;
    static uint64_t quiet_n;
    bool clamps = plan->prefill_window > 0 && plan->prefill_window < configured;
    uint64_t now = pn__clock_ns();
    pthread_mutex_lock(&clamp_lock);
    int to = clamps ? plan->prefill_window : 0;
    bool changed =
        to != last_to || (clamps && (configured != last_from || plan->level != last_level));
    bool say = clamps && (changed || now - last_ns >= CLAMP_LOG_NS);
    uint64_t before_n = quiet_n;
    if (say) last_ns = now;
    quiet_n = say || !clamps ? 0 : quiet_n + 1;
    last_level = plan->level;
    last_from = configured;
    last_to = to;
    pthread_mutex_unlock(&clamp_lock);
    if (!say) return;
    char more[48] = "";
    if (before_n) snprintf(more, sizeof more, ", %llu times more", (unsigned long long)before_n);
    pn__log(PN_LOG_WARN, "[ladder] %s -> prefill window clamped %d -> %d (%s%s)",
            pn_mem_level_name(plan->level), configured, plan->prefill_window, plan->note, more);
}
