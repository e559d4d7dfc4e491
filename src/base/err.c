#include "base/err.h"

#include <stdarg.h>
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

/* vsnprintf may have cut a UTF-8 character in half: drop the partial tail. */
static void clean(char *s) {
    size_t len = strlen(s);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || c == 0x7f) s[i] = '?';
    }
    if (len < PN_DETAIL_BYTES - 1) return;
    size_t i = len;
    while (i > 0 && ((unsigned char)s[i - 1] & 0xc0) == 0x80)
        i--;
    if (i > 0 && ((unsigned char)s[i - 1] & 0x80)) s[i - 1] = '\0';
}

int pn__fail(struct pn_detail *d, int code, const char *fmt, ...) {
    if (!d) return code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->text, sizeof d->text, fmt, ap);
    va_end(ap);
    clean(d->text);
    return code;
}

int pn__fail_in(struct pn_detail *d, int code, const char *prefix) {
    if (!d) return code;
    char old[PN_DETAIL_BYTES];
    memcpy(old, d->text, sizeof old);
    return pn__fail(d, code, "%.255s: %s", prefix, old);
}
