/* Attributes, items and slices. jinja2 lets both spellings reach both: a.b looks for an attribute
 * first, a['b'] for an item first. Attributes are methods, and the fields of loops and namespaces.
 */
#include <assert.h>
#include <string.h>

#include "text/chat/eval.h"
#include "text/utf8.h"

size_t pn__j_char_n(const struct pn_jstr *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += ((uint8_t)s->p[i] & 0xc0) != 0x80;
    return n;
}

size_t pn__j_char_at(const struct pn_jstr *s, size_t i) {
    size_t at = 0;
    for (; at < s->n; at++) {
        if (((uint8_t)s->p[at] & 0xc0) == 0x80) continue;
        if (i-- == 0) break;
    }
    return at;
}

static const char *object_name(const struct pn_jval *v) {
    return v->type == PN_JV_NONE ? "None" : pn__j_type_name(v);
}

static int loop_field(struct pn_jctx *c, const struct pn_jloop *l, const struct pn_jstr *name,
                      struct pn_jval *out) {
    int64_t i = (int64_t)l->i;
    int64_t n = (int64_t)l->n;
    const struct {
        const char *name;
        struct pn_jval v;
    } fields[] = {
        {"index", pn__j_int(i + 1)},     {"index0", pn__j_int(i)},
        {"revindex", pn__j_int(n - i)},  {"revindex0", pn__j_int(n - i - 1)},
        {"first", pn__j_bool(i == 0)},   {"last", pn__j_bool(i + 1 == n)},
        {"length", pn__j_int(n)},        {"depth", pn__j_int((int64_t)l->depth + 1)},
        {"depth0", pn__j_int(l->depth)},
    };
    for (size_t k = 0; k < PN_ARRAY_N(fields); k++) {
        if (!pn__j_str_is(name, fields[k].name, strlen(fields[k].name))) continue;
        *out = fields[k].v;
        return 1;
    }
    bool prev = pn__j_str_is(name, "previtem", 8);
    if (!prev && !pn__j_str_is(name, "nextitem", 8)) return 0;
    if (prev ? i > 0 : i + 1 < n) {
        *out = l->items[prev ? i - 1 : i + 1];
        return 1;
    }
    int rc = pn__j_undefined(c, NULL, name,
                             prev ? "there is no previous item" : "there is no next item", out);
    return rc ? rc : 1;
}

static int cycler_field(struct pn_jctx *c, const struct pn_jval *of, const struct pn_jstr *name,
                        struct pn_jval *out) {
    struct pn_jcycler *cy = of->cycler;
    if (of->type != PN_JV_CYCLER) return 0;
    if (pn__j_str_is(name, "current", 7)) {
        *out = cy->v[cy->at];
        return 1;
    }
    const struct pn_jmethod *m = pn__j_find_method(pn__j_cycler_methods, name->p, name->n);
    if (!m) return 0;
    int rc = pn__j_make_fn(c, m->name, m->call, of, out);
    return rc ? rc : 1;
}

/* 1: found. */
static int find_attr(struct pn_jctx *c, const struct pn_jval *of, struct pn_jstr *name,
                     struct pn_jval *out) {
    const struct pn_jmethod *m = NULL;
    struct pn_jval key = pn__j_str(name);
    int rc;
    switch (of->type) {
    case PN_JV_STR:
        m = pn__j_find_method(pn__j_str_methods, name->p, name->n);
        if (!m) m = pn__j_find_method(pn__j_str_methods_case, name->p, name->n);
        break;
    case PN_JV_LIST:
        if (of->l->is_group &&
            (pn__j_str_is(name, "grouper", 7) || pn__j_str_is(name, "list", 4))) {
            *out = of->l->v[name->n == 4];
            return 1;
        }
        if (of->l->kind <= PN_JL_TUPLE) m = pn__j_find_method(pn__j_list_methods, name->p, name->n);
        break;
    case PN_JV_DICT:
        m = pn__j_find_method(pn__j_dict_methods, name->p, name->n);
        break;
    case PN_JV_NAMESPACE:
        return pn__j_dict_get(c, of->d, &key, out);
    case PN_JV_LOOP:
        rc = loop_field(c, of->loop, name, out);
        if (rc) return rc;
        m = pn__j_find_method(pn__j_loop_methods, name->p, name->n);
        break;
    case PN_JV_MACRO:
        if (!pn__j_str_is(name, "name", 4)) return 0;
        rc = pn__j_part(c, of->m->node->name, 0, of->m->node->name->n, out);
        return rc ? rc : 1;
    default:
        return cycler_field(c, of, name, out);
    }
    if (!m) return 0;
    rc = pn__j_make_fn(c, m->name, m->call, of, out);
    return rc ? rc : 1;
}

static int find_index(struct pn_jctx *c, const struct pn_jval *of, int64_t i, struct pn_jval *out) {
    if (of->type == PN_JV_STR) {
        int rc = pn__j_step(c, of->s->n / 16);
        if (rc) return rc;
        int64_t n = (int64_t)pn__j_char_n(of->s);
        if (i < 0) i += n;
        if (i < 0 || i >= n) return 0;
        size_t at = pn__j_char_at(of->s, (size_t)i);
        size_t len = pn__text_char(of->s->p + at, of->s->n - at).len;
        rc = pn__j_part(c, of->s, at, at + len, out);
        return rc ? rc : 1;
    }
    if (of->type != PN_JV_LIST || of->l->kind > PN_JL_RANGE) return 0;
    if (i < 0) i += (int64_t)of->l->n;
    if (i < 0 || (uint64_t)i >= of->l->n) return 0;
    *out = of->l->v[i];
    return 1;
}

/* 1: found. What can't be a key of that container is just not found. */
static int find_item(struct pn_jctx *c, const struct pn_jval *of, const struct pn_jval *key,
                     struct pn_jval *out) {
    if (of->type == PN_JV_DICT) {
        if (key->type == PN_JV_DICT || (key->type == PN_JV_LIST && key->l->kind != PN_JL_TUPLE))
            return 0;
        return pn__j_dict_get(c, of->d, key, out);
    }
    if (!pn__j_is_int(key)) return 0;
    return find_index(c, of, pn__j_as_int(key), out);
}

int pn__j_attr(struct pn_jctx *c, const struct pn_jval *of, struct pn_jstr *name,
               struct pn_jval *out) {
    struct pn_jval key = pn__j_str(name);
    if (of->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, of);
    int rc = find_attr(c, of, name, out);
    if (rc == 0) rc = find_item(c, of, &key, out);
    if (rc) return rc < 0 ? rc : 0;
    return pn__j_undefined(c, object_name(of), name, NULL, out);
}

int pn__j_item(struct pn_jctx *c, const struct pn_jval *of, const struct pn_jval *key,
               struct pn_jval *out) {
    struct pn_jval text;
    if (of->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, of);
    int rc = find_item(c, of, key, out);
    if (rc == 0 && key->type == PN_JV_STR) rc = find_attr(c, of, key->s, out);
    if (rc) return rc < 0 ? rc : 0;
    if (key->type == PN_JV_STR || pn__j_is_int(key)) {
        rc = pn__j_to_str(c, key, &text);
        return rc ? rc : pn__j_undefined(c, object_name(of), text.s, NULL, out);
    }
    return pn__j_undefined(c, NULL, NULL, "there is no such item", out);
}

/* ---- slices ---- */

/* A bound as Python clips it to a sequence of n. */
static int clip(struct pn_jctx *c, const struct pn_jval *v, int64_t initial, int64_t low,
                int64_t high, int64_t n, int64_t *out) {
    if (v->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, v);
    if (v->type != PN_JV_NONE && !pn__j_is_int(v))
        return pn__j_fail(c, "slice indices must be integers or None, not %s", pn__j_type_name(v));
    *out = v->type == PN_JV_NONE ? initial : pn__j_as_int(v);
    if (v->type != PN_JV_NONE && *out < 0) *out += n;
    if (*out < low) *out = low;
    if (*out > high) *out = high;
    return 0;
}

static int slice_list(struct pn_jctx *c, const struct pn_jlist *of, int64_t from, int64_t step,
                      size_t n, struct pn_jval *out) {
    enum pn_jlist_kind kind = of->kind == PN_JL_RANGE ? PN_JL_LIST : of->kind;
    if (step == 1) {
        /* Shares the elements until it grows. */
        struct pn_jlist *l = pn__j_list_new(c, kind, 0);
        if (!l) return pn__j_failed(c);
        l->v = n ? of->v + from : NULL;
        l->n = l->cap = n;
        l->by = of->by;
        l->shared = true;
        *out = pn__j_list(l);
        return 0;
    }
    struct pn_jlist *l = pn__j_list_new(c, kind, n);
    if (!l) return pn__j_failed(c);
    l->by = of->by;
    for (; l->n < n; l->n++)
        l->v[l->n] = of->v[from + (int64_t)l->n * step];
    *out = pn__j_list(l);
    return pn__j_step(c, n);
}

static int slice_text(struct pn_jctx *c, const struct pn_jstr *of, int64_t from, int64_t step,
                      size_t n, struct pn_jval *out) {
    int rc = pn__j_step(c, of->n / 16);
    if (rc) return rc;
    if (n == 0) return pn__j_part(c, of, 0, 0, out);
    if (step == 1) {
        size_t begin = pn__j_char_at(of, (size_t)from);
        struct pn_jstr rest = {.p = of->p + begin, .n = of->n - begin};
        return pn__j_part(c, of, begin, begin + pn__j_char_at(&rest, n), out);
    }
    size_t char_n = pn__j_char_n(of);
    size_t *place = pn__j_take(c, char_n + 1, sizeof *place);
    struct pn_jbuf *b = pn__j_take(c, 1, sizeof *b);
    if (!place || !b) return pn__j_failed(c);
    size_t k = 0;
    for (size_t i = 0; i < of->n; i++) {
        if (((uint8_t)of->p[i] & 0xc0) != 0x80) place[k++] = i;
    }
    place[k] = of->n;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        size_t at = (size_t)(from + (int64_t)i * step);
        rc = pn__jbuf_put_part(c, b, of, place[at], place[at + 1]);
    }
    if (rc == 0) rc = pn__jbuf_str(c, b, out);
    if (rc == 0) out->s->safe = of->safe;
    return rc ? rc : pn__j_step(c, n);
}

int pn__j_slice(struct pn_jctx *c, const struct pn_jval *of, const struct pn_jval at[3],
                struct pn_jval *out) {
    int64_t step;
    int64_t from;
    int64_t to;
    if (of->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, of);
    bool is_list = of->type == PN_JV_LIST && of->l->kind <= PN_JL_RANGE;
    if (!is_list && of->type != PN_JV_STR)
        return pn__j_undefined(c, NULL, NULL, "this value has no slices", out);
    int64_t n = is_list ? (int64_t)of->l->n : (int64_t)pn__j_char_n(of->s);
    int rc = clip(c, &at[2], 1, -(n + 1), n + 1, 0, &step);
    if (rc) return rc;
    if (step == 0) return pn__j_fail(c, "slice step cannot be zero");
    int64_t low = step < 0 ? -1 : 0;
    int64_t high = step < 0 ? n - 1 : n;
    rc = clip(c, &at[0], step < 0 ? high : low, low, high, n, &from);
    if (rc == 0) rc = clip(c, &at[1], step < 0 ? low : high, low, high, n, &to);
    if (rc) return rc;
    int64_t span = step > 0 ? to - from : from - to;
    int64_t size = step > 0 ? step : -step;
    assert(size > 0);
    size_t count = span > 0 ? (size_t)((span - 1) / size) + 1 : 0;
    if (is_list) return slice_list(c, of->l, from, step, count, out);
    return slice_text(c, of->s, from, step, count, out);
}
