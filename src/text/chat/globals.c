/* Functions that every template has: those of jinja2, and two that chat templates expect. */
#include <string.h>

#include "text/chat/eval.h"

#define GLOBAL(name)                                                                             \
    static int g_##name(struct pn_jctx *c, const struct pn_jval *self, const struct pn_jargs *a, \
                        struct pn_jval *out)

#define RANGE_MAX 100000 /* jinja2's own limit */

GLOBAL(range) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int64_t at[3] = {0, 0, 1};
    (void)self;
    int rc = pn__j_bind(c, "range", a, "start stop= step=", v);
    for (int i = 0; rc == 0 && i < 3; i++) {
        if (v[i].type == PN_JV_NONE)
            rc = pn__j_fail(c, "'NoneType' object cannot be interpreted as an integer");
        else
            rc = pn__j_arg_int(c, &v[i], "range", at[i], &at[i]);
    }
    if (rc) return rc;
    if (v[1].type == PN_JV_MISSING) {
        at[1] = at[0];
        at[0] = 0;
    }
    if (at[2] == 0) return pn__j_fail(c, "range() arg 3 must not be zero");
    bool up = at[2] > 0;
    uint64_t n = 0;
    if (up ? at[0] < at[1] : at[0] > at[1]) {
        uint64_t span = up ? (uint64_t)at[1] - (uint64_t)at[0] : (uint64_t)at[0] - (uint64_t)at[1];
        uint64_t step = up ? (uint64_t)at[2] : 0 - (uint64_t)at[2];
        n = (span - 1) / step + 1;
    }
    if (n > RANGE_MAX)
        return pn__j_fail(c, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                          RANGE_MAX);
    struct pn_jlist *l = pn__j_list_new(c, PN_JL_RANGE, n);
    if (!l) return pn__j_failed(c);
    memcpy(l->range, at, sizeof at);
    for (int64_t i = at[0]; l->n < n; l->n++) {
        l->v[l->n] = pn__j_int(i);
        if (l->n + 1 < n) i += at[2];
    }
    *out = pn__j_list(l);
    return pn__j_step(c, n);
}

GLOBAL(dict) {
    (void)self;
    struct pn_jdict *d = pn__j_dict_new(c);
    if (!d) return pn__j_failed(c);
    *out = pn__j_dict(d);
    return pn__j_dict_merge(c, d, a);
}

GLOBAL(namespace) {
    int rc = g_dict(c, self, a, out);
    out->type = PN_JV_NAMESPACE;
    return rc;
}

static int new_cycler(struct pn_jctx *c, uint8_t type, struct pn_jval *out) {
    struct pn_jcycler *cy = pn__j_take(c, 1, sizeof *cy);
    if (!cy) return pn__j_failed(c);
    *out = (struct pn_jval){.type = type, .cycler = cy};
    return 0;
}

GLOBAL(cycler) {
    (void)self;
    if (a->n == 0 || a->kw_n) return pn__j_fail(c, "at least one item has to be provided");
    int rc = new_cycler(c, PN_JV_CYCLER, out);
    if (rc) return rc;
    out->cycler->v = a->pos;
    out->cycler->n = a->n;
    return 0;
}

GLOBAL(joiner) {
    struct pn_jval v[PN_J_PARAM_MAX];
    (void)self;
    int rc = pn__j_bind(c, "joiner", a, "sep=", v);
    if (rc == 0) rc = new_cycler(c, PN_JV_JOINER, out);
    if (rc == 0 && v[0].type == PN_JV_MISSING) return pn__j_text(c, ", ", 2, &out->cycler->sep);
    if (rc == 0) out->cycler->sep = v[0];
    return rc;
}

/* The detail is the template's words alone. */
GLOBAL(raise_exception) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval text;
    (void)self;
    (void)out;
    int rc = pn__j_bind(c, "raise_exception", a, "message", v);
    if (rc == 0) rc = pn__j_to_str(c, &v[0], &text);
    if (rc) return rc;
    c->refused = true;
    size_t n = text.s->n < PN_DETAIL_BYTES ? text.s->n : PN_DETAIL_BYTES;
    return pn__fail(c->d, PN_E_INVALID, "%.*s", (int)n, text.s->p);
}

#define TIME_BYTES 1024

GLOBAL(strftime_now) {
    struct pn_jval v[PN_J_PARAM_MAX];
    char format[256];
    const struct pn_jstr *s;
    (void)self;
    int rc = pn__j_bind(c, "strftime_now", a, "format", v);
    if (rc == 0) rc = pn__j_arg_str(c, &v[0], "strftime_now", &s);
    if (rc) return rc;
    if (!s || s->n + 2 > sizeof format || memchr(s->p, 0, s->n))
        return pn__j_fail(c, "strftime_now: a format of at most %zu characters is needed",
                          sizeof format - 2);
    /* A character more tells an empty result from one that doesn't fit. */
    memcpy(format, s->p, s->n);
    memcpy(format + s->n, ".", 2);
    char *text = pn__j_take(c, TIME_BYTES, 1);
    if (!text) return pn__j_failed(c);
    size_t n = strftime(text, TIME_BYTES, format, c->now);
    if (n == 0) return pn__j_fail(c, "strftime_now: the result is too long");
    rc = pn__j_text(c, text, n - 1, out);
    /* Whoever wrote a part of the format wrote the result. */
    if (rc == 0) out->s->one = s->one;
    for (size_t i = 0; rc == 0 && s->by && i < s->n; i++)
        out->s->one |= s->by[i];
    return rc;
}

const struct pn_jmethod pn__j_globals[] = {
    {"range", g_range},
    {"dict", g_dict},
    {"namespace", g_namespace},
    {"cycler", g_cycler},
    {"joiner", g_joiner},
    {"raise_exception", g_raise_exception},
    {"strftime_now", g_strftime_now},
    {NULL, NULL},
};
