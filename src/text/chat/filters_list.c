/* Filters that walk or order elements. */
#include <string.h>

#include "text/chat/eval.h"

#define FILTER(name)                                                                             \
    static int f_##name(struct pn_jctx *c, const struct pn_jval *self, const struct pn_jargs *a, \
                        struct pn_jval *out)

FILTER(length) {
    struct pn_jval v[PN_J_PARAM_MAX];
    size_t n = 0;
    int rc = pn__j_bind(c, "length", a, "", v);
    if (rc == 0) rc = pn__j_length(c, self, &n);
    *out = pn__j_int((int64_t)n);
    return rc;
}

static int end_item(struct pn_jctx *c, const char *name, const struct pn_jval *self,
                    const struct pn_jargs *a, bool last, struct pn_jval *out) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval *items;
    size_t n;
    int rc = pn__j_bind(c, name, a, "", v);
    if (rc == 0 && last && pn__j_is_list(self, PN_JL_ONCE))
        rc = pn__j_fail(c, "'generator' object is not reversible");
    if (rc == 0) rc = pn__j_items(c, self, &items, &n);
    if (rc) return rc;
    if (n == 0)
        return pn__j_undefined(
            c, NULL, NULL,
            last ? "No last item, sequence was empty." : "No first item, sequence was empty.", out);
    *out = items[last ? n - 1 : 0];
    return 0;
}

FILTER(first) {
    return end_item(c, "first", self, a, false, out);
}
FILTER(last) {
    return end_item(c, "last", self, a, true, out);
}

static int new_list(struct pn_jctx *c, enum pn_jlist_kind kind, const struct pn_jval *v, size_t n,
                    struct pn_jval *out) {
    struct pn_jlist *l = pn__j_list_new(c, kind, n);
    if (!l) return pn__j_failed(c);
    if (n) memcpy(l->v, v, n * sizeof *v);
    l->n = n;
    *out = pn__j_list(l);
    return pn__j_step(c, n);
}

FILTER(list) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval *items;
    size_t n;
    int rc = pn__j_bind(c, "list", a, "", v);
    if (rc == 0) rc = pn__j_items(c, self, &items, &n);
    return rc ? rc : new_list(c, PN_JL_LIST, items, n, out);
}

FILTER(reverse) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval *items;
    size_t n;
    struct pn_jval at[3] = {pn__j_none(), pn__j_none(), pn__j_int(-1)};
    int rc = pn__j_bind(c, "reverse", a, "", v);
    if (rc == 0 && self->type == PN_JV_STR) return pn__j_slice(c, self, at, out);
    if (rc == 0) rc = pn__j_items(c, self, &items, &n);
    if (rc == 0) rc = new_list(c, PN_JL_ONCE, items, n, out);
    if (rc) return rc;
    for (size_t i = 0; i < n; i++)
        out->l->v[i] = items[n - 1 - i];
    return 0;
}

FILTER(items) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jargs none = {0};
    int rc = pn__j_bind(c, "items", a, "", v);
    if (rc) return rc;
    if (self->type == PN_JV_UNDEFINED) return new_list(c, PN_JL_ONCE, NULL, 0, out);
    if (self->type != PN_JV_DICT) return pn__j_fail(c, "Can only get item pairs from a mapping.");
    rc = pn__j_find_method(pn__j_dict_methods, "items", 5)->call(c, self, &none, out);
    if (rc == 0) out->l->kind = PN_JL_ONCE;
    return rc;
}

FILTER(join) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval sep;
    struct pn_jval *items;
    size_t n;
    int rc = pn__j_bind(c, "join", a, "d= attribute=", v);
    if (v[0].type == PN_JV_MISSING && rc == 0) rc = pn__j_text(c, "", 0, &v[0]);
    if (rc == 0) rc = pn__j_to_str(c, &v[0], &sep);
    if (rc == 0) rc = pn__j_items(c, self, &items, &n);
    struct pn_jbuf *b = rc == 0 ? pn__j_take(c, 1, sizeof *b) : NULL;
    if (!b) return rc ? rc : pn__j_failed(c);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct pn_jval item;
        if (i) rc = pn__jbuf_put_str(c, b, sep.s);
        if (rc == 0) rc = pn__j_pick(c, &items[i], &v[1], NULL, false, &item);
        if (rc == 0) rc = pn__j_put(c, b, &item);
        if (rc == 0) rc = pn__j_step(c, 1);
    }
    return rc ? rc : pn__jbuf_str(c, b, out);
}

/* ---- order ---- */

static int merge(struct pn_jctx *c, const uint32_t *from, uint32_t *to, const struct pn_jval *key,
                 size_t low, size_t mid, size_t high, bool reverse) {
    size_t left = low;
    size_t right = mid;
    for (size_t at = low; at < high; at++) {
        bool take_right = left == mid;
        if (left < mid && right < high) {
            int order;
            const struct pn_jval *x = &key[from[right]];
            const struct pn_jval *y = &key[from[left]];
            /* The right one goes first only if it is strictly before: that keeps it stable. */
            int rc =
                reverse ? pn__j_compare(c, y, x, "<", &order) : pn__j_compare(c, x, y, "<", &order);
            if (rc) return rc;
            take_right = order < 0;
        }
        to[at] = from[take_right ? right++ : left++];
    }
    return 0;
}

int pn__j_sort(struct pn_jctx *c, struct pn_jval *v, struct pn_jval *key, size_t n, bool reverse) {
    if (n > UINT32_MAX) return pn__j_fail(c, "too many elements to sort");
    uint32_t *from = pn__j_take(c, n + 1, sizeof *from);
    uint32_t *to = pn__j_take(c, n + 1, sizeof *to);
    struct pn_jval *copy = pn__j_take(c, n + 1, sizeof *copy);
    if (!from || !to || !copy) return pn__j_failed(c);
    for (size_t i = 0; i < n; i++)
        from[i] = (uint32_t)i;
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t low = 0; low < n; low += 2 * run) {
            size_t mid = low + run < n ? low + run : n;
            size_t high = low + 2 * run < n ? low + 2 * run : n;
            int rc = merge(c, from, to, key, low, mid, high, reverse);
            if (rc) return rc;
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (n) memcpy(copy, v, n * sizeof *v);
    for (size_t i = 0; i < n; i++)
        v[i] = copy[from[i]];
    return 0;
}

/* value.a.b, each part an item; a missing one gives `initial` when there is one. */
static int pick_path(struct pn_jctx *c, const struct pn_jval *v, const struct pn_jstr *path,
                     const struct pn_jval *initial, struct pn_jval *out) {
    struct pn_jval at = *v;
    for (size_t from = 0; from <= path->n;) {
        struct pn_jval key;
        struct pn_jval next;
        size_t dot = pn__j_find(path->p, from, path->n, ".", 1);
        int rc = pn__j_part(c, path, from, dot, &key);
        if (rc) return rc;
        int64_t index = 0;
        size_t digit_n = 0;
        for (; digit_n < key.s->n && digit_n < 9; digit_n++) {
            char b = key.s->p[digit_n];
            if (b < '0' || b > '9') break;
            index = index * 10 + (b - '0');
        }
        if (key.s->n && digit_n == key.s->n) key = pn__j_int(index);
        rc = pn__j_item(c, &at, &key, &next);
        if (rc) return rc;
        at = next;
        if (at.type == PN_JV_UNDEFINED && initial && initial->type != PN_JV_MISSING) at = *initial;
        from = dot + 1;
    }
    *out = at;
    return 0;
}

int pn__j_pick(struct pn_jctx *c, const struct pn_jval *v, const struct pn_jval *attribute,
               const struct pn_jval *initial, bool fold, struct pn_jval *out) {
    struct pn_jval picked = *v;
    int rc = 0;
    if (attribute->type == PN_JV_STR)
        rc = pick_path(c, v, attribute->s, initial, &picked);
    else if (pn__j_is_int(attribute))
        rc = pn__j_item(c, v, attribute, &picked);
    else if (attribute->type != PN_JV_MISSING && attribute->type != PN_JV_NONE)
        rc = pn__j_fail(c, "an attribute is a string or an integer, not %s",
                        pn__j_type_name(attribute));
    if (rc == 0 && fold && picked.type == PN_JV_STR)
        return pn__j_case(c, picked.s, PN_J_LOWER, out);
    *out = picked;
    return rc;
}

/* The keys to order by: "a,b" sorts by a, then b. */
static int sort_keys(struct pn_jctx *c, const struct pn_jval *items, size_t n,
                     const struct pn_jval *attribute, bool fold, struct pn_jval **out) {
    struct pn_jval *key = pn__j_take(c, n + 1, sizeof *key);
    if (!key) return pn__j_failed(c);
    *out = key;
    bool several = attribute->type == PN_JV_STR && memchr(attribute->s->p, ',', attribute->s->n);
    for (size_t i = 0; i < n; i++) {
        int rc = 0;
        if (!several) {
            rc = pn__j_pick(c, &items[i], attribute, NULL, fold, &key[i]);
            if (rc) return rc;
            continue;
        }
        struct pn_jlist *l = pn__j_list_new(c, PN_JL_TUPLE, 0);
        if (!l) return pn__j_failed(c);
        for (size_t from = 0; rc == 0 && from <= attribute->s->n;) {
            struct pn_jval name;
            struct pn_jval v;
            size_t comma = pn__j_find(attribute->s->p, from, attribute->s->n, ",", 1);
            rc = pn__j_part(c, attribute->s, from, comma, &name);
            if (rc == 0) rc = pn__j_pick(c, &items[i], &name, NULL, fold, &v);
            if (rc == 0) rc = pn__j_push(c, l, &v);
            from = comma + 1;
        }
        if (rc) return rc;
        key[i] = pn__j_list(l);
    }
    return 0;
}

FILTER(sort) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval *items;
    struct pn_jval *key;
    size_t n;
    int rc = pn__j_bind(c, "sort", a, "reverse= case_sensitive= attribute=", v);
    if (rc == 0) rc = pn__j_items(c, self, &items, &n);
    if (rc == 0) rc = new_list(c, PN_JL_LIST, items, n, out);
    if (rc == 0) rc = sort_keys(c, items, n, &v[2], !pn__j_truth(&v[1]), &key);
    return rc ? rc : pn__j_sort(c, out->l->v, key, n, pn__j_truth(&v[0]));
}

FILTER(dictsort) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval missing = {0};
    struct pn_jargs none = {0};
    const struct pn_jstr *by;
    int rc = pn__j_bind(c, "dictsort", a, "case_sensitive= by= reverse=", v);
    if (rc == 0) rc = pn__j_arg_str(c, &v[1], "dictsort", &by);
    if (rc) return rc;
    if (self->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, self);
    if (self->type != PN_JV_DICT)
        return pn__j_fail(c, "'%s' object has no attribute 'items'", pn__j_type_name(self));
    bool by_value = by && pn__j_str_is(by, "value", 5);
    if (by && !by_value && !pn__j_str_is(by, "key", 3))
        return pn__j_fail(c, "You can only sort by either \"key\" or \"value\"");
    rc = pn__j_find_method(pn__j_dict_methods, "items", 5)->call(c, self, &none, out);
    if (rc) return rc;
    struct pn_jlist *l = out->l;
    l->kind = PN_JL_LIST;
    struct pn_jval *key = pn__j_take(c, l->n + 1, sizeof *key);
    if (!key) return pn__j_failed(c);
    for (size_t i = 0; rc == 0 && i < l->n; i++)
        rc = pn__j_pick(c, &l->v[i].l->v[by_value], &missing, NULL, !pn__j_truth(&v[0]), &key[i]);
    return rc ? rc : pn__j_sort(c, l->v, key, l->n, pn__j_truth(&v[2]));
}

static int extreme(struct pn_jctx *c, const char *name, const struct pn_jval *self,
                   const struct pn_jargs *a, bool max, struct pn_jval *out) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval *items;
    struct pn_jval *key;
    size_t n;
    size_t best = 0;
    int rc = pn__j_bind(c, name, a, "case_sensitive= attribute=", v);
    if (rc == 0) rc = pn__j_items(c, self, &items, &n);
    if (rc == 0 && n == 0)
        return pn__j_undefined(c, NULL, NULL, "No aggregated item, sequence was empty.", out);
    if (rc == 0) rc = sort_keys(c, items, n, &v[1], !pn__j_truth(&v[0]), &key);
    for (size_t i = 1; rc == 0 && i < n; i++) {
        int order;
        rc = pn__j_compare(c, &key[i], &key[best], max ? ">" : "<", &order);
        if (rc == 0 && order == (max ? 1 : -1)) best = i;
    }
    if (rc == 0) *out = items[best];
    return rc;
}

FILTER(min) {
    return extreme(c, "min", self, a, false, out);
}
FILTER(max) {
    return extreme(c, "max", self, a, true, out);
}

FILTER(sum) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval *items;
    size_t n;
    int rc = pn__j_bind(c, "sum", a, "attribute= start=", v);
    if (rc == 0) rc = pn__j_items(c, self, &items, &n);
    struct pn_jval total = v[1].type == PN_JV_MISSING ? pn__j_int(0) : v[1];
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct pn_jval item;
        struct pn_jval next;
        rc = pn__j_pick(c, &items[i], &v[0], NULL, false, &item);
        if (rc == 0) rc = pn__j_arith(c, PN_JO_ADD, &total, &item, &next);
        if (rc == 0) total = next;
        if (rc == 0) rc = pn__j_step(c, 1);
    }
    *out = total;
    return rc;
}

FILTER(unique) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval yes = pn__j_bool(true);
    struct pn_jval *items;
    size_t n;
    int rc = pn__j_bind(c, "unique", a, "case_sensitive= attribute=", v);
    if (rc == 0) rc = pn__j_items(c, self, &items, &n);
    struct pn_jdict *seen = rc == 0 ? pn__j_dict_new(c) : NULL;
    struct pn_jlist *l = seen ? pn__j_list_new(c, PN_JL_ONCE, 0) : NULL;
    if (!l) return rc ? rc : pn__j_failed(c);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct pn_jval key;
        size_t had = seen->n;
        rc = pn__j_pick(c, &items[i], &v[1], NULL, !pn__j_truth(&v[0]), &key);
        if (rc == 0) rc = pn__j_dict_set(c, seen, &key, &yes);
        if (rc == 0 && seen->n > had) rc = pn__j_push(c, l, &items[i]);
    }
    *out = pn__j_list(l);
    return rc;
}

const struct pn_jmethod pn__j_filters_list[] = {
    {"length", f_length}, {"count", f_length},      {"first", f_first}, {"last", f_last},
    {"list", f_list},     {"items", f_items},       {"join", f_join},   {"reverse", f_reverse},
    {"sort", f_sort},     {"dictsort", f_dictsort}, {"min", f_min},     {"max", f_max},
    {"sum", f_sum},       {"unique", f_unique},     {NULL, NULL},
};
