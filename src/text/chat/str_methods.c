/* Methods of texts. Parts of a text share its bytes, and so who wrote them. */
#include <string.h>

#include "text/chat/eval.h"
#include "text/utf8.h"

#define METHOD(name)                                                                             \
    static int m_##name(struct pn_jctx *c, const struct pn_jval *self, const struct pn_jargs *a, \
                        struct pn_jval *out)

static bool in_set(const struct pn_jstr *set, const char *p, size_t n) {
    if (!set) return pn__j_is_space(pn__text_char(p, n).cp);
    for (size_t at = 0; at < set->n;) {
        size_t len = pn__text_char(set->p + at, set->n - at).len;
        if (len == n && memcmp(set->p + at, p, n) == 0) return true;
        at += len;
    }
    return false;
}

int pn__j_strip(struct pn_jctx *c, const struct pn_jstr *s, const struct pn_jstr *chars, bool left,
                bool right, struct pn_jval *out) {
    size_t from = 0;
    size_t to = s->n;
    while (left && from < to) {
        size_t len = pn__text_char(s->p + from, to - from).len;
        if (!in_set(chars, s->p + from, len)) break;
        from += len;
    }
    while (right && from < to) {
        size_t at = to - 1;
        while (at > from && ((uint8_t)s->p[at] & 0xc0) == 0x80)
            at--;
        if (!in_set(chars, s->p + at, to - at)) break;
        to = at;
    }
    int rc = pn__j_step(c, (s->n - (to - from)) / 4 * (chars ? 1 + chars->n : 1));
    return rc ? rc : pn__j_part(c, s, from, to, out);
}

static int strip(struct pn_jctx *c, const char *name, const struct pn_jval *self,
                 const struct pn_jargs *a, bool left, bool right, struct pn_jval *out) {
    struct pn_jval v[PN_J_PARAM_MAX];
    const struct pn_jstr *chars;
    int rc = pn__j_bind(c, name, a, "chars=", v);
    if (rc == 0) rc = pn__j_arg_str(c, &v[0], name, &chars);
    return rc ? rc : pn__j_strip(c, self->s, chars, left, right, out);
}

METHOD(strip) {
    return strip(c, "strip", self, a, true, true, out);
}
METHOD(lstrip) {
    return strip(c, "lstrip", self, a, true, false, out);
}
METHOD(rstrip) {
    return strip(c, "rstrip", self, a, false, true, out);
}

/* ---- splitting ---- */

static int push_part(struct pn_jctx *c, struct pn_jlist *l, const struct pn_jstr *s, size_t from,
                     size_t to) {
    struct pn_jval v;
    int rc = pn__j_part(c, s, from, to, &v);
    return rc ? rc : pn__j_push(c, l, &v);
}

static int split_spaces(struct pn_jctx *c, const struct pn_jstr *s, int64_t most,
                        struct pn_jlist *l) {
    size_t at = pn__j_space_len(s->p, 0, s->n);
    while (at < s->n) {
        size_t end = at;
        if (most >= 0 && (int64_t)l->n >= most) {
            return push_part(c, l, s, at, s->n);
        }
        while (end < s->n && !pn__j_is_space(pn__text_char(s->p + end, s->n - end).cp))
            end += pn__text_char(s->p + end, s->n - end).len;
        int rc = push_part(c, l, s, at, end);
        if (rc) return rc;
        at = end + pn__j_space_len(s->p, end, s->n);
    }
    return 0;
}

static int rsplit_spaces(struct pn_jctx *c, const struct pn_jstr *s, int64_t most,
                         struct pn_jlist *l) {
    size_t end = s->n - pn__j_rspace_len(s->p, 0, s->n);
    while (end > 0) {
        size_t at = end;
        if (most >= 0 && (int64_t)l->n >= most) return push_part(c, l, s, 0, end);
        while (at > 0) {
            size_t before = at - 1;
            while (before > 0 && ((uint8_t)s->p[before] & 0xc0) == 0x80)
                before--;
            if (pn__j_is_space(pn__text_char(s->p + before, at - before).cp)) break;
            at = before;
        }
        int rc = push_part(c, l, s, at, end);
        if (rc) return rc;
        end = at - pn__j_rspace_len(s->p, 0, at);
    }
    return 0;
}

static int split_by(struct pn_jctx *c, const struct pn_jstr *s, const struct pn_jstr *sep,
                    int64_t most, struct pn_jlist *l) {
    size_t from = 0;
    for (;;) {
        size_t at = s->n;
        bool found = false;
        if (most < 0 || (int64_t)l->n < most) {
            at = pn__j_find(s->p, from, s->n, sep->p, sep->n);
            found = at < s->n;
        }
        int rc = push_part(c, l, s, from, at);
        if (rc || !found) return rc;
        from = at + sep->n;
    }
}

/* The last place of `what` that ends at or before `to`; SIZE_MAX when there is none. */
static size_t find_last(const struct pn_jstr *s, size_t from, size_t to,
                        const struct pn_jstr *what) {
    if (to - from < what->n) return SIZE_MAX;
    for (size_t at = to - what->n + 1; at-- > from;) {
        if (memcmp(s->p + at, what->p, what->n) == 0) return at;
    }
    return SIZE_MAX;
}

static int rsplit_by(struct pn_jctx *c, const struct pn_jstr *s, const struct pn_jstr *sep,
                     int64_t most, struct pn_jlist *l) {
    size_t to = s->n;
    for (;;) {
        size_t at = SIZE_MAX;
        if (most < 0 || (int64_t)l->n < most) at = find_last(s, 0, to, sep);
        int rc = push_part(c, l, s, at == SIZE_MAX ? 0 : at + sep->n, to);
        if (rc == 0) rc = pn__j_step(c, (to - (at == SIZE_MAX ? 0 : at)) * sep->n / 16);
        if (rc || at == SIZE_MAX) return rc;
        to = at;
    }
}

static int split(struct pn_jctx *c, const char *name, const struct pn_jval *self,
                 const struct pn_jargs *a, bool from_right, struct pn_jval *out) {
    struct pn_jval v[PN_J_PARAM_MAX];
    const struct pn_jstr *sep;
    int64_t most;
    int rc = pn__j_bind(c, name, a, "sep= maxsplit=", v);
    if (rc == 0) rc = pn__j_arg_str(c, &v[0], name, &sep);
    if (rc == 0) rc = pn__j_arg_int(c, &v[1], name, -1, &most);
    if (rc == 0 && sep && sep->n == 0) rc = pn__j_fail(c, "empty separator");
    if (rc == 0) rc = pn__j_step(c, self->s->n / 16);
    if (rc) return rc;
    struct pn_jlist *l = pn__j_list_new(c, PN_JL_LIST, 0);
    if (!l) return pn__j_failed(c);
    *out = pn__j_list(l);
    if (!from_right)
        return sep ? split_by(c, self->s, sep, most, l) : split_spaces(c, self->s, most, l);
    rc = sep ? rsplit_by(c, self->s, sep, most, l) : rsplit_spaces(c, self->s, most, l);
    for (size_t i = 0; i < l->n / 2; i++) {
        struct pn_jval swap = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = swap;
    }
    return rc;
}

METHOD(split) {
    return split(c, "split", self, a, false, out);
}
METHOD(rsplit) {
    return split(c, "rsplit", self, a, true, out);
}

size_t pn__j_line_end(const struct pn_jstr *s, size_t at) {
    struct pn_utf8_char ch = pn__text_char(s->p + at, s->n - at);
    if (ch.cp == '\r') return at + 1 < s->n && s->p[at + 1] == '\n' ? 2 : 1;
    bool is_end = (ch.cp >= 0x0a && ch.cp <= 0x0c) || (ch.cp >= 0x1c && ch.cp <= 0x1e) ||
                  ch.cp == 0x85 || ch.cp == 0x2028 || ch.cp == 0x2029;
    return is_end ? ch.len : 0;
}

METHOD(splitlines) {
    struct pn_jval v[PN_J_PARAM_MAX];
    const struct pn_jstr *s = self->s;
    size_t from = 0;
    int rc = pn__j_bind(c, "splitlines", a, "keepends=", v);
    if (rc) return rc;
    bool keep = pn__j_truth(&v[0]);
    struct pn_jlist *l = pn__j_list_new(c, PN_JL_LIST, 0);
    if (!l) return pn__j_failed(c);
    for (size_t at = 0; rc == 0 && at < s->n;) {
        size_t end = pn__j_line_end(s, at);
        if (end) {
            rc = push_part(c, l, s, from, keep ? at + end : at);
            from = at + end;
        }
        at += end ? end : 1;
    }
    if (rc == 0 && from < s->n) rc = push_part(c, l, s, from, s->n);
    *out = pn__j_list(l);
    return rc ? rc : pn__j_step(c, s->n / 16);
}

static int partition(struct pn_jctx *c, const char *name, const struct pn_jval *self,
                     const struct pn_jargs *a, bool last, struct pn_jval *out) {
    struct pn_jval v[PN_J_PARAM_MAX];
    const struct pn_jstr *s = self->s;
    const struct pn_jstr *sep;
    int rc = pn__j_bind(c, name, a, "sep", v);
    if (rc == 0) rc = pn__j_arg_str(c, &v[0], name, &sep);
    if (rc == 0 && (!sep || sep->n == 0)) rc = pn__j_fail(c, "empty separator");
    if (rc == 0) rc = pn__j_step(c, s->n * (last ? sep->n : 1) / 16);
    if (rc) return rc;
    size_t at = last ? find_last(s, 0, s->n, sep) : pn__j_find(s->p, 0, s->n, sep->p, sep->n);
    size_t ends[6] = {0, at, at, at + sep->n, at + sep->n, s->n};
    if (at == SIZE_MAX)
        memset(ends, 0, 5 * sizeof *ends);
    else if (at == s->n)
        ends[3] = ends[4] = s->n;
    struct pn_jlist *l = pn__j_list_new(c, PN_JL_TUPLE, 3);
    if (!l) return pn__j_failed(c);
    for (size_t i = 0; rc == 0 && i < 6; i += 2)
        rc = push_part(c, l, s, ends[i], ends[i + 1]);
    *out = pn__j_list(l);
    return rc;
}

METHOD(partition) {
    return partition(c, "partition", self, a, false, out);
}
METHOD(rpartition) {
    return partition(c, "rpartition", self, a, true, out);
}

/* ---- replacing and joining ---- */

int pn__j_replace(struct pn_jctx *c, const struct pn_jstr *s, const struct pn_jstr *old,
                  const struct pn_jstr *with, int64_t most, struct pn_jval *out) {
    struct pn_jbuf *b = pn__j_take(c, 1, sizeof *b);
    if (!b) return pn__j_failed(c);
    size_t from = 0;
    int rc = pn__j_step(c, s->n / 16);
    for (int64_t i = 0; rc == 0 && (most < 0 || i < most); i++) {
        size_t at;
        if (old->n == 0) { /* before each character, and at the end */
            if (from > s->n) break;
            size_t len = from < s->n ? pn__text_char(s->p + from, s->n - from).len : 1;
            rc = pn__jbuf_put_str(c, b, with);
            if (rc == 0 && from < s->n) rc = pn__jbuf_put_part(c, b, s, from, from + len);
            from += len;
        } else {
            at = pn__j_find(s->p, from, s->n, old->p, old->n);
            if (at == s->n) break;
            rc = pn__jbuf_put_part(c, b, s, from, at);
            if (rc == 0) rc = pn__jbuf_put_str(c, b, with);
            from = at + old->n;
        }
        if (rc == 0) rc = pn__j_step(c, 1);
    }
    if (rc == 0 && from < s->n) rc = pn__jbuf_put_part(c, b, s, from, s->n);
    if (rc == 0) rc = pn__jbuf_str(c, b, out);
    if (rc == 0) out->s->safe = s->safe;
    return rc;
}

METHOD(replace) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int64_t most;
    int rc = pn__j_bind(c, "replace", a, "old new count=", v);
    if (rc == 0) rc = pn__j_arg_int(c, &v[2], "replace", -1, &most);
    if (rc) return rc;
    for (int i = 0; i < 2; i++) {
        if (v[i].type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, &v[i]);
        if (v[i].type != PN_JV_STR)
            return pn__j_fail(c, "replace() argument %d must be str, not %s", i + 1,
                              pn__j_type_name(&v[i]));
    }
    return pn__j_replace(c, self->s, v[0].s, v[1].s, most, out);
}

METHOD(join) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval *items;
    size_t n;
    int rc = pn__j_bind(c, "join", a, "iterable", v);
    if (rc == 0) rc = pn__j_items(c, &v[0], &items, &n);
    if (rc) return rc;
    struct pn_jbuf *b = pn__j_take(c, 1, sizeof *b);
    if (!b) return pn__j_failed(c);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (items[i].type != PN_JV_STR)
            return pn__j_fail(c, "sequence item %zu: expected str instance, %s found", i,
                              pn__j_type_name(&items[i]));
        if (i) rc = pn__jbuf_put_str(c, b, self->s);
        if (rc == 0) rc = pn__jbuf_put_str(c, b, items[i].s);
        if (rc == 0) rc = pn__j_step(c, 1);
    }
    return rc ? rc : pn__jbuf_str(c, b, out);
}

/* ---- looking ---- */

static bool has_affix(const struct pn_jstr *s, const struct pn_jstr *affix, bool at_end) {
    if (affix->n > s->n) return false;
    return memcmp(s->p + (at_end ? s->n - affix->n : 0), affix->p, affix->n) == 0;
}

/* startswith and endswith: one affix or a tuple of them, of the characters from start to end. */
static int affix(struct pn_jctx *c, const char *name, const struct pn_jval *self,
                 const struct pn_jargs *a, bool at_end, struct pn_jval *out) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jval part = *self;
    int rc = pn__j_bind(c, name, a, "affix start= end=", v);
    if (rc == 0 && (v[1].type != PN_JV_MISSING || v[2].type != PN_JV_MISSING)) {
        struct pn_jval at[3] = {v[1], v[2], pn__j_none()};
        for (int i = 0; i < 2; i++)
            if (at[i].type == PN_JV_MISSING) at[i] = pn__j_none();
        rc = pn__j_slice(c, self, at, &part);
    }
    if (rc) return rc;
    const struct pn_jval *one = &v[0];
    size_t n = 1;
    if (pn__j_is_list(&v[0], PN_JL_TUPLE)) {
        one = v[0].l->v;
        n = v[0].l->n;
    }
    *out = pn__j_bool(false);
    for (size_t i = 0; i < n; i++) {
        if (one[i].type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, &one[i]);
        if (one[i].type != PN_JV_STR)
            return pn__j_fail(c, "%s first arg must be str or a tuple of str, not %s", name,
                              pn__j_type_name(&one[i]));
        if (has_affix(part.s, one[i].s, at_end)) *out = pn__j_bool(true);
    }
    return pn__j_step(c, n);
}

METHOD(startswith) {
    return affix(c, "startswith", self, a, false, out);
}
METHOD(endswith) {
    return affix(c, "endswith", self, a, true, out);
}

static int remove_affix(struct pn_jctx *c, const char *name, const struct pn_jval *self,
                        const struct pn_jargs *a, bool at_end, struct pn_jval *out) {
    struct pn_jval v[PN_J_PARAM_MAX];
    const struct pn_jstr *s = self->s;
    const struct pn_jstr *what;
    int rc = pn__j_bind(c, name, a, "affix", v);
    if (rc == 0) rc = pn__j_arg_str(c, &v[0], name, &what);
    if (rc == 0 && !what) rc = pn__j_fail(c, "%s() argument must be str, not NoneType", name);
    if (rc) return rc;
    if (!has_affix(s, what, at_end)) return pn__j_part(c, s, 0, s->n, out);
    return pn__j_part(c, s, at_end ? 0 : what->n, at_end ? s->n - what->n : s->n, out);
}

METHOD(removeprefix) {
    return remove_affix(c, "removeprefix", self, a, false, out);
}
METHOD(removesuffix) {
    return remove_affix(c, "removesuffix", self, a, true, out);
}

/* find, rfind, index, rindex and count; places are counted in characters. */
static int locate(struct pn_jctx *c, const char *name, const struct pn_jval *self,
                  const struct pn_jargs *a, bool last, bool must, struct pn_jval *out) {
    struct pn_jval v[PN_J_PARAM_MAX];
    const struct pn_jstr *s = self->s;
    const struct pn_jstr *what;
    int64_t start;
    int rc = pn__j_bind(c, name, a, "sub start=", v);
    if (rc == 0) rc = pn__j_arg_str(c, &v[0], name, &what);
    if (rc == 0 && !what) rc = pn__j_fail(c, "%s() argument must be str, not NoneType", name);
    if (rc == 0) rc = pn__j_arg_int(c, &v[1], name, 0, &start);
    if (rc == 0) rc = pn__j_step(c, s->n * (last ? 1 + what->n : 1) / 16);
    if (rc) return rc;
    if (start < 0) start += (int64_t)pn__j_char_n(s);
    size_t from = pn__j_char_at(s, start < 0 ? 0 : (size_t)start);
    size_t at = SIZE_MAX;
    if (last)
        at = find_last(s, from, s->n, what);
    else if (what->n <= s->n - from)
        at = pn__j_find(s->p, from, s->n, what->p, what->n);
    if (at == s->n && what->n) at = SIZE_MAX;
    if (at == SIZE_MAX && must) return pn__j_fail(c, "substring not found");
    struct pn_jstr before = {.p = s->p, .n = at == SIZE_MAX ? 0 : at};
    *out = pn__j_int(at == SIZE_MAX ? -1 : (int64_t)pn__j_char_n(&before));
    return 0;
}

METHOD(find) {
    return locate(c, "find", self, a, false, false, out);
}
METHOD(rfind) {
    return locate(c, "rfind", self, a, true, false, out);
}
METHOD(index) {
    return locate(c, "index", self, a, false, true, out);
}
METHOD(rindex) {
    return locate(c, "rindex", self, a, true, true, out);
}

METHOD(count) {
    struct pn_jval v[PN_J_PARAM_MAX];
    const struct pn_jstr *what;
    int64_t n = 0;
    int rc = pn__j_bind(c, "count", a, "sub", v);
    if (rc == 0) rc = pn__j_arg_str(c, &v[0], "count", &what);
    if (rc == 0 && !what) rc = pn__j_fail(c, "count() argument must be str, not NoneType");
    if (rc == 0) rc = pn__j_step(c, self->s->n / 4);
    if (rc) return rc;
    if (what->n == 0) n = (int64_t)pn__j_char_n(self->s) + 1;
    for (size_t at = 0; what->n && at < self->s->n; n++) {
        at = pn__j_find(self->s->p, at, self->s->n, what->p, what->n);
        if (at == self->s->n) break;
        at += what->n;
    }
    *out = pn__j_int(n);
    return 0;
}

/* ---- padding ---- */

static int pad(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jstr *fill, size_t n) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = pn__jbuf_put_str(c, b, fill);
    return rc ? rc : pn__j_step(c, n / 4);
}

/* `before` of 2 parts of the padding go in front: 0, 1 or 2. */
static int justify(struct pn_jctx *c, const char *name, const struct pn_jval *self,
                   const struct pn_jargs *a, int before, struct pn_jval *out) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jstr space = {.p = " ", .n = 1};
    const struct pn_jstr *fill;
    int64_t width;
    int rc = pn__j_bind(c, name, a, "width fillchar=", v);
    if (rc == 0) rc = pn__j_arg_int(c, &v[0], name, 0, &width);
    if (rc == 0) rc = pn__j_arg_str(c, &v[1], name, &fill);
    if (rc) return rc;
    if (!fill) fill = &space;
    if (pn__j_char_n(fill) != 1)
        return pn__j_fail(c, "the fill character must be exactly one character long");
    int64_t n = (int64_t)pn__j_char_n(self->s);
    size_t more = width > n ? (size_t)(width - n) : 0;
    /* str.center gives the odd one to the left when the width is odd too. */
    size_t left = before == 1 ? more / 2 + (more & (size_t)width & 1) : before == 2 ? more : 0;
    struct pn_jbuf *b = pn__j_take(c, 1, sizeof *b);
    if (!b) return pn__j_failed(c);
    rc = pad(c, b, fill, left);
    if (rc == 0) rc = pn__jbuf_put_str(c, b, self->s);
    if (rc == 0) rc = pad(c, b, fill, more - left);
    return rc ? rc : pn__jbuf_str(c, b, out);
}

METHOD(ljust) {
    return justify(c, "ljust", self, a, 0, out);
}
METHOD(center) {
    return justify(c, "center", self, a, 1, out);
}
METHOD(rjust) {
    return justify(c, "rjust", self, a, 2, out);
}

METHOD(zfill) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jstr zero = {.p = "0", .n = 1};
    int64_t width;
    int rc = pn__j_bind(c, "zfill", a, "width", v);
    if (rc == 0) rc = pn__j_arg_int(c, &v[0], "zfill", 0, &width);
    if (rc) return rc;
    const struct pn_jstr *s = self->s;
    int64_t n = (int64_t)pn__j_char_n(s);
    size_t sign = s->n && (s->p[0] == '-' || s->p[0] == '+');
    struct pn_jbuf *b = pn__j_take(c, 1, sizeof *b);
    if (!b) return pn__j_failed(c);
    rc = pn__jbuf_put_part(c, b, s, 0, sign);
    if (rc == 0) rc = pad(c, b, &zero, width > n ? (size_t)(width - n) : 0);
    if (rc == 0) rc = pn__jbuf_put_part(c, b, s, sign, s->n);
    return rc ? rc : pn__jbuf_str(c, b, out);
}

METHOD(format) {
    return pn__j_format_braces(c, self->s, a, out);
}

const struct pn_jmethod pn__j_str_methods[] = {
    {"strip", m_strip},
    {"split", m_split},
    {"replace", m_replace},
    {"startswith", m_startswith},
    {"endswith", m_endswith},
    {"lstrip", m_lstrip},
    {"rstrip", m_rstrip},
    {"rsplit", m_rsplit},
    {"splitlines", m_splitlines},
    {"join", m_join},
    {"find", m_find},
    {"rfind", m_rfind},
    {"index", m_index},
    {"rindex", m_rindex},
    {"count", m_count},
    {"partition", m_partition},
    {"rpartition", m_rpartition},
    {"removeprefix", m_removeprefix},
    {"removesuffix", m_removesuffix},
    {"ljust", m_ljust},
    {"center", m_center},
    {"rjust", m_rjust},
    {"zfill", m_zfill},
    {"format", m_format},
    {NULL, NULL},
};
