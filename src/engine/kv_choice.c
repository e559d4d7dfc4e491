/* Which format a KV cache gets when it is allocated.
 *
 * Four bits change the answers a little. How much was measured family by family
 * (bench/kv_quality.py, docs/KERNELS.md), and the figure stands with the family. One that was not
 * measured counts as one that lost too much. */
#include <stdio.h>

#include "base/log.h"
#include "engine/engine_internal.h"

bool pn__kv_q4_safe(const struct pn_family *family) {
    return family->kv_q4_kl > 0 && family->kv_q4_kl <= PN_KV_Q4_KL_MAX;
}

static void say_q4(const struct pn_family *family, const char *who, char why[160]) {
    if (family->kv_q4_kl <= 0) {
        snprintf(why, 160, "%s; what it costs was never measured for %s", who, family->arch);
    } else {
        snprintf(why, 160, "%s; %s moved by a mean KL of %.4f at 1000 tokens, %s %.2f", who,
                 family->arch, family->kv_q4_kl, pn__kv_q4_safe(family) ? "within" : "above",
                 PN_KV_Q4_KL_MAX);
    }
}

enum pn_kv_choice pn__kv_choose(enum pn_kv_choice asked, const struct pn_family *family,
                                bool ladder_asks_q4, char why[160]) {
    if (asked == PN_KV_CHOICE_Q4) {
        say_q4(family, "asked for", why);
        return asked;
    }
    if (asked != PN_KV_CHOICE_AUTO) {
        snprintf(why, 160, "asked for");
        return asked;
    }
    if (!ladder_asks_q4) {
        snprintf(why, 160, "auto: memory is not short");
        return PN_KV_CHOICE_F16;
    }
    if (!pn__kv_q4_safe(family)) {
        say_q4(family, "auto: memory is short, but q4 is not safe", why);
        return PN_KV_CHOICE_F16;
    }
    say_q4(family, "auto: memory is short", why);
    return PN_KV_CHOICE_Q4;
}

enum pn_kv_choice pn__kv_now(const pn_engine *e) {
    pn_mem_state state;
    pn_ladder_plan plan;
    if (!e->plan.kv_per_session) return e->plan.kv;
    pn__ladder_now(e, &state, &plan);
    return plan.force_kv_q4 ? PN_KV_CHOICE_Q4 : PN_KV_CHOICE_F16;
}

void pn__kv_tell(pn_engine *e, enum pn_kv_choice kv) {
    char why[160];
    bool q4 = kv == PN_KV_CHOICE_Q4;
    if (!e->plan.kv_per_session || atomic_exchange(&e->told_q4, q4) == q4) return;
    (void)pn__kv_choose(PN_KV_CHOICE_AUTO, e->file.family, q4, why);
    pn__log(PN_LOG_WARN, "[ladder] sessions that begin now keep their KV in %s (%s)",
            q4 ? "q4" : "f16", why);
}

const pn_admit_cost *pn__kv_cost_of(const pn_engine *e, enum pn_kv_choice kv) {
    return &e->costs[kv == PN_KV_CHOICE_Q4];
}
