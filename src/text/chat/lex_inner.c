/* Tokens inside the marks: names, numbers, strings, operators. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat/ast.h"
#include "text/utf8.h"

/* Longest first. */
static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                        "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                        ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

static int fail_at(struct pn_jlex *x, size_t at, const char *what) {
    return pn__jplace_fail(x->d, PN_E_FORMAT, pn__jlex_place(x, at), "%s", what);
}

static bool is_digit(char b) {
    return b >= '0' && b <= '9';
}

static bool is_word(char b) {
    return (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || b == '_' || is_digit(b) ||
           (uint8_t)b >= 0x80;
}

static int hex_value(char b) {
    if (is_digit(b)) return b - '0';
    if (b >= 'a' && b <= 'f') return b - 'a' + 10;
    if (b >= 'A' && b <= 'F') return b - 'A' + 10;
    return -1;
}

/* Digits with single underscores between them, copied without these. */
static size_t take_digits(const struct pn_jlex *x, size_t at, char *out, size_t *n, size_t cap) {
    while (at < x->n) {
        char b = x->s[at];
        if (b == '_' && at + 1 < x->n && is_digit(x->s[at + 1]) && *n > 0) {
            at++;
            continue;
        }
        if (!is_digit(b)) break;
        if (*n + 1 < cap) out[(*n)++] = b;
        at++;
    }
    return at;
}

static int lex_based(struct pn_jlex *x, size_t from, int base) {
    uint64_t value = 0;
    size_t at = from + 2;
    size_t digit_n = 0;
    for (; at < x->n; at++) {
        int digit = hex_value(x->s[at]);
        if (x->s[at] == '_' && at + 1 < x->n && hex_value(x->s[at + 1]) >= 0) continue;
        if (digit < 0 || digit >= base) break;
        if (value > (uint64_t)INT64_MAX / (uint64_t)base)
            return fail_at(x, from, "this number is too large (at most 64 bits)");
        value = value * (uint64_t)base + (uint64_t)digit;
        digit_n++;
    }
    if (digit_n == 0 || value > INT64_MAX) return fail_at(x, from, "this is no number");
    int rc = pn__jlex_add(x, PN_JT_INT, from, x->s + from, at - from);
    if (rc == 0) x->tok[x->tok_n - 1].i = (int64_t)value;
    x->at = at;
    return rc;
}

static int lex_number(struct pn_jlex *x) {
    char text[64];
    size_t n = 0;
    size_t from = x->at;
    bool is_float = false;
    const size_t cap = sizeof text - 8;
    if (x->s[from] == '0' && from + 1 < x->n) {
        char b = (char)(x->s[from + 1] | 0x20);
        if (b == 'x') return lex_based(x, from, 16);
        if (b == 'o') return lex_based(x, from, 8);
        if (b == 'b') return lex_based(x, from, 2);
    }
    size_t at = take_digits(x, from, text, &n, cap);
    size_t whole_n = n;
    /* "a.0.1" is two accesses. */
    bool may_be_float = from == 0 || x->s[from - 1] != '.';
    if (may_be_float && at + 1 < x->n && x->s[at] == '.' && is_digit(x->s[at + 1])) {
        text[n++] = '.';
        at = take_digits(x, at + 1, text, &n, cap);
        is_float = true;
    }
    if (may_be_float && at < x->n && (x->s[at] | 0x20) == 'e') {
        size_t digits = at + 1;
        if (digits < x->n && (x->s[digits] == '+' || x->s[digits] == '-')) digits++;
        if (digits < x->n && is_digit(x->s[digits])) {
            text[n++] = 'e';
            if (x->s[digits - 1] == '-') text[n++] = '-';
            at = take_digits(x, digits, text, &n, sizeof text - 1);
            is_float = true;
        }
    }
    text[n] = 0;
    if (n >= cap) return fail_at(x, from, "this number has too many digits");
    if (!is_float && whole_n > 1 && text[0] == '0' && strspn(text, "0") != whole_n)
        return fail_at(x, from, "a number may not begin with 0");
    errno = 0;
    int64_t whole = strtoll(text, NULL, 10);
    if (!is_float && errno) return fail_at(x, from, "this number is too large (at most 64 bits)");
    int rc = pn__jlex_add(x, is_float ? PN_JT_FLOAT : PN_JT_INT, from, x->s + from, at - from);
    if (rc) return rc;
    x->tok[x->tok_n - 1].i = whole;
    x->tok[x->tok_n - 1].f = strtod(text, NULL);
    x->at = at;
    return 0;
}

/* An escape of `digit_n` hexadecimal digits at s[at]; the character, or -1. */
static int64_t hex_escape(const struct pn_jlex *x, size_t at, size_t digit_n) {
    int64_t cp = 0;
    for (size_t i = 0; i < digit_n; i++) {
        int digit = at + i < x->n ? hex_value(x->s[at + i]) : -1;
        if (digit < 0) return -1;
        cp = cp * 16 + digit;
    }
    return cp;
}

/* The escape behind the backslash at s[at]: appends it to out[*n], moves past it. */
static int lex_escape(struct pn_jlex *x, size_t *at, char *out, size_t *n) {
    static const char names[] = "\\'\"abfnrtv";
    static const char values[] = "\\'\"\a\b\f\n\r\t\v";
    char b = x->s[*at + 1];
    const char *simple = b ? strchr(names, b) : NULL;
    int64_t cp;
    size_t len = 2;
    if (simple) {
        out[(*n)++] = values[simple - names];
        *at += 2;
        return 0;
    }
    if (b == '\n') {
        *at += 2;
        return 0;
    }
    if (b >= '0' && b <= '7') {
        cp = 0;
        for (len = 1; len < 4 && *at + len < x->n; len++) {
            char digit = x->s[*at + len];
            if (digit < '0' || digit > '7') break;
            cp = cp * 8 + (digit - '0');
        }
    } else if (b == 'x' || b == 'u' || b == 'U') {
        size_t digit_n = b == 'x' ? 2 : b == 'u' ? 4 : 8;
        cp = hex_escape(x, *at + 2, digit_n);
        len = 2 + digit_n;
    } else if (b == 'N') {
        return pn__jplace_fail(x->d, PN_E_UNSUPPORTED, pn__jlex_place(x, *at),
                               "characters by name (\\N{...}) are not supported");
    } else {
        out[(*n)++] = '\\'; /* not an escape: both characters stay */
        *at += 1;
        return 0;
    }
    if (cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
        return fail_at(x, *at, "this escape is no character");
    *n += pn__utf8_put((uint32_t)cp, out + *n);
    *at += len;
    return 0;
}

static int lex_string(struct pn_jlex *x) {
    size_t from = x->at;
    char quote = x->s[from];
    size_t end = from + 1;
    bool escaped = false;
    for (; end < x->n && x->s[end] != quote; end++) {
        if (x->s[end] != '\\') continue;
        escaped = true;
        end++;
    }
    if (end >= x->n) return fail_at(x, from, "this string has no end");
    const char *p = x->s + from + 1;
    size_t n = end - from - 1;
    if (escaped) {
        /* No escape is shorter than what it stands for. */
        char *out = pn__jarena_take(x->arena, n + 4, 1);
        if (!out) return pn__fail(x->d, PN_E_NOMEM, "template: no memory for a string");
        n = 0;
        for (size_t at = from + 1; at < end;) {
            if (x->s[at] != '\\') {
                out[n++] = x->s[at++];
                continue;
            }
            int rc = lex_escape(x, &at, out, &n);
            if (rc) return rc;
        }
        p = out;
    }
    x->at = end + 1;
    return pn__jlex_add(x, PN_JT_STRING, from, p, n);
}

static int lex_operator(struct pn_jlex *x) {
    size_t from = x->at;
    for (size_t i = 0; i < PN_ARRAY_N(operators); i++) {
        const char *op = operators[i];
        size_t n = strlen(op);
        if (from + n > x->n || memcmp(x->s + from, op, n) != 0) continue;
        char b = op[0];
        if (b == '(' || b == '[' || b == '{') {
            if (x->open_n == sizeof x->open || x->open_n >= x->depth_max)
                return fail_at(x, from, "brackets are nested too deep");
            x->open[x->open_n++] = (char)(b == '(' ? ')' : b == '[' ? ']' : '}');
        } else if (b == ')' || b == ']' || b == '}') {
            if (x->open_n == 0 || x->open[x->open_n - 1] != b)
                return fail_at(x, from, "this bracket closes none that is open");
            x->open_n--;
        }
        x->at += n;
        return pn__jlex_add(x, PN_JT_OP, from, op, n);
    }
    struct pn_utf8_char ch = pn__text_char(x->s + from, x->n - from);
    return pn__jplace_fail(x->d, PN_E_FORMAT, pn__jlex_place(x, from),
                           "unexpected character '%.*s'", (int)ch.len, x->s + from);
}

int pn__jlex_inner(struct pn_jlex *x) {
    size_t from = x->at;
    char b = x->s[from];
    if (is_digit(b)) return lex_number(x);
    if (b == '\'' || b == '"') return lex_string(x);
    if (!is_word(b)) return lex_operator(x);
    while (x->at < x->n && is_word(x->s[x->at]))
        x->at++;
    return pn__jlex_add(x, PN_JT_NAME, from, x->s + from, x->at - from);
}
