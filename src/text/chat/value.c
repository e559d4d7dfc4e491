#include "text/chat/value.h"

#include <string.h>

#include "text/chat/eval.h"
#include "text/utf8.h"

#define PIECE_BYTES 16 /* of memory or text, counted as one step */

void *pn__j_take(struct pn_jctx *c, size_t n, size_t size) {
    void *p = pn__jarena_take(&c->arena, n, size);
    if (!p && c->arena.full) {
        pn__j_fail_set(c, "the rendering needs more memory than the limit of %llu bytes",
                       (unsigned long long)c->arena.bytes_max);
        c->failed = PN_E_NOFIT;
    } else if (!p) {
        (void)pn__fail(c->d, PN_E_NOMEM, "template: no memory for %zu bytes", n * size);
        c->failed = PN_E_NOMEM;
    } else if (pn__j_step(c, n * size / PIECE_BYTES)) {
        p = NULL;
    }
    return p;
}

/* ---- texts ---- */

int pn__j_text(struct pn_jctx *c, const char *p, size_t n, struct pn_jval *out) {
    struct pn_jstr *s = pn__j_take(c, 1, sizeof *s);
    if (!s) return pn__j_failed(c);
    s->p = p;
    s->n = n;
    *out = pn__j_str(s);
    return 0;
}

int pn__j_part(struct pn_jctx *c, const struct pn_jstr *s, size_t from, size_t to,
               struct pn_jval *out) {
    int rc = pn__j_text(c, s->p + from, to - from, out);
    if (rc) return rc;
    out->s->by = s->by ? s->by + from : NULL;
    out->s->one = s->one;
    out->s->safe = s->safe;
    return 0;
}

int pn__j_undefined(struct pn_jctx *c, const char *of, const struct pn_jstr *name, const char *hint,
                    struct pn_jval *out) {
    struct pn_jundef *u = pn__j_take(c, 1, sizeof *u);
    if (!u) return pn__j_failed(c);
    *u = (struct pn_jundef){name, of, hint};
    *out = (struct pn_jval){.type = PN_JV_UNDEFINED, .u = u};
    return 0;
}

/* ---- lists ---- */

struct pn_jlist *pn__j_list_new(struct pn_jctx *c, enum pn_jlist_kind kind, size_t cap) {
    struct pn_jlist *l = pn__j_take(c, 1, sizeof *l);
    if (!l) return NULL;
    l->kind = kind;
    l->cap = cap;
    l->v = cap ? pn__j_take(c, cap, sizeof *l->v) : NULL;
    return cap && !l->v ? NULL : l;
}

int pn__j_push(struct pn_jctx *c, struct pn_jlist *l, const struct pn_jval *v) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 4;
        struct pn_jval *grown = pn__j_take(c, cap, sizeof *grown);
        if (!grown) return pn__j_failed(c);
        if (l->n) memcpy(grown, l->v, l->n * sizeof *grown);
        l->v = grown;
        l->cap = cap;
    }
    l->v[l->n++] = *v;
    return 0;
}

/* ---- dicts ---- */

#define SCAN_MAX 8 /* entries looked through without an index */

struct pn_jdict *pn__j_dict_new(struct pn_jctx *c) {
    return pn__j_take(c, 1, sizeof(struct pn_jdict));
}

static bool same_key(const struct pn_jpair *e, const struct pn_jval *k, uint32_t hash) {
    return e->hash == hash && (e->k.type != PN_JV_STR || k->type != PN_JV_STR ||
                               pn__j_str_is(e->k.s, k->s->p, k->s->n));
}

/* Index of `k`, or d->n. */
static int find(struct pn_jctx *c, const struct pn_jdict *d, const struct pn_jval *k, uint32_t hash,
                size_t *out) {
    bool equal = false;
    size_t probe_n = 0;
    *out = d->n;
    if (!d->slot_n) {
        for (size_t i = 0; i < d->n; i++) {
            if (!same_key(&d->e[i], k, hash)) continue;
            int rc = pn__j_equal(c, &d->e[i].k, k, &equal);
            if (rc) return rc;
            if (!equal) continue;
            *out = i;
            return 0;
        }
        return 0;
    }
    for (size_t at = hash; d->slot[at & (d->slot_n - 1)]; at++, probe_n++) {
        size_t i = d->slot[at & (d->slot_n - 1)] - 1;
        if (!same_key(&d->e[i], k, hash)) continue;
        int rc = pn__j_equal(c, &d->e[i].k, k, &equal);
        if (rc) return rc;
        if (!equal) continue;
        *out = i;
        break;
    }
    return pn__j_step(c, probe_n / 8);
}

static int index_all(struct pn_jctx *c, struct pn_jdict *d, size_t slot_n) {
    uint64_t probe_n = 0;
    d->slot = pn__j_take(c, slot_n, sizeof *d->slot);
    if (!d->slot) {
        d->slot_n = 0;
        return pn__j_failed(c);
    }
    d->slot_n = slot_n;
    for (size_t i = 0; i < d->n; i++) {
        size_t at = d->e[i].hash;
        for (; d->slot[at & (slot_n - 1)]; at++)
            probe_n++;
        d->slot[at & (slot_n - 1)] = (uint32_t)i + 1;
    }
    return pn__j_step(c, probe_n / 8);
}

int pn__j_dict_get(struct pn_jctx *c, const struct pn_jdict *d, const struct pn_jval *k,
                   struct pn_jval *out) {
    uint32_t hash;
    size_t i;
    int rc = pn__j_hash(c, k, &hash);
    if (rc == 0) rc = find(c, d, k, hash, &i);
    if (rc || i == d->n) return rc;
    *out = d->e[i].v;
    return 1;
}

int pn__j_dict_set(struct pn_jctx *c, struct pn_jdict *d, const struct pn_jval *k,
                   const struct pn_jval *v) {
    uint32_t hash;
    size_t i;
    int rc = pn__j_hash(c, k, &hash);
    if (rc == 0) rc = find(c, d, k, hash, &i);
    if (rc) return rc;
    if (i < d->n) {
        d->e[i].v = *v;
        return 0;
    }
    if (d->n >= UINT32_MAX - 1) return pn__j_fail(c, "a dict of too many entries");
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        struct pn_jpair *grown = pn__j_take(c, cap, sizeof *grown);
        if (!grown) return pn__j_failed(c);
        if (d->n) memcpy(grown, d->e, d->n * sizeof *grown);
        d->e = grown;
        d->cap = cap;
    }
    d->e[d->n++] = (struct pn_jpair){*k, *v, hash};
    if (d->n > SCAN_MAX && d->n * 2 > d->slot_n)
        return index_all(c, d, d->slot_n ? d->slot_n * 2 : 4 * SCAN_MAX);
    if (!d->slot_n) return 0;
    size_t at = hash;
    while (d->slot[at & (d->slot_n - 1)])
        at++;
    d->slot[at & (d->slot_n - 1)] = (uint32_t)d->n;
    return 0;
}

int pn__j_dict_remove(struct pn_jctx *c, struct pn_jdict *d, const struct pn_jval *k) {
    uint32_t hash;
    size_t i;
    int rc = pn__j_hash(c, k, &hash);
    if (rc == 0) rc = find(c, d, k, hash, &i);
    if (rc || i == d->n) return rc;
    memmove(d->e + i, d->e + i + 1, (d->n - i - 1) * sizeof *d->e);
    d->n--;
    rc = pn__j_step(c, d->n);
    if (rc == 0 && d->slot_n) rc = index_all(c, d, d->slot_n);
    return rc ? rc : 1;
}

/* ---- from JSON ---- */

static int json_text(struct pn_jctx *c, const char *p, size_t n, uint8_t by, struct pn_jval *out) {
    struct pn_jstr *s = pn__j_take(c, 1, sizeof *s);
    if (!s) return pn__j_failed(c);
    s->p = p;
    s->n = n;
    s->one = by;
    *out = pn__j_str(s);
    return 0;
}

static int from_array(struct pn_jctx *c, const json_t *j, uint8_t by, struct pn_jval *out) {
    size_t n = json_array_size(j);
    struct pn_jlist *l = pn__j_list_new(c, PN_JL_LIST, n);
    if (!l) return pn__j_failed(c);
    l->by = by;
    for (size_t i = 0; i < n; i++) {
        int rc = pn__j_from_json(c, json_array_get(j, i), by, &l->v[i]);
        if (rc) return rc;
        l->n = i + 1;
    }
    *out = pn__j_list(l);
    return 0;
}

static int from_object(struct pn_jctx *c, const json_t *j, uint8_t by, struct pn_jval *out) {
    struct pn_jdict *d = pn__j_dict_new(c);
    if (!d) return pn__j_failed(c);
    d->by = by;
    /* json_object_iter reads only; its signature doesn't say so. */
    union {
        const json_t *in;
        json_t *iterated;
    } object = {j};
    void *it = json_object_iter(object.iterated);
    for (; it; it = json_object_iter_next(object.iterated, it)) {
        struct pn_jval k;
        struct pn_jval v;
        const char *key = json_object_iter_key(it);
        int rc = json_text(c, key, json_object_iter_key_len(it), by, &k);
        if (rc == 0) rc = pn__j_from_json(c, json_object_iter_value(it), by, &v);
        if (rc == 0) rc = pn__j_dict_set(c, d, &k, &v);
        if (rc) return rc;
    }
    *out = pn__j_dict(d);
    return 0;
}

int pn__j_from_json(struct pn_jctx *c, const json_t *j, uint8_t by, struct pn_jval *out) {
    int rc = pn__j_step(c, 1);
    if (rc) return rc;
    switch (json_typeof(j)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        rc = pn__j_enter(c);
        if (rc == 0) rc = json_is_array(j) ? from_array(c, j, by, out) : from_object(c, j, by, out);
        c->depth--;
        return rc;
    case JSON_STRING:
        return json_text(c, json_string_value(j), json_string_length(j), by, out);
    case JSON_INTEGER:
        *out = pn__j_int(json_integer_value(j));
        break;
    case JSON_REAL:
        *out = pn__j_float(json_real_value(j));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = pn__j_bool(json_is_true(j));
        break;
    default:
        *out = pn__j_none();
        break;
    }
    out->by = by;
    return 0;
}

/* ---- asking values ---- */

static int text_items(struct pn_jctx *c, const struct pn_jstr *s, struct pn_jval **items,
                      size_t *n) {
    size_t char_n = pn__j_char_n(s);
    *n = 0;
    *items = pn__j_take(c, char_n + 1, sizeof **items);
    if (!*items) return pn__j_failed(c);
    for (size_t at = 0; at < s->n;) {
        size_t len = pn__text_char(s->p + at, s->n - at).len;
        int rc = pn__j_part(c, s, at, at + len, &(*items)[(*n)++]);
        if (rc) return rc;
        at += len;
    }
    return 0;
}

int pn__j_items(struct pn_jctx *c, const struct pn_jval *v, struct pn_jval **items, size_t *n) {
    *items = NULL;
    *n = 0;
    switch (v->type) {
    case PN_JV_UNDEFINED:
        return 0;
    case PN_JV_STR:
        return text_items(c, v->s, items, n);
    case PN_JV_LIST:
        *items = v->l->v;
        *n = v->l->n;
        if (v->l->kind == PN_JL_ONCE) v->l->n = 0;
        return 0;
    case PN_JV_DICT:
        *items = pn__j_take(c, v->d->n + 1, sizeof **items);
        if (!*items) return pn__j_failed(c);
        for (; *n < v->d->n; (*n)++)
            (*items)[*n] = v->d->e[*n].k;
        return 0;
    default:
        return pn__j_fail(c, "'%s' object is not iterable", pn__j_type_name(v));
    }
}

bool pn__j_can_iterate(const struct pn_jval *v) {
    return v->type == PN_JV_UNDEFINED || v->type == PN_JV_STR || v->type == PN_JV_LIST ||
           v->type == PN_JV_DICT || v->type == PN_JV_LOOP;
}

int pn__j_length(struct pn_jctx *c, const struct pn_jval *v, size_t *n) {
    switch (v->type) {
    case PN_JV_UNDEFINED:
        *n = 0;
        return 0;
    case PN_JV_STR:
        *n = pn__j_char_n(v->s);
        return pn__j_step(c, v->s->n / PIECE_BYTES);
    case PN_JV_LIST:
        if (v->l->kind == PN_JL_ONCE) break;
        *n = v->l->n;
        return 0;
    case PN_JV_DICT:
        *n = v->d->n;
        return 0;
    case PN_JV_LOOP:
        *n = v->loop->n;
        return 0;
    default:
        break;
    }
    return pn__j_fail(c, "object of type '%s' has no len()", pn__j_type_name(v));
}

const char *pn__j_type_name(const struct pn_jval *v) {
    static const char *const lists[] = {"list", "tuple", "range", "dict_items", "generator"};
    static const char *const names[] = {"Undefined",
                                        "Undefined",
                                        "NoneType",
                                        "bool",
                                        "int",
                                        "float",
                                        "str",
                                        "",
                                        "dict",
                                        "Namespace",
                                        "builtin_function_or_method",
                                        "Macro",
                                        "LoopContext",
                                        "Cycler",
                                        "Joiner"};
    if (v->type != PN_JV_LIST) return names[v->type];
    return v->l->kind == PN_JL_VIEW ? v->l->name : lists[v->l->kind];
}

bool pn__j_truth(const struct pn_jval *v) {
    switch (v->type) {
    case PN_JV_MISSING:
    case PN_JV_UNDEFINED:
    case PN_JV_NONE:
        return false;
    case PN_JV_BOOL:
        return v->b;
    case PN_JV_INT:
        return v->i != 0;
    case PN_JV_FLOAT:
        return v->f != 0;
    case PN_JV_STR:
        return v->s->n != 0;
    case PN_JV_LIST:
        return v->l->kind == PN_JL_ONCE || v->l->n != 0;
    case PN_JV_DICT:
        return v->d->n != 0;
    case PN_JV_LOOP:
        return v->loop->n != 0;
    default:
        return true;
    }
}
