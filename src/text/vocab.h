/* Inside the text room: what a loaded vocabulary is made of. Immutable after pn__vocab_load.
 *
 * Symbols are the strings that merges work on. Symbol i < n is token i; the ones above are strings
 * that occur only in merges (parts or results that are no token). In a byte-level vocabulary every
 * string is spelled in GPT-2's alphabet, in which each byte is one printable character.
 */
#ifndef PN_TEXT_VOCAB_H
#define PN_TEXT_VOCAB_H

#include <stdbool.h>
#include <stdint.h>

#include "text/pretokenize.h"
#include "text/strtab.h"
#include "text/text.h"

enum pn_vocab_kind {
    PN_VOCAB_SPM,       /* "llama": SentencePiece BPE, merges ordered by the result's score */
    PN_VOCAB_BPE_BYTES, /* "gpt2": byte-level BPE, merges ordered by rank */
    PN_VOCAB_BPE_CHARS, /* "gemma4": BPE on UTF-8, spaces written as U+2581, <0xXX> for bytes */
};

/* Token types as the files number them, stored as bits with what follows from the texts. */
enum {
    PN_ATTR_NORMAL = 1,
    PN_ATTR_UNKNOWN = 2,
    PN_ATTR_CONTROL = 4,
    PN_ATTR_USER = 8,
    PN_ATTR_UNUSED = 16,
    PN_ATTR_BYTE = 32,
    PN_ATTR_EOG = 64,
    PN_ATTR_RSTRIP = 128, /* white space after the token belongs to it */
    PN_ATTR_SPECIAL = PN_ATTR_UNKNOWN | PN_ATTR_CONTROL,
};

struct pn_merge {
    uint32_t left, right, out; /* symbols */
};

struct pn_vocab {
    enum pn_vocab_kind kind;
    uint32_t n;
    int32_t bos, eos, unk;
    bool add_bos;
    bool add_space_prefix;
    bool nfc;                       /* texts are normalised before they are cut */
    const struct pn_pre_rule *rule; /* NULL for SPM */
    struct pn_pre *pre;             /* NULL for SPM */

    struct pn_strtab
        strings;           /* [symbols]: the tokens' texts as the file spells them, then others */
    uint8_t *attr;         /* [n] PN_ATTR_* */
    float *score;          /* [n], SPM only */
    uint32_t text_len_max; /* of any token, in bytes as spelled */

    struct pn_merge *merge; /* [merge_n], by rank */
    uint32_t merge_n;
    uint32_t *merge_slot; /* [merge_slot_n], a power of two: rank + 1, or 0 */
    uint32_t merge_slot_n;

    uint32_t byte_symbol[256]; /* a byte as a piece's first symbol; PN_STR_NONE */
    int32_t byte_token[256];   /* the token that stands for a byte alone; PN_TOKEN_NONE */

    uint64_t *joint; /* bits: hashes of character pairs that are neighbours in some string */

    char *piece; /* what the tokens stand for, one after the other */
    uint32_t *piece_end;
    uint32_t piece_len_max; /* also of texts, with special tokens written out */

    uint32_t *special; /* [special_n]: tokens matched in the text as a whole, sorted by text */
    uint32_t special_n;
    uint32_t special_first[257]; /* those that begin with byte b: [special_first[b], [b + 1]) */
};

#define PN_JOINT_BITS (1u << 20)

static inline uint32_t pn__joint_bit(uint32_t a, uint32_t b) {
    return (uint32_t)pn__hash_u64((uint64_t)a << 32 | b) & (PN_JOINT_BITS - 1);
}

/* False: no token or merge has these two characters side by side, so nothing ever spans them. */
static inline bool pn__joint(const struct pn_vocab *v, uint32_t a, uint32_t b) {
    uint32_t bit = pn__joint_bit(a, b);
    return v->joint[bit / 64] >> (bit % 64) & 1;
}

/* A token that ordinary text may become: anything but control, unknown and byte tokens. */
static inline bool pn__token_is_text(const struct pn_vocab *v, uint32_t symbol) {
    return symbol < v->n && !(v->attr[symbol] & (PN_ATTR_SPECIAL | PN_ATTR_BYTE));
}

/* The rank of a pair of symbols, or PN_STR_NONE. */
uint32_t pn__merge_rank(const struct pn_vocab *v, uint32_t left, uint32_t right);

/* Reads tokenizer.ggml.merges into v->merge, adding symbols to v->strings. */
int pn__vocab_load_merges(struct pn_vocab *v, const struct pn_gguf *g, struct pn_detail *d);

/* After the texts and types: bos, eos and the other ids, end-of-generation marks, the sorted list
 * of special tokens. */
int pn__vocab_load_special(struct pn_vocab *v, const struct pn_gguf *g, struct pn_detail *d);

/* After the types: what each token stands for. */
int pn__vocab_make_pieces(struct pn_vocab *v, struct pn_detail *d);

/* GPT-2's alphabet: the character for a byte, and back (-1: the character stands for none). */
uint32_t pn__byte_to_cp(uint8_t b);
int pn__cp_to_byte(uint32_t cp);

/* The space as SPM and gemma4 vocabularies spell it, U+2581. */
#define PN_SPM_SPACE "\xe2\x96\x81"
#define PN_SPM_SPACE_LEN 3

/* The longest token of v->special at text[0, len) that may be matched here: a user-defined one, or
 * any when `special`. PN_TOKEN_NONE when none is there. */
int32_t pn__special_match(const struct pn_vocab *v, const char *text, size_t len, bool special);

/* Which user-defined tokens a text may hold: asked at each place where one would be found, in order
 * of `at`, a place in that text. Where it says no the bytes are ordinary text. */
struct pn_token_filter {
    bool (*allows)(void *of, size_t at, int32_t id);
    void *of;
};

/* As pn__tokenize without flags, for a text whose user-defined tokens have to pass a filter. */
int pn__tokenize_filtered(const struct pn_vocab *v, const char *text, size_t len,
                          const struct pn_token_filter *filter, struct pn_ids *out,
                          struct pn_detail *d) PN_MUST_CHECK;

/* As pn__tokenize, and adds to *work what it cost: one for each queue operation and lookup. */
int pn__tokenize_counted(const struct pn_vocab *v, const char *text, size_t len, unsigned flags,
                         struct pn_ids *out, struct pn_detail *d, uint64_t *work) PN_MUST_CHECK;

#endif
