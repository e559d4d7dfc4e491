/* Letter case and classes of characters: upper, title, isdigit ... */
#include <string.h>
#include <utf8proc.h>

#include "text/chat/eval.h"
#include "text/utf8.h"

static bool is_upper(uint32_t cp) {
    return utf8proc_isupper((utf8proc_int32_t)cp) != 0;
}

static bool is_lower(uint32_t cp) {
    return utf8proc_islower((utf8proc_int32_t)cp) != 0;
}

static utf8proc_category_t category(uint32_t cp) {
    return cp > 0x10ffff ? UTF8PROC_CATEGORY_CN : utf8proc_category((utf8proc_int32_t)cp);
}

static bool is_letter(uint32_t cp) {
    utf8proc_category_t k = category(cp);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

static bool is_cased(uint32_t cp) {
    return is_upper(cp) || is_lower(cp) || category(cp) == UTF8PROC_CATEGORY_LT;
}

/* The character in another case; one that becomes two is only the sharp s. */
static uint32_t convert(uint32_t cp, bool up, bool title, char out[8]) {
    if (cp > 0x10ffff) return 0;
    if (up && cp == 0xdf) {
        out[0] = 'S';
        out[1] = title ? 's' : 'S';
        return 2;
    }
    utf8proc_int32_t in = (utf8proc_int32_t)cp;
    utf8proc_int32_t to = title && up ? utf8proc_totitle(in)
                          : up        ? utf8proc_toupper(in)
                                      : utf8proc_tolower(in);
    return pn__utf8_put((uint32_t)to, out);
}

int pn__j_case(struct pn_jctx *c, const struct pn_jstr *s, enum pn_jcase how, struct pn_jval *out) {
    struct pn_jbuf *b = pn__j_take(c, 1, sizeof *b);
    if (!b) return pn__j_failed(c);
    bool inside = false; /* of a word, or of the text for capitalize */
    int rc = pn__j_step(c, s->n / 4);
    for (size_t at = 0; rc == 0 && at < s->n;) {
        char text[8];
        struct pn_utf8_char ch = pn__text_char(s->p + at, s->n - at);
        bool up = how == PN_J_UPPER;
        bool title = how == PN_J_TITLE || how == PN_J_CAPITALIZE;
        if (title || how == PN_J_FIRST_UPPER) up = !inside;
        if (how == PN_J_SWAPCASE) up = !is_upper(ch.cp);
        uint32_t n = convert(ch.cp, up, title, text);
        rc = n ? pn__jbuf_put(c, b, text, n, NULL, pn__j_by_at(s, at))
               : pn__jbuf_put_part(c, b, s, at, at + ch.len);
        inside = how == PN_J_TITLE ? is_cased(ch.cp) : true;
        at += ch.len;
    }
    if (rc == 0) rc = pn__jbuf_str(c, b, out);
    if (rc == 0) out->s->safe = s->safe;
    return rc;
}

#define CASE_METHOD(name, how)                                                                   \
    static int m_##name(struct pn_jctx *c, const struct pn_jval *self, const struct pn_jargs *a, \
                        struct pn_jval *out) {                                                   \
        struct pn_jval v[PN_J_PARAM_MAX];                                                        \
        int rc = pn__j_bind(c, #name, a, "", v);                                                 \
        return rc ? rc : pn__j_case(c, self->s, how, out);                                       \
    }
CASE_METHOD(upper, PN_J_UPPER)
CASE_METHOD(lower, PN_J_LOWER)
CASE_METHOD(title, PN_J_TITLE)
CASE_METHOD(capitalize, PN_J_CAPITALIZE)
CASE_METHOD(swapcase, PN_J_SWAPCASE)

static bool class_alpha(uint32_t cp) {
    return is_letter(cp);
}
static bool class_digit(uint32_t cp) {
    return category(cp) == UTF8PROC_CATEGORY_ND;
}
static bool class_numeric(uint32_t cp) {
    utf8proc_category_t k = category(cp);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}
static bool class_alnum(uint32_t cp) {
    return is_letter(cp) || class_numeric(cp);
}

/* All characters are of a class, and there is one. */
static int all_of(struct pn_jctx *c, const char *name, const struct pn_jval *self,
                  const struct pn_jargs *a, bool (*is)(uint32_t cp), struct pn_jval *out) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int rc = pn__j_bind(c, name, a, "", v);
    if (rc == 0) rc = pn__j_step(c, self->s->n / 4);
    bool all = self->s->n > 0;
    for (size_t at = 0; all && at < self->s->n;) {
        struct pn_utf8_char ch = pn__text_char(self->s->p + at, self->s->n - at);
        all = is(ch.cp);
        at += ch.len;
    }
    *out = pn__j_bool(all);
    return rc;
}

#define CLASS_METHOD(name, is)                                                                   \
    static int m_##name(struct pn_jctx *c, const struct pn_jval *self, const struct pn_jargs *a, \
                        struct pn_jval *out) {                                                   \
        return all_of(c, #name, self, a, is, out);                                               \
    }
CLASS_METHOD(isalpha, class_alpha)
CLASS_METHOD(isdigit, class_digit)
CLASS_METHOD(isdecimal, class_digit)
CLASS_METHOD(isnumeric, class_numeric)
CLASS_METHOD(isalnum, class_alnum)
CLASS_METHOD(isspace, pn__j_is_space)

/* There is a letter with case, and all of them are upper (lower). */
static int one_case(struct pn_jctx *c, const char *name, const struct pn_jval *self,
                    const struct pn_jargs *a, bool upper, struct pn_jval *out) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int rc = pn__j_bind(c, name, a, "", v);
    if (rc == 0) rc = pn__j_step(c, self->s->n / 4);
    bool any = false;
    bool other = false;
    for (size_t at = 0; at < self->s->n;) {
        struct pn_utf8_char ch = pn__text_char(self->s->p + at, self->s->n - at);
        bool match = upper ? is_upper(ch.cp) : is_lower(ch.cp);
        any |= match;
        other |= !match && is_cased(ch.cp);
        at += ch.len;
    }
    *out = pn__j_bool(any && !other);
    return rc;
}

static int m_isupper(struct pn_jctx *c, const struct pn_jval *self, const struct pn_jargs *a,
                     struct pn_jval *out) {
    return one_case(c, "isupper", self, a, true, out);
}

static int m_islower(struct pn_jctx *c, const struct pn_jval *self, const struct pn_jargs *a,
                     struct pn_jval *out) {
    return one_case(c, "islower", self, a, false, out);
}

const struct pn_jmethod pn__j_str_methods_case[] = {
    {"upper", m_upper},         {"lower", m_lower},
    {"title", m_title},         {"capitalize", m_capitalize},
    {"swapcase", m_swapcase},   {"isalpha", m_isalpha},
    {"isdigit", m_isdigit},     {"isdecimal", m_isdecimal},
    {"isnumeric", m_isnumeric}, {"isalnum", m_isalnum},
    {"isspace", m_isspace},     {"isupper", m_isupper},
    {"islower", m_islower},     {NULL, NULL},
};
