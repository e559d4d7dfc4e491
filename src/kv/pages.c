#include "kv/pages.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "core/mem/pn_admission.h"

/* Address space for equal pages. Free pages are a stack and have no memory. */
struct page_pool {
    struct pn_block space;
    uint64_t page_bytes;
    uint32_t page_n;
    uint32_t *free_ids; /* [page_n], the first free_n are free */
    uint32_t free_n;
};

struct pn_kv {
    struct pn_kv_spec spec;
    struct pn_kv_spec ways[2]; /* of it: wide, narrow */
    struct page_pool pools[PN_PAGE_KIND_N][PN_PAGE_FORM_N];
    struct pn_block state;  /* a space: [slot_n] entries */
    struct pn_seq_kv *seqs; /* [slot_n] */
};

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static enum pn_kv_format format_of(const struct pn_page_spec *spec, int form) {
    return form == PN_PAGE_NARROW ? PN_KV_Q4 : spec->format;
}

uint64_t pn__page_bytes(const struct pn_page_spec *spec, enum pn_page_form form) {
    if (spec->layer_n == 0) return 0;
    uint64_t bytes = spec->layer_n * pn__kv_layer_bytes(format_of(spec, (int)form), &spec->shape);
    return (bytes + pn__system_page() - 1) & ~(pn__system_page() - 1);
}

struct pn_kv_spec pn__kv_way(const struct pn_kv_spec *spec, bool narrow) {
    struct pn_kv_spec way = *spec;
    way.either = false;
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        way.kinds[kind].narrow = narrow && spec->kinds[kind].narrow;
    }
    return way;
}

/* The spec that a sequence follows. */
static const struct pn_kv_spec *way_of(const struct pn_kv *kv, const struct pn_seq_kv *seq) {
    return &kv->ways[!seq->wide];
}

static uint32_t pages_of(uint64_t tokens) {
    return (uint32_t)((tokens + PN_PAGE_TOKENS - 1) / PN_PAGE_TOKENS);
}

uint32_t pn__page_max(const struct pn_kv_spec *spec, enum pn_page_kind kind) {
    const struct pn_page_spec *p = &spec->kinds[kind];
    if (p->layer_n == 0) return 0;
    uint32_t all = pages_of(spec->ctx);
    if (p->window == 0) return all;
    return (uint32_t)pn__window_pages(p->window, spec->chunk, PN_PAGE_TOKENS, spec->ctx);
}

uint32_t pn__page_form_max(const struct pn_kv_spec *spec, enum pn_page_kind kind,
                           enum pn_page_form form) {
    uint32_t max = pn__page_max(spec, kind);
    if (!spec->kinds[kind].narrow) return form == PN_PAGE_WIDE ? max : 0;
    /* Narrow: all but the first. Wide: the first, and from the newest window of a step's first row
     * to its last row, chunk - 1 tokens further, wherever that starts. */
    if (form == PN_PAGE_NARROW) return spec->kinds[kind].window == 0 && max > 0 ? max - 1 : max;
    if (spec->either) return max;
    return min_u32(max, 1 + PN_KV_WIDE_PAGES + pages_of(spec->chunk - 1));
}

/* The number of the first page that the row at `pos` sees. */
static uint32_t first_seen(const struct pn_page_spec *spec, uint32_t pos) {
    return spec->window && pos + 1 > spec->window ? (pos + 1 - spec->window) / PN_PAGE_TOKENS : 0;
}

/* Pages of each form that are held while rows [pos, end) are computed. */
static void forms_needed(const struct pn_page_spec *spec, uint32_t pos, uint32_t end,
                         uint32_t n[PN_PAGE_FORM_N]) {
    uint32_t first = first_seen(spec, pos);
    uint32_t page_end = pages_of(end);
    n[PN_PAGE_WIDE] = page_end - first;
    n[PN_PAGE_NARROW] = 0;
    if (!spec->narrow) return;
    uint32_t reader = pos / PN_PAGE_TOKENS;
    uint32_t from = reader + 1 > PN_KV_WIDE_PAGES ? reader + 1 - PN_KV_WIDE_PAGES : 0;
    from = max_u32(from, first);
    n[PN_PAGE_WIDE] = page_end - from + (first == 0 && from > 0);
    n[PN_PAGE_NARROW] = page_end - max_u32(first, 1);
}

/* Bytes of one sequence's state entry, aligned so that entries start on system pages. */
static uint64_t state_entry_bytes(const struct pn_kv_spec *spec) {
    return (spec->state_bytes + pn__system_page() - 1) & ~(pn__system_page() - 1);
}

void pn__kv_cost(const struct pn_kv_spec *spec, pn_admit_cost *out) {
    memset(out, 0, sizeof *out);
    _Static_assert(PN_PAGE_KIND_N <= PN_ADMIT_KV_KINDS, "a row of the table for each kind");
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        if (spec->kinds[kind].layer_n == 0) continue;
        out->kv[kind].page_bytes = pn__page_bytes(&spec->kinds[kind], PN_PAGE_WIDE);
        /* Admission's table knows one newest page. */
        _Static_assert(PN_KV_WIDE_PAGES == 1, "as pn_admit_cost counts");
        if (spec->kinds[kind].narrow)
            out->kv[kind].narrow_bytes = pn__page_bytes(&spec->kinds[kind], PN_PAGE_NARROW);
        out->kv[kind].page_tokens = PN_PAGE_TOKENS;
        out->kv[kind].page_max = pn__page_max(spec, (enum pn_page_kind)kind);
        out->kv[kind].window = spec->kinds[kind].window;
        out->kv[kind].step_tokens = spec->chunk;
    }
    out->state_bytes = state_entry_bytes(spec);
}

/* What one sequence of one way takes at most. A prompt as long as the context does; its windows
 * aren't at their largest when the rest is, so this is less than the pools' address space. */
static bool most_of(const struct pn_kv_spec *spec, bool narrow, pn_admit_bytes *most) {
    struct pn_kv_spec way = pn__kv_way(spec, narrow);
    pn_admit_cost cost;
    pn__kv_cost(&way, &cost);
    return pn_admit_cost_bytes(&cost, (int)spec->ctx, 0, most) == 0;
}

bool pn__kv_bytes(const struct pn_kv_spec *spec, uint64_t *kv_bytes, uint64_t *state_bytes) {
    uint64_t total = 0;
    for (int i = 0; i < PN_PAGE_KIND_N * PN_PAGE_FORM_N; i++) {
        enum pn_page_kind kind = (enum pn_page_kind)(i / PN_PAGE_FORM_N);
        enum pn_page_form form = (enum pn_page_form)(i % PN_PAGE_FORM_N);
        uint64_t pages = (uint64_t)pn__page_form_max(spec, kind, form) * spec->slot_n;
        uint64_t bytes;
        if (pn__mul_u64(pages, pn__page_bytes(&spec->kinds[kind], form), &bytes) ||
            pn__add_u64(total, bytes, &total)) {
            return false;
        }
    }
    /* Pages are numbered in 32 bits, tokens by admission in 31. */
    if (total / pn__system_page() > UINT32_MAX || spec->ctx > INT32_MAX) return false;
    pn_admit_bytes most;
    pn_admit_bytes wide = {0};
    if (!most_of(spec, true, &most)) return false;
    if (spec->either && !most_of(spec, false, &wide)) return false;
    if (wide.kv > most.kv) most.kv = wide.kv;
    return !pn__mul_u64(most.kv, spec->slot_n, kv_bytes) &&
           !pn__mul_u64(most.state, spec->slot_n, state_bytes);
}

static int pool_init(struct page_pool *pool, const struct pn_kv_spec *spec, enum pn_page_kind kind,
                     enum pn_page_form form, struct pn_detail *d) {
    pool->page_bytes = pn__page_bytes(&spec->kinds[kind], form);
    pool->page_n = pn__page_form_max(spec, kind, form) * spec->slot_n;
    if (pool->page_n == 0) return 0;
    pool->free_ids = pn__calloc(pool->page_n, sizeof *pool->free_ids);
    if (!pool->free_ids) {
        return pn__fail(d, PN_E_NOMEM, "tables of %u KV pages", pool->page_n);
    }
    /* Lowest numbers on top, so that a short conversation touches little memory. */
    for (uint32_t i = 0; i < pool->page_n; i++) {
        pool->free_ids[i] = pool->page_n - 1 - i;
    }
    pool->free_n = pool->page_n;
    return pn__space_new(PN_OWNER_KV, pool->page_bytes * pool->page_n, d, &pool->space);
}

static int form_init(struct pn_seq_form *form, uint32_t max, struct pn_detail *d) {
    form->views = pn__calloc(max, sizeof *form->views);
    form->ids = pn__calloc(max, sizeof *form->ids);
    if (form->views && form->ids) return 0;
    return pn__fail(d, PN_E_NOMEM, "page table of %u pages", max);
}

static int seqs_init(struct pn_kv *kv, struct pn_detail *d) {
    const struct pn_kv_spec *spec = &kv->spec;
    kv->seqs = pn__calloc(spec->slot_n, sizeof *kv->seqs);
    if (!kv->seqs) return pn__fail(d, PN_E_NOMEM, "tables of %u sequences", spec->slot_n);
    for (uint32_t i = 0; i < spec->slot_n; i++) {
        struct pn_seq_kv *seq = &kv->seqs[i];
        for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
            struct pn_seq_form *forms = seq->forms[kind];
            uint32_t max = pn__page_max(spec, (enum pn_page_kind)kind);
            int rc = form_init(&forms[PN_PAGE_WIDE], max, d);
            if (rc == 0 && spec->kinds[kind].narrow) {
                rc = form_init(&forms[PN_PAGE_NARROW], max, d);
            }
            if (rc) return rc;
        }
        if (kv->state.data) seq->state = kv->state.data + i * state_entry_bytes(spec);
    }
    return 0;
}

int pn__kv_new(const struct pn_kv_spec *spec, struct pn_detail *d, struct pn_kv **out) {
    *out = NULL;
    uint64_t kv_bytes;
    uint64_t state_bytes;
    if (spec->slot_n == 0 || spec->ctx == 0 || spec->chunk == 0 ||
        !pn__kv_bytes(spec, &kv_bytes, &state_bytes)) {
        return pn__fail(d, PN_E_INVALID, "KV cache of %u slots of %u tokens", spec->slot_n,
                        spec->ctx);
    }
    struct pn_kv *kv = pn__calloc(1, sizeof *kv);
    if (!kv) return pn__fail(d, PN_E_NOMEM, "KV cache");
    kv->spec = *spec;
    kv->ways[0] = pn__kv_way(spec, false);
    kv->ways[1] = pn__kv_way(spec, true);
    int rc = 0;
    for (int i = 0; i < PN_PAGE_KIND_N * PN_PAGE_FORM_N && rc == 0; i++) {
        enum pn_page_kind kind = (enum pn_page_kind)(i / PN_PAGE_FORM_N);
        enum pn_page_form form = (enum pn_page_form)(i % PN_PAGE_FORM_N);
        rc = pool_init(&kv->pools[kind][form], spec, kind, form, d);
    }
    if (rc == 0) rc = pn__space_new(PN_OWNER_STATE, state_bytes, d, &kv->state);
    if (rc == 0) rc = seqs_init(kv, d);
    if (rc) {
        pn__kv_free(kv);
        return rc;
    }
    *out = kv;
    return 0;
}

void pn__kv_free(struct pn_kv *kv) {
    if (!kv) return;
    for (uint32_t i = 0; kv->seqs && i < kv->spec.slot_n; i++) {
        pn__kv_reset(kv, i);
        for (int k = 0; k < PN_PAGE_KIND_N * PN_PAGE_FORM_N; k++) {
            struct pn_seq_form *f = &kv->seqs[i].forms[k / PN_PAGE_FORM_N][k % PN_PAGE_FORM_N];
            pn__free(f->views);
            pn__free(f->ids);
        }
    }
    for (int k = 0; k < PN_PAGE_KIND_N * PN_PAGE_FORM_N; k++) {
        struct page_pool *pool = &kv->pools[k / PN_PAGE_FORM_N][k % PN_PAGE_FORM_N];
        pn__block_free(&pool->space);
        pn__free(pool->free_ids);
    }
    pn__free(kv->seqs);
    pn__block_free(&kv->state);
    pn__free(kv);
}

struct pn_seq_kv *pn__kv_seq(struct pn_kv *kv, uint32_t i) {
    return &kv->seqs[i];
}

void pn__kv_begin(struct pn_kv *kv, uint32_t seq_i, bool wide) {
    struct pn_seq_kv *seq = &kv->seqs[seq_i];
    assert(seq->wide == wide || seq->pages_paid.committed_bytes == 0);
    seq->wide = wide;
}

static void move_all(pn_booking *from, pn_booking *to) {
    if (!from || !from->live) return;
    /* Can't fail: both are ours, at one place and of one owner, and none of it is committed. */
    (void)pn_ledger_move(from, to, from->owner, from->reserved_bytes);
}

void pn__kv_pay(struct pn_kv *kv, uint32_t seq_i, pn_booking *pages, pn_booking *state) {
    move_all(pages, &kv->seqs[seq_i].pages_paid);
    move_all(state, &kv->seqs[seq_i].state_paid);
}

/* Releases what isn't committed of it; how much that was. */
static uint64_t change(pn_booking *paid) {
    pn_booking rest = {0};
    if (!paid->live) return 0;
    uint64_t bytes = paid->reserved_bytes - paid->committed_bytes;
    if (bytes && pn_ledger_move(paid, &rest, paid->owner, bytes) == 0) {
        (void)pn_ledger_release(&rest);
    }
    if (paid->reserved_bytes == 0) (void)pn_ledger_release(paid);
    return bytes;
}

void pn__kv_change(struct pn_kv *kv, uint32_t seq_i) {
    uint64_t bytes = change(&kv->seqs[seq_i].pages_paid);
    bytes += change(&kv->seqs[seq_i].state_paid);
    /* Somebody may wait for it. */
    if (bytes) pn_mem_wake();
}

static int cant_commit(int rc, const pn_booking *paid, uint64_t bytes, const char *what,
                       struct pn_detail *d) {
    if (rc != PN_E_INVALID) {
        return pn__fail(d, rc, "the system has no memory for %s of %llu bytes", what,
                        (unsigned long long)bytes);
    }
    return pn__fail(d, PN_E_STATE, "%s of %llu bytes isn't paid for: %llu of %llu are in use", what,
                    (unsigned long long)bytes, (unsigned long long)paid->committed_bytes,
                    (unsigned long long)paid->reserved_bytes);
}

/* A pool holds as many pages as all sequences together may, and none holds more than its share: so
 * one is free. */
static int pool_take(struct page_pool *pool, pn_booking *paid, struct pn_detail *d, uint32_t *id) {
    assert(pool->free_n > 0);
    uint32_t i = pool->free_ids[pool->free_n - 1];
    int rc = pn__space_commit(&pool->space, i * pool->page_bytes, pool->page_bytes, paid);
    if (rc) return cant_commit(rc, paid, pool->page_bytes, "a KV page", d);
    pool->free_n--;
    *id = i;
    return 0;
}

/* Memory that its program has locked isn't taken back: then it stays with the page, whose next
 * holder books it anew. */
static void pool_give(struct page_pool *pool, pn_booking *paid, uint32_t id) {
    if (pn__space_uncommit(&pool->space, id * pool->page_bytes, pool->page_bytes, paid) != 0) {
        (void)pn_ledger_uncommit(paid, pool->page_bytes);
    }
    pool->free_ids[pool->free_n++] = id;
}

/* The state's memory, zeroed, with the sequence's first token. */
static int take_state(struct pn_kv *kv, struct pn_seq_kv *seq, struct pn_detail *d) {
    if (!seq->state || seq->state_paid.committed_bytes) return 0;
    uint64_t bytes = state_entry_bytes(&kv->spec);
    int rc = pn__space_commit(&kv->state, (uint64_t)(seq->state - kv->state.data), bytes,
                              &seq->state_paid);
    return rc ? cant_commit(rc, &seq->state_paid, bytes, "recurrent state", d) : 0;
}

static void give_state(struct pn_kv *kv, struct pn_seq_kv *seq) {
    uint64_t bytes = seq->state_paid.committed_bytes;
    if (!seq->state || bytes == 0) return;
    if (pn__space_uncommit(&kv->state, (uint64_t)(seq->state - kv->state.data), bytes,
                           &seq->state_paid) != 0) {
        (void)pn_ledger_uncommit(&seq->state_paid, bytes);
        memset(seq->state, 0, bytes);
    }
}

static int form_take(struct pn_kv *kv, struct pn_seq_kv *seq, int kind, int form, uint32_t i,
                     struct pn_detail *d) {
    struct page_pool *pool = &kv->pools[kind][form];
    struct pn_seq_form *f = &seq->forms[kind][form];
    int rc = pool_take(pool, &seq->pages_paid, d, &f->ids[i]);
    if (rc) return rc;
    f->views[i] = (struct pn_page_view){.data = pool->space.data + f->ids[i] * pool->page_bytes,
                                        .format = format_of(&kv->spec.kinds[kind], form)};
    return 0;
}

/* Gives back one form of the sequence's i-th page, if it is held. */
static void form_give(struct pn_kv *kv, struct pn_seq_kv *seq, int kind, int form, uint32_t i) {
    struct pn_seq_form *f = &seq->forms[kind][form];
    if (!f->views || !f->views[i].data) return;
    pool_give(&kv->pools[kind][form], &seq->pages_paid, f->ids[i]);
    f->views[i].data = NULL;
}

static void page_give(struct pn_kv *kv, struct pn_seq_kv *seq, int kind, uint32_t i) {
    form_give(kv, seq, kind, PN_PAGE_WIDE, i);
    form_give(kv, seq, kind, PN_PAGE_NARROW, i);
}

/* Gives the pages below page number `keep` back. */
static void drop_below(struct pn_kv *kv, struct pn_seq_kv *seq, int kind, uint32_t keep) {
    uint32_t drop = 0;
    while (drop < seq->n[kind] && seq->first[kind] + drop < keep) {
        page_give(kv, seq, kind, drop++);
    }
    seq->n[kind] -= drop;
    seq->first[kind] += drop;
    for (int form = 0; form < PN_PAGE_FORM_N; form++) {
        struct pn_seq_form *f = &seq->forms[kind][form];
        if (!f->views) continue;
        memmove(f->views, f->views + drop, seq->n[kind] * sizeof *f->views);
        memmove(f->ids, f->ids + drop, seq->n[kind] * sizeof *f->ids);
    }
    if (seq->n[kind] == 0 && seq->first[kind] < keep) seq->first[kind] = keep;
}

/* Gives back wide forms that no token from page `reader` on reads. Newest first, up to one that has
 * gone already. */
static void drop_wide(struct pn_kv *kv, struct pn_seq_kv *seq, int kind, uint32_t reader) {
    const struct pn_seq_form *wide = &seq->forms[kind][PN_PAGE_WIDE];
    if (!way_of(kv, seq)->kinds[kind].narrow) return;
    for (uint32_t i = seq->n[kind]; i-- > 0;) {
        if (!pn__page_narrow(seq->first[kind] + i, reader)) continue;
        if (!wide->views[i].data) return;
        form_give(kv, seq, kind, PN_PAGE_WIDE, i);
    }
}

static int page_add(struct pn_kv *kv, struct pn_seq_kv *seq, int kind, struct pn_detail *d) {
    uint32_t i = seq->n[kind];
    /* What stands behind the last page may be left from pages that moved down. */
    struct pn_seq_form *narrow = &seq->forms[kind][PN_PAGE_NARROW];
    if (narrow->views) narrow->views[i].data = NULL;
    int rc = form_take(kv, seq, kind, PN_PAGE_WIDE, i, d);
    if (rc == 0 && way_of(kv, seq)->kinds[kind].narrow && seq->first[kind] + i > 0) {
        rc = form_take(kv, seq, kind, PN_PAGE_NARROW, i, d);
        if (rc) form_give(kv, seq, kind, PN_PAGE_WIDE, i);
    }
    if (rc == 0) seq->n[kind]++;
    return rc;
}

/* Whether a sequence may hold the pages that rows [pos, end) need; how many it needs and may of
 * what is too much. */
static bool within_share(const struct pn_kv_spec *spec, int kind, uint32_t pos, uint32_t end,
                         uint32_t n[PN_PAGE_FORM_N], uint32_t *need, uint32_t *max) {
    const struct pn_page_spec *p = &spec->kinds[kind];
    forms_needed(p, pos, end, n);
    *need = pages_of(end) - first_seen(p, pos);
    *max = pn__page_max(spec, (enum pn_page_kind)kind);
    for (int form = 0; form < PN_PAGE_FORM_N && *need <= *max; form++) {
        *need = n[form];
        *max = pn__page_form_max(spec, (enum pn_page_kind)kind, (enum pn_page_form)form);
    }
    return *need <= *max;
}

static int extend_kind(struct pn_kv *kv, struct pn_seq_kv *seq, int kind, uint32_t pos, uint32_t n,
                       struct pn_detail *d) {
    if (kv->spec.kinds[kind].layer_n == 0) return 0;
    uint32_t end = pages_of((uint64_t)pos + n);
    uint32_t forms[PN_PAGE_FORM_N], need, max;
    if (!within_share(way_of(kv, seq), kind, pos, pos + n, forms, &need, &max)) {
        return pn__fail(d, PN_E_NOFIT,
                        "%u tokens at position %u take %u KV pages; a sequence has %u, for steps "
                        "of %u tokens",
                        n, pos, need, max, kv->spec.chunk);
    }
    while (seq->first[kind] + seq->n[kind] < end) {
        int rc = page_add(kv, seq, kind, d);
        if (rc) return rc;
    }
    return 0;
}

/* Whether all pages that rows up to `end` need, the first of them at `pos`, are paid and there. */
static bool has_room(const struct pn_kv *kv, const struct pn_seq_kv *seq, uint32_t pos,
                     uint32_t end) {
    uint64_t bytes = 0;
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        uint32_t n[PN_PAGE_FORM_N], need, max;
        if (kv->spec.kinds[kind].layer_n == 0) continue;
        if (!within_share(way_of(kv, seq), kind, pos, end, n, &need, &max)) return false;
        for (int form = 0; form < PN_PAGE_FORM_N; form++) {
            bytes += n[form] * kv->pools[kind][form].page_bytes;
        }
    }
    return bytes <= seq->pages_paid.reserved_bytes;
}

uint32_t pn__kv_room(const struct pn_kv *kv, uint32_t seq_i, uint32_t pos, uint32_t n) {
    const struct pn_seq_kv *seq = &kv->seqs[seq_i];
    uint32_t end = pos + n;
    /* Less by a page, as long as that leaves a row. */
    while (!has_room(kv, seq, pos, end) && (end - 1) / PN_PAGE_TOKENS * PN_PAGE_TOKENS > pos)
        end = (end - 1) / PN_PAGE_TOKENS * PN_PAGE_TOKENS;
    return end - pos;
}

int pn__kv_extend(struct pn_kv *kv, uint32_t seq_i, uint32_t pos, uint32_t n, struct pn_detail *d) {
    if ((uint64_t)pos + n > kv->spec.ctx) {
        return pn__fail(d, PN_E_CONTEXT, "%llu tokens are more than the context of %u",
                        (unsigned long long)pos + n, kv->spec.ctx);
    }
    int rc = take_state(kv, &kv->seqs[seq_i], d);
    if (rc) return rc;
    /* What goes back may be what pays for what is taken, of any kind. */
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        struct pn_seq_kv *seq = &kv->seqs[seq_i];
        if (kv->spec.kinds[kind].layer_n == 0) continue;
        /* The row at `pos` is the first that will be asked for. */
        uint32_t first = first_seen(&kv->spec.kinds[kind], pos);
        if (first > 0) drop_below(kv, seq, kind, first);
        drop_wide(kv, seq, kind, pos / PN_PAGE_TOKENS);
    }
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        rc = extend_kind(kv, &kv->seqs[seq_i], kind, pos, n, d);
        if (rc) return rc;
    }
    return 0;
}

void pn__kv_reset(struct pn_kv *kv, uint32_t seq_i) {
    struct pn_seq_kv *seq = &kv->seqs[seq_i];
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        for (uint32_t i = seq->n[kind]; i-- > 0;) {
            page_give(kv, seq, kind, i);
        }
        seq->n[kind] = 0;
        seq->first[kind] = 0;
    }
    give_state(kv, seq);
    pn__kv_change(kv, seq_i);
}

/* Whether the pages below `pos` that later tokens read wide are all there in that form: those that
 * the token at `pos` does, for the next ones read fewer. */
static bool wide_held(const struct pn_seq_kv *seq, int kind, uint32_t pos) {
    uint32_t end = pages_of(pos);
    for (uint32_t page = seq->first[kind]; page < end; page++) {
        if (pn__page_narrow(page, pos / PN_PAGE_TOKENS)) continue;
        if (!seq->forms[kind][PN_PAGE_WIDE].views[page - seq->first[kind]].data) return false;
    }
    return true;
}

/* Whether the pages that the token at `pos` sees are all there. */
static bool sees_all(const struct pn_kv *kv, const struct pn_seq_kv *seq, uint32_t pos) {
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        const struct pn_page_spec *spec = &way_of(kv, seq)->kinds[kind];
        if (spec->layer_n == 0) continue;
        if (seq->first[kind] > first_seen(spec, pos)) return false;
        if (spec->narrow && !wide_held(seq, kind, pos)) return false;
    }
    return true;
}

uint32_t pn__kv_truncate(struct pn_kv *kv, uint32_t seq_i, uint32_t held, uint32_t length) {
    struct pn_seq_kv *seq = &kv->seqs[seq_i];
    assert(length <= held);
    if (length == held) return held;
    uint32_t keep = seq->state ? 0 : length;
    while (keep > 0 && !sees_all(kv, seq, keep)) {
        keep = (keep - 1) / PN_PAGE_TOKENS * PN_PAGE_TOKENS;
    }
    if (keep == 0) {
        pn__kv_reset(kv, seq_i);
        return 0;
    }
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        while (seq->n[kind] > 0 && seq->first[kind] + seq->n[kind] > pages_of(keep)) {
            page_give(kv, seq, kind, --seq->n[kind]);
        }
    }
    pn__kv_change(kv, seq_i);
    return keep;
}

void pn__kv_tables(const struct pn_kv *kv, uint32_t seq_i,
                   struct pn_page_table tables[PN_PAGE_KIND_N]) {
    const struct pn_seq_kv *seq = &kv->seqs[seq_i];
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        const struct pn_page_view *narrow = seq->forms[kind][PN_PAGE_NARROW].views;
        tables[kind] = (struct pn_page_table){.pages = seq->forms[kind][PN_PAGE_WIDE].views,
                                              .narrow = seq->wide ? NULL : narrow,
                                              .first = seq->first[kind],
                                              .n = seq->n[kind]};
    }
}

uint32_t pn__kv_used(const struct pn_kv *kv, enum pn_page_kind kind, enum pn_page_form form) {
    const struct page_pool *pool = &kv->pools[kind][form];
    return pool->page_n - pool->free_n;
}
