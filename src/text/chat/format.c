/* '%' on texts: printf as Python has it, with %s %r %d %i %f %e %g %x %o %c %%. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/chat/eval.h"

struct format {
    struct pn_jctx *c;
    struct pn_jbuf *b;
    const struct pn_jstr *s;
    const struct pn_jval *args;
    size_t used; /* of a tuple's */
};

struct spec {
    char flags[8];
    int width, precision; /* -1: none */
    char kind;
};

#define WIDTH_MAX 10000

static int next_arg(struct format *f, const struct pn_jval **out) {
    bool is_tuple = pn__j_is_list(f->args, PN_JL_TUPLE);
    size_t n = is_tuple ? f->args->l->n : 1;
    if (f->used >= n) return pn__j_fail(f->c, "not enough arguments for format string");
    *out = is_tuple ? &f->args->l->v[f->used] : f->args;
    f->used++;
    return 0;
}

static int take_number(const struct pn_jstr *s, size_t *at) {
    int n = 0;
    for (; *at < s->n && s->p[*at] >= '0' && s->p[*at] <= '9'; (*at)++)
        n = n < WIDTH_MAX ? n * 10 + (s->p[*at] - '0') : n;
    return n;
}

/* What stands behind a '%' at `at`; moves past it. */
static int read_spec(struct format *f, size_t *at, struct spec *spec,
                     const struct pn_jval **named) {
    const struct pn_jstr *s = f->s;
    struct pn_jval key;
    *named = NULL;
    if (*at < s->n && s->p[*at] == '(') {
        size_t end = pn__j_find(s->p, *at, s->n, ")", 1);
        struct pn_jval *found = pn__j_take(f->c, 1, sizeof *found);
        if (!found) return pn__j_failed(f->c);
        if (end == s->n) return pn__j_fail(f->c, "incomplete format key");
        if (f->args->type != PN_JV_DICT) return pn__j_fail(f->c, "format requires a mapping");
        int rc = pn__j_part(f->c, s, *at + 1, end, &key);
        if (rc == 0) rc = pn__j_dict_get(f->c, f->args->d, &key, found);
        if (rc < 0) return rc;
        if (rc == 0) return pn__j_fail(f->c, "format: no key '%.*s'", (int)key.s->n, key.s->p);
        *named = found;
        *at = end + 1;
    }
    size_t flag_n = 0;
    while (*at < s->n && s->p[*at] && strchr("-+ #0", s->p[*at]) && flag_n < 6)
        spec->flags[flag_n++] = s->p[(*at)++];
    spec->flags[flag_n] = 0;
    spec->width = take_number(s, at);
    spec->precision = -1;
    if (*at < s->n && s->p[*at] == '.') {
        (*at)++;
        spec->precision = take_number(s, at);
    }
    if (*at >= s->n) return pn__j_fail(f->c, "incomplete format");
    spec->kind = s->p[(*at)++];
    return 0;
}

static int put_padded(struct format *f, const struct spec *spec, const struct pn_jstr *text) {
    size_t n = pn__j_char_n(text);
    size_t pad = spec->width > 0 && (size_t)spec->width > n ? (size_t)spec->width - n : 0;
    bool left = strchr(spec->flags, '-') != NULL;
    int rc = left ? pn__jbuf_put_str(f->c, f->b, text) : 0;
    for (size_t i = 0; rc == 0 && i < pad; i++)
        rc = pn__jbuf_put(f->c, f->b, " ", 1, NULL, PN_J_TEMPLATE);
    return rc || left ? rc : pn__jbuf_put_str(f->c, f->b, text);
}

static int put_text(struct format *f, const struct spec *spec, const struct pn_jval *v) {
    struct pn_jval text;
    struct pn_jbuf *b = pn__j_take(f->c, 1, sizeof *b);
    if (!b) return pn__j_failed(f->c);
    int rc = spec->kind == 'r' ? pn__j_put_repr(f->c, b, v) : pn__j_put(f->c, b, v);
    if (rc == 0) rc = pn__jbuf_str(f->c, b, &text);
    if (rc) return rc;
    struct pn_jstr s = *text.s;
    if (spec->precision >= 0) s.n = pn__j_char_at(&s, (size_t)spec->precision);
    return put_padded(f, spec, &s);
}

static int put_number(struct format *f, const struct spec *spec, const struct pn_jval *v) {
    char layout[32];
    char text[512];
    if (v->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(f->c, v);
    if (!pn__j_is_number(v))
        return pn__j_fail(f->c, "%%%c format: a number is required, not %s", spec->kind,
                          pn__j_type_name(v));
    bool is_int = strchr("dixXo", spec->kind) != NULL;
    if (spec->width > 256 || spec->precision > 100)
        return pn__j_fail(f->c, "format: a number of more than 256 characters");
    char precision[8] = "";
    if (spec->precision >= 0) snprintf(precision, sizeof precision, ".%d", spec->precision);
    snprintf(layout, sizeof layout, "%%%s%.0d%s%s%c", spec->flags, spec->width, precision,
             is_int ? "ll" : "", spec->kind);
    if (!is_int) {
        snprintf(text, sizeof text, layout, pn__j_as_float(v));
    } else {
        double d = pn__j_as_float(v);
        if (v->type == PN_JV_FLOAT && (strchr("xXo", spec->kind) || !(fabs(d) < 9e18)))
            return pn__j_fail(f->c, "%%%c format: an integer is required, not float", spec->kind);
        long long i = v->type == PN_JV_FLOAT ? (long long)d : pn__j_as_int(v);
        if (strchr("xXo", spec->kind) && i < 0)
            return pn__j_fail(f->c, "%%%c format: negative numbers are not supported", spec->kind);
        snprintf(text, sizeof text, layout, i);
    }
    return pn__jbuf_put(f->c, f->b, text, strlen(text), NULL, v->by);
}

static int put_spec(struct format *f, size_t *at) {
    struct spec spec;
    const struct pn_jval *v;
    int rc = read_spec(f, at, &spec, &v);
    if (rc) return rc;
    if (spec.kind == '%') return pn__jbuf_put(f->c, f->b, "%", 1, NULL, PN_J_TEMPLATE);
    if (!spec.kind || !strchr("srdifFeEgGxXo", spec.kind))
        return pn__j_fail(f->c, "unsupported format character '%c'", spec.kind);
    if (!v) rc = next_arg(f, &v);
    if (rc) return rc;
    return spec.kind == 's' || spec.kind == 'r' ? put_text(f, &spec, v) : put_number(f, &spec, v);
}

int pn__j_format(struct pn_jctx *c, const struct pn_jstr *format, const struct pn_jval *args,
                 struct pn_jval *out) {
    struct format f = {.c = c, .s = format, .args = args};
    f.b = pn__j_take(c, 1, sizeof *f.b);
    if (!f.b) return pn__j_failed(c);
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < format->n;) {
        size_t percent = pn__j_find(format->p, at, format->n, "%", 1);
        rc = pn__jbuf_put_part(c, f.b, format, at, percent);
        at = percent + 1;
        if (rc == 0 && percent < format->n) rc = put_spec(&f, &at);
        if (rc == 0) rc = pn__j_step(c, 1);
    }
    bool is_tuple = pn__j_is_list(args, PN_JL_TUPLE);
    if (rc == 0 && args->type != PN_JV_DICT && f.used < (is_tuple ? args->l->n : 1))
        rc = pn__j_fail(c, "not all arguments converted during string formatting");
    return rc ? rc : pn__jbuf_str(c, f.b, out);
}
