/* Equality, order, membership and hashes, as Python has them. */
#include <math.h>
#include <string.h>

#include "text/chat/eval.h"

static int list_equal(struct pn_jctx *c, const struct pn_jlist *a, const struct pn_jlist *b,
                      bool *out) {
    *out = a == b;
    if (a == b || a->kind != b->kind || a->n != b->n) return 0;
    if (a->kind == PN_JL_ONCE) return 0;
    *out = true;
    int rc = pn__j_enter(c);
    for (size_t i = 0; rc == 0 && *out && i < a->n; i++)
        rc = pn__j_equal(c, &a->v[i], &b->v[i], out);
    c->depth--;
    return rc;
}

static int dict_equal(struct pn_jctx *c, const struct pn_jdict *a, const struct pn_jdict *b,
                      bool *out) {
    *out = a->n == b->n;
    int rc = pn__j_enter(c);
    for (size_t i = 0; rc == 0 && *out && i < a->n; i++) {
        struct pn_jval v;
        rc = pn__j_dict_get(c, b, &a->e[i].k, &v);
        *out = rc == 1;
        if (rc == 1) rc = pn__j_equal(c, &a->e[i].v, &v, out);
    }
    c->depth--;
    return rc;
}

int pn__j_equal(struct pn_jctx *c, const struct pn_jval *a, const struct pn_jval *b, bool *out) {
    int rc = pn__j_step(c, 1);
    *out = false;
    if (rc) return rc;
    if (pn__j_is_number(a) && pn__j_is_number(b)) {
        *out = pn__j_is_int(a) && pn__j_is_int(b) ? pn__j_as_int(a) == pn__j_as_int(b)
                                                  : pn__j_as_float(a) == pn__j_as_float(b);
        return 0;
    }
    if (a->type != b->type) return 0;
    switch (a->type) {
    case PN_JV_UNDEFINED:
    case PN_JV_NONE:
        *out = true;
        return 0;
    case PN_JV_STR:
        *out = a->s == b->s || pn__j_str_is(a->s, b->s->p, b->s->n);
        return pn__j_step(c, a->s->n / 64);
    case PN_JV_LIST:
        return list_equal(c, a->l, b->l, out);
    case PN_JV_DICT:
        return dict_equal(c, a->d, b->d, out);
    default:
        *out = a->p == b->p;
        return 0;
    }
}

static int order(double a, double b) {
    if (isnan(a) || isnan(b)) return 2;
    return (a > b) - (a < b);
}

static int compare_lists(struct pn_jctx *c, const struct pn_jlist *a, const struct pn_jlist *b,
                         const char *op, int *out) {
    int rc = pn__j_enter(c);
    for (size_t i = 0; rc == 0 && i < a->n && i < b->n; i++) {
        bool equal;
        rc = pn__j_equal(c, &a->v[i], &b->v[i], &equal);
        if (rc || equal) continue;
        rc = pn__j_compare(c, &a->v[i], &b->v[i], op, out);
        c->depth--;
        return rc;
    }
    *out = (a->n > b->n) - (a->n < b->n);
    c->depth--;
    return rc;
}

int pn__j_compare(struct pn_jctx *c, const struct pn_jval *a, const struct pn_jval *b,
                  const char *op, int *out) {
    int rc = pn__j_step(c, 1);
    if (rc) return rc;
    if (a->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, a);
    if (b->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, b);
    if (pn__j_is_int(a) && pn__j_is_int(b)) {
        int64_t x = pn__j_as_int(a);
        int64_t y = pn__j_as_int(b);
        *out = (x > y) - (x < y);
        return 0;
    }
    if (pn__j_is_number(a) && pn__j_is_number(b)) {
        *out = order(pn__j_as_float(a), pn__j_as_float(b));
        return 0;
    }
    if (a->type == PN_JV_STR && b->type == PN_JV_STR) {
        /* UTF-8 sorts as its characters do. */
        size_t n = a->s->n < b->s->n ? a->s->n : b->s->n;
        int r = n ? memcmp(a->s->p, b->s->p, n) : 0;
        *out = r ? r : (a->s->n > b->s->n) - (a->s->n < b->s->n);
        if (*out) *out = *out < 0 ? -1 : 1;
        return pn__j_step(c, n / 64);
    }
    if (a->type == PN_JV_LIST && b->type == PN_JV_LIST && a->l->kind == b->l->kind &&
        a->l->kind <= PN_JL_TUPLE)
        return compare_lists(c, a->l, b->l, op, out);
    return pn__j_fail(c, "'%s' not supported between instances of '%s' and '%s'", op,
                      pn__j_type_name(a), pn__j_type_name(b));
}

int pn__j_contains(struct pn_jctx *c, const struct pn_jval *in, const struct pn_jval *v,
                   bool *out) {
    struct pn_jval *items;
    struct pn_jval found;
    size_t n;
    *out = false;
    if (in->type == PN_JV_STR) {
        if (v->type != PN_JV_STR)
            return pn__j_fail(c, "'in <string>' requires string as left operand, not %s",
                              pn__j_type_name(v));
        *out = v->s->n == 0 || pn__j_find(in->s->p, 0, in->s->n, v->s->p, v->s->n) < in->s->n;
        return pn__j_step(c, in->s->n / 16);
    }
    if (in->type == PN_JV_DICT) {
        int rc = pn__j_dict_get(c, in->d, v, &found);
        *out = rc == 1;
        return rc < 0 ? rc : 0;
    }
    if (in->type != PN_JV_LIST && in->type != PN_JV_UNDEFINED)
        return pn__j_fail(c, "argument of type '%s' is not iterable", pn__j_type_name(in));
    int rc = pn__j_items(c, in, &items, &n);
    for (size_t i = 0; rc == 0 && !*out && i < n; i++)
        rc = pn__j_equal(c, &items[i], v, out);
    return rc;
}

static uint32_t mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    return (uint32_t)(x ^ x >> 32);
}

uint32_t pn__j_hash_text(const char *p, size_t n) {
    uint64_t h = 14695981039346656037ull;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)p[i]) * 1099511628211ull;
    return mix(h) | 1;
}

int pn__j_hash(struct pn_jctx *c, const struct pn_jval *v, uint32_t *out) {
    int rc = 0;
    switch (v->type) {
    case PN_JV_STR:
        /* The template's own texts have theirs from the start; they are never written to. */
        *out = v->s->hash ? v->s->hash : pn__j_hash_text(v->s->p, v->s->n);
        return v->s->hash ? 0 : pn__j_step(c, v->s->n / 16);
    case PN_JV_NONE:
        *out = 1;
        return 0;
    case PN_JV_BOOL:
    case PN_JV_INT:
    case PN_JV_FLOAT: {
        /* Equal numbers of any type hash alike. */
        double f = pn__j_as_float(v) + 0.0;
        uint64_t bits;
        memcpy(&bits, &f, sizeof bits);
        *out = mix(bits);
        return 0;
    }
    case PN_JV_LIST:
        if (v->l->kind != PN_JL_TUPLE) break;
        *out = 17;
        rc = pn__j_enter(c);
        for (size_t i = 0; rc == 0 && i < v->l->n; i++) {
            uint32_t h;
            rc = pn__j_hash(c, &v->l->v[i], &h);
            if (rc == 0) *out = *out * 31 + h;
        }
        c->depth--;
        return rc;
    case PN_JV_UNDEFINED:
        *out = 2;
        return 0;
    default:
        break;
    }
    return pn__j_fail(c, "unhashable type: '%s'", pn__j_type_name(v));
}

size_t pn__j_find(const char *s, size_t from, size_t to, const char *what, size_t n) {
    if (n == 0) return from;
    if (n > to - from) return to;
    /* memmem of glibc and musl is the two-way algorithm: linear. */
    const char *at = memmem(s + from, to - from, what, n);
    return at ? (size_t)(at - s) : to;
}
