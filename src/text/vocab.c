#include "text/vocab.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "text/nfc.h"
#include "text/utf8.h"

static const struct {
    const char *model;
    enum pn_vocab_kind kind;
} kinds[] = {
    {"llama", PN_VOCAB_SPM},
    {"gpt2", PN_VOCAB_BPE_BYTES},
    {"gemma4", PN_VOCAB_BPE_CHARS},
};

static bool equal(struct pn_str s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static int load_kind(struct pn_vocab *v, const struct pn_gguf *g, struct pn_detail *d) {
    struct pn_str model = {"", 0};
    int rc = pn__gguf_get_str(g, "tokenizer.ggml.model", &model, d);
    if (rc < 0) return rc;
    if (rc == 0)
        return pn__fail(d, PN_E_FORMAT, "key 'tokenizer.ggml.model' is missing: no vocabulary");
    for (size_t i = 0; i < PN_ARRAY_N(kinds); i++) {
        if (!equal(model, kinds[i].model)) continue;
        v->kind = kinds[i].kind;
        return 0;
    }
    return pn__fail(d, PN_E_UNSUPPORTED,
                    "tokenizer.ggml.model '%.*s' is not supported (known: llama, gpt2, gemma4)",
                    (int)(model.len < 60 ? model.len : 60), model.data);
}

static int unknown_pre(struct pn_str name, bool given, struct pn_detail *d) {
    char known[360];
    pn__pre_names(known, sizeof known);
    return pn__fail(d, given ? PN_E_USAGE : PN_E_UNSUPPORTED, "unknown %s '%.*s'%s; known: %s",
                    given ? "pre-tokeniser" : "tokenizer.ggml.pre",
                    (int)(name.len < 40 ? name.len : 40), name.data,
                    given ? "" : " (--pre NAME overrides it)", known);
}

static int load_rule(struct pn_vocab *v, const struct pn_gguf *g, const char *pre,
                     struct pn_detail *d) {
    struct pn_str name = {"", 0};
    if (pre) {
        name = (struct pn_str){pre, strlen(pre)};
        v->rule = pn__pre_find(name);
        if (!v->rule) return unknown_pre(name, true, d);
        if (v->kind == PN_VOCAB_SPM) {
            pn__log(PN_LOG_WARN, "pre-tokeniser '%s' is not used: the vocabulary is SPM", pre);
            v->rule = NULL;
            return 0;
        }
    } else if (v->kind == PN_VOCAB_SPM) {
        return 0;
    } else if (v->kind == PN_VOCAB_BPE_CHARS) {
        v->rule = pn__pre_find((struct pn_str){"gemma4", 6});
    } else {
        int rc = pn__gguf_get_str(g, "tokenizer.ggml.pre", &name, d);
        if (rc < 0) return rc;
        if (rc == 0) {
            pn__log(PN_LOG_WARN, "key 'tokenizer.ggml.pre' is missing: using 'default', which is "
                                 "probably not what the model was trained with and makes its "
                                 "answers worse; name the right one with --pre");
            name = (struct pn_str){"default", 7};
        }
        v->rule = pn__pre_find(name);
        if (!v->rule) return unknown_pre(name, false, d);
    }
    v->kind = v->rule->chars ? PN_VOCAB_BPE_CHARS : PN_VOCAB_BPE_BYTES;
    return pn__pre_new(v->rule, d, &v->pre);
}

static int load_texts(struct pn_vocab *v, const struct pn_gguf *g, struct pn_detail *d) {
    static const char key[] = "tokenizer.ggml.tokens";
    struct pn_gguf_arr arr;
    int rc = pn__gguf_get_arr(g, key, &arr, d);
    if (rc < 0) return rc;
    if (rc == 0) return pn__fail(d, PN_E_FORMAT, "key '%s' is missing", key);
    if (arr.type != PN_GGUF_STRING)
        return pn__fail(d, PN_E_FORMAT, "key '%s': elements are %s, not strings", key,
                        pn__gguf_type_name(arr.type));
    if (arr.n == 0 || arr.n > INT32_MAX / 4)
        return pn__fail(d, PN_E_FORMAT, "key '%s': %llu tokens (1 to %d are supported)", key,
                        (unsigned long long)arr.n, INT32_MAX / 4);
    size_t bytes = 0;
    for (uint64_t i = 0; i < arr.n; i++)
        bytes += pn__gguf_arr_str(&arr, i).len;
    rc = pn__strtab_reserve(&v->strings, arr.n, bytes);
    for (uint32_t i = 0; rc == 0 && i < arr.n; i++) {
        struct pn_str s = pn__gguf_arr_str(&arr, i);
        uint32_t found;
        rc = pn__strtab_add(&v->strings, s, &found);
        if (rc == 0 && found != PN_STR_NONE)
            return pn__fail(d, PN_E_FORMAT, "key '%s': tokens %u and %u are both '%.*s'", key,
                            found, i, (int)(s.len < 60 ? s.len : 60), s.data);
        if (s.len > v->text_len_max) v->text_len_max = (uint32_t)s.len;
    }
    if (rc)
        return pn__fail(d, rc, "key '%s': no memory for %llu tokens of %zu bytes", key,
                        (unsigned long long)arr.n, bytes);
    v->n = (uint32_t)arr.n;
    return 0;
}

/* An array beside the tokens: 1 when it is there and long enough, 0 when it is absent. */
static int get_beside(const struct pn_vocab *v, const struct pn_gguf *g, const char *key,
                      struct pn_gguf_arr *arr, struct pn_detail *d) {
    int rc = pn__gguf_get_arr(g, key, arr, d);
    if (rc <= 0) return rc;
    if (arr->type == PN_GGUF_STRING || arr->type == PN_GGUF_ARRAY || arr->type == PN_GGUF_BOOL)
        return pn__fail(d, PN_E_FORMAT, "key '%s': elements are %s, not numbers", key,
                        pn__gguf_type_name(arr->type));
    if (arr->n < v->n)
        return pn__fail(d, PN_E_FORMAT, "key '%s': %llu elements for %u tokens", key,
                        (unsigned long long)arr->n, v->n);
    return 1;
}

static int load_types(struct pn_vocab *v, const struct pn_gguf *g, struct pn_detail *d) {
    static const uint8_t attr_of[] = {
        0,           PN_ATTR_NORMAL, PN_ATTR_UNKNOWN, PN_ATTR_CONTROL, PN_ATTR_USER, PN_ATTR_UNUSED,
        PN_ATTR_BYTE};
    struct pn_gguf_arr arr;
    v->attr = pn__calloc(v->n, sizeof *v->attr);
    if (!v->attr) return pn__fail(d, PN_E_NOMEM, "vocabulary: no memory for %u tokens", v->n);
    int rc = get_beside(v, g, "tokenizer.ggml.token_type", &arr, d);
    if (rc < 0) return rc;
    for (uint32_t i = 0; i < v->n; i++) {
        int64_t type = rc ? pn__gguf_arr_i64(&arr, i) : 1;
        v->attr[i] = type >= 0 && type < (int64_t)sizeof attr_of ? attr_of[type] : 0;
    }
    return 0;
}

static int load_scores(struct pn_vocab *v, const struct pn_gguf *g, struct pn_detail *d) {
    struct pn_gguf_arr arr;
    v->score = pn__calloc(v->n, sizeof *v->score);
    if (!v->score) return pn__fail(d, PN_E_NOMEM, "vocabulary: no memory for %u scores", v->n);
    int rc = get_beside(v, g, "tokenizer.ggml.scores", &arr, d);
    if (rc < 0) return rc;
    if (rc == 0) {
        pn__log(PN_LOG_WARN, "key 'tokenizer.ggml.scores' is missing: all tokens count the same");
        return 0;
    }
    for (uint32_t i = 0; i < v->n; i++)
        v->score[i] = (float)pn__gguf_arr_f64(&arr, i);
    return 0;
}

static void map_bytes(struct pn_vocab *v) {
    for (int b = 0; b < 256; b++) {
        char hex[8], one = (char)b, coded[4];
        snprintf(hex, sizeof hex, "<0x%02X>", b);
        struct pn_str text = {coded, pn__utf8_put(pn__byte_to_cp((uint8_t)b), coded)};
        v->byte_symbol[b] = pn__strtab_find(&v->strings, text);
        uint32_t id = v->byte_symbol[b];
        bool ok = pn__token_is_text(v, id);
        if (v->kind != PN_VOCAB_BPE_BYTES) {
            id = pn__strtab_find(&v->strings, (struct pn_str){hex, 6});
            ok = id < v->n;
            if (!ok) {
                id = pn__strtab_find(&v->strings, (struct pn_str){&one, 1});
                ok = pn__token_is_text(v, id);
            }
        }
        v->byte_token[b] = ok ? (int32_t)id : PN_TOKEN_NONE;
    }
}

static int map_joints(struct pn_vocab *v, struct pn_detail *d) {
    v->joint = pn__calloc(PN_JOINT_BITS / 64, sizeof *v->joint);
    if (!v->joint) return pn__fail(d, PN_E_NOMEM, "vocabulary: no memory");
    for (uint32_t i = 0; i < v->strings.n; i++) {
        struct pn_str s = pn__strtab_get(&v->strings, i);
        uint32_t before = 0;
        for (size_t at = 0; at < s.len;) {
            struct pn_utf8_char c = pn__text_char(s.data + at, s.len - at);
            if (at) {
                uint32_t bit = pn__joint_bit(before, c.cp);
                v->joint[bit / 64] |= (uint64_t)1 << (bit % 64);
            }
            before = c.cp;
            at += c.len;
        }
    }
    return 0;
}

static int load(struct pn_vocab *v, const struct pn_gguf *g, const char *pre, struct pn_detail *d) {
    int rc = load_kind(v, g, d);
    if (rc == 0) rc = load_rule(v, g, pre, d);
    if (rc == 0) rc = load_texts(v, g, d);
    if (rc == 0) rc = load_types(v, g, d);
    if (rc == 0 && v->kind == PN_VOCAB_SPM) rc = load_scores(v, g, d);
    if (rc == 0 && v->kind != PN_VOCAB_SPM) rc = pn__vocab_load_merges(v, g, d);
    if (rc == 0) rc = pn__vocab_load_special(v, g, d);
    if (rc == 0) rc = pn__vocab_make_pieces(v, d);
    if (rc == 0) rc = pn__nfc_wanted(g, &v->nfc, d);
    if (rc) return rc;
    map_bytes(v);
    if (v->kind != PN_VOCAB_BPE_BYTES) rc = map_joints(v, d);
    if (rc) return rc;
    v->add_space_prefix = v->kind == PN_VOCAB_SPM;
    if (v->kind == PN_VOCAB_SPM)
        rc = pn__gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix, d);
    return rc < 0 ? rc : 0;
}

int pn__vocab_load(const struct pn_gguf *g, const char *pre, struct pn_detail *d,
                   struct pn_vocab **out) {
    struct pn_vocab *v = pn__calloc(1, sizeof *v);
    if (!v) return pn__fail(d, PN_E_NOMEM, "vocabulary: no memory");
    int rc = load(v, g, pre, d);
    if (rc) {
        pn__vocab_free(v);
        return rc;
    }
    *out = v;
    return 0;
}

void pn__vocab_free(struct pn_vocab *v) {
    if (!v) return;
    pn__pre_free(v->pre);
    pn__strtab_free(&v->strings);
    pn__free(v->attr);
    pn__free(v->score);
    pn__free(v->merge);
    pn__free(v->merge_slot);
    pn__free(v->joint);
    pn__free(v->piece);
    pn__free(v->piece_end);
    pn__free(v->special);
    pn__free(v);
}

int32_t pn__vocab_n(const struct pn_vocab *v) {
    return (int32_t)v->n;
}

int32_t pn__vocab_bos(const struct pn_vocab *v) {
    return v->bos;
}

int32_t pn__vocab_eos(const struct pn_vocab *v) {
    return v->eos;
}

bool pn__vocab_add_bos(const struct pn_vocab *v) {
    return v->add_bos;
}

bool pn__vocab_is_eog(const struct pn_vocab *v, int32_t id) {
    return id >= 0 && (uint32_t)id < v->n && (v->attr[id] & PN_ATTR_EOG);
}

bool pn__vocab_is_control(const struct pn_vocab *v, int32_t id) {
    return id >= 0 && (uint32_t)id < v->n && (v->attr[id] & PN_ATTR_CONTROL);
}

const char *pn__vocab_pre(const struct pn_vocab *v) {
    return v->rule ? v->rule->name : "none";
}

uint64_t pn__vocab_bytes(const struct pn_vocab *v) {
    uint64_t n = v->n, strings = v->strings.cap + (uint64_t)v->strings.slot_n;
    uint64_t bytes = sizeof *v + v->strings.bytes_cap + strings * sizeof(uint32_t);
    bytes += n * (sizeof *v->attr + sizeof *v->piece_end) + v->strings.end[v->n - 1];
    bytes += v->special_n * (uint64_t)sizeof *v->special;
    if (v->score) bytes += n * sizeof *v->score;
    if (v->joint) bytes += PN_JOINT_BITS / 8;
    return bytes + v->merge_n * (uint64_t)sizeof *v->merge + v->merge_slot_n * sizeof(uint32_t);
}
