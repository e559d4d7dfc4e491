/* From what the machine says to what the ledger may grant: the reserves, and one domain each for
 * host, cgroup and rlimit.
 *
 * Not knowing is not the same as having (law 6): a source that failed, or that was there and is
 * gone, leaves its domain as it was, and one that failed from the start grants nothing. Only a
 * source that the machine never had is no limit. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/log.h"
#include "core/mem/pn_ledger.h"
#include "pn_mem.h"

#define HOST_RESERVE_MIN_BYTES (1ull << 30)
#define HOST_RESERVE_PERCENT 15
#define LIMIT_RESERVE_MIN_BYTES (64ull << 20)
#define LIMIT_RESERVE_DIVISOR 16
#define RECONCILE_MIN_BYTES (24ull << 20)
#define RECONCILE_DIVISOR 50 /* 2 % */

/* Sync: relaxed atomics; UINT64_MAX: the default formula. */
static _Atomic uint64_t host_reserve = UINT64_MAX;
static _Atomic uint64_t limit_reserve = UINT64_MAX;

/* Sync: relaxed atomics. The last status of each domain's source, plus 1; 0: not sampled yet. */
static _Atomic unsigned status_seen[PN_DOMAIN_DIE];

void pn_ledger_set_reserves(uint64_t host_bytes, uint64_t cgroup_bytes) {
    atomic_store_explicit(&host_reserve, host_bytes, memory_order_relaxed);
    atomic_store_explicit(&limit_reserve, cgroup_bytes, memory_order_relaxed);
}

uint64_t pn_mem_host_reserve(uint64_t total_bytes) {
    uint64_t set = atomic_load_explicit(&host_reserve, memory_order_relaxed);
    if (set != UINT64_MAX) return set;
    /* The 100ths of a remainder are too few to matter, but the product must not wrap. */
    uint64_t share =
        total_bytes / 100 * HOST_RESERVE_PERCENT + total_bytes % 100 * HOST_RESERVE_PERCENT / 100;
    return pn__max_u64(HOST_RESERVE_MIN_BYTES, share);
}

uint64_t pn_mem_limit_reserve(uint64_t limit_bytes) {
    uint64_t set = atomic_load_explicit(&limit_reserve, memory_order_relaxed);
    if (set != UINT64_MAX) return set;
    return pn__max_u64(LIMIT_RESERVE_MIN_BYTES, limit_bytes / LIMIT_RESERVE_DIVISOR);
}

/* Says once that a source has changed; a working or absent one is no news at first sight. */
static void log_status(unsigned domain, const pn_source_state *source) {
    enum pn_source_status now = source->status;
    unsigned before =
        atomic_exchange_explicit(&status_seen[domain], (unsigned)now + 1, memory_order_relaxed);
    if (before == (unsigned)now + 1) return;
    const char *name = pn_mem_domain_name(domain);
    bool set = pn__ledger_is_set(domain);
    if (now == PN_SOURCE_FAILED) {
        pn__log(PN_LOG_WARN, "memory: %s figures can't be read (%s): %s", name, source->why,
                set ? "keeping the last ones" : "granting nothing");
    } else if (now == PN_SOURCE_ABSENT) {
        pn__log(set ? PN_LOG_WARN : PN_LOG_INFO, "memory: this system has no %s figures%s", name,
                set ? " any more: keeping the last ones" : "");
    } else if (before != 0) {
        pn__log(PN_LOG_INFO, "memory: %s figures are back", name);
    }
}

/* True when the source's figures are good. Else its domain stays as it is or, if it failed before
 * it ever had figures, grants nothing. */
static bool usable(unsigned domain, const pn_source_state *source, const pn_ledger_mark *mark) {
    log_status(domain, source);
    if (source->status == PN_SOURCE_UP) return true;
    if (source->status == PN_SOURCE_FAILED && !pn__ledger_is_set(domain)) {
        char name[PN_DOMAIN_NAME_BYTES];
        snprintf(name, sizeof name, "%s (unreadable)", pn_mem_domain_name(domain));
        pn_ledger_set_domain_at(domain, name, 0, 0, mark);
    }
    return false;
}

static void apply_cgroup(const pn_host_sample *s, const pn_ledger_mark *mark) {
    /* All of our bytes count in every group on the path alike, so the one that can give least now
     * is the one that will be exhausted first: one domain stands for them all. */
    const pn_cgroup_limit *least = NULL;
    int64_t least_slack = 0;
    for (uint32_t i = 0; i < s->cgroup_limit_n; i++) {
        const pn_cgroup_limit *g = &s->cgroup_limits[i];
        uint64_t reserve = pn_mem_limit_reserve(g->limit_bytes);
        /* Halved, so that the difference of any two figures fits. */
        int64_t slack = (int64_t)(g->avail_bytes / 2) - (int64_t)(reserve / 2);
        if (least && slack >= least_slack) continue;
        least = g;
        least_slack = slack;
    }
    if (!least) {
        pn_ledger_set_domain_at(PN_DOMAIN_CGROUP, NULL, UINT64_MAX, 0, mark);
        return;
    }
    char name[PN_DOMAIN_NAME_BYTES];
    snprintf(name, sizeof name, "cgroup:%.*s", (int)(sizeof name - sizeof "cgroup:"), least->path);
    pn_ledger_set_domain_at(PN_DOMAIN_CGROUP, name, least->avail_bytes,
                            pn_mem_limit_reserve(least->limit_bytes), mark);
}

void pn_ledger_apply(const pn_host_sample *s, const pn_ledger_mark *mark) {
    if (usable(PN_DOMAIN_HOST, &s->sources[PN_SOURCE_MEMINFO], mark)) {
        pn_ledger_set_domain_at(PN_DOMAIN_HOST, NULL,
                                pn__sub_floor_u64(s->host_avail_bytes, s->hot_file_bytes),
                                pn_mem_host_reserve(s->host_total_bytes), mark);
    }
    if (usable(PN_DOMAIN_CGROUP, &s->sources[PN_SOURCE_CGROUP], mark)) apply_cgroup(s, mark);
    if (usable(PN_DOMAIN_RLIMIT, &s->sources[PN_SOURCE_RLIMIT], mark)) {
        pn__ledger_set_rlimits(s->rlimit_as_bytes ? s->rlimit_as_avail_bytes : UINT64_MAX,
                               pn_mem_limit_reserve(s->rlimit_as_bytes),
                               s->rlimit_data_bytes ? s->rlimit_data_avail_bytes : UINT64_MAX,
                               pn_mem_limit_reserve(s->rlimit_data_bytes), mark);
    }
}

void pn_ledger_sample(const char *root) {
    pn_ledger_mark mark;
    pn_host_sample sample;
    pn_ledger_mark_now(&mark);
    pn_host_signals_sample(root, &sample);
    pn_ledger_apply(&sample, &mark);
}

void pn_ledger_reconcile(const pn_host_sample *s, pn_reconcile *out) {
    pn_ledger_view v;
    memset(out, 0, sizeof *out);
    pn_ledger_read(&v);
    out->committed_bytes = v.places[PN_PLACE_HOST].committed_bytes;
    out->known = s->sources[PN_SOURCE_SELF].status == PN_SOURCE_UP;
    out->resident_bytes = s->rss_anon_bytes + s->rss_shmem_bytes + s->swap_bytes;
    uint64_t more = pn__max_u64(out->committed_bytes, out->resident_bytes);
    uint64_t less = pn__min_u64(out->committed_bytes, out->resident_bytes);
    out->allowed_bytes = pn__max_u64(RECONCILE_MIN_BYTES, out->committed_bytes / RECONCILE_DIVISOR);
    out->within = out->known && more - less <= out->allowed_bytes;
}
