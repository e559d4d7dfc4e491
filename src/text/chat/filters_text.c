/* Filters that make texts. */
#include <string.h>

#include "text/chat/eval.h"
#include "text/utf8.h"

#define FILTER(name)                                                                             \
    static int f_##name(struct pn_jctx *c, const struct pn_jval *self, const struct pn_jargs *a, \
                        struct pn_jval *out)

/* Binds the arguments and makes the filtered value a text. */
static int bind_text(struct pn_jctx *c, const char *name, const struct pn_jval *self,
                     const struct pn_jargs *a, const char *params, struct pn_jval v[PN_J_PARAM_MAX],
                     struct pn_jval *text) {
    int rc = pn__j_bind(c, name, a, params, v);
    return rc ? rc : pn__j_to_str(c, self, text);
}

#define CASE_FILTER(name, how)                               \
    FILTER(name) {                                           \
        struct pn_jval v[PN_J_PARAM_MAX];                    \
        struct pn_jval text;                                 \
        int rc = bind_text(c, #name, self, a, "", v, &text); \
        return rc ? rc : pn__j_case(c, text.s, how, out);    \
    }
CASE_FILTER(upper, PN_J_UPPER)
CASE_FILTER(lower, PN_J_LOWER)
CASE_FILTER(capitalize, PN_J_CAPITALIZE)

/* Words begin after white space and opening brackets or dashes only, unlike str.title. */
FILTER(title) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval text;
    struct pn_jval part;
    struct pn_jval cased;
    int rc = bind_text(c, "title", self, a, "", v, &text);
    struct pn_jbuf *b = rc == 0 ? pn__j_take(c, 1, sizeof *b) : NULL;
    if (!b) return rc ? rc : pn__j_failed(c);
    const struct pn_jstr *s = text.s;
    for (size_t at = 0; rc == 0 && at < s->n;) {
        size_t from = at;
        struct pn_utf8_char ch = {0};
        bool ends_word = false;
        while (at < s->n && !ends_word) {
            ch = pn__text_char(s->p + at, s->n - at);
            ends_word =
                pn__j_is_space(ch.cp) || (ch.cp < 0x80 && ch.cp && strchr("-({[<", (int)ch.cp));
            at += ch.len;
        }
        rc = pn__j_part(c, s, from, at, &part);
        if (rc == 0) rc = pn__j_case(c, part.s, PN_J_FIRST_UPPER, &cased);
        if (rc == 0) rc = pn__jbuf_put_str(c, b, cased.s);
    }
    return rc ? rc : pn__jbuf_str(c, b, out);
}

FILTER(trim) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval text;
    const struct pn_jstr *chars;
    int rc = bind_text(c, "trim", self, a, "chars=", v, &text);
    if (rc == 0) rc = pn__j_arg_str(c, &v[0], "trim", &chars);
    return rc ? rc : pn__j_strip(c, text.s, chars, true, true, out);
}

FILTER(replace) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval text;
    struct pn_jval old;
    struct pn_jval with;
    int64_t most;
    int rc = bind_text(c, "replace", self, a, "old new count=", v, &text);
    if (rc == 0) rc = pn__j_arg_int(c, &v[2], "replace", -1, &most);
    if (rc == 0) rc = pn__j_to_str(c, &v[0], &old);
    if (rc == 0) rc = pn__j_to_str(c, &v[1], &with);
    if (rc == 0) rc = pn__j_replace(c, text.s, old.s, with.s, most, out);
    if (rc == 0) out->s->safe = false;
    return rc;
}

FILTER(string) {
    struct pn_jval v[PN_J_PARAM_MAX];
    return bind_text(c, "string", self, a, "", v, out);
}

FILTER(safe) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval text;
    int rc = bind_text(c, "safe", self, a, "", v, &text);
    if (rc == 0) rc = pn__j_part(c, text.s, 0, text.s->n, out);
    if (rc == 0) out->s->safe = true;
    return rc;
}

static int escape(struct pn_jctx *c, const struct pn_jval *self, const struct pn_jargs *a,
                  bool force, struct pn_jval *out) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval text;
    int rc = bind_text(c, "escape", self, a, "", v, &text);
    if (rc == 0 && text.s->safe && !force) {
        *out = text;
        return 0;
    }
    struct pn_jbuf *b = rc == 0 ? pn__j_take(c, 1, sizeof *b) : NULL;
    if (!b) return rc ? rc : pn__j_failed(c);
    rc = pn__jbuf_put_escaped(c, b, text.s);
    if (rc == 0) rc = pn__jbuf_str(c, b, out);
    if (rc == 0) out->s->safe = true;
    return rc;
}

FILTER(escape) {
    return escape(c, self, a, false, out);
}
FILTER(forceescape) {
    return escape(c, self, a, true, out);
}

FILTER(center) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval text;
    struct pn_jval width = pn__j_int(80);
    struct pn_jargs args = {.pos = &width, .n = 1};
    int rc = bind_text(c, "center", self, a, "width=", v, &text);
    if (rc) return rc;
    if (v[0].type != PN_JV_MISSING) width = v[0];
    return pn__j_find_method(pn__j_str_methods, "center", 6)->call(c, &text, &args, out);
}

/* A text, or as many blanks. */
static int indent_text(struct pn_jctx *c, const struct pn_jval *v, struct pn_jval *out) {
    struct pn_jval space;
    struct pn_jval n = v->type == PN_JV_MISSING ? pn__j_int(4) : *v;
    if (n.type == PN_JV_STR) {
        *out = n;
        return 0;
    }
    int rc = pn__j_text(c, " ", 1, &space);
    return rc ? rc : pn__j_arith(c, PN_JO_MUL, &space, &n, out);
}

FILTER(indent) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval text;
    struct pn_jval by;
    int rc = bind_text(c, "indent", self, a, "width= first= blank=", v, &text);
    if (rc == 0) rc = indent_text(c, &v[0], &by);
    struct pn_jbuf *b = rc == 0 ? pn__j_take(c, 1, sizeof *b) : NULL;
    if (!b) return rc ? rc : pn__j_failed(c);
    bool first = pn__j_truth(&v[1]);
    bool blank = pn__j_truth(&v[2]);
    const struct pn_jstr *s = text.s;
    for (size_t from = 0; rc == 0;) {
        size_t end = from;
        while (end < s->n && !pn__j_line_end(s, end))
            end++;
        if (from == 0 ? first : (blank || end > from)) rc = pn__jbuf_put_str(c, b, by.s);
        if (rc == 0) rc = pn__jbuf_put_part(c, b, s, from, end);
        if (rc == 0) rc = pn__j_step(c, 1 + (end - from) / 16);
        if (end == s->n) break;
        if (rc == 0) rc = pn__jbuf_put(c, b, "\n", 1, NULL, pn__j_by_at(s, end));
        from = end + pn__j_line_end(s, end);
    }
    return rc ? rc : pn__jbuf_str(c, b, out);
}

FILTER(truncate) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval text;
    struct pn_jstr dots = {.p = "...", .n = 3};
    const struct pn_jstr *end;
    int64_t length;
    int64_t leeway;
    int rc = bind_text(c, "truncate", self, a, "length= killwords= end= leeway=", v, &text);
    if (rc == 0) rc = pn__j_arg_int(c, &v[0], "truncate", 255, &length);
    if (rc == 0) rc = pn__j_arg_str(c, &v[2], "truncate", &end);
    if (rc == 0) rc = pn__j_arg_int(c, &v[3], "truncate", 5, &leeway);
    if (rc) return rc;
    if (!end) end = &dots;
    int64_t n = (int64_t)pn__j_char_n(text.s);
    int64_t keep = length - (int64_t)pn__j_char_n(end);
    if (keep < 0 || leeway < 0) return pn__j_fail(c, "truncate: length or leeway is too small");
    if (n <= length || n - length <= leeway) {
        *out = text;
        return 0;
    }
    size_t cut = pn__j_char_at(text.s, (size_t)keep);
    if (!pn__j_truth(&v[1])) {
        size_t space = cut;
        while (space > 0 && text.s->p[space - 1] != ' ')
            space--;
        if (space > 0) cut = space - 1;
    }
    struct pn_jbuf *b = pn__j_take(c, 1, sizeof *b);
    if (!b) return pn__j_failed(c);
    rc = pn__jbuf_put_part(c, b, text.s, 0, cut);
    if (rc == 0) rc = pn__jbuf_put_str(c, b, end);
    return rc ? rc : pn__jbuf_str(c, b, out);
}

FILTER(format) {
    struct pn_jval text;
    struct pn_jval args;
    int rc = pn__j_to_str(c, self, &text);
    if (rc) return rc;
    if (a->n && a->kw_n)
        return pn__j_fail(c, "format: positional and keyword arguments can't be mixed");
    if (a->kw_n) {
        struct pn_jdict *d = pn__j_dict_new(c);
        if (!d) return pn__j_failed(c);
        rc = pn__j_dict_merge(c, d, a);
        args = pn__j_dict(d);
    } else {
        struct pn_jlist *l = pn__j_list_new(c, PN_JL_TUPLE, 0);
        if (!l) return pn__j_failed(c);
        for (size_t i = 0; rc == 0 && i < a->n; i++)
            rc = pn__j_push(c, l, &a->pos[i]);
        args = pn__j_list(l);
    }
    return rc ? rc : pn__j_format(c, text.s, &args, out);
}

/* Words are runs of letters, digits and '_'. */
FILTER(wordcount) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval text;
    int64_t n = 0;
    int rc = bind_text(c, "wordcount", self, a, "", v, &text);
    if (rc) return rc;
    bool inside = false;
    const struct pn_jmethod *alnum = pn__j_find_method(pn__j_str_methods_case, "isalnum", 7);
    for (size_t at = 0; rc == 0 && at < text.s->n;) {
        struct pn_jval ch;
        struct pn_jval is;
        struct pn_jargs none = {0};
        size_t len = pn__text_char(text.s->p + at, text.s->n - at).len;
        rc = pn__j_part(c, text.s, at, at + len, &ch);
        if (rc == 0) rc = alnum->call(c, &ch, &none, &is);
        bool word = rc == 0 && (is.b || text.s->p[at] == '_');
        n += word && !inside;
        inside = word;
        at += len;
    }
    *out = pn__j_int(n);
    return rc;
}

static int put_quoted(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jval *v,
                      bool is_query) {
    static const char kept[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~";
    static const char hex[] = "0123456789ABCDEF";
    struct pn_jval text;
    int rc = pn__j_to_str(c, v, &text);
    for (size_t i = 0; rc == 0 && i < text.s->n; i++) {
        uint8_t byte = (uint8_t)text.s->p[i];
        char code[3] = {'%', hex[byte >> 4], hex[byte & 15]};
        if (byte == ' ' && is_query) {
            rc = pn__jbuf_put(c, b, "+", 1, NULL, pn__j_by_at(text.s, i));
            continue;
        }
        bool keep = byte && (strchr(kept, byte) || (byte == '/' && !is_query));
        rc = keep ? pn__jbuf_put_part(c, b, text.s, i, i + 1)
                  : pn__jbuf_put(c, b, code, 3, NULL, pn__j_by_at(text.s, i));
    }
    return rc;
}

/* A text, or the pairs of a mapping or list as a query. */
FILTER(urlencode) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval pairs = *self;
    struct pn_jval *items;
    size_t n;
    int rc = pn__j_bind(c, "urlencode", a, "", v);
    struct pn_jbuf *b = rc == 0 ? pn__j_take(c, 1, sizeof *b) : NULL;
    if (!b) return rc ? rc : pn__j_failed(c);
    if (self->type == PN_JV_STR || !pn__j_can_iterate(self)) {
        rc = put_quoted(c, b, self, false);
        return rc ? rc : pn__jbuf_str(c, b, out);
    }
    struct pn_jargs none = {0};
    if (self->type == PN_JV_DICT)
        rc = pn__j_find_method(pn__j_dict_methods, "items", 5)->call(c, self, &none, &pairs);
    if (rc == 0) rc = pn__j_items(c, &pairs, &items, &n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct pn_jval *pair;
        size_t pair_n;
        rc = pn__j_items(c, &items[i], &pair, &pair_n);
        if (rc == 0 && pair_n != 2) rc = pn__j_fail(c, "urlencode: pairs are needed");
        if (rc == 0 && i) rc = pn__jbuf_put(c, b, "&", 1, NULL, PN_J_TEMPLATE);
        if (rc == 0) rc = put_quoted(c, b, &pair[0], true);
        if (rc == 0) rc = pn__jbuf_put(c, b, "=", 1, NULL, PN_J_TEMPLATE);
        if (rc == 0) rc = put_quoted(c, b, &pair[1], true);
    }
    return rc ? rc : pn__jbuf_str(c, b, out);
}

const struct pn_jmethod pn__j_filters_text[] = {
    {"trim", f_trim},
    {"upper", f_upper},
    {"lower", f_lower},
    {"title", f_title},
    {"capitalize", f_capitalize},
    {"replace", f_replace},
    {"string", f_string},
    {"safe", f_safe},
    {"e", f_escape},
    {"escape", f_escape},
    {"forceescape", f_forceescape},
    {"center", f_center},
    {"indent", f_indent},
    {"truncate", f_truncate},
    {"format", f_format},
    {"wordcount", f_wordcount},
    {"urlencode", f_urlencode},
    {NULL, NULL},
};
