/* Admission, the pure part: what a request takes, and whether it fits a snapshot.
 *
 * The seed's cost model. Its shape is a Qwen3.5-MoE: 40 layers, each fourth with full attention, so
 * 10; 16 query heads; 2 KV heads of 256. KV in fp32: 10 layers * (K and V) * 2 heads * 256 * 4
 * bytes = 40960 bytes a token, which is the seed's constant.
 *
 * The six anchors of the activation peak. On the CPU's plain path the scores of one layer at a time
 * dominate: an N * N matrix of 4-byte floats for each head, 4 * 16 * N^2 = 64 N^2 bytes:
 *
 *     N       512    1024    2048    4096   8192   16384
 *     peak  16 MiB  64 MiB 256 MiB  1 GiB  4 GiB  16 GiB
 *
 * Between them, and from (0, 0), straight lines, which lie above the parabola: the estimate is
 * never too low there (by at most 1/8 too high between anchors). Past the last anchor the last line
 * goes on, which is too low; no machine that this seed ran on reaches it. A loaded model passes its
 * own table, from its own plan, and is exact. */
#include "core/mem/pn_admission.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"

#define SEED_HEADS 16ull
#define SEED_PEAK(n) (4ull * SEED_HEADS * (n) * (n))
#define SEED_ANCHOR(n) \
    { n, SEED_PEAK(n) }

static const pn_admit_cost seed_cost = {
    .scratch = {SEED_ANCHOR(512), SEED_ANCHOR(1024), SEED_ANCHOR(2048), SEED_ANCHOR(4096),
                SEED_ANCHOR(8192), SEED_ANCHOR(16384)},
    .scratch_n = 6,
};

static _Atomic uint64_t load_spike = PN_ADMIT_LOAD_SPIKE_BYTES_DEFAULT; /* Sync: relaxed */

void pn_admit_set_load_spike(uint64_t bytes) {
    if (bytes == UINT64_MAX) bytes = PN_ADMIT_LOAD_SPIKE_BYTES_DEFAULT;
    atomic_store_explicit(&load_spike, bytes, memory_order_relaxed);
}

/* ---- cost -------------------------------------------------------------------------------- */

/* (n - t0) / (t1 - t0) of b1 - b0, rounded up; t0 < t1, b0 <= b1. True when it wraps. */
static bool on_line(uint64_t n, uint64_t t0, uint64_t b0, uint64_t t1, uint64_t b1, uint64_t *out) {
    uint64_t dt = t1 - t0;
    uint64_t whole;
    uint64_t rest = (b1 - b0) % dt * (n - t0); /* both below 2^32 */
    if (pn__mul_u64((b1 - b0) / dt, n - t0, &whole)) return true;
    return pn__add_u64(whole, rest / dt + (rest % dt != 0), &whole) || pn__add_u64(whole, b0, out);
}

static int scratch_bytes(const pn_admit_cost *c, uint32_t n, uint64_t *out) {
    *out = 0;
    if (c->scratch_n > PN_ADMIT_ANCHOR_MAX) return PN_E_INVALID;
    if (c->scratch_n == 0) return 0;
    if (c->scratch_n == 1 && c->scratch[0].tokens == 0) {
        *out = c->scratch[0].bytes;
        return 0;
    }
    uint64_t t0 = 0;
    uint64_t b0 = 0;
    for (uint32_t i = 0; i < c->scratch_n; i++) {
        uint64_t t1 = c->scratch[i].tokens;
        uint64_t b1 = c->scratch[i].bytes;
        if (t1 <= t0 || b1 < b0) return PN_E_INVALID;
        if (n <= t1 || i + 1 == c->scratch_n) {
            return on_line(n, t0, b0, t1, b1, out) ? PN_E_INVALID : 0;
        }
        t0 = t1;
        b0 = b1;
    }
    return 0;
}

/* Pages that the rows [pos, pos + n) and what they see of a window lie in. */
static uint64_t pages_of_step(uint64_t pos, uint64_t n, uint32_t window, uint32_t page) {
    uint64_t first = window ? pn__sub_floor_u64(pos + 1, window) / page : 0;
    return (pos + n + page - 1) / page - first;
}

/* From a window on, a step's pages depend on its start's place in its page only: looking at the
 * last so many whole steps is looking at all of them. */
static uint64_t steps_to_look_at(uint64_t n_prompt, uint32_t step, uint32_t page) {
    return pn__min_u64(n_prompt / step, step % page ? page : 1);
}

uint64_t pn__window_pages(uint32_t window, uint32_t step, uint32_t page, uint64_t n_prompt) {
    uint64_t step_n = n_prompt / step;
    uint64_t most = 0;
    for (uint64_t k = step_n - steps_to_look_at(n_prompt, step, page); k < step_n; k++)
        most = pn__max_u64(most, pages_of_step(k * step, step, window, page));
    return pn__max_u64(most, pages_of_step(step_n * step, n_prompt % step, window, page));
}

/* Of the pages of a step, `seen_n` of them up to `end`, those of two forms that still have the
 * first: the sequence's first page, and from the page of `pos` on. */
static uint64_t wide_of_step(uint64_t pos, uint64_t end, uint64_t seen_n, uint32_t page) {
    uint64_t first = end - seen_n;
    uint64_t from = pn__max_u64(pos / page, first);
    return pn__sub_floor_u64(end, from) + (first == 0 && from > 0);
}

/* Bytes of one kind held while the rows [pos, pos + n) are computed. True when that wraps. */
static bool kind_bytes(const pn_admit_cost *c, int i, uint64_t pos, uint64_t n, uint64_t *out) {
    uint32_t page = c->kv[i].page_tokens;
    uint32_t window = c->kv[i].step_tokens ? c->kv[i].window : 0;
    uint64_t pages = pages_of_step(pos, n, window, page);
    if (c->kv[i].page_max) pages = pn__min_u64(pages, c->kv[i].page_max);
    if (c->kv[i].narrow_bytes == 0) return pn__mul_u64(pages, c->kv[i].page_bytes, out);
    uint64_t end = (pos + n + page - 1) / page;
    uint64_t narrow;
    return pn__mul_u64(wide_of_step(pos, end, pages, page), c->kv[i].page_bytes, out) ||
           pn__mul_u64(pages - (pages > 0 && pages == end), c->kv[i].narrow_bytes, &narrow) ||
           pn__add_u64(*out, narrow, out);
}

/* Bytes held while the rows [pos, pos + n) are computed; raises *most to them. */
static int take_step(const pn_admit_cost *c, uint64_t pos, uint64_t n, uint64_t *most) {
    uint64_t sum = 0;
    for (int i = 0; i < PN_ADMIT_KV_KINDS; i++) {
        uint64_t bytes;
        if (c->kv[i].page_tokens == 0) continue;
        if (kind_bytes(c, i, pos, n, &bytes) || pn__add_u64(sum, bytes, &sum)) return PN_E_INVALID;
    }
    *most = pn__max_u64(*most, sum);
    return 0;
}

/* The most at once. Kinds that keep everything grow from step to step and windows repeat, so the
 * peak is among the last steps of each sort: the prompt's whole ones, its last one, and the
 * answer's single tokens. */
static int kv_bytes(const pn_admit_cost *c, uint64_t n_prompt, uint64_t total, uint64_t *out) {
    uint32_t step = 0;
    uint32_t page = 1;
    *out = 0;
    for (int i = 0; i < PN_ADMIT_KV_KINDS; i++) {
        if (c->kv[i].page_tokens == 0 || (c->kv[i].window | c->kv[i].narrow_bytes) == 0) continue;
        if (c->kv[i].step_tokens) step = c->kv[i].step_tokens;
        page = c->kv[i].page_tokens;
    }
    if (step == 0) return take_step(c, 0, total, out);
    uint64_t step_n = n_prompt / step;
    int rc = take_step(c, step_n * step, n_prompt % step, out);
    for (uint64_t k = step_n - steps_to_look_at(n_prompt, step, page); k < step_n && rc == 0; k++)
        rc = take_step(c, k * step, step, out);
    for (uint64_t n = pn__min_u64(total - n_prompt, page); n > 0 && rc == 0; n--)
        rc = take_step(c, total - n, 1, out);
    return rc;
}

int pn_admit_cost_bytes(const pn_admit_cost *cost, int n_prompt, int n_new, pn_admit_bytes *out) {
    memset(out, 0, sizeof *out);
    if (n_prompt < 0 || n_new < 0) return PN_E_INVALID;
    uint64_t total = (uint64_t)n_prompt + (uint64_t)n_new;
    int rc = kv_bytes(cost, (uint64_t)n_prompt, total, &out->kv);
    if (rc == 0) rc = scratch_bytes(cost, (uint32_t)n_prompt, &out->scratch);
    out->state = cost->state_bytes;
    if (rc == 0 && (pn__add_u64(out->kv, out->state, &out->all) ||
                    pn__add_u64(out->all, out->scratch, &out->all))) {
        rc = PN_E_INVALID;
    }
    return rc;
}

uint64_t pn_lut_activation_peak(int n_prompt) {
    uint64_t bytes;
    if (n_prompt <= 0) return 0;
    /* 2^31 tokens on the last line are under 2^53 bytes. */
    return scratch_bytes(&seed_cost, (uint32_t)n_prompt, &bytes) == 0 ? bytes : UINT64_MAX;
}

/* ---- what a snapshot can give -------------------------------------------------------------- */

struct budget {
    uint64_t bytes;
    char name[PN_DOMAIN_NAME_BYTES];
};

/* What host memory may still be taken. A state from the watch carries the ledger's headroom over
 * all domains, promises off; one made by hand has the seed's figures only. */
static void host_budget(const pn_mem_state *s, struct budget *out) {
    memset(out, 0, sizeof *out);
    out->bytes = pn__sub_floor_u64(s->host_avail_bytes, pn_mem_host_reserve(s->host_total_bytes));
    snprintf(out->name, sizeof out->name, "host");
    if (s->headroom_domain[0]) {
        out->bytes = s->headroom_bytes;
        memcpy(out->name, s->headroom_domain, sizeof out->name);
    }
}

bool pn__admit_stalled(const pn_mem_state *s, pn_admit_result *r) {
    double full =
        s->host_psi_full_avg10 > s->psi_full_now ? s->host_psi_full_avg10 : s->psi_full_now;
    if (!(full >= pn_mem_psi_full_reject())) return false;
    r->verdict = PN_ADMIT_VERDICT_REJECT;
    r->cause = PN_ADMIT_CAUSE_STALL;
    r->have_bytes = (uint64_t)(full * 1000.0);
    r->need_bytes = (uint64_t)(pn_mem_psi_full_reject() * 1000.0);
    return true;
}

static void invalid(pn_admit_result *r) {
    r->verdict = PN_ADMIT_VERDICT_REJECT;
    r->cause = PN_ADMIT_CAUSE_INVALID;
    r->fit_tokens = 0;
}

static void lacks(pn_admit_result *r, uint64_t need, uint64_t have, const char *name) {
    r->verdict = PN_ADMIT_VERDICT_REJECT;
    r->cause = PN_ADMIT_CAUSE_BYTES;
    r->fit_tokens = 0;
    r->need_bytes = need;
    r->have_bytes = have;
    snprintf(r->domain, sizeof r->domain, "%s", name);
}

/* No prompt longer than this fits, by KV that grows with every page alone: a search that starts
 * here takes fewer steps. At most `longest`. */
static int bound_by_kv(const pn_admit_cost *cost, int longest, int n_new, uint64_t bytes) {
    for (int i = 0; i < PN_ADMIT_KV_KINDS; i++) {
        uint32_t page_tokens = cost->kv[i].page_tokens;
        if (page_tokens == 0 || cost->kv[i].page_max || cost->kv[i].page_bytes == 0) continue;
        /* Cut so that the product of two 32-bit numbers can't wrap. */
        uint64_t pages = pn__min_u64(bytes / cost->kv[i].page_bytes, UINT32_MAX);
        uint64_t prompt = pn__sub_floor_u64(pages * page_tokens, (uint64_t)n_new);
        if (prompt < (uint64_t)longest) longest = (int)prompt;
    }
    return longest;
}

/* The longest prompt up to `longest` whose cost is within `bytes`; 0: none. The cost grows with the
 * prompt, so halving finds it. */
static int longest_fit(const pn_admit_cost *cost, int longest, int n_new, uint64_t bytes) {
    int fits = 0;
    if (longest > 0) longest = bound_by_kv(cost, longest, n_new, bytes);
    int over = longest + 1; /* doesn't fit: callers have tried it, or its KV alone is too much */
    while (over - fits > 1) {
        int mid = fits + (over - fits) / 2;
        pn_admit_bytes b;
        if (pn_admit_cost_bytes(cost, mid, n_new, &b) == 0 && b.all <= bytes) {
            fits = mid;
        } else {
            over = mid;
        }
    }
    return fits;
}

void pn__admit_fit(const pn_admit_cost *cost, int n_prompt, int n_new, int max_window,
                   uint64_t budget, const char *name, pn_admit_result *r) {
    pn_admit_bytes b;
    int window = max_window > 0 && max_window < n_prompt ? max_window : n_prompt;
    if (pn_admit_cost_bytes(cost, window, n_new, &b) < 0) {
        invalid(r);
        return;
    }
    if (b.all <= budget) {
        bool capped = window < n_prompt;
        r->verdict = capped ? PN_ADMIT_VERDICT_CAP : PN_ADMIT_VERDICT_ADMIT;
        r->cause = capped ? PN_ADMIT_CAUSE_WINDOW : PN_ADMIT_CAUSE_NONE;
        r->fit_tokens = window;
        r->need_bytes = capped ? (uint64_t)n_prompt : b.all;
        r->have_bytes = capped ? (uint64_t)window : budget;
        snprintf(r->domain, sizeof r->domain, "%s", capped ? "" : name);
        return;
    }
    lacks(r, b.all, budget, name);
    int fit = longest_fit(cost, window - 1, n_new, budget);
    if (fit < PN_ADMIT_PAGE_TOKENS) return;
    r->verdict = PN_ADMIT_VERDICT_CAP;
    r->fit_tokens = fit;
}

/* Takes the die in, if it has less. False when there is no such die. */
static bool with_die(int die_id, const pn_mem_state *s, struct budget *b) {
    if (die_id == -1) return true;
    if (die_id < 0 || die_id >= PN_DIE_MAX) return false;
    if (s->per_die_free[die_id] < b->bytes) {
        b->bytes = s->per_die_free[die_id];
        snprintf(b->name, sizeof b->name, "%s",
                 pn_mem_domain_name(PN_DOMAIN_DIE + (unsigned)die_id));
    }
    return true;
}

void pn_admit_request_cost(const pn_admit_cost *cost, int n_prompt, int n_new, int die_id,
                           int max_window, const pn_mem_state *state, pn_admit_result *out) {
    struct budget b;
    memset(out, 0, sizeof *out);
    if (n_prompt < 0 || n_new < 0) {
        invalid(out);
        return;
    }
    if (pn__admit_stalled(state, out)) return;
    host_budget(state, &b);
    if (!with_die(die_id, state, &b)) {
        invalid(out);
        return;
    }
    pn__admit_fit(cost, n_prompt, n_new, max_window, b.bytes, b.name, out);
}

static void gpu_resident_request(int n_prompt, int max_window, const pn_mem_state *state,
                                 pn_admit_result *out) {
    uint64_t reserve = pn_mem_host_reserve(state->host_total_bytes);
    if (state->host_avail_bytes <= reserve) {
        out->verdict = PN_ADMIT_VERDICT_REJECT;
        out->cause = PN_ADMIT_CAUSE_RESERVE;
        out->need_bytes = reserve;
        out->have_bytes = state->host_avail_bytes;
        snprintf(out->domain, sizeof out->domain, "host");
        return;
    }
    out->fit_tokens = n_prompt;
    if (max_window <= 0 || n_prompt <= max_window) return;
    out->verdict = PN_ADMIT_VERDICT_CAP;
    out->cause = PN_ADMIT_CAUSE_WINDOW;
    out->fit_tokens = max_window;
    out->need_bytes = (uint64_t)n_prompt;
    out->have_bytes = (uint64_t)max_window;
}

void pn_admit_request(int n_prompt, bool kv_q4, bool gpu_resident, int die_id, int max_window,
                      const pn_mem_state *state, pn_admit_result *out) {
    pn_admit_cost cost = seed_cost;
    cost.kv[0].page_tokens = 1;
    cost.kv[0].page_bytes =
        kv_q4 ? PN_ADMIT_KV_BYTES_PER_TOKEN_Q4 : PN_ADMIT_KV_BYTES_PER_TOKEN_FP32;
    if (!gpu_resident) {
        pn_admit_request_cost(&cost, n_prompt, 0, die_id, max_window, state, out);
        return;
    }
    memset(out, 0, sizeof *out);
    if (n_prompt < 0 || die_id < -1 || die_id >= PN_DIE_MAX) {
        invalid(out);
    } else if (!pn__admit_stalled(state, out)) {
        gpu_resident_request(n_prompt, max_window, state, out);
    }
}

/* ---- loads ------------------------------------------------------------------------------- */

static void load_check(uint64_t a, uint64_t b, uint64_t c, uint64_t have, const char *name,
                       pn_admit_result *out) {
    uint64_t need;
    memset(out, 0, sizeof *out);
    if (pn__add_u64(a, b, &need) || pn__add_u64(need, c, &need)) need = UINT64_MAX;
    if (need > have || need == UINT64_MAX) {
        lacks(out, need, have, name);
        return;
    }
    out->need_bytes = need;
    out->have_bytes = have;
    snprintf(out->domain, sizeof out->domain, "%s", name);
}

static bool die_of(int die_id, pn_admit_result *out) {
    if (die_id >= 0 && die_id < PN_DIE_MAX) return true;
    memset(out, 0, sizeof *out);
    invalid(out);
    return false;
}

void pn_admit_model_load(uint64_t weights_bytes, uint64_t kv, uint64_t activation_bytes, int die_id,
                         const pn_mem_state *state, pn_admit_result *out) {
    if (!die_of(die_id, out)) return;
    load_check(weights_bytes, kv, activation_bytes,
               pn__sub_floor_u64(state->per_die_free[die_id], pn_mem_die_reserve()),
               pn_mem_domain_name(PN_DOMAIN_DIE + (unsigned)die_id), out);
}

void pn_admit_model_load_die(uint64_t weights_bytes, uint64_t kv, int die_id,
                             const pn_mem_state *state, pn_admit_result *out) {
    if (!die_of(die_id, out)) return;
    load_check(weights_bytes, kv, PN_ADMIT_DIE_SCRATCH_BYTES, state->per_die_free[die_id],
               pn_mem_domain_name(PN_DOMAIN_DIE + (unsigned)die_id), out);
}

void pn_admit_load_spike(const pn_mem_state *state, pn_admit_result *out) {
    struct budget b;
    host_budget(state, &b);
    load_check(atomic_load_explicit(&load_spike, memory_order_relaxed), 0, 0, b.bytes, b.name, out);
}

/* ---- words ------------------------------------------------------------------------------- */

const char *pn_admit_reason(const pn_admit_result *r, char *buf, size_t cap) {
    unsigned long long need = r->need_bytes;
    unsigned long long have = r->have_bytes;
    double mib = 1048576.0;
    char fit[64] = "";
    switch (r->cause) {
    case PN_ADMIT_CAUSE_NONE:
        snprintf(buf, cap, "fits: %llu bytes (%.1f MiB)", need, (double)need / mib);
        break;
    case PN_ADMIT_CAUSE_STALL:
        snprintf(buf, cap,
                 "sustained memory stall: all tasks waited for memory %.1f %% of the last 10 s, "
                 "from %.1f %% on nothing is admitted; retry",
                 (double)have / 1000.0, (double)need / 1000.0);
        break;
    case PN_ADMIT_CAUSE_RESERVE:
        snprintf(buf, cap,
                 "%s is inside its reserve: %llu bytes (%.1f MiB) available, %llu kept free",
                 r->domain, have, (double)have / mib, need);
        break;
    case PN_ADMIT_CAUSE_WINDOW:
        snprintf(buf, cap, "the prompt has %llu tokens, at most %llu can be taken", need, have);
        break;
    case PN_ADMIT_CAUSE_BYTES:
        if (r->fit_tokens > 0) {
            snprintf(fit, sizeof fit, "; the longest prompt that fits has %d tokens",
                     r->fit_tokens);
        }
        snprintf(buf, cap, "%llu bytes (%.1f MiB) would not fit: %s has %llu (%.1f MiB) to give%s",
                 need, (double)need / mib, r->domain, have, (double)have / mib, fit);
        break;
    case PN_ADMIT_CAUSE_INVALID:
        snprintf(buf, cap, "no such prompt, cost or die, or sums that no machine has");
        break;
    default:
        snprintf(buf, cap, "?");
    }
    return buf;
}
