/* '%' on texts: printf as Python has it, with %s %r %d %i %u %f %e %g %x %o %%; and str.format. */
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
    if (!spec.kind || !strchr("srdiufFeEgGxXo", spec.kind))
        return pn__j_fail(f->c, "unsupported format character '%c'", spec.kind);
    if (spec.kind == 'u') spec.kind = 'd';
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

/* ---- str.format ---- */

struct braces {
    struct format f; /* without its arguments */
    const struct pn_jargs *args;
    size_t next;   /* the argument of the next "{}" */
    bool numbered; /* a field gave its number, so that "{}" has none */
};

/* The argument that s[from, to) names: "" the next one, a number, or a keyword. */
static int named_arg(struct braces *b, size_t from, size_t to, const struct pn_jval **out) {
    const struct pn_jstr *s = b->f.s;
    const struct pn_jargs *a = b->args;
    size_t at = from;
    bool has_number = from < to && s->p[from] >= '0' && s->p[from] <= '9';
    if (has_number ? b->next > 0 : from == to && b->numbered)
        return pn__j_fail(b->f.c, "format: fields with and without numbers");
    b->numbered |= has_number;
    size_t i = from == to ? b->next++ : (size_t)take_number(s, &at);
    if (at == to && i >= a->n)
        return pn__j_fail(b->f.c, "format: there is no argument %zu of %zu", i, a->n);
    if (at == to) {
        *out = &a->pos[i];
        return 0;
    }
    for (size_t k = 0; k < a->kw_n; k++) {
        *out = &a->kw[k].v;
        if (pn__j_str_is(a->kw[k].name, s->p + from, to - from)) return 0;
    }
    return pn__j_fail(b->f.c, "format: there is no argument '%.*s'",
                      (int)(to - from < 40 ? to - from : 40), s->p + from);
}

/* What stands behind a ':': [<>][+][0][width][.precision][type]. Fills and centring are not there.
 */
static int brace_spec(struct braces *b, size_t at, size_t to, const struct pn_jval *v,
                      struct spec *spec) {
    const struct pn_jstr *s = b->f.s;
    bool is_number = pn__j_is_number(v);
    bool is_plain = at == to;
    bool right = at < to && s->p[at] == '>';
    bool left = at < to && s->p[at] == '<';
    at += right || left;
    size_t n = 0;
    if (left || (!is_number && !right)) spec->flags[n++] = '-';
    if (at < to && s->p[at] == '+') spec->flags[n++] = s->p[at++];
    if (at < to && s->p[at] == '0' && is_number) spec->flags[n++] = s->p[at++];
    spec->flags[n] = 0;
    spec->width = take_number(s, &at);
    spec->precision = -1;
    if (at < to && s->p[at] == '.') {
        at++;
        spec->precision = take_number(s, &at);
    }
    bool typed = at < to;
    spec->kind = 's';
    if (typed) spec->kind = s->p[at++];
    bool is_float = v->type == PN_JV_FLOAT;
    if (!typed && is_number && !is_float && !is_plain) spec->kind = 'd';
    bool fits = is_number ? strchr(is_float ? "feEgGF" : "dxXofeEgGF", spec->kind) != NULL
                          : spec->kind == 's' && (v->type == PN_JV_STR || is_plain);
    if (!typed && is_number)
        fits = spec->precision < 0 && (!is_float || !strpbrk(spec->flags, "+0"));
    if (at != to || !fits)
        return pn__j_fail(b->f.c, "format: this layout is not supported for '%s'",
                          pn__j_type_name(v));
    return 0;
}

/* A field whose '{' is at from - 1, up to its '}' at `to`. */
static int put_field(struct braces *b, size_t from, size_t to) {
    const struct pn_jstr *s = b->f.s;
    const struct pn_jval *v;
    struct spec spec;
    size_t end = from;
    while (end < to && s->p[end] != '!' && s->p[end] != ':')
        end++;
    int rc = named_arg(b, from, end, &v);
    if (rc) return rc;
    bool converts = end + 1 < to && s->p[end] == '!';
    struct pn_jval text = *v;
    if (converts) {
        char how = s->p[end + 1];
        struct pn_jbuf *repr = pn__j_take(b->f.c, 1, sizeof *repr);
        if (!repr) return pn__j_failed(b->f.c);
        if (how != 'r' && how != 's')
            return pn__j_fail(b->f.c, "format: the conversion '!%c' is not supported", how);
        rc = how == 'r' ? pn__j_put_repr(b->f.c, repr, v) : pn__j_put(b->f.c, repr, v);
        if (rc == 0) rc = pn__jbuf_str(b->f.c, repr, &text);
        end += 2;
    }
    if (rc == 0 && end < to && s->p[end] != ':')
        rc = pn__j_fail(b->f.c, "format: ':' is expected in a field");
    if (rc == 0) rc = brace_spec(b, end + (end < to), to, &text, &spec);
    if (rc) return rc;
    return spec.kind == 's' ? put_text(&b->f, &spec, &text) : put_number(&b->f, &spec, &text);
}

int pn__j_format_braces(struct pn_jctx *c, const struct pn_jstr *s, const struct pn_jargs *args,
                        struct pn_jval *out) {
    struct braces b = {.f = {.c = c, .s = s}, .args = args};
    b.f.b = pn__j_take(c, 1, sizeof *b.f.b);
    if (!b.f.b) return pn__j_failed(c);
    int rc = pn__j_step(c, s->n / 4);
    for (size_t at = 0; rc == 0 && at < s->n;) {
        size_t from = at;
        while (at < s->n && s->p[at] != '{' && s->p[at] != '}')
            at++;
        rc = pn__jbuf_put_part(c, b.f.b, s, from, at);
        if (rc || at == s->n) break;
        if (at + 1 < s->n && s->p[at + 1] == s->p[at]) {
            rc = pn__jbuf_put_part(c, b.f.b, s, at, at + 1);
            at += 2;
            continue;
        }
        size_t end = pn__j_find(s->p, at, s->n, "}", 1);
        if (s->p[at] == '}' || end == s->n) return pn__j_fail(c, "Single '%c' in format", s->p[at]);
        if (pn__j_find(s->p, at + 1, end, "{", 1) < end)
            return pn__j_fail(c, "format: fields in fields are not supported");
        rc = put_field(&b, at + 1, end);
        if (rc == 0) rc = pn__j_step(c, 1);
        at = end + 1;
    }
    return rc ? rc : pn__jbuf_str(c, b.f.b, out);
}
