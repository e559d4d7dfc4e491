/* Ids of a rendered conversation: control tokens only out of the template's own bytes. */
#include <ctype.h>
#include <string.h>

#include "text/chat/chat.h"
#include "text/segment.h"
#include "text/vocab.h"

/* Only the template's runs are searched, each by itself, and its marks come first: a user-defined
 * token that begins or ends in the conversation can't swallow one. */
static int append(const struct pn_vocab *v, const struct pn_chat_text *t, struct pn_ids *ids,
                  struct pn_detail *d) {
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
            rc = pn__tokenize(v, t->text + from, at - len - from, 0, ids, d);
            if (rc == 0) rc = pn__ids_push(ids, id, d);
            from = at;
            while ((v->attr[id] & PN_ATTR_RSTRIP) && from < t->len &&
                   isspace((uint8_t)t->text[from]))
                from++;
            if (from > at) at = from;
        }
    }
    return rc ? rc : pn__tokenize(v, t->text + from, t->len - from, 0, ids, d);
}

int pn__chat_tokenize(const struct pn_vocab *v, const struct pn_chat_text *text, struct pn_ids *ids,
                      struct pn_detail *d) {
    size_t had = ids->n;
    int rc = append(v, text, ids, d);
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
