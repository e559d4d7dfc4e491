/* Tickets: deciding and booking in one.
 *
 * A ticket is bookings in the ledger, so two requests can't be admitted against the same bytes.
 * Live tickets stand in a list in the order of admission. The head, the oldest, always has its
 * whole way to its end reserved: at admission when it is alone, else at the release that makes it
 * the oldest. Whatever the others are refused, it can finish, and what it gives back then lets the
 * next one finish; so every ticket ends, with no memory but what was granted. Where the way doesn't
 * fit, the end comes nearer (at the least where what is paid for ends): shorter, said, but never
 * stuck.
 *
 * Drivers of several engines share the list, so a release by one may reserve the way of another's
 * ticket. The way is a booking of its own for that reason: the others are touched by the ticket's
 * own driver alone.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/err.h"
#include "base/log.h"
#include "core/mem/pn_admission.h"
#include "core/mem/pn_decision.h"

/* Attempts to reserve a way while others take what was just seen to be free. */
#define WAY_TRY_MAX 8

/* Sync: under ticket_lock, as are the tickets' fields but for the bookings `kv`, `state` and
 * `scratch`, which are the driver's. */
static pn_admit_ticket *oldest;
static uint64_t order_n;
static pthread_mutex_t ticket_lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic bool said_no_watch; /* Sync: relaxed */

static void headroom(uint64_t *bytes, char name[PN_DOMAIN_NAME_BYTES]) {
    unsigned domain;
    pn_domain_view v;
    *bytes = pn_ledger_place_headroom(PN_PLACE_HOST, &domain);
    name[0] = '\0';
    if (domain == PN_DOMAIN_NONE) return;
    pn_ledger_domain(domain, &v);
    memcpy(name, v.name, sizeof v.name);
}

static void note(pn_decision_kind kind, int a, int b, uint64_t c, uint64_t d, const char *name) {
    pn_decision e = {.kind = kind, .a = a, .b = b, .c = c, .d = d};
    snprintf(e.name, sizeof e.name, "%.*s", (int)sizeof e.name - 1, name);
    pn__decide(e);
}

/* Bytes of KV from `from` to `to` tokens in all, from the prompt's end on; costs of a live ticket
 * were checked. */
static uint64_t kv_between(const pn_admit_ticket *t, int from, int to) {
    pn_admit_bytes a;
    pn_admit_bytes b;
    if (pn_admit_cost_bytes(&t->cost, t->n_prompt, from - t->n_prompt, &a) < 0) return UINT64_MAX;
    if (pn_admit_cost_bytes(&t->cost, t->n_prompt, to - t->n_prompt, &b) < 0) return UINT64_MAX;
    return b.kv - a.kv;
}

/* Reserves the way to the end, or brings the end nearer. Needs ticket_lock. */
static void reserve_way(pn_admit_ticket *t) {
    int asked = t->end_tokens;
    int end = asked;
    for (int i = 0; i < WAY_TRY_MAX && !t->whole_way; i++) {
        uint64_t need = kv_between(t, t->n_tokens, end);
        t->whole_way =
            need == 0 || pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_KV, need, &t->way, NULL) == 0;
        if (t->whole_way) break;
        uint64_t room = pn_ledger_place_headroom(PN_PLACE_HOST, NULL);
        int fits = t->n_tokens;
        while (end - fits > 1) {
            int mid = fits + (end - fits) / 2;
            if (kv_between(t, t->n_tokens, mid) <= room) {
                fits = mid;
            } else {
                end = mid;
            }
        }
        end = fits;
    }
    if (!t->whole_way) end = t->n_tokens;
    t->whole_way = true;
    t->parked = false;
    t->end_tokens = end;
    if (end < asked) note(PN_DECISION_SHORTEN, asked, end, 0, 0, "");
}

/* Needs ticket_lock. */
static void enlist(pn_admit_ticket *t) {
    pn_admit_ticket **at = &oldest;
    while (*at)
        at = &(*at)->next;
    *at = t;
    t->order = ++order_n;
    if (oldest == t) reserve_way(t);
}

static int refused(int code, int n_prompt, const pn_admit_result *r, struct pn_detail *d) {
    char why[PN_DETAIL_BYTES];
    bool capped = r->verdict == PN_ADMIT_VERDICT_CAP;
    note(capped ? PN_DECISION_CAP : PN_DECISION_REJECT, n_prompt, r->fit_tokens, r->need_bytes,
         r->have_bytes, r->domain);
    return pn__fail(d, code, "%s", pn_admit_reason(r, why, sizeof why));
}

/* 0 when prompt and answer are within what can ever be; else the result says CAP by the window. */
static int check_lengths(const pn_admit_ask *a, pn_admit_result *r) {
    int64_t longest = a->n_prompt;
    if (a->max_window > 0 && (int64_t)a->max_window + a->n_held < longest) {
        longest = (int64_t)a->max_window + a->n_held;
    }
    int64_t beside = (int64_t)a->n_ctx - (a->n_new >= 0 ? a->n_new : 1);
    if (a->n_ctx > 0 && beside < longest) longest = beside;
    if (longest >= a->n_prompt) return 0;
    r->verdict = longest > a->n_held ? PN_ADMIT_VERDICT_CAP : PN_ADMIT_VERDICT_REJECT;
    r->cause = PN_ADMIT_CAUSE_WINDOW;
    r->fit_tokens = longest > a->n_held ? (int)longest : 0;
    r->need_bytes = (uint64_t)a->n_prompt;
    r->have_bytes = (uint64_t)r->fit_tokens;
    return PN_E_CONTEXT;
}

static bool stall_refuses(pn_admit_result *r) {
    pn_mem_state s;
    if (pn_memwatch_running()) return pn_memwatch_read(&s) == 0 && pn__admit_stalled(&s, r);
    if (!atomic_exchange_explicit(&said_no_watch, true, memory_order_relaxed)) {
        pn__log(PN_LOG_WARN, "admission: the watch isn't running, the ledger alone decides");
    }
    return false;
}

static void give_back(pn_booking *b) {
    /* Can't fail on a live booking: the ticket is the only one who has it. */
    if (b->live) (void)pn_ledger_release(b);
}

static void give_all_back(pn_admit_ticket *t) {
    give_back(&t->kv);
    give_back(&t->state);
    give_back(&t->scratch);
    give_back(&t->way);
}

/* One booking from the pool, then split by owner: nobody sees half of it. */
static int book(const pn_admit_bytes *b, pn_admit_ticket *t) {
    int rc = pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_KV, b->all, &t->kv, NULL);
    if (rc == 0) rc = pn_ledger_move(&t->kv, &t->state, PN_OWNER_STATE, b->state);
    if (rc == 0) rc = pn_ledger_move(&t->kv, &t->scratch, PN_OWNER_SCRATCH, b->scratch);
    if (rc < 0) give_all_back(t);
    return rc;
}

static bool good_ask(const pn_admit_ask *a) {
    if (a->n_prompt < 0 || a->n_new < -1 || a->n_held < 0 || a->n_held > a->n_prompt) return false;
    return a->n_new >= 0 ? a->n_new <= INT32_MAX - a->n_prompt : a->n_ctx > 0;
}

/* What prompt and answer take beyond what is held. */
static int ask_bytes(const pn_admit_cost *cost, const pn_admit_ask *a, int paid,
                     pn_admit_bytes *b) {
    int rc = pn_admit_cost_bytes(cost, a->n_prompt, paid, b);
    if (rc < 0) return rc;
    b->kv = pn__sub_floor_u64(b->kv, a->held_kv_bytes);
    b->state = pn__sub_floor_u64(b->state, a->held_state_bytes);
    b->all = b->kv + b->state + b->scratch;
    return 0;
}

static void no_room(const pn_admit_cost *cost, const pn_admit_ask *a, int paid, uint64_t need,
                    pn_admit_result *r) {
    uint64_t room;
    char name[PN_DOMAIN_NAME_BYTES];
    headroom(&room, name);
    /* What was refused may fit now that others gave something back; it wasn't granted. */
    room = pn__min_u64(room, need - 1);
    /* What is held counts on both sides of the question how long a prompt would fit. */
    uint64_t held = a->held_kv_bytes + a->held_state_bytes;
    pn__admit_fit(cost, a->n_prompt, paid, 0, room + held, name, r);
    r->need_bytes = need;
    r->have_bytes = room;
    if (r->fit_tokens > a->n_held) return;
    r->verdict = PN_ADMIT_VERDICT_REJECT;
    r->fit_tokens = 0;
}

int pn_admit_reserve_for(const pn_admit_cost *cost, const pn_admit_ask *ask, pn_admit_ticket *out,
                         pn_admit_result *result, struct pn_detail *d) {
    pn_admit_bytes b;
    int n_prompt = ask->n_prompt;
    memset(out, 0, sizeof *out);
    memset(result, 0, sizeof *result);
    if (!good_ask(ask)) {
        result->verdict = PN_ADMIT_VERDICT_REJECT;
        result->cause = PN_ADMIT_CAUSE_INVALID;
        return refused(PN_E_INVALID, n_prompt, result, d);
    }
    int rc = check_lengths(ask, result);
    if (rc < 0) return refused(rc, n_prompt, result, d);
    if (stall_refuses(result)) return refused(PN_E_NOFIT, n_prompt, result, d);

    int end = ask->n_new >= 0 ? n_prompt + ask->n_new : ask->n_ctx;
    int paid = ask->n_new >= 0 ? ask->n_new : PN_ADMIT_NEW_TOKENS;
    if (paid > end - n_prompt) paid = end - n_prompt;
    rc = ask_bytes(cost, ask, paid, &b);
    if (rc < 0) {
        result->verdict = PN_ADMIT_VERDICT_REJECT;
        result->cause = PN_ADMIT_CAUSE_INVALID;
        return refused(rc, n_prompt, result, d);
    }
    out->cost = *cost;
    out->n_prompt = n_prompt;
    out->n_tokens = n_prompt + paid;
    out->end_tokens = out->want_tokens = end;
    rc = book(&b, out);
    if (rc < 0) {
        memset(out, 0, sizeof *out);
        no_room(cost, ask, paid, b.all, result);
        return refused(rc, n_prompt, result, d);
    }
    pthread_mutex_lock(&ticket_lock);
    enlist(out);
    pthread_mutex_unlock(&ticket_lock);
    result->fit_tokens = n_prompt;
    result->need_bytes = b.all;
    note(PN_DECISION_ADMIT, n_prompt, paid, b.all, 0, "");
    return 0;
}

int pn_admit_reserve(const pn_admit_cost *cost, int n_prompt, int n_new, int n_ctx, int max_window,
                     pn_admit_ticket *out, pn_admit_result *result, struct pn_detail *d) {
    pn_admit_ask ask = {.n_prompt = n_prompt,
                        .n_new = n_new > 0    ? n_new
                                 : n_new == 0 ? -1
                                              : -2,
                        .n_ctx = n_ctx,
                        .max_window = max_window};
    return pn_admit_reserve_for(cost, &ask, out, result, d);
}

/* Pays for tokens up to `to`: out of the way that is reserved already, or anew. Needs ticket_lock.
 */
static int pay_to(pn_admit_ticket *t, int to, uint64_t *need, struct pn_detail *d) {
    *need = kv_between(t, t->n_tokens, to);
    if (*need == 0) return 0;
    if (t->whole_way) return pn_ledger_move(&t->way, &t->kv, PN_OWNER_KV, *need);
    return pn_ledger_grow(&t->kv, *need, d);
}

/* An end that is nearer than was asked for: a page more, if it can be had. Needs ticket_lock. */
static int past_end(pn_admit_ticket *t, uint64_t *need, struct pn_detail *d) {
    int end = t->end_tokens;
    int to =
        t->want_tokens - end > PN_ADMIT_PAGE_TOKENS ? end + PN_ADMIT_PAGE_TOKENS : t->want_tokens;
    *need = kv_between(t, end, to);
    if (to <= end || (*need && pn_ledger_grow(&t->kv, *need, NULL) < 0)) {
        return pn__fail(d, PN_E_CONTEXT, "the request ends at %d tokens", end);
    }
    t->end_tokens = to;
    return 0;
}

int pn_admit_extend(pn_admit_ticket *t, struct pn_detail *d) {
    int rc;
    uint64_t need = 0;
    pthread_mutex_lock(&ticket_lock);
    int end = t->end_tokens;
    int to = end - t->n_tokens > PN_ADMIT_PAGE_TOKENS ? t->n_tokens + PN_ADMIT_PAGE_TOKENS : end;
    bool was_parked = t->parked;
    if (t->order == 0) {
        rc = pn__fail(d, PN_E_STATE, "extending a ticket that isn't live");
    } else if (t->n_tokens >= end) {
        rc = past_end(t, &need, d);
        to = t->end_tokens;
    } else {
        rc = pay_to(t, to, &need, d);
    }
    if (rc == 0) t->n_tokens = to;
    if (rc == 0 || rc == PN_E_NOFIT) t->parked = rc != 0;
    int now = t->n_tokens;
    pthread_mutex_unlock(&ticket_lock);
    if (rc == 0) note(PN_DECISION_EXTEND, now, 0, need, 0, "");
    /* Once for each time of waiting, however often it asks meanwhile. */
    if (rc == PN_E_NOFIT && !was_parked) {
        note(PN_DECISION_PARK, now, 0, need, pn_ledger_place_headroom(PN_PLACE_HOST, NULL), "");
    }
    return rc;
}

void pn_admit_release(pn_admit_ticket *t) {
    if (!t || t->order == 0) return;
    give_all_back(t);
    pthread_mutex_lock(&ticket_lock);
    pn_admit_ticket **at = &oldest;
    while (*at && *at != t)
        at = &(*at)->next;
    if (*at) *at = t->next;
    if (oldest && !oldest->whole_way) reserve_way(oldest);
    pthread_mutex_unlock(&ticket_lock);
    memset(t, 0, sizeof *t);
    pn_mem_wake();
}
