#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "text/vocab.h"

/* Texts that end a generation, whatever type the file gives them, and what comes up to the same:
 * the marks of fill-in-the-middle where one document ends. */
static const char *const eog_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<eos>",
    "<end_of_utterance>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
    "<\357\275\234end\342\226\201of\342\226\201sentence\357\275\234>",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
    "<|eot|>",
    "<|end_of_turn|>",
};

/* Channel marks of gpt-oss: part of the answer, so never hidden. */
static const char *const shown_texts[] = {"<|channel|>", "<|message|>", "<|start|>",
                                          "<|constrain|>"};

static const char *const eog_keys[] = {
    "tokenizer.ggml.eos_token_id",     "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",     "tokenizer.ggml.fim_pad_token_id",
    "tokenizer.ggml.fim_rep_token_id", "tokenizer.ggml.fim_sep_token_id",
};

static int32_t find_text(const struct pn_vocab *v, const char *text) {
    uint32_t id = pn__strtab_find(&v->strings, (struct pn_str){text, strlen(text)});
    return id < v->n ? (int32_t)id : PN_TOKEN_NONE;
}

/* An id from the metadata; one outside the vocabulary is reported and not used. */
static int get_id(const struct pn_vocab *v, const struct pn_gguf *g, const char *key, int32_t *out,
                  struct pn_detail *d) {
    uint32_t id;
    int rc = pn__gguf_get_u32(g, key, &id, d);
    if (rc <= 0) return rc;
    if (id < v->n)
        *out = (int32_t)id;
    else
        pn__log(PN_LOG_WARN, "key '%s': %u is not a token (there are %u); not used", key, id, v->n);
    return 0;
}

/* Some converters write all of a model's ends as a list. */
static int mark_listed(struct pn_vocab *v, const struct pn_gguf *g, struct pn_detail *d) {
    static const char key[] = "tokenizer.ggml.eos_token_ids";
    struct pn_gguf_arr list;
    int rc = pn__gguf_get_arr(g, key, &list, d);
    if (rc <= 0) return rc;
    bool whole = list.type != PN_GGUF_STRING && list.type != PN_GGUF_ARRAY &&
                 list.type != PN_GGUF_F32 && list.type != PN_GGUF_F64 && list.type != PN_GGUF_BOOL;
    uint64_t bad_n = whole ? 0 : list.n;
    for (uint64_t i = 0; whole && i < list.n; i++) {
        int64_t id = pn__gguf_arr_i64(&list, i);
        if (id >= 0 && id < v->n)
            v->attr[id] |= PN_ATTR_EOG;
        else
            bad_n++;
    }
    if (bad_n)
        pn__log(PN_LOG_WARN, "key '%s': %llu of %llu are no tokens (there are %u); not used", key,
                (unsigned long long)bad_n, (unsigned long long)list.n, v->n);
    return 0;
}

static int load_ids(struct pn_vocab *v, const struct pn_gguf *g, struct pn_detail *d) {
    bool spm = v->kind == PN_VOCAB_SPM;
    v->bos = spm && v->n > 1 ? 1 : PN_TOKEN_NONE;
    v->eos = spm && v->n > 2 ? 2 : PN_TOKEN_NONE;
    v->unk = spm && v->n > 0 ? 0 : PN_TOKEN_NONE;
    int rc = get_id(v, g, "tokenizer.ggml.bos_token_id", &v->bos, d);
    if (rc == 0) rc = get_id(v, g, "tokenizer.ggml.unknown_token_id", &v->unk, d);
    if (rc == 0) rc = get_id(v, g, eog_keys[0], &v->eos, d);
    for (size_t i = 1; rc == 0 && i < PN_ARRAY_N(eog_keys); i++) {
        int32_t id = PN_TOKEN_NONE;
        rc = get_id(v, g, eog_keys[i], &id, d);
        if (id != PN_TOKEN_NONE) v->attr[id] |= PN_ATTR_EOG;
    }
    if (v->eos != PN_TOKEN_NONE) v->attr[v->eos] |= PN_ATTR_EOG;
    if (rc == 0) rc = mark_listed(v, g, d);
    if (rc) return rc;

    v->add_bos = spm || (v->rule && v->rule->add_bos);
    bool given = v->add_bos;
    rc = pn__gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &given, d);
    if (rc < 0) return rc;
    /* Files of gemma4 say no and mean yes. */
    v->add_bos =
        (given || (v->kind == PN_VOCAB_BPE_CHARS && v->rule->add_bos)) && v->bos != PN_TOKEN_NONE;
    return 0;
}

static bool has_eog(const struct pn_vocab *v, const char *text) {
    int32_t id = find_text(v, text);
    return id != PN_TOKEN_NONE && (v->attr[id] & PN_ATTR_EOG);
}

/* Takes the mark away again: the token is text in the middle of an answer, or plain text. */
static void unmark(struct pn_vocab *v, const char *text, uint8_t attr) {
    int32_t id = find_text(v, text);
    if (id != PN_TOKEN_NONE) v->attr[id] = attr;
}

static void mark_eog(struct pn_vocab *v) {
    for (size_t i = 0; i < PN_ARRAY_N(eog_texts); i++) {
        int32_t id = find_text(v, eog_texts[i]);
        if (id == PN_TOKEN_NONE) continue;
        v->attr[id] |= PN_ATTR_EOG | PN_ATTR_CONTROL;
    }
    for (size_t i = 0; i < PN_ARRAY_N(shown_texts); i++)
        unmark(v, shown_texts[i], PN_ATTR_USER);
    /* gpt-oss and solar-open end with <|return|>, <|call|> or <|flush|>; <|end|> ends a channel. */
    bool call = has_eog(v, "<|call|>") || has_eog(v, "<|calls|>");
    if (call && (has_eog(v, "<|return|>") || has_eog(v, "<|flush|>")))
        unmark(v, "<|end|>", PN_ATTR_USER);
    /* In gemma4 "</s>" is markup. */
    if (has_eog(v, "<|tool_response>")) unmark(v, "</s>", PN_ATTR_NORMAL);
}

/* Phi-3 was trained with the white space after special tokens taken away; its files don't say so
 * except by their name. */
static int mark_rstrip(struct pn_vocab *v, const struct pn_gguf *g, struct pn_detail *d) {
    struct pn_str name = {"", 0};
    int rc = pn__gguf_get_str(g, "general.name", &name, d);
    if (rc < 0) return rc;
    bool phi3 = false;
    for (size_t i = 0; !phi3 && i + 4 <= name.len; i++) {
        size_t left = name.len - i;
        phi3 = (left >= 5 && strncasecmp(name.data + i, "phi-3", 5) == 0) ||
               strncasecmp(name.data + i, "phi3", 4) == 0;
    }
    if (!phi3) return 0;
    for (uint32_t i = 0; i < v->n; i++)
        if (v->attr[i] & (PN_ATTR_SPECIAL | PN_ATTR_USER)) v->attr[i] |= PN_ATTR_RSTRIP;
    static const char *const kept[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (size_t i = 0; i < PN_ARRAY_N(kept); i++) {
        int32_t id = find_text(v, kept[i]);
        if (id != PN_TOKEN_NONE) v->attr[id] &= (uint8_t)~PN_ATTR_RSTRIP;
    }
    return 0;
}

static int compare(struct pn_str a, struct pn_str b) {
    int c = memcmp(a.data, b.data, a.len < b.len ? a.len : b.len);
    if (c) return c;
    return (a.len > b.len) - (a.len < b.len);
}

static int compare_special(const void *a, const void *b, void *strings) {
    return compare(pn__strtab_get(strings, *(const uint32_t *)a),
                   pn__strtab_get(strings, *(const uint32_t *)b));
}

static int sort_special(struct pn_vocab *v, struct pn_detail *d) {
    const uint8_t mask = PN_ATTR_SPECIAL | PN_ATTR_USER;
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n; i++)
        n += (v->attr[i] & mask) != 0;
    v->special = pn__calloc(n, sizeof *v->special);
    if (!v->special) return pn__fail(d, PN_E_NOMEM, "vocabulary: no memory for %u tokens", n);
    for (uint32_t i = 0; i < v->n; i++) {
        if ((v->attr[i] & mask) && pn__strtab_get(&v->strings, i).len)
            v->special[v->special_n++] = i;
    }
    qsort_r(v->special, v->special_n, sizeof *v->special, compare_special, &v->strings);
    uint32_t at = 0;
    for (uint32_t b = 0; b <= 256; b++) {
        while (at < v->special_n && (uint8_t)*pn__strtab_get(&v->strings, v->special[at]).data < b)
            at++;
        v->special_first[b] = at;
    }
    return 0;
}

int pn__vocab_load_special(struct pn_vocab *v, const struct pn_gguf *g, struct pn_detail *d) {
    int rc = load_ids(v, g, d);
    if (rc) return rc;
    mark_eog(v);
    rc = mark_rstrip(v, g, d);
    if (rc) return rc;
    return sort_special(v, d);
}

/* The byte at `depth` of the i-th special token, or -1 at its end. */
static int byte_at(const struct pn_vocab *v, uint32_t i, size_t depth) {
    struct pn_str s = pn__strtab_get(&v->strings, v->special[i]);
    return depth < s.len ? (uint8_t)s.data[depth] : -1;
}

/* First index in [lo, hi) whose byte at `depth` is at least `b`. */
static uint32_t lower_bound(const struct pn_vocab *v, uint32_t lo, uint32_t hi, size_t depth,
                            int b) {
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (byte_at(v, mid, depth) < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int32_t pn__special_match(const struct pn_vocab *v, const char *text, size_t len, bool special) {
    uint8_t first = (uint8_t)text[0];
    uint32_t lo = v->special_first[first];
    uint32_t hi = v->special_first[first + 1];
    int32_t best = PN_TOKEN_NONE;
    /* [lo, hi): those that begin with text[0, depth); the one that ends there sorts first. */
    for (size_t depth = 1; lo < hi; depth++) {
        if (byte_at(v, lo, depth) < 0) {
            uint32_t id = v->special[lo];
            if (special || !(v->attr[id] & PN_ATTR_SPECIAL)) best = (int32_t)id;
            lo++;
        }
        if (depth == len) break;
        int b = (uint8_t)text[depth];
        lo = lower_bound(v, lo, hi, depth, b);
        hi = lower_bound(v, lo, hi, depth, b + 1);
    }
    return best;
}
