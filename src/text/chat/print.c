/* str(), repr() and json.dumps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat/eval.h"
#include "text/utf8.h"

int pn__j_float_text(double f, char out[PN_J_FLOAT_BYTES]) {
    if (isnan(f)) return snprintf(out, PN_J_FLOAT_BYTES, "nan");
    if (isinf(f)) return snprintf(out, PN_J_FLOAT_BYTES, f < 0 ? "-inf" : "inf");
    int digit_n = 1;
    do {
        snprintf(out, PN_J_FLOAT_BYTES, "%.*e", digit_n - 1, f);
    } while (strtod(out, NULL) != f && ++digit_n <= 17);
    /* out: -d.ddde+XX; taken apart into digits and exponent. */
    char digits[24];
    int n = 0;
    const char *at = out;
    bool negative = *at == '-';
    for (at += negative; *at != 'e'; at++) {
        if (*at >= '0' && *at <= '9') digits[n++] = *at;
    }
    int exponent = (int)strtol(at + 1, NULL, 10);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = 0;
    const char *sign = negative ? "-" : "";
    if (exponent < -4 || exponent >= 16)
        return snprintf(out, PN_J_FLOAT_BYTES, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "",
                        digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    if (exponent < 0)
        return snprintf(out, PN_J_FLOAT_BYTES, "%s0.%.*s%s", sign, -exponent - 1, "000", digits);
    if (n <= exponent + 1)
        return snprintf(out, PN_J_FLOAT_BYTES, "%s%s%.*s.0", sign, digits, exponent + 1 - n,
                        "0000000000000000");
    return snprintf(out, PN_J_FLOAT_BYTES, "%s%.*s.%s", sign, exponent + 1, digits,
                    digits + exponent + 1);
}

static int put(struct pn_jctx *c, struct pn_jbuf *b, const char *text, uint8_t by) {
    return pn__jbuf_put(c, b, text, strlen(text), NULL, by);
}

/* A number, boolean or none; `json` spells them as JSON does. */
static int put_scalar(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jval *v, bool json) {
    char text[PN_J_FLOAT_BYTES];
    switch (v->type) {
    case PN_JV_NONE:
        return put(c, b, json ? "null" : "None", v->by);
    case PN_JV_BOOL:
        if (json) return put(c, b, v->b ? "true" : "false", v->by);
        return put(c, b, v->b ? "True" : "False", v->by);
    case PN_JV_INT:
        snprintf(text, sizeof text, "%lld", (long long)v->i);
        return put(c, b, text, v->by);
    default:
        if (json && !isfinite(v->f))
            return put(c, b, isnan(v->f) ? "NaN" : v->f < 0 ? "-Infinity" : "Infinity", v->by);
        pn__j_float_text(v->f, text);
        return put(c, b, text, v->by);
    }
}

/* Python prints characters that it thinks can't be seen as escapes; of those above ASCII these are
 * the ones that texts have. */
static bool is_hidden(uint32_t cp) {
    return cp < 0x20 || (cp >= 0x7f && cp <= 0xa0) || cp == 0xad || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200f) || (cp >= 0x2028 && cp <= 0x202f) ||
           (cp >= 0x205f && cp <= 0x206f) || cp == 0x3000 || cp == 0xfeff ||
           (cp >= 0xe000 && cp <= 0xf8ff) || (cp >= 0xfff9 && cp <= 0xfffb);
}

/* The escape of a character inside a repr, or "" when it stands for itself. */
static void repr_escape(uint32_t cp, int quote, char out[16]) {
    const char *simple = cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : cp == '\t' ? "\\t" : NULL;
    out[0] = 0;
    if (simple)
        snprintf(out, 16, "%s", simple);
    else if (cp == '\\' || cp == (uint32_t)quote)
        snprintf(out, 16, "\\%c", (char)cp);
    else if (is_hidden(cp))
        snprintf(out, 16, cp < 0x100 ? "\\x%02x" : "\\u%04x", cp);
}

/* s with what `escape` has another way for written that way. `how` is escape's own. */
static int put_escaped(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jstr *s,
                       void (*escape)(uint32_t cp, int how, char out[16]), int how) {
    char escaped[16];
    size_t from = 0;
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < s->n;) {
        struct pn_utf8_char ch = pn__text_char(s->p + at, s->n - at);
        escape(ch.cp, how, escaped);
        if (escaped[0]) {
            rc = pn__jbuf_put_part(c, b, s, from, at);
            if (rc == 0) rc = put(c, b, escaped, pn__j_by_at(s, at));
            from = at + ch.len;
        }
        at += ch.len;
    }
    return rc ? rc : pn__jbuf_put_part(c, b, s, from, s->n);
}

static int put_quoted(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jstr *s) {
    bool single = memchr(s->p, '\'', s->n) != NULL;
    char quote = single && !memchr(s->p, '"', s->n) ? '"' : '\'';
    int rc = pn__jbuf_put(c, b, &quote, 1, NULL, s->n ? pn__j_by_at(s, 0) : s->one);
    if (rc == 0) rc = put_escaped(c, b, s, repr_escape, quote);
    if (rc == 0) rc = pn__jbuf_put(c, b, &quote, 1, NULL, s->n ? pn__j_by_at(s, s->n - 1) : s->one);
    return rc;
}

static int put_list(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jlist *l) {
    static const char *const open[] = {"[", "(", "", "([", ""};
    static const char *const close[] = {"]", ")", "", "])", ""};
    int rc = 0;
    if (l->kind == PN_JL_ONCE)
        return pn__j_fail(c, "this is a generator; make a list of it before it is printed");
    if (l->kind == PN_JL_RANGE) {
        char text[80];
        snprintf(text, sizeof text, "range(%lld, %lld", (long long)l->range[0],
                 (long long)l->range[1]);
        rc = put(c, b, text, l->by);
        snprintf(text, sizeof text, ", %lld", (long long)l->range[2]);
        if (rc == 0 && l->range[2] != 1) rc = put(c, b, text, l->by);
        return rc ? rc : put(c, b, ")", l->by);
    }
    if (l->kind == PN_JL_VIEW) rc = put(c, b, l->name, l->by);
    if (rc == 0) rc = put(c, b, open[l->kind], l->by);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        if (i) rc = put(c, b, ", ", l->by);
        if (rc == 0) rc = pn__j_put_repr(c, b, &l->v[i]);
    }
    if (rc == 0 && l->kind == PN_JL_TUPLE && l->n == 1) rc = put(c, b, ",", l->by);
    return rc ? rc : put(c, b, close[l->kind], l->by);
}

static int put_dict(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jdict *d) {
    int rc = put(c, b, "{", d->by);
    for (size_t i = 0; rc == 0 && i < d->n; i++) {
        if (i) rc = put(c, b, ", ", d->by);
        if (rc == 0) rc = pn__j_put_repr(c, b, &d->e[i].k);
        if (rc == 0) rc = put(c, b, ": ", d->by);
        if (rc == 0) rc = pn__j_put_repr(c, b, &d->e[i].v);
    }
    return rc ? rc : put(c, b, "}", d->by);
}

/* A message's list of text parts in the text would be the model's reading of Python: the caller
 * joins the parts and renders again. */
static int stop_at_parts(struct pn_jctx *c, const struct pn_jval *v) {
    if (v->type != PN_JV_LIST || !v->is_parts) return 0;
    c->printed_parts = true;
    return pn__j_fail(c, "the template would print a content's list of parts");
}

int pn__j_put_repr(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jval *v) {
    int rc = pn__j_step(c, 1);
    if (rc) return rc;
    switch (v->type) {
    case PN_JV_UNDEFINED:
        return put(c, b, "Undefined", PN_J_TEMPLATE);
    case PN_JV_NONE:
    case PN_JV_BOOL:
    case PN_JV_INT:
    case PN_JV_FLOAT:
        return put_scalar(c, b, v, false);
    case PN_JV_STR:
        if (v->s->safe) rc = put(c, b, "Markup(", PN_J_TEMPLATE);
        if (rc == 0) rc = put_quoted(c, b, v->s);
        return rc || !v->s->safe ? rc : put(c, b, ")", PN_J_TEMPLATE);
    case PN_JV_LIST:
    case PN_JV_DICT:
    case PN_JV_NAMESPACE:
        rc = stop_at_parts(c, v);
        if (rc) return rc;
        rc = pn__j_enter(c);
        if (rc == 0 && v->type == PN_JV_NAMESPACE) rc = put(c, b, "<Namespace ", PN_J_TEMPLATE);
        if (rc == 0) rc = v->type == PN_JV_LIST ? put_list(c, b, v->l) : put_dict(c, b, v->d);
        if (rc == 0 && v->type == PN_JV_NAMESPACE) rc = put(c, b, ">", PN_J_TEMPLATE);
        c->depth--;
        return rc;
    default:
        return pn__j_fail(c, "a '%s' can't be printed", pn__j_type_name(v));
    }
}

int pn__j_put(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jval *v) {
    if (v->type == PN_JV_STR) return pn__jbuf_put_str(c, b, v->s);
    if (v->type == PN_JV_UNDEFINED) return 0;
    return pn__j_put_repr(c, b, v);
}

int pn__j_to_str(struct pn_jctx *c, const struct pn_jval *v, struct pn_jval *out) {
    if (v->type == PN_JV_STR) {
        *out = *v;
        return 0;
    }
    struct pn_jbuf *b = pn__j_take(c, 1, sizeof *b);
    if (!b) return pn__j_failed(c);
    int rc = pn__j_put(c, b, v);
    return rc ? rc : pn__jbuf_str(c, b, out);
}

/* ---- json.dumps ---- */

static void json_escape(uint32_t cp, int ascii, char out[16]) {
    static const char plain[] = "\"\\\n\r\t\f\b";
    static const char names[] = "\"\\nrtfb";
    const char *at = cp && cp < 0x80 ? strchr(plain, (char)cp) : NULL;
    out[0] = 0;
    if (at)
        snprintf(out, 16, "\\%c", names[at - plain]);
    else if (cp < 0x20 || (ascii && cp >= 0x7f && cp < 0x10000))
        snprintf(out, 16, "\\u%04x", cp);
    else if (ascii && cp >= 0x10000)
        snprintf(out, 16, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10), 0xdc00 + (cp & 0x3ff));
}

static int put_json_text(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jstr *s,
                         bool ascii) {
    int rc = put(c, b, "\"", s->n ? pn__j_by_at(s, 0) : s->one);
    if (rc == 0) rc = put_escaped(c, b, s, json_escape, ascii);
    return rc ? rc : put(c, b, "\"", s->n ? pn__j_by_at(s, s->n - 1) : s->one);
}

static int put_line(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jdump *how,
                    uint32_t level) {
    if (!how->indent) return 0;
    int rc = put(c, b, "\n", PN_J_TEMPLATE);
    for (uint32_t i = 0; rc == 0 && i < level; i++)
        rc = pn__jbuf_put_str(c, b, how->indent);
    return rc;
}

static int put_json_list(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jlist *l,
                         const struct pn_jdump *how, uint32_t level) {
    int rc = put(c, b, "[", l->by);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        if (i) rc = pn__jbuf_put(c, b, how->item->p, how->item->n, NULL, l->by);
        if (rc == 0) rc = put_line(c, b, how, level + 1);
        if (rc == 0) rc = pn__j_put_json(c, b, &l->v[i], how, level + 1);
    }
    if (rc == 0 && l->n) rc = put_line(c, b, how, level);
    return rc ? rc : put(c, b, "]", l->by);
}

static int put_json_key(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jval *k,
                        const struct pn_jdump *how) {
    if (k->type == PN_JV_STR) return put_json_text(c, b, k->s, how->ascii);
    if (k->type != PN_JV_NONE && !pn__j_is_number(k))
        return pn__j_fail(c, "keys must be str, int, float, bool or None, not %s",
                          pn__j_type_name(k));
    int rc = put(c, b, "\"", k->by);
    if (rc == 0) rc = put_scalar(c, b, k, true);
    return rc ? rc : put(c, b, "\"", k->by);
}

/* The entries in order of their keys. */
static int sort_entries(struct pn_jctx *c, const struct pn_jdict *d, struct pn_jpair **out) {
    struct pn_jval *key = pn__j_take(c, d->n + 1, sizeof *key);
    struct pn_jval *place = pn__j_take(c, d->n + 1, sizeof *place);
    struct pn_jpair *e = pn__j_take(c, d->n + 1, sizeof *e);
    if (!key || !place || !e) return pn__j_failed(c);
    for (size_t i = 0; i < d->n; i++) {
        key[i] = d->e[i].k;
        place[i] = pn__j_int((int64_t)i);
    }
    int rc = pn__j_sort(c, place, key, d->n, false);
    for (size_t i = 0; rc == 0 && i < d->n; i++)
        e[i] = d->e[place[i].i];
    *out = e;
    return rc;
}

static int put_json_dict(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jdict *d,
                         const struct pn_jdump *how, uint32_t level) {
    struct pn_jpair *e = d->e;
    size_t n = d->n;
    int rc = how->sort_keys ? sort_entries(c, d, &e) : 0;
    if (rc == 0) rc = put(c, b, "{", d->by);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (i) rc = pn__jbuf_put(c, b, how->item->p, how->item->n, NULL, d->by);
        if (rc == 0) rc = put_line(c, b, how, level + 1);
        if (rc == 0) rc = put_json_key(c, b, &e[i].k, how);
        if (rc == 0) rc = pn__jbuf_put(c, b, how->colon->p, how->colon->n, NULL, d->by);
        if (rc == 0) rc = pn__j_put_json(c, b, &e[i].v, how, level + 1);
    }
    if (rc == 0 && n) rc = put_line(c, b, how, level);
    return rc ? rc : put(c, b, "}", d->by);
}

int pn__j_put_json(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jval *v,
                   const struct pn_jdump *how, uint32_t level) {
    int rc = pn__j_step(c, 1);
    if (rc) return rc;
    switch (v->type) {
    case PN_JV_NONE:
    case PN_JV_BOOL:
    case PN_JV_INT:
    case PN_JV_FLOAT:
        return put_scalar(c, b, v, true);
    case PN_JV_STR:
        return put_json_text(c, b, v->s, how->ascii);
    case PN_JV_LIST:
        if (v->l->kind > PN_JL_TUPLE) break;
        rc = stop_at_parts(c, v);
        if (rc) return rc;
        rc = pn__j_enter(c);
        if (rc == 0) rc = put_json_list(c, b, v->l, how, level);
        c->depth--;
        return rc;
    case PN_JV_DICT:
        rc = pn__j_enter(c);
        if (rc == 0) rc = put_json_dict(c, b, v->d, how, level);
        c->depth--;
        return rc;
    default:
        break;
    }
    return pn__j_fail(c, "Object of type %s is not JSON serializable", pn__j_type_name(v));
}
