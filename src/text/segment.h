/* Merging one piece of text into tokens: symbols in a linked list, candidate pairs in a queue, the
 * best one first, so that a piece of n characters costs O(n log n). */
#ifndef PN_TEXT_SEGMENT_H
#define PN_TEXT_SEGMENT_H

#include "text/nfc.h"
#include "text/vocab.h"

struct pn_sym {
    uint32_t id;  /* symbol, or PN_STR_NONE when the string is in no table */
    uint32_t off; /* in the piece */
    uint32_t len; /* bytes; 0 once it is merged into its left neighbour */
    int32_t prev, next;
};

struct pn_pair {
    uint64_t order; /* smaller first: rank or score in the high half, place in the low one */
    uint32_t out;
    uint32_t len; /* of both symbols when the pair was queued; another sum means it is gone */
};

/* One caller's scratch: zero it before the first use. */
struct pn_segmenter {
    const struct pn_vocab *v;
    struct pn_ids *out;
    struct pn_detail *d;
    struct pn_pre_scratch pre;
    struct pn_buf nfc;
    struct pn_sym *sym;
    size_t sym_cap;
    struct pn_pair *heap;
    size_t heap_n, heap_cap;
    char *text; /* a fragment with its spaces rewritten, or a piece in the byte alphabet */
    size_t text_cap;
    uint64_t work;
    uint64_t lost_n; /* bytes that the vocabulary has no token for */
    uint8_t lost;    /* the first of them */
};

int pn__ids_push(struct pn_ids *l, int32_t id, struct pn_detail *d) PN_MUST_CHECK;

/* Appends the ids of text[0, n), which holds no special tokens. `after_special`: at the start of
 * the text or behind a special token, where SPM puts its leading space. */
int pn__segment(struct pn_segmenter *w, const char *text, size_t n,
                bool after_special) PN_MUST_CHECK;
void pn__segmenter_free(struct pn_segmenter *w);

#endif
