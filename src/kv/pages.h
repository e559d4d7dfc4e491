/* KV pages and recurrent state: who holds which piece of the cache.
 *
 * A page holds PN_PAGE_TOKENS tokens of every layer of one kind (full, window or latent), in one
 * format; the layout inside is ops' (views.h, pn__kv_layer_bytes). A pool is address space for
 * equal pages, as many as all sequences together may hold, mapped when the engine is loaded.
 *
 * A sequence owns a list of pages for each kind and one entry of the state pool. Pages never move
 * while it holds them. Window layers give a page back as soon as no later token can see it.
 *
 * Kinds marked `narrow` keep most pages in four bits. Such a page begins in two forms, each with a
 * page of its own pool: rows are written to both as they come, for a row's codes depend on that row
 * alone, and a token reads the one that pn__page_narrow names. So nothing is ever converted, and
 * how a prompt was cut can't show. The wide form goes back as soon as no later token reads it: what
 * stays is the first page, those of the newest window and of the step under way, and four bits of
 * the rest.
 *
 * Where the spec says `either`, each sequence chooses before its first page whether it is narrow
 * (pn__kv_begin). Both pools are mapped then, with room for every sequence going the same way.
 *
 * Who holds it pays for it: each sequence has a booking for its pages and one for its state, filled
 * by pn__kv_pay out of what its request was granted. Taking a page commits it against that booking,
 * giving it back returns its memory to the system and leaves the bytes promised to the sequence,
 * until pn__kv_change gives back what no page needs. A page that isn't paid for can't be taken; one
 * that is can't fail to be there but for the system's own refusal.
 *
 * Sync: everything here belongs to the engine's driver (law 2).
 */
#ifndef PN_KV_PAGES_H
#define PN_KV_PAGES_H

#include "base/arena.h"
#include "base/err.h"
#include "core/mem/pn_block.h"
#include "ops/ops.h"

/* What one kind of layers needs; layer_n 0: the model has none. */
struct pn_page_spec {
    uint32_t layer_n;
    uint32_t window; /* tokens a layer looks back, itself included; 0: all */
    struct pn_kv_shape shape;
    enum pn_kv_format format;
    bool narrow; /* older pages are kept in Q4, `format` is that of the others */
};

/* Window layers of a shorter window stay wide: their newest pages and a chunk's are nearly all they
 * hold. A question of the window alone, for the bits must not depend on chunk or context. */
#define PN_KV_NARROW_WINDOW_MIN 512

/* Whether layers that look back `window` tokens (0: all) may be `narrow`. */
static inline bool pn__kv_can_narrow(uint32_t window) {
    return window == 0 || window >= PN_KV_NARROW_WINDOW_MIN;
}

struct pn_kv_spec {
    struct pn_page_spec kinds[PN_PAGE_KIND_N];
    uint64_t state_bytes; /* recurrent state of one sequence; 0: none */
    uint32_t ctx;         /* longest sequence */
    uint32_t slot_n;      /* sequences at once */
    uint32_t chunk;       /* most tokens of one sequence in a step */
    bool either;          /* a sequence may also leave its `narrow` kinds all wide */
};

/* The same for sequences of one way: narrow in the kinds so marked, or in none. */
struct pn_kv_spec pn__kv_way(const struct pn_kv_spec *spec, bool narrow);

enum pn_page_form { PN_PAGE_WIDE = 0, PN_PAGE_NARROW = 1 };
#define PN_PAGE_FORM_N 2

/* Bytes of one page of a kind in its wide or its narrow form, a multiple of the system's page; 0
 * when the kind has no layers. */
uint64_t pn__page_bytes(const struct pn_page_spec *spec, enum pn_page_form form);
/* Most pages of this kind that one sequence holds at once, the two forms of one counted as one. For
 * a window that is what steps of `chunk` from its start need; pn__kv_room keeps other steps within
 * it. */
uint32_t pn__page_max(const struct pn_kv_spec *spec, enum pn_page_kind kind);
/* Most of them in one form; with `either`, whichever way it goes. */
uint32_t pn__page_form_max(const struct pn_kv_spec *spec, enum pn_page_kind kind,
                           enum pn_page_form form);

/* Exact bytes that all sequences together hold at most, KV pages and state apart; with `either`,
 * all of them the way that takes more. False when a product wraps or page numbers would. */
bool pn__kv_bytes(const struct pn_kv_spec *spec, uint64_t *kv_bytes, uint64_t *state_bytes);

/* What one sequence takes by its length: the same sizes as a table for admission. Of one way:
 * `either` isn't set. */
void pn__kv_cost(const struct pn_kv_spec *spec, pn_admit_cost *out);

/* One form of a sequence's pages; where view.data is NULL it isn't held. */
struct pn_seq_form {
    struct pn_page_view *views; /* [page_max]; NULL: the kind has no such form */
    uint32_t *ids;              /* [page_max] */
};

/* The cache of one sequence. */
struct pn_seq_kv {
    struct pn_seq_form forms[PN_PAGE_KIND_N][PN_PAGE_FORM_N];
    uint32_t first[PN_PAGE_KIND_N]; /* number of the first page held */
    uint32_t n[PN_PAGE_KIND_N];
    bool wide;      /* has no narrow forms, whatever its kinds may; see pn__kv_begin */
    uint8_t *state; /* NULL when there is none; zeroed until the sequence begins */
    /* Committed: what the pages and the state take. */
    pn_booking pages_paid;
    pn_booking state_paid;
};

struct pn_kv; /* pools, state and the sequences' tables */

/* Reserves nothing. PN_E_NOMEM, PN_E_INVALID. */
int pn__kv_new(const struct pn_kv_spec *spec, struct pn_detail *d,
               struct pn_kv **out) PN_MUST_CHECK;
void pn__kv_free(struct pn_kv *kv);

/* Sequence i < slot_n. */
struct pn_seq_kv *pn__kv_seq(struct pn_kv *kv, uint32_t i);

/* Says which way the sequence goes from its first page on; before that is said it is narrow.
 * Nothing changes for one that holds pages, which may only be told its own way again. `wide` needs
 * `either` in the spec, or kinds that aren't narrow. */
void pn__kv_begin(struct pn_kv *kv, uint32_t seq_i, bool wide);

/* Moves all that `pages` and `state`, bookings of KV and of state at host, have reserved to the
 * sequence; they stay live, with nothing in them. NULL or not live: nothing to move. */
void pn__kv_pay(struct pn_kv *kv, uint32_t seq_i, pn_booking *pages, pn_booking *state);

/* The reverse for what is paid and not committed: back to the ledger. */
void pn__kv_change(struct pn_kv *kv, uint32_t seq_i);

/* How many of `n` rows from `pos` on fit into what is paid and the pool's share, at least one. All
 * of them at a multiple of the chunk, when the way there is paid as pn__kv_cost says. */
uint32_t pn__kv_room(const struct pn_kv *kv, uint32_t seq_i, uint32_t pos, uint32_t n);

/* Makes room for positions [pos, pos + n): pages and forms that later tokens no longer see go
 * back first, then missing ones are taken, and the state with the first. The positions continue the
 * sequence (pos <= what it covers). PN_E_CONTEXT past spec.ctx; PN_E_NOFIT, with the numbers, when
 * that is more pages than one sequence may have (impossible within pn__kv_room); PN_E_STATE when
 * they aren't paid for; PN_E_NOMEM when the system has no memory for what is taken. */
int pn__kv_extend(struct pn_kv *kv, uint32_t seq_i, uint32_t pos, uint32_t n,
                  struct pn_detail *d) PN_MUST_CHECK;

/* Gives everything back, what is paid included; the state is zero again. */
void pn__kv_reset(struct pn_kv *kv, uint32_t seq_i);

/* Cuts a sequence of `held` tokens back to its first `length` <= held and returns how many it holds
 * then: `length`, or less when that point can't be gone back to. 0 (it is reset) when recurrent
 * state has moved past it, or a window page that its next token sees was given back; the start of
 * its page when that is held in four bits only, for tokens of the same page read it wide. Rows
 * behind the cut that share the last page stay there unread: each is written again before a token
 * sees it. */
uint32_t pn__kv_truncate(struct pn_kv *kv, uint32_t seq_i, uint32_t held, uint32_t length);

/* The tables of a step's pn_seq. */
void pn__kv_tables(const struct pn_kv *kv, uint32_t seq_i,
                   struct pn_page_table tables[PN_PAGE_KIND_N]);

/* Pages in use of a kind and form, for plans and tests. */
uint32_t pn__kv_used(const struct pn_kv *kv, enum pn_page_kind kind, enum pn_page_form form);

#endif
