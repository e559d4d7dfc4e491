#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "text/segment.h"
#include "text/text.h"

void pn__ids_free(struct pn_ids *l) {
    pn__free(l->ids);
    memset(l, 0, sizeof *l);
}

int pn__ids_push(struct pn_ids *l, int32_t id, struct pn_detail *d) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        int32_t *grown = pn__realloc_array(l->ids, cap, sizeof *grown);
        if (!grown) return pn__fail(d, PN_E_NOMEM, "tokenize: no memory for %zu ids", cap);
        l->ids = grown;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return 0;
}

/* Finds the first special token at or after `at`; its place is `len` when there is none. */
static int32_t next_special(const struct pn_vocab *v, const char *text, size_t len, size_t *at,
                            bool special, const struct pn_token_filter *filter) {
    for (; *at < len; (*at)++) {
        uint8_t b = (uint8_t)text[*at];
        if (v->special_first[b] == v->special_first[b + 1]) continue;
        int32_t id = pn__special_match(v, text + *at, len - *at, special);
        if (id == PN_TOKEN_NONE) continue;
        if (!filter || filter->allows(filter->of, *at, id)) return id;
    }
    return PN_TOKEN_NONE;
}

static int tokenize(struct pn_segmenter *w, const char *text, size_t len, bool special,
                    const struct pn_token_filter *filter) {
    const struct pn_vocab *v = w->v;
    bool after_special = true;
    for (size_t from = 0; from < len;) {
        size_t at = from;
        int32_t id = next_special(v, text, len, &at, special, filter);
        int rc = 0;
        if (at > from) {
            rc = pn__segment(w, text + from, at - from, after_special);
            after_special = false;
        }
        if (rc == 0 && id != PN_TOKEN_NONE) {
            rc = pn__ids_push(w->out, id, w->d);
            after_special = true;
            at += pn__strtab_get(&v->strings, (uint32_t)id).len;
            while ((v->attr[id] & PN_ATTR_RSTRIP) && at < len && isspace((uint8_t)text[at]))
                at++;
        }
        if (rc) return rc;
        from = at;
    }
    return 0;
}

static int run(const struct pn_vocab *v, const char *text, size_t len, unsigned flags,
               const struct pn_token_filter *filter, struct pn_ids *out, struct pn_detail *d,
               uint64_t *work) {
    /* Places in a text with its spaces rewritten are int32_t. */
    if (len > INT32_MAX / PN_SPM_SPACE_LEN - 1)
        return pn__fail(d, PN_E_INVALID, "tokenize: a text of %zu bytes is too long (at most %d)",
                        len, INT32_MAX / PN_SPM_SPACE_LEN - 1);
    size_t had = out->n;
    struct pn_segmenter w = {.v = v, .out = out, .d = d};
    int rc = 0;
    if ((flags & PN_TOKENIZE_BOS) && v->bos != PN_TOKEN_NONE) rc = pn__ids_push(out, v->bos, d);
    if (rc == 0) rc = tokenize(&w, text, len, flags & PN_TOKENIZE_SPECIAL, filter);
    if (rc) out->n = had;
    if (rc == 0 && w.lost_n)
        pn__log(PN_LOG_WARN,
                "tokenize: left out %llu bytes that the vocabulary has no token for "
                "(the first is 0x%02X)",
                (unsigned long long)w.lost_n, w.lost);
    *work += w.work;
    pn__segmenter_free(&w);
    return rc;
}

int pn__tokenize_counted(const struct pn_vocab *v, const char *text, size_t len, unsigned flags,
                         struct pn_ids *out, struct pn_detail *d, uint64_t *work) {
    return run(v, text, len, flags, NULL, out, d, work);
}

int pn__tokenize_filtered(const struct pn_vocab *v, const char *text, size_t len,
                          const struct pn_token_filter *filter, struct pn_ids *out,
                          struct pn_detail *d) {
    uint64_t work = 0;
    return run(v, text, len, 0, filter, out, d, &work);
}

int pn__tokenize(const struct pn_vocab *v, const char *text, size_t len, unsigned flags,
                 struct pn_ids *out, struct pn_detail *d) {
    uint64_t work = 0;
    return pn__tokenize_counted(v, text, len, flags, out, d, &work);
}
