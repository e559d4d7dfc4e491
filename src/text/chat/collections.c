/* Methods of lists and dicts, and of loops and cyclers. Values live in the rendering's arena, so a
 * template may change what it was given: nobody else sees it. */
#include <string.h>

#include "text/chat/eval.h"

#define METHOD(name)                                                                             \
    static int m_##name(struct pn_jctx *c, const struct pn_jval *self, const struct pn_jargs *a, \
                        struct pn_jval *out)

static int mutable(struct pn_jctx *c, const struct pn_jval *self, const char *name) {
    if (self->l->kind == PN_JL_LIST) return 0;
    return pn__j_fail(c, "'%s' object has no attribute '%s'", pn__j_type_name(self), name);
}

METHOD(append) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int rc = mutable(c, self, "append");
    if (rc == 0) rc = pn__j_bind(c, "append", a, "object", v);
    *out = pn__j_none();
    return rc ? rc : pn__j_push(c, self->l, &v[0]);
}

METHOD(extend) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval *items = NULL;
    size_t n = 0;
    int rc = mutable(c, self, "extend");
    if (rc == 0) rc = pn__j_bind(c, "extend", a, "iterable", v);
    if (rc == 0) rc = pn__j_items(c, &v[0], &items, &n);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = pn__j_push(c, self->l, &items[i]);
    *out = pn__j_none();
    return rc;
}

METHOD(insert) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jlist *l = self->l;
    int64_t at;
    int rc = mutable(c, self, "insert");
    if (rc == 0) rc = pn__j_bind(c, "insert", a, "index object", v);
    if (rc == 0) rc = pn__j_arg_int(c, &v[0], "insert", 0, &at);
    if (rc) return rc;
    if (at < 0) at += (int64_t)l->n;
    if (at < 0) at = 0;
    if (at > (int64_t)l->n) at = (int64_t)l->n;
    struct pn_jval *copy = pn__j_take(c, l->n + 1, sizeof *copy);
    if (!copy) return pn__j_failed(c);
    for (size_t i = 0; i < l->n; i++)
        copy[i + (i >= (size_t)at)] = l->v[i];
    copy[at] = v[1];
    l->v = copy;
    l->cap = ++l->n;
    *out = pn__j_none();
    return pn__j_step(c, l->n);
}

METHOD(pop) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jlist *l = self->l;
    int64_t at;
    int rc = mutable(c, self, "pop");
    if (rc == 0) rc = pn__j_bind(c, "pop", a, "index=", v);
    if (rc == 0) rc = pn__j_arg_int(c, &v[0], "pop", -1, &at);
    if (rc) return rc;
    if (at < 0) at += (int64_t)l->n;
    if (at < 0 || at >= (int64_t)l->n)
        return pn__j_fail(c, l->n ? "pop index out of range" : "pop from empty list");
    *out = l->v[at];
    if (at == 0) { /* a queue stays cheap */
        l->v++;
        l->cap--;
        l->n--;
        return 0;
    }
    if (at + 1 < (int64_t)l->n) {
        struct pn_jval *copy = pn__j_take(c, l->n, sizeof *copy);
        if (!copy) return pn__j_failed(c);
        for (size_t i = 0; i + 1 < l->n; i++)
            copy[i] = l->v[i + (i >= (size_t)at)];
        l->v = copy;
        rc = pn__j_step(c, l->n);
    }
    l->n--;
    l->cap = l->n; /* a slice may share what lies behind */
    return rc;
}

METHOD(list_index) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int rc = pn__j_bind(c, "index", a, "value", v);
    for (size_t i = 0; rc == 0 && i < self->l->n; i++) {
        bool equal;
        rc = pn__j_equal(c, &self->l->v[i], &v[0], &equal);
        *out = pn__j_int((int64_t)i);
        if (rc == 0 && equal) return 0;
    }
    return rc ? rc : pn__j_fail(c, "the value is not in the list");
}

METHOD(list_count) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int64_t n = 0;
    int rc = pn__j_bind(c, "count", a, "value", v);
    for (size_t i = 0; rc == 0 && i < self->l->n; i++) {
        bool equal;
        rc = pn__j_equal(c, &self->l->v[i], &v[0], &equal);
        n += equal;
    }
    *out = pn__j_int(n);
    return rc;
}

METHOD(list_reverse) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jlist *l = self->l;
    int rc = mutable(c, self, "reverse");
    if (rc == 0) rc = pn__j_bind(c, "reverse", a, "", v);
    if (rc) return rc;
    struct pn_jval *copy = pn__j_take(c, l->n + 1, sizeof *copy);
    if (!copy) return pn__j_failed(c);
    for (size_t i = 0; i < l->n; i++)
        copy[i] = l->v[l->n - 1 - i];
    l->v = copy;
    l->cap = l->n;
    *out = pn__j_none();
    return pn__j_step(c, l->n);
}

METHOD(list_copy) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval all[3] = {pn__j_none(), pn__j_none(), pn__j_none()};
    int rc = mutable(c, self, "copy");
    if (rc == 0) rc = pn__j_bind(c, "copy", a, "", v);
    return rc ? rc : pn__j_slice(c, self, all, out);
}

METHOD(list_clear) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int rc = mutable(c, self, "clear");
    if (rc == 0) rc = pn__j_bind(c, "clear", a, "", v);
    if (rc) return rc;
    self->l->n = self->l->cap = 0;
    *out = pn__j_none();
    return 0;
}

const struct pn_jmethod pn__j_list_methods[] = {
    {"append", m_append},        {"pop", m_pop},
    {"extend", m_extend},        {"insert", m_insert},
    {"index", m_list_index},     {"count", m_list_count},
    {"reverse", m_list_reverse}, {"copy", m_list_copy},
    {"clear", m_list_clear},     {NULL, NULL},
};

/* ---- dicts ---- */

METHOD(get) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int rc = pn__j_bind(c, "get", a, "key default=", v);
    if (rc) return rc;
    rc = pn__j_dict_get(c, self->d, &v[0], out);
    if (rc == 0) *out = v[1].type == PN_JV_MISSING ? pn__j_none() : v[1];
    return rc < 0 ? rc : 0;
}

enum part { KEYS, VALUES, ITEMS };

static int view(struct pn_jctx *c, const struct pn_jval *self, const struct pn_jargs *a,
                enum part part, struct pn_jval *out) {
    static const char *const names[] = {"dict_keys", "dict_values", "dict_items"};
    struct pn_jval v[PN_J_PARAM_MAX];
    const struct pn_jdict *d = self->d;
    int rc = pn__j_bind(c, names[part] + 5, a, "", v);
    if (rc == 0) rc = pn__j_step(c, d->n);
    if (rc) return rc;
    struct pn_jlist *l = pn__j_list_new(c, PN_JL_VIEW, d->n);
    if (!l) return pn__j_failed(c);
    l->name = names[part];
    l->by = d->by;
    for (size_t i = 0; i < d->n; i++) {
        struct pn_jlist *pair = part == ITEMS ? pn__j_list_new(c, PN_JL_TUPLE, 2) : NULL;
        if (part == ITEMS && !pair) return pn__j_failed(c);
        if (pair) {
            pair->by = d->by;
            pair->v[0] = d->e[i].k;
            pair->v[1] = d->e[i].v;
            pair->n = 2;
        }
        l->v[l->n++] = pair ? pn__j_list(pair) : part == KEYS ? d->e[i].k : d->e[i].v;
    }
    *out = pn__j_list(l);
    return 0;
}

METHOD(keys) {
    return view(c, self, a, KEYS, out);
}
METHOD(values) {
    return view(c, self, a, VALUES, out);
}
METHOD(items) {
    return view(c, self, a, ITEMS, out);
}

METHOD(dict_pop) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int rc = pn__j_bind(c, "pop", a, "key default=", v);
    if (rc == 0) rc = pn__j_dict_get(c, self->d, &v[0], out);
    if (rc == 1) rc = pn__j_dict_remove(c, self->d, &v[0]);
    if (rc) return rc < 0 ? rc : 0;
    *out = v[1];
    return v[1].type == PN_JV_MISSING ? pn__j_fail(c, "pop(): there is no such key") : 0;
}

METHOD(setdefault) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int rc = pn__j_bind(c, "setdefault", a, "key default=", v);
    if (rc) return rc;
    rc = pn__j_dict_get(c, self->d, &v[0], out);
    if (rc) return rc < 0 ? rc : 0;
    *out = v[1].type == PN_JV_MISSING ? pn__j_none() : v[1];
    return pn__j_dict_set(c, self->d, &v[0], out);
}

int pn__j_dict_merge(struct pn_jctx *c, struct pn_jdict *d, const struct pn_jargs *a) {
    int rc = 0;
    if (a->n > 1) return pn__j_fail(c, "at most 1 argument is possible (%zu given)", a->n);
    if (a->n && a->pos[0].type == PN_JV_DICT) {
        const struct pn_jdict *from = a->pos[0].d;
        for (size_t i = 0; rc == 0 && i < from->n; i++)
            rc = pn__j_dict_set(c, d, &from->e[i].k, &from->e[i].v);
    } else if (a->n) {
        struct pn_jval *pairs;
        size_t n;
        rc = pn__j_items(c, &a->pos[0], &pairs, &n);
        for (size_t i = 0; rc == 0 && i < n; i++) {
            struct pn_jval *pair;
            size_t pair_n;
            rc = pn__j_items(c, &pairs[i], &pair, &pair_n);
            if (rc == 0 && pair_n != 2)
                rc = pn__j_fail(c,
                                "dictionary update sequence element #%zu has length %zu; 2 is "
                                "required",
                                i, pair_n);
            if (rc == 0) rc = pn__j_dict_set(c, d, &pair[0], &pair[1]);
        }
    }
    for (size_t i = 0; rc == 0 && i < a->kw_n; i++) {
        struct pn_jval k;
        rc = pn__j_part(c, a->kw[i].name, 0, a->kw[i].name->n, &k);
        if (rc == 0) rc = pn__j_dict_set(c, d, &k, &a->kw[i].v);
    }
    return rc;
}

METHOD(update) {
    *out = pn__j_none();
    return pn__j_dict_merge(c, self->d, a);
}

METHOD(dict_copy) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval from = *self;
    struct pn_jargs args = {.pos = &from, .n = 1};
    int rc = pn__j_bind(c, "copy", a, "", v);
    if (rc) return rc;
    struct pn_jdict *d = pn__j_dict_new(c);
    if (!d) return pn__j_failed(c);
    d->by = self->d->by;
    *out = pn__j_dict(d);
    return pn__j_dict_merge(c, d, &args);
}

METHOD(dict_clear) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int rc = pn__j_bind(c, "clear", a, "", v);
    if (rc) return rc;
    *self->d = (struct pn_jdict){.by = self->d->by};
    *out = pn__j_none();
    return 0;
}

const struct pn_jmethod pn__j_dict_methods[] = {
    {"get", m_get},       {"items", m_items},    {"keys", m_keys},
    {"values", m_values}, {"pop", m_dict_pop},   {"setdefault", m_setdefault},
    {"update", m_update}, {"copy", m_dict_copy}, {"clear", m_dict_clear},
    {NULL, NULL},
};

/* ---- loops and cyclers ---- */

METHOD(cycle) {
    if (a->kw_n || a->n == 0) return pn__j_fail(c, "no items for cycling given");
    *out = a->pos[self->loop->i % a->n];
    return 0;
}

METHOD(changed) {
    struct pn_jlist *now = pn__j_list_new(c, PN_JL_TUPLE, 0);
    bool equal = false;
    if (!now) return pn__j_failed(c);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < a->n; i++)
        rc = pn__j_push(c, now, &a->pos[i]);
    struct pn_jval v = pn__j_list(now);
    if (rc == 0) rc = pn__j_equal(c, &self->loop->changed, &v, &equal);
    self->loop->changed = v;
    *out = pn__j_bool(!equal);
    return rc;
}

const struct pn_jmethod pn__j_loop_methods[] = {
    {"cycle", m_cycle},
    {"changed", m_changed},
    {NULL, NULL},
};

METHOD(next) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int rc = pn__j_bind(c, "next", a, "", v);
    *out = self->cycler->v[self->cycler->at];
    self->cycler->at = (self->cycler->at + 1) % self->cycler->n;
    return rc;
}

METHOD(reset) {
    struct pn_jval v[PN_J_PARAM_MAX];
    self->cycler->at = 0;
    *out = pn__j_none();
    return pn__j_bind(c, "reset", a, "", v);
}

const struct pn_jmethod pn__j_cycler_methods[] = {
    {"next", m_next},
    {"reset", m_reset},
    {NULL, NULL},
};
