/* Filters on numbers and on any value: default, int, round, tojson ... */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat/eval.h"

#define FILTER(name)                                                                             \
    static int f_##name(struct pn_jctx *c, const struct pn_jval *self, const struct pn_jargs *a, \
                        struct pn_jval *out)

FILTER(default) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int rc = pn__j_bind(c, "default", a, "default_value= boolean=", v);
    if (rc) return rc;
    *out = *self;
    if (self->type != PN_JV_UNDEFINED && !(pn__j_truth(&v[1]) && !pn__j_truth(self))) return 0;
    *out = v[0];
    return v[0].type == PN_JV_MISSING ? pn__j_text(c, "", 0, out) : 0;
}

FILTER(abs) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval zero = pn__j_int(0);
    int rc = pn__j_bind(c, "abs", a, "", v);
    if (rc) return rc;
    if (self->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, self);
    if (!pn__j_is_number(self))
        return pn__j_fail(c, "bad operand type for abs(): '%s'", pn__j_type_name(self));
    *out = self->type == PN_JV_FLOAT ? pn__j_float(fabs(self->f)) : pn__j_int(pn__j_as_int(self));
    out->by = self->by;
    if (out->type == PN_JV_INT && out->i < 0) {
        struct pn_jval positive = *out;
        return pn__j_arith(c, PN_JO_SUB, &zero, &positive, out);
    }
    return 0;
}

/* What stands between blanks, as a C string; false when that is nothing, too long for a number, or
 * has a NUL or one of `never` in it. */
static bool bare(const struct pn_jstr *s, const char *never, char text[128]) {
    size_t from = pn__j_space_len(s->p, 0, s->n);
    size_t to = s->n - pn__j_rspace_len(s->p, from, s->n);
    if (to - from == 0 || to - from >= 128) return false;
    memcpy(text, s->p + from, to - from);
    text[to - from] = 0;
    return strlen(text) == to - from && !strpbrk(text, never);
}

/* Python's float(text): no hexadecimal. */
static bool text_float(const struct pn_jstr *s, double *out) {
    char text[128];
    if (!bare(s, "xXpP() \t\n", text)) return false;
    char *end;
    *out = strtod(text, &end);
    return *end == 0;
}

static bool text_int(const struct pn_jstr *s, int64_t base, int64_t *out) {
    char text[128];
    if (!bare(s, " \t\n", text)) return false;
    char *at = text + (text[0] == '-' || text[0] == '+');
    bool prefixed = at[0] == '0' && at[1] && strchr("xXoObB", at[1]) && (at[1] | 0x20) != 'x';
    if (prefixed && ((at[1] | 0x20) == 'o' ? base == 8 : base == 2)) at[1] = '0';
    char *end;
    errno = 0;
    *out = strtoll(text, &end, (int)base);
    return *end == 0 && end != text && errno == 0;
}

FILTER(int) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int64_t base;
    double f = 0;
    int64_t i = 0;
    int rc = pn__j_bind(c, "int", a, "default= base=", v);
    if (rc == 0) rc = pn__j_arg_int(c, &v[1], "int", 10, &base);
    if (rc) return rc;
    if (self->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, self);
    if (base < 2 || base > 36) return pn__j_fail(c, "int: the base must be from 2 to 36");
    bool done = false;
    if (pn__j_is_int(self)) {
        i = pn__j_as_int(self);
        done = true;
    } else if (self->type == PN_JV_STR) {
        done = text_int(self->s, base, &i);
    }
    bool is_float = self->type == PN_JV_FLOAT;
    if (is_float) f = self->f;
    if (!done && (is_float || (self->type == PN_JV_STR && text_float(self->s, &f))) &&
        fabs(f) < 9.2e18) {
        i = (int64_t)f;
        done = true;
    }
    *out = done ? pn__j_int(i) : v[0].type == PN_JV_MISSING ? pn__j_int(0) : v[0];
    if (done) out->by = self->type == PN_JV_STR ? self->s->one : self->by;
    return 0;
}

FILTER(float) {
    struct pn_jval v[PN_J_PARAM_MAX];
    double f;
    int rc = pn__j_bind(c, "float", a, "default=", v);
    if (rc) return rc;
    if (self->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, self);
    if (pn__j_is_number(self))
        *out = pn__j_float(pn__j_as_float(self));
    else if (self->type == PN_JV_STR && text_float(self->s, &f))
        *out = pn__j_float(f);
    else
        *out = v[0].type == PN_JV_MISSING ? pn__j_float(0) : v[0];
    if (pn__j_is_number(self)) out->by = self->by;
    return 0;
}

FILTER(round) {
    struct pn_jval v[PN_J_PARAM_MAX];
    const struct pn_jstr *method;
    int64_t precision;
    int rc = pn__j_bind(c, "round", a, "precision= method=", v);
    if (rc == 0) rc = pn__j_arg_int(c, &v[0], "round", 0, &precision);
    if (rc == 0) rc = pn__j_arg_str(c, &v[1], "round", &method);
    if (rc) return rc;
    bool up = method && pn__j_str_is(method, "ceil", 4);
    bool down = method && pn__j_str_is(method, "floor", 5);
    if (method && !up && !down && !pn__j_str_is(method, "common", 6))
        return pn__j_fail(c, "method must be common, ceil or floor");
    if (self->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, self);
    if (!pn__j_is_number(self))
        return pn__j_fail(c, "type %s doesn't define __round__ method", pn__j_type_name(self));
    if (precision < -300 || precision > 300) return pn__j_fail(c, "round: the precision is absurd");
    double f = pn__j_as_float(self);
    double scale = pow(10, (double)precision);
    if (up || down) {
        f = (up ? ceil(f * scale) : floor(f * scale)) / scale;
    } else if (pn__j_is_int(self) && precision >= 0) {
        *out = pn__j_int(pn__j_as_int(self));
        out->by = self->by;
        return 0;
    } else if (precision >= 0 && isfinite(f)) {
        /* Correctly rounded, half to even, as Python does it. */
        char text[640];
        snprintf(text, sizeof text, "%.*f", (int)precision, f);
        f = strtod(text, NULL);
    } else if (isfinite(f)) {
        f = nearbyint(f * scale) / scale;
    }
    *out = pn__j_is_int(self) && !up && !down ? pn__j_int((int64_t)f) : pn__j_float(f);
    out->by = self->by;
    return 0;
}

/* indent: none, a number of blanks, or a text. */
static int dump_indent(struct pn_jctx *c, const struct pn_jval *v, struct pn_jdump *how) {
    struct pn_jval space;
    struct pn_jval text;
    if (v->type == PN_JV_MISSING || v->type == PN_JV_NONE) return 0;
    if (v->type == PN_JV_STR) {
        how->indent = v->s;
        return 0;
    }
    int rc = pn__j_text(c, " ", 1, &space);
    if (rc == 0) rc = pn__j_arith(c, PN_JO_MUL, &space, v, &text);
    if (rc == 0) how->indent = text.s;
    return rc;
}

FILTER(tojson) {
    static const struct pn_jstr comma = {.p = ",", .n = 1};
    static const struct pn_jstr comma_space = {.p = ", ", .n = 2};
    static const struct pn_jstr colon_space = {.p = ": ", .n = 2};
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jdump how = {.colon = &colon_space};
    int rc = pn__j_bind(c, "tojson", a, "ensure_ascii= indent= separators= sort_keys=", v);
    if (rc == 0) rc = dump_indent(c, &v[1], &how);
    if (rc) return rc;
    how.ascii = pn__j_truth(&v[0]);
    how.sort_keys = pn__j_truth(&v[3]);
    how.item = how.indent ? &comma : &comma_space;
    if (v[2].type != PN_JV_MISSING && v[2].type != PN_JV_NONE) {
        struct pn_jval *pair;
        size_t n;
        rc = pn__j_items(c, &v[2], &pair, &n);
        if (rc) return rc;
        if (n != 2 || pair[0].type != PN_JV_STR || pair[1].type != PN_JV_STR)
            return pn__j_fail(c, "tojson: separators are two strings");
        how.item = pair[0].s;
        how.colon = pair[1].s;
    }
    struct pn_jbuf *b = pn__j_take(c, 1, sizeof *b);
    if (!b) return pn__j_failed(c);
    rc = pn__j_put_json(c, b, self, &how, 0);
    return rc ? rc : pn__jbuf_str(c, b, out);
}

/* Not jinja2's: templates that are given arguments as JSON text expect it of their host. */
FILTER(fromjson) {
    struct pn_jval v[PN_J_PARAM_MAX];
    json_error_t e;
    int rc = pn__j_bind(c, "fromjson", a, "", v);
    if (rc) return rc;
    if (self->type != PN_JV_STR)
        return pn__j_fail(c, "fromjson: a string is needed, not '%s'", pn__j_type_name(self));
    const struct pn_jstr *s = self->s;
    uint8_t by = s->one;
    for (size_t i = 0; s->by && i < s->n; i++)
        by |= s->by[i];
    json_t *j = json_loadb(s->p, s->n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
    if (!j) return pn__j_fail(c, "fromjson: line %d, column %d: %s", e.line, e.column, e.text);
    if (!c->read) c->read = json_array();
    if (json_array_append_new(c->read, j)) return pn__fail(c->d, PN_E_NOMEM, "template: no memory");
    rc = pn__j_step(c, s->n / 4);
    return rc ? rc : pn__j_from_json(c, j, by, out);
}

FILTER(attr) {
    struct pn_jval v[PN_J_PARAM_MAX];
    const struct pn_jstr *name;
    int rc = pn__j_bind(c, "attr", a, "name", v);
    if (rc == 0) rc = pn__j_arg_str(c, &v[0], "attr", &name);
    if (rc) return rc;
    if (!name) return pn__j_fail(c, "attr: a name is needed");
    /* Attributes only: the items of a dict are none. */
    if (self->type == PN_JV_DICT && !pn__j_find_method(pn__j_dict_methods, name->p, name->n))
        return pn__j_undefined(c, "dict", name, NULL, out);
    return pn__j_attr(c, self, v[0].s, out);
}

const struct pn_jmethod pn__j_filters_value[] = {
    {"tojson", f_tojson}, {"fromjson", f_fromjson}, {"default", f_default},
    {"d", f_default},     {"int", f_int},           {"float", f_float},
    {"abs", f_abs},       {"round", f_round},       {"attr", f_attr},
    {NULL, NULL},
};
