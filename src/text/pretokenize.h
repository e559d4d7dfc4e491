/* Pre-tokenisers: how a text is cut into pieces before BPE merges run inside each piece.
 *
 * A pre-tokeniser is a list of patterns. Each pattern in turn cuts every segment that the one
 * before it left into its matches and the gaps between them; a pattern sees one segment only, so
 * the segment's end is the text's end for it. Patterns run in pcre2 with Unicode properties and
 * with limits on matches, depth and heap in proportion to the segment.
 */
#ifndef PN_TEXT_PRETOKENIZE_H
#define PN_TEXT_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/err.h"
#include "gguf/gguf.h"

#define PN_PRE_PATTERNS_MAX 6

struct pn_pre_rule {
    const char *name;    /* canonical */
    const char *aliases; /* other names of tokenizer.ggml.pre, separated by spaces; may be "" */
    const char *patterns[PN_PRE_PATTERNS_MAX]; /* the first NULL ends the list */
    bool ignore_merges; /* a piece that is a token becomes that token, whatever the merges say */
    bool add_bos;       /* when the file doesn't say */
    bool chars;         /* merges run on UTF-8 with U+2581 for spaces, not on byte-level text */
};

extern const struct pn_pre_rule pn__pre_rules[];
extern const size_t pn__pre_rule_n;

/* The rule that `name` names, canonically or by an alias; NULL when unknown. */
const struct pn_pre_rule *pn__pre_find(struct pn_str name);

/* All canonical names, separated by ", " (cut when `size` is too small). */
void pn__pre_names(char *buf, size_t size);

/* The compiled patterns of one rule: immutable, for any thread. */
struct pn_pre;
int pn__pre_new(const struct pn_pre_rule *rule, struct pn_detail *d,
                struct pn_pre **out) PN_MUST_CHECK;
void pn__pre_free(struct pn_pre *p);

/* Segments as lengths, in order; they add up to the text. */
struct pn_segs {
    size_t *len;
    size_t n;
    size_t cap;
};

/* One caller's scratch: zero it before the first use, free it at the end. The pieces of the last
 * split are in `segs`. */
struct pn_pre_scratch {
    struct pn_segs segs;
    struct pn_segs next;
    void *match;   /* pcre2_match_data */
    void *context; /* pcre2_match_context */
};

/* Cuts text[0, len), which must be valid UTF-8, into w->segs. PN_E_NOMEM; PN_E_UNSUPPORTED when a
 * limit of the matcher is hit. */
int pn__pre_split(const struct pn_pre *p, const char *text, size_t len, struct pn_pre_scratch *w,
                  struct pn_detail *d) PN_MUST_CHECK;
void pn__pre_scratch_free(struct pn_pre_scratch *w);

#endif
