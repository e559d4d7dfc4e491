/* Text to token ids and back: the vocabularies of GGUF files (SPM, BPE), their pre-tokenisers, and
 * a stream decoder that never splits a UTF-8 character.
 *
 * A vocabulary is immutable after loading and may be read from any thread. Nothing here recurses on
 * input length, and time is linear in it (n log n inside one pre-token).
 */
#ifndef PN_TEXT_H
#define PN_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "gguf/gguf.h"

#define PN_TOKEN_NONE (-1)

struct pn_vocab;

/* Loads `tokenizer.ggml.*`. `pre` overrides the file's `tokenizer.ggml.pre` (NULL: the file's); an
 * unknown name is refused and the known ones are listed. A BPE file without the key loads as
 * "default" with a warning in the log. `g` may be closed afterwards. Errors: PN_E_FORMAT,
 * PN_E_UNSUPPORTED, PN_E_USAGE (an unknown `pre`), PN_E_NOMEM. */
int pn__vocab_load(const struct pn_gguf *g, const char *pre, struct pn_detail *d,
                   struct pn_vocab **out) PN_MUST_CHECK;
void pn__vocab_free(struct pn_vocab *v);

int32_t pn__vocab_n(const struct pn_vocab *v);
int32_t pn__vocab_bos(const struct pn_vocab *v); /* PN_TOKEN_NONE when there is none */
int32_t pn__vocab_eos(const struct pn_vocab *v);
bool pn__vocab_add_bos(const struct pn_vocab *v); /* the model wants one in front of a prompt */
bool pn__vocab_is_eog(const struct pn_vocab *v, int32_t id); /* any end-of-generation token */
bool pn__vocab_is_control(const struct pn_vocab *v, int32_t id);
/* The pre-tokeniser in use, canonical name; "none" for SPM, which has none. */
const char *pn__vocab_pre(const struct pn_vocab *v);
/* Memory that the vocabulary holds, compiled patterns not counted. */
uint64_t pn__vocab_bytes(const struct pn_vocab *v);

/* The bytes that a token stands for: "" for control tokens unless `special`. Valid as long as `v`;
 * not NUL-terminated; may be part of a UTF-8 character. Ids out of range give "". */
struct pn_str pn__vocab_piece(const struct pn_vocab *v, int32_t id, bool special);

/* Growable list of ids. Zero it before the first use. */
struct pn_ids {
    int32_t *ids;
    size_t n;
    size_t cap;
};
void pn__ids_free(struct pn_ids *l);

enum {
    PN_TOKENIZE_BOS = 1,     /* BOS first, if the vocabulary has one */
    PN_TOKENIZE_SPECIAL = 2, /* texts of control tokens become those tokens; else they are text */
};

/* Appends the ids of text[0, len). Any bytes are accepted: what is not UTF-8 goes through byte
 * fallback or byte-level BPE as it is. User-defined tokens are found in any text, control tokens
 * only with PN_TOKENIZE_SPECIAL; without it no text ever becomes one. What a vocabulary has no
 * token for becomes its unknown token (SPM), or is left out (BPE, as the models were trained),
 * with a warning in the log. PN_E_NOMEM, PN_E_INVALID (more than 715 MB of text), PN_E_UNSUPPORTED
 * (a limit of the pattern matcher); on failure `out` keeps what it had. */
int pn__tokenize(const struct pn_vocab *v, const char *text, size_t len, unsigned flags,
                 struct pn_ids *out, struct pn_detail *d) PN_MUST_CHECK;

/* Ids to text, streaming. Bytes of a character that is not complete yet are held back (at most 3).
 * Bytes that can never become one come out as U+FFFD, by Unicode's rule: one for each maximal
 * start of a character, one for each other byte; so the text is the same wherever it is cut into
 * tokens. Zero it before the first use. */
struct pn_decoder {
    uint8_t held[4];
    uint32_t held_n;
    bool at_start; /* set: the leading space that SPM adds to a text is still to be dropped */
};

/* Feeds a token; writes at most `cap` bytes of complete characters to `buf`, returns how many.
 * `cap` must be at least pn__decoder_max(v), which bounds one call for any token of the vocabulary.
 */
size_t pn__decoder_feed(struct pn_decoder *dec, const struct pn_vocab *v, int32_t id, bool special,
                        char *buf, size_t cap);
size_t pn__decoder_max(const struct pn_vocab *v);
/* At the end: an incomplete character that is still held is dropped; returns how many bytes. */
size_t pn__decoder_finish(struct pn_decoder *dec);

#endif
