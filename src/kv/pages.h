/* KV pages and recurrent state: who holds which piece of the cache.
 *
 * A page holds PN_PAGE_TOKENS tokens of every layer of one kind (full, window or latent), in one
 * format; the layout inside is ops' (ops.h, pn__kv_layer_bytes). A pool is one block of equal
 * pages, reserved whole when the engine is loaded and committed page by page as they are first
 * used, so taking a page in the middle of a request allocates nothing and can't fail while one is
 * free.
 *
 * A sequence owns a list of pages for each kind and one entry of the state pool. Pages never move
 * while it holds them. Window layers give a page back as soon as no later token can see it.
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
};

struct pn_kv_spec {
    struct pn_page_spec kinds[PN_PAGE_KIND_N];
    uint64_t state_bytes; /* recurrent state of one sequence; 0: none */
    uint32_t ctx;         /* longest sequence */
    uint32_t slot_n;      /* sequences at once */
    uint32_t chunk;       /* most tokens of one sequence in a step */
};

/* Bytes of one page of a kind, a multiple of the system's page; 0 when the kind has no layers. */
uint64_t pn__page_bytes(const struct pn_page_spec *spec);
/* Most pages of this kind that one sequence holds at once. */
uint32_t pn__page_max(const struct pn_kv_spec *spec, enum pn_page_kind kind);

/* Exact bytes that pn__kv_new reserves, KV pages and state apart. False when a product wraps or
 * page numbers would. */
bool pn__kv_bytes(const struct pn_kv_spec *spec, uint64_t *kv_bytes, uint64_t *state_bytes);

/* The cache of one sequence. */
struct pn_seq_kv {
    struct pn_page_view *views[PN_PAGE_KIND_N]; /* [page_max] */
    uint32_t *page_ids[PN_PAGE_KIND_N];         /* [page_max] */
    uint32_t first[PN_PAGE_KIND_N];             /* number of the first page held */
    uint32_t n[PN_PAGE_KIND_N];
    uint8_t *state; /* NULL when there is none */
};

struct pn_kv; /* pools, state and the sequences' tables */

/* PN_E_NOFIT from the ledger, PN_E_NOMEM, PN_E_INVALID. */
int pn__kv_new(const struct pn_kv_spec *spec, struct pn_detail *d,
               struct pn_kv **out) PN_MUST_CHECK;
void pn__kv_free(struct pn_kv *kv);

/* Sequence i < slot_n. */
struct pn_seq_kv *pn__kv_seq(struct pn_kv *kv, uint32_t i);

/* Makes room for positions [pos, pos + n): pages that later tokens no longer see go back first,
 * then missing ones are taken. The positions continue the sequence (pos <= what it covers).
 * PN_E_CONTEXT past spec.ctx; PN_E_NOFIT, with the numbers, when that is more pages than one
 * sequence was given (impossible while n stays within spec.chunk); PN_E_NOMEM when the system has
 * no memory for a page used for the first time. */
int pn__kv_extend(struct pn_kv *kv, uint32_t seq_i, uint32_t pos, uint32_t n,
                  struct pn_detail *d) PN_MUST_CHECK;

/* Gives all pages back and clears the state. */
void pn__kv_reset(struct pn_kv *kv, uint32_t seq_i);

/* Cuts a sequence of `held` tokens back to its first `length` <= held and returns how many it holds
 * then: `length`, or 0 (it is reset) when that point can't be gone back to: recurrent state has
 * moved past it, or a window page that its next token sees was given back. Rows behind the cut that
 * share the last page stay there unread: each is written again before a token sees it. */
uint32_t pn__kv_truncate(struct pn_kv *kv, uint32_t seq_i, uint32_t held, uint32_t length);

/* The tables of a step's pn_seq. */
void pn__kv_tables(const struct pn_kv *kv, uint32_t seq_i,
                   struct pn_page_table tables[PN_PAGE_KIND_N]);

/* Pages in use of a kind, for plans and tests. */
uint32_t pn__kv_used(const struct pn_kv *kv, enum pn_page_kind kind);

#endif
