/* Ids of a rendered conversation: marks only out of the template's own bytes. */
#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "text/chat/chat.h"
#include "text/chat/eval.h"
#include "text/segment.h"
#include "text/vocab.h"

/* ---- user-defined tokens that the conversation may not write ----
 *
 * Vocabularies give many of a template's marks ("<think>", "<tool_call>", deepseek's "<|User|>")
 * the same type as tokens that are plain text: runs of spaces, rare characters, gemma's "<table>".
 * A user-defined token counts as a mark if it stands in brackets and either has a bar inside or is
 * written in the template. */

enum { UNKNOWN, MARK, PLAIN };

struct marks {
    const struct pn_vocab *v;
    const struct pn_chat_text *t;
    struct pn_str source; /* the template's */
    uint8_t *known;       /* [v->n]: what is known of each token */
    size_t from;          /* where the text that is tokenised begins in t->text */
    size_t run;           /* of t->runs: the one that holds the last place asked for, or earlier */
};

static bool has(struct pn_str in, const char *what, size_t n) {
    return pn__j_find(in.data, 0, in.len, what, n) < in.len;
}

static bool is_mark(const struct marks *m, struct pn_str s) {
    static const char wide_bar[] = "\xef\xbd\x9c"; /* U+FF5C */
    if (s.len < 3 || !strchr("<[]", s.data[0]) || !strchr(">[]", s.data[s.len - 1])) return false;
    return memchr(s.data, '|', s.len) || has(s, wide_bar, sizeof wide_bar - 1) ||
           has(m->source, s.data, s.len);
}

/* Whether a user-defined token may stand here: marks only in a run of the template's. */
static bool allows(void *of, size_t at, int32_t id) {
    struct marks *m = of;
    const struct pn_chat_text *t = m->t;
    struct pn_str s = pn__strtab_get(&m->v->strings, (uint32_t)id);
    at += m->from;
    while (t->runs[m->run].end <= at)
        m->run++;
    if (!t->runs[m->run].conversation && at + s.len <= t->runs[m->run].end) return true;
    uint8_t *known = &m->known[id];
    if (*known == UNKNOWN) *known = is_mark(m, s) ? MARK : PLAIN;
    return *known == PLAIN;
}

/* ---- ids ---- */

/* t->text[from, to), which has no control tokens in it. */
static int put_plain(struct marks *m, size_t from, size_t to, struct pn_ids *ids,
                     struct pn_detail *d) {
    const struct pn_token_filter filter = {allows, m};
    m->from = from;
    return pn__tokenize_filtered(m->v, m->t->text + from, to - from, &filter, ids, d);
}

/* Only the template's runs are searched, each by itself, and its marks come first: a user-defined
 * token that begins or ends in the conversation can't swallow one. */
static int append(struct marks *m, struct pn_ids *ids, struct pn_detail *d) {
    const struct pn_vocab *v = m->v;
    const struct pn_chat_text *t = m->t;
    size_t from = 0; /* of the ordinary text not yet tokenised */
    size_t at = 0;
    int rc = 0;
    for (size_t run = 0; run < t->run_n; run++) {
        size_t run_end = t->runs[run].end;
        if (t->runs[run].conversation && at < run_end) at = run_end;
        while (rc == 0 && at < run_end) {
            uint8_t b = (uint8_t)t->text[at];
            int32_t id = PN_TOKEN_NONE;
            if (v->special_first[b] != v->special_first[b + 1])
                id = pn__special_match(v, t->text + at, run_end - at, true);
            size_t len = 1;
            if (id != PN_TOKEN_NONE) len = pn__strtab_get(&v->strings, (uint32_t)id).len;
            at += len;
            /* A user-defined token stays in the stretch, which finds it again. */
            if (id == PN_TOKEN_NONE || !(v->attr[id] & PN_ATTR_SPECIAL)) continue;
            rc = put_plain(m, from, at - len, ids, d);
            if (rc == 0) rc = pn__ids_push(ids, id, d);
            from = at;
            while ((v->attr[id] & PN_ATTR_RSTRIP) && from < t->len &&
                   isspace((uint8_t)t->text[from]))
                from++;
            if (from > at) at = from;
        }
    }
    return rc ? rc : put_plain(m, from, t->len, ids, d);
}

int pn__chat_tokenize(const struct pn_vocab *v, const struct pn_template *t,
                      const struct pn_chat_text *text, struct pn_ids *ids, struct pn_detail *d) {
    struct marks m = {.v = v, .t = text, .source = t ? t->source : (struct pn_str){"", 0}};
    size_t had = ids->n;
    m.known = pn__calloc(v->n, 1);
    if (!m.known) return pn__fail(d, PN_E_NOMEM, "tokenize: no memory for %u marks", v->n);
    int rc = append(&m, ids, d);
    pn__free(m.known);
    bool wants = v->add_bos && v->bos != PN_TOKEN_NONE;
    size_t bos_n = 0;
    while (rc == 0 && v->bos != PN_TOKEN_NONE && had + bos_n < ids->n &&
           ids->ids[had + bos_n] == v->bos)
        bos_n++;
    if (rc == 0 && wants && bos_n == 0) {
        rc = pn__ids_push(ids, v->bos, d);
        if (rc == 0) {
            memmove(ids->ids + had + 1, ids->ids + had, (ids->n - had - 1) * sizeof *ids->ids);
            ids->ids[had] = v->bos;
        }
    } else if (rc == 0 && wants && bos_n > 1) {
        memmove(ids->ids + had + 1, ids->ids + had + bos_n,
                (ids->n - had - bos_n) * sizeof *ids->ids);
        ids->n -= bos_n - 1;
    }
    if (rc) ids->n = had;
    return rc;
}
