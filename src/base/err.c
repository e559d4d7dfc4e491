#include "base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct err_row {
    int code;
    const char *name;
    const char *text;
    int http;
    int retryable;
};

static const struct err_row rows[] = {
#define PN_ERR_ROW(name, value, text, http, retry) {value, #name, text, http, retry},
    PN_ERR_TABLE(PN_ERR_ROW)
#undef PN_ERR_ROW
};

static const struct err_row *row_of(int code) {
    static const struct err_row ok = {0, "PN_OK", "done", 200, 0};
    static const struct err_row unknown = {0, "PN_E_?", "unknown error", 500, 0};
    if (code == 0) return &ok;
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        if (rows[i].code == code) return &rows[i];
    }
    return &unknown;
}

const char *pn_err_name(int code) {
    return row_of(code)->name;
}

const char *pn_err_text(int code) {
    return row_of(code)->text;
}

int pn_err_http(int code) {
    return row_of(code)->http;
}

int pn_err_retryable(int code) {
    return row_of(code)->retryable;
}

/* Bytes of the character at s (NUL-terminated): 1 to 4, or 0 where it isn't valid UTF-8 (wrong or
 * missing continuation, overlong, surrogate, above U+10FFFF). */
static size_t char_bytes(const unsigned char *s) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (s[0] < 0x80) return 1;
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc0 || s[0] > 0xf4) return 0;
    uint32_t c = s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (s[i] & 0x3fu);
    }
    bool surrogate = c >= 0xd800 && c <= 0xdfff;
    return c >= least[n] && c <= 0x10ffff && !surrogate ? n : 0;
}

void pn__text_clean(char *text, size_t cap) {
    unsigned char *s = (unsigned char *)text;
    size_t len = strlen(text);
    size_t i = 0;
    while (i < len) {
        size_t n = char_bytes(s + i);
        bool control = s[i] < 0x20 || s[i] == 0x7f || (s[i] == 0xc2 && n == 2 && s[i + 1] < 0xa0);
        /* A lead byte close to the end of a full buffer: the character was cut. */
        if (n == 0 && s[i] >= 0xc0 && len + 1 == cap && len - i < 4) {
            s[i] = '\0';
            return;
        }
        if (n == 0 || control) memset(s + i, '?', n ? n : 1);
        i += n ? n : 1;
    }
}

void pn__fail_set(struct pn_detail *d, const char *fmt, ...) {
    if (!d) return;
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(d->text, sizeof d->text, fmt, ap) < 0) d->text[0] = '\0';
    va_end(ap);
    pn__text_clean(d->text, sizeof d->text);
}

int pn__fail_in(struct pn_detail *d, int code, const char *prefix) {
    if (!d) return code;
    char old[PN_DETAIL_BYTES];
    memcpy(old, d->text, sizeof old);
    return pn__fail(d, code, "%.255s: %s", prefix, old);
}
