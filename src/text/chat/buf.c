/* Texts under construction. */
#include <string.h>

#include "text/chat/eval.h"

static int grow(struct pn_jctx *c, struct pn_jbuf *b, size_t need) {
    size_t cap = b->cap * 2 > need ? b->cap * 2 : need;
    char *p = pn__j_take(c, cap, 1);
    uint8_t *by = p && b->by ? pn__j_take(c, cap, 1) : NULL;
    if (!p || (b->by && !by)) return pn__j_failed(c);
    if (b->n) memcpy(p, b->p, b->n);
    if (b->n && by) memcpy(by, b->by, b->n);
    b->p = p;
    b->by = by;
    b->cap = cap;
    return 0;
}

int pn__jbuf_put(struct pn_jctx *c, struct pn_jbuf *b, const char *p, size_t n, const uint8_t *by,
                 uint8_t one) {
    if (n == 0) return 0;
    if (n > c->t->limits.output_bytes_max - b->n) {
        pn__j_fail_set(c, "a text grows beyond the limit of %llu bytes",
                       (unsigned long long)c->t->limits.output_bytes_max);
        return pn__fail_code(PN_E_NOFIT);
    }
    int rc = pn__j_step(c, n / 16);
    if (rc == 0 && n > b->cap - b->n) rc = grow(c, b, b->n + n);
    if (rc) return rc;
    if (b->n == 0 && !by) {
        b->one = one;
        b->by = NULL;
    } else if (!b->by && (by || one != b->one)) {
        b->by = pn__j_take(c, b->cap, 1);
        if (!b->by) return pn__j_failed(c);
        memset(b->by, b->one, b->n);
    }
    memcpy(b->p + b->n, p, n);
    if (b->by && by)
        memcpy(b->by + b->n, by, n);
    else if (b->by)
        memset(b->by + b->n, one, n);
    b->n += n;
    return 0;
}

int pn__jbuf_put_escaped(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jstr *s) {
    static const char marks[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    size_t from = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n; i++) {
        const char *at = s->p[i] ? strchr(marks, s->p[i]) : NULL;
        if (!at) continue;
        const char *name = names[at - marks];
        rc = pn__jbuf_put_part(c, b, s, from, i);
        if (rc == 0) rc = pn__jbuf_put(c, b, name, strlen(name), NULL, pn__j_by_at(s, i));
        from = i + 1;
    }
    return rc ? rc : pn__jbuf_put_part(c, b, s, from, s->n);
}

int pn__jbuf_str(struct pn_jctx *c, struct pn_jbuf *b, struct pn_jval *out) {
    int rc = pn__j_text(c, b->p ? b->p : "", b->n, out);
    if (rc) return rc;
    out->s->by = b->by;
    out->s->one = b->one;
    out->s->buf = b;
    return 0;
}

struct pn_jbuf *pn__jbuf_after(struct pn_jctx *c, const struct pn_jval *v) {
    struct pn_jbuf *b = v->type == PN_JV_STR ? v->s->buf : NULL;
    if (b && b->n && v->s->p == b->p && v->s->n == b->n) return b;
    return pn__j_take(c, 1, sizeof *b);
}
