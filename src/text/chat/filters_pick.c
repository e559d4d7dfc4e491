/* Filters that choose, change or group elements: select, map, groupby ... */
#include <string.h>

#include "text/chat/eval.h"

#define FILTER(name)                                                                             \
    static int f_##name(struct pn_jctx *c, const struct pn_jval *self, const struct pn_jargs *a, \
                        struct pn_jval *out)

static int find_test(struct pn_jctx *c, const struct pn_jval *name, const struct pn_jtest **out) {
    *out = NULL;
    if (name->type == PN_JV_STR) *out = pn__j_find_test(name->s->p, name->s->n);
    if (*out) return 0;
    if (name->type != PN_JV_STR) return pn__j_fail(c, "the name of a test is needed");
    return pn__j_fail(c, "there is no test '%.*s'", (int)(name->s->n < 40 ? name->s->n : 40),
                      name->s->p);
}

/* select, reject and their attr forms: the elements (or attributes of them) for which the test, or
 * the truth, is `keep`. */
static int choose(struct pn_jctx *c, const char *filter, const struct pn_jval *self,
                  const struct pn_jargs *a, bool with_attribute, bool keep, struct pn_jval *out) {
    struct pn_jval attribute = {0};
    struct pn_jargs rest = *a;
    const struct pn_jtest *test = NULL;
    struct pn_jval *items;
    size_t n;
    int rc = 0;
    if (with_attribute) {
        if (rest.n == 0) return pn__j_fail(c, "%s: the name of an attribute is needed", filter);
        attribute = *rest.pos++;
        rest.n--;
    }
    if (rest.n) {
        rc = find_test(c, rest.pos, &test);
        rest.pos++;
        rest.n--;
    }
    if (rc == 0) rc = pn__j_items(c, self, &items, &n);
    struct pn_jlist *l = rc == 0 ? pn__j_list_new(c, PN_JL_ONCE, 0) : NULL;
    if (!l) return rc ? rc : pn__j_failed(c);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct pn_jval v;
        bool holds = false;
        rc = pn__j_pick(c, &items[i], &attribute, NULL, false, &v);
        if (rc == 0 && test)
            rc = test->call(c, &v, &rest, &holds);
        else if (rc == 0)
            holds = pn__j_truth(&v);
        if (rc == 0 && holds == keep) rc = pn__j_push(c, l, &items[i]);
        if (rc == 0) rc = pn__j_step(c, 1);
    }
    *out = pn__j_list(l);
    return rc;
}

FILTER(select) {
    return choose(c, "select", self, a, false, true, out);
}
FILTER(reject) {
    return choose(c, "reject", self, a, false, false, out);
}
FILTER(selectattr) {
    return choose(c, "selectattr", self, a, true, true, out);
}
FILTER(rejectattr) {
    return choose(c, "rejectattr", self, a, true, false, out);
}

/* map(attribute=..., default=...), or map(filter, arguments). */
FILTER(map) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jargs rest = *a;
    const struct pn_jmethod *filter = NULL;
    struct pn_jval *items;
    size_t n;
    int rc = 0;
    if (a->n) {
        bool known;
        if (a->pos[0].type != PN_JV_STR)
            return pn__j_fail(c, "map: the name of a filter is needed");
        const struct pn_jstr *name = a->pos[0].s;
        filter = pn__j_find_filter(name->p, name->n, &known);
        if (!filter)
            return pn__j_fail(
                c, known ? "the filter '%.*s' is not supported" : "there is no filter '%.*s'",
                (int)(name->n < 40 ? name->n : 40), name->p);
        rest.pos++;
        rest.n--;
    } else {
        rc = pn__j_bind(c, "map", a, "attribute default=", v);
    }
    if (rc == 0) rc = pn__j_items(c, self, &items, &n);
    struct pn_jlist *l = rc == 0 ? pn__j_list_new(c, PN_JL_ONCE, n) : NULL;
    if (!l) return rc ? rc : pn__j_failed(c);
    for (; rc == 0 && l->n < n; l->n++) {
        rc = filter ? filter->call(c, &items[l->n], &rest, &l->v[l->n])
                    : pn__j_pick(c, &items[l->n], &v[0], &v[1], false, &l->v[l->n]);
        if (rc == 0) rc = pn__j_step(c, 1);
    }
    *out = pn__j_list(l);
    return rc;
}

/* (grouper, list) pairs in order of the attribute. */
FILTER(groupby) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval *items;
    size_t n;
    int rc = pn__j_bind(c, "groupby", a, "attribute default= case_sensitive=", v);
    if (rc == 0) rc = pn__j_items(c, self, &items, &n);
    if (rc) return rc;
    bool fold = !pn__j_truth(&v[2]);
    struct pn_jval *key = pn__j_take(c, n + 1, sizeof *key);
    struct pn_jval *order = pn__j_take(c, n + 1, sizeof *order);
    struct pn_jlist *groups = pn__j_list_new(c, PN_JL_LIST, 0);
    if (!key || !order || !groups) return pn__j_failed(c);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = pn__j_pick(c, &items[i], &v[0], &v[1], fold, &key[i]);
        order[i] = pn__j_int((int64_t)i);
    }
    if (rc == 0) rc = pn__j_sort(c, order, key, n, false);
    struct pn_jlist *group = NULL;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        int64_t at = order[i].i;
        bool same = false;
        if (i) rc = pn__j_equal(c, &key[order[i - 1].i], &key[at], &same);
        if (rc) break;
        if (!same) {
            struct pn_jlist *pair = pn__j_list_new(c, PN_JL_TUPLE, 2);
            group = pair ? pn__j_list_new(c, PN_JL_LIST, 0) : NULL;
            if (!group) return pn__j_failed(c);
            /* The name as the first element spells it. */
            rc = pn__j_pick(c, &items[at], &v[0], &v[1], false, &pair->v[0]);
            pair->v[1] = pn__j_list(group);
            pair->n = 2;
            pair->is_group = true;
            struct pn_jval p = pn__j_list(pair);
            if (rc == 0) rc = pn__j_push(c, groups, &p);
        }
        if (rc == 0) rc = pn__j_push(c, group, &items[at]);
    }
    *out = pn__j_list(groups);
    return rc;
}

/* Rows of `linecount`, the last one filled up when there is something to fill with. */
FILTER(batch) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval *items;
    size_t n;
    int64_t size;
    int rc = pn__j_bind(c, "batch", a, "linecount fill_with=", v);
    if (rc == 0) rc = pn__j_arg_int(c, &v[0], "batch", 0, &size);
    if (rc == 0 && size < 1) rc = pn__j_fail(c, "batch: a positive count is needed");
    if (rc == 0) rc = pn__j_items(c, self, &items, &n);
    struct pn_jlist *rows = rc == 0 ? pn__j_list_new(c, PN_JL_ONCE, 0) : NULL;
    if (!rows) return rc ? rc : pn__j_failed(c);
    struct pn_jlist *row = NULL;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (!row || row->n == (size_t)size) {
            row = pn__j_list_new(c, PN_JL_LIST, 0);
            if (!row) return pn__j_failed(c);
            struct pn_jval r = pn__j_list(row);
            rc = pn__j_push(c, rows, &r);
        }
        if (rc == 0) rc = pn__j_push(c, row, &items[i]);
    }
    bool fill = v[1].type != PN_JV_MISSING && v[1].type != PN_JV_NONE;
    while (rc == 0 && fill && row && row->n < (size_t)size) {
        rc = pn__j_push(c, row, &v[1]);
        if (rc == 0) rc = pn__j_step(c, 1);
    }
    *out = pn__j_list(rows);
    return rc;
}

/* That many columns of nearly the same length. */
FILTER(slice) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval *items;
    size_t n;
    int64_t count;
    int rc = pn__j_bind(c, "slice", a, "slices fill_with=", v);
    if (rc == 0) rc = pn__j_arg_int(c, &v[0], "slice", 0, &count);
    if (rc == 0 && count < 1) rc = pn__j_fail(c, "slice: a positive count is needed");
    if (rc == 0) rc = pn__j_items(c, self, &items, &n);
    struct pn_jlist *columns = rc == 0 ? pn__j_list_new(c, PN_JL_ONCE, 0) : NULL;
    if (!columns) return rc ? rc : pn__j_failed(c);
    bool fill = v[1].type != PN_JV_MISSING && v[1].type != PN_JV_NONE;
    size_t at = 0;
    for (int64_t k = 0; rc == 0 && k < count; k++) {
        size_t size = n / (size_t)count + ((size_t)k < n % (size_t)count);
        struct pn_jlist *column = pn__j_list_new(c, PN_JL_LIST, 0);
        if (!column) return pn__j_failed(c);
        for (size_t i = 0; rc == 0 && i < size; i++)
            rc = pn__j_push(c, column, &items[at++]);
        if (rc == 0 && fill && (size_t)k >= n % (size_t)count) rc = pn__j_push(c, column, &v[1]);
        struct pn_jval r = pn__j_list(column);
        if (rc == 0) rc = pn__j_push(c, columns, &r);
    }
    *out = pn__j_list(columns);
    return rc;
}

const struct pn_jmethod pn__j_filters_pick[] = {
    {"map", f_map},
    {"select", f_select},
    {"reject", f_reject},
    {"selectattr", f_selectattr},
    {"rejectattr", f_rejectattr},
    {"groupby", f_groupby},
    {"batch", f_batch},
    {"slice", f_slice},
    {NULL, NULL},
};
