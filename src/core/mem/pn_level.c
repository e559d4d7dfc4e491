#include "core/mem/pn_level.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/compiler.h"

#define PSI_SOME_TIGHT 10.0
#define MARGIN_DIVISOR 16
#define STALL_WINDOW_NS 10000000000ull
#define STALL_GAP_NS 200000000ull
_Static_assert((PN_STALL_N - 2) * STALL_GAP_NS >= STALL_WINDOW_NS, "the ring covers the window");

/* Sync: relaxed atomics. */
static _Atomic double psi_full_reject = PN_PSI_FULL_REJECT_DEFAULT;
static _Atomic uint64_t die_reserve = PN_DIE_RESERVE_BYTES_DEFAULT;

void pn_mem_set_psi_full_reject(double percent) {
    if (!(percent >= 0.0)) percent = PN_PSI_FULL_REJECT_DEFAULT;
    atomic_store_explicit(&psi_full_reject, percent, memory_order_relaxed);
}

double pn_mem_psi_full_reject(void) {
    return atomic_load_explicit(&psi_full_reject, memory_order_relaxed);
}

void pn_mem_set_die_reserve(uint64_t bytes) {
    if (bytes == UINT64_MAX) bytes = PN_DIE_RESERVE_BYTES_DEFAULT;
    atomic_store_explicit(&die_reserve, bytes, memory_order_relaxed);
}

uint64_t pn_mem_die_reserve(void) {
    return atomic_load_explicit(&die_reserve, memory_order_relaxed);
}

uint64_t pn_mem_die_budget(uint64_t total_bytes) {
    return pn__sub_floor_u64(total_bytes, pn_mem_die_reserve());
}

const char *pn_mem_level_name(unsigned level) {
    static const char *const names[PN_MEM_LEVEL_N] = {"OK", "WATCH", "TIGHT", "CRITICAL"};
    return level < PN_MEM_LEVEL_N ? names[level] : "?";
}

/* ---- bands ------------------------------------------------------------------------------- */

/* No sum here can wrap: figures of a sample are at most 2^60, and a reserve that was set is cut to
 * that before it comes here. */
pn_mem_level pn__level_of_bytes(uint64_t available, uint64_t reserve, uint64_t margin) {
    if (available <= reserve + margin) return PN_MEM_LEVEL_CRITICAL;
    uint64_t slack = available - reserve;
    if (slack < reserve / 4 + margin) return PN_MEM_LEVEL_TIGHT;
    if (slack < reserve + margin) return PN_MEM_LEVEL_WATCH;
    return PN_MEM_LEVEL_OK;
}

pn_mem_level pn__level_of_die(uint64_t free_bytes, uint64_t budget, uint64_t margin) {
    if (budget == 0) return PN_MEM_LEVEL_OK;
    if (free_bytes <= margin) return PN_MEM_LEVEL_CRITICAL;
    if (free_bytes < budget / 16 + margin) return PN_MEM_LEVEL_TIGHT;
    if (free_bytes < budget / 8 + margin) return PN_MEM_LEVEL_WATCH;
    return PN_MEM_LEVEL_OK;
}

/* One domain's figures: `floor` is kept free, bands lie above it. */
struct band {
    const char *name;
    uint64_t available;
    uint64_t floor;
    pn_mem_level level;
    pn_mem_level margin_level;
    uint64_t tight; /* width of the bands above the floor */
    uint64_t watch;
    uint64_t margin;
};

static void set_why(struct pn_verdict *v, const struct band *b) {
    double gib = 1073741824.0;
    static const char *const what[PN_MEM_LEVEL_N] = {"ample", "headroom shrinking",
                                                     "reserve nearly reached", "at the reserve"};
    snprintf(v->why, sizeof v->why, "%s: %.3f GiB available, %.3f kept free: %s", b->name,
             (double)b->available / gib, (double)b->floor / gib, what[b->level]);
}

/* Bytes until the band's exit, margin included. */
static uint64_t deficit(const struct band *b) {
    const uint64_t exits[PN_MEM_LEVEL_N] = {0, b->watch, b->tight, 0};
    if (b->level == PN_MEM_LEVEL_OK) return 0;
    /* CRITICAL is left above floor + margin, not at it. */
    uint64_t extra = b->level == PN_MEM_LEVEL_CRITICAL;
    return pn__sub_floor_u64(b->floor + exits[b->level] + b->margin + extra, b->available);
}

static void take_band(struct pn_verdict *v, const struct band *b) {
    uint64_t lacks = deficit(b);
    if (b->margin_level > v->margin) v->margin = b->margin_level;
    if (b->level > v->bytes || !v->why[0]) {
        v->deficit_bytes = lacks;
        set_why(v, b);
        v->bytes = b->level;
    } else if (b->level == v->bytes && lacks > v->deficit_bytes) {
        v->deficit_bytes = lacks;
        set_why(v, b);
    }
}

static void take_host_like(struct pn_verdict *v, const char *name, uint64_t available,
                           uint64_t reserve) {
    reserve = pn__min_u64(reserve, 1ull << 60);
    uint64_t margin = reserve / MARGIN_DIVISOR;
    struct band b = {.name = name,
                     .available = available,
                     .floor = reserve,
                     .level = pn__level_of_bytes(available, reserve, 0),
                     .margin_level = pn__level_of_bytes(available, reserve, margin),
                     .tight = reserve / 4,
                     .watch = reserve,
                     .margin = margin};
    take_band(v, &b);
}

static void take_dies(struct pn_verdict *v, const pn_mem_state *dies) {
    for (int i = 0; i < dies->n_dies && i < PN_DIE_MAX; i++) {
        uint64_t free_bytes = pn__min_u64(dies->per_die_free[i], 1ull << 60);
        uint64_t budget = pn__min_u64(dies->per_die_budget[i], 1ull << 60);
        if (budget == 0) continue;
        uint64_t margin = budget / 8 / MARGIN_DIVISOR;
        struct band b = {.name = pn_mem_domain_name(PN_DOMAIN_DIE + (unsigned)i),
                         .available = free_bytes,
                         .level = pn__level_of_die(free_bytes, budget, 0),
                         .margin_level = pn__level_of_die(free_bytes, budget, margin),
                         .tight = budget / 16,
                         .watch = budget / 8,
                         .margin = margin};
        take_band(v, &b);
    }
}

/* ---- all together ------------------------------------------------------------------------ */

static pn_mem_level level_of_psi(double some, double full) {
    if (full >= pn_mem_psi_full_reject()) return PN_MEM_LEVEL_CRITICAL;
    if (full > 0.0 || some >= PSI_SOME_TIGHT) return PN_MEM_LEVEL_TIGHT;
    return some > 0.0 ? PN_MEM_LEVEL_WATCH : PN_MEM_LEVEL_OK;
}

void pn__level_derive(const pn_host_sample *s, double psi_some, double psi_full,
                      const pn_mem_state *dies, struct pn_verdict *out) {
    memset(out, 0, sizeof *out);
    if (s->sources[PN_SOURCE_MEMINFO].status == PN_SOURCE_UP) {
        take_host_like(out, "host", pn__sub_floor_u64(s->host_avail_bytes, s->hot_file_bytes),
                       pn_mem_host_reserve(s->host_total_bytes));
    }
    /* Groups that could be read count even when another one on the path could not. */
    for (uint32_t i = 0; i < s->cgroup_limit_n; i++) {
        const pn_cgroup_limit *g = &s->cgroup_limits[i];
        char name[PN_DOMAIN_NAME_BYTES];
        snprintf(name, sizeof name, "cgroup:%.*s", (int)(sizeof name - sizeof "cgroup:"), g->path);
        take_host_like(out, name, g->avail_bytes, pn_mem_limit_reserve(g->limit_bytes));
    }
    if (s->sources[PN_SOURCE_RLIMIT].status == PN_SOURCE_UP && s->rlimit_bytes) {
        take_host_like(out, "rlimit", s->rlimit_avail_bytes, pn_mem_limit_reserve(s->rlimit_bytes));
    }
    take_dies(out, dies);
    out->raw = out->firm = out->bytes;
    pn_mem_level psi = level_of_psi(psi_some, psi_full);
    if (psi > out->raw) {
        out->raw = psi;
        snprintf(out->why, sizeof out->why,
                 "stalls: all tasks waited for memory %.2f %% of the last 10 s, some %.2f %%",
                 psi_full, psi_some);
    }
    for (unsigned i = 0; i < PN_SOURCE_N && out->firm < PN_MEM_LEVEL_TIGHT; i++) {
        if (s->sources[i].status != PN_SOURCE_FAILED) continue;
        out->firm = PN_MEM_LEVEL_TIGHT;
        if (out->raw >= PN_MEM_LEVEL_TIGHT) break;
        out->raw = PN_MEM_LEVEL_TIGHT;
        snprintf(out->why, sizeof out->why, "%s unknown: %s", pn_mem_source_name(i),
                 s->sources[i].why);
    }
}

/* ---- damping ----------------------------------------------------------------------------- */

uint64_t pn__dwell_ns(pn_mem_level level) {
    static const uint64_t seconds[PN_MEM_LEVEL_N] = {0, 30, 15, 5};
    return seconds[level] * 1000000000u;
}

pn_mem_level pn__damper_step(struct pn_damper *d, const struct pn_verdict *v, uint64_t now_ns) {
    if (v->raw >= d->level) {
        d->level = v->raw;
        d->falling = false;
        return d->level;
    }
    if (v->margin >= d->level) {
        d->falling = false;
        return d->level;
    }
    if (!d->falling) {
        d->falling = true;
        d->since_ns = now_ns;
    }
    if (now_ns - d->since_ns < pn__dwell_ns(d->level)) return d->level;
    d->level = (pn_mem_level)(d->level - 1);
    d->since_ns = now_ns;
    d->falling = d->level > v->raw && d->level > v->margin;
    return d->level;
}

/* ---- stalls ------------------------------------------------------------------------------ */

static uint32_t index_back(const struct pn_stall *s, uint32_t back) {
    return (s->next + PN_STALL_N - 1 - back) % PN_STALL_N;
}

void pn__stall_step(struct pn_stall *s, uint64_t now_ns, uint64_t some_usec, uint64_t full_usec,
                    double *some, double *full) {
    *some = *full = 0.0;
    if (s->n) {
        uint32_t last = index_back(s, 0);
        if (some_usec < s->some_usec[last] || full_usec < s->full_usec[last] ||
            now_ns < s->ns[last]) {
            s->n = 0;
        }
    }
    if (s->n) {
        /* The oldest within the window; what came before the first is not known to be a stall. */
        uint32_t base = index_back(s, 0);
        for (uint32_t back = 1; back < s->n; back++) {
            uint32_t i = index_back(s, back);
            if (now_ns - s->ns[i] > STALL_WINDOW_NS) break;
            base = i;
        }
        double window_usec = (double)STALL_WINDOW_NS / 1000.0;
        double some_share = 100.0 * (double)(some_usec - s->some_usec[base]) / window_usec;
        double full_share = 100.0 * (double)(full_usec - s->full_usec[base]) / window_usec;
        *some = some_share < 100.0 ? some_share : 100.0;
        *full = full_share < 100.0 ? full_share : 100.0;
        if (now_ns - s->ns[index_back(s, 0)] < STALL_GAP_NS) return;
    }
    s->ns[s->next] = now_ns;
    s->some_usec[s->next] = some_usec;
    s->full_usec[s->next] = full_usec;
    s->next = (s->next + 1) % PN_STALL_N;
    if (s->n < PN_STALL_N) s->n++;
}
