#include "core/mem/pn_probe.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/io.h"

/* Linux's PATH_MAX, terminator included. */
#define PATH_BYTES 4096

enum pn_source_status pn__probe_fail(struct pn_probe *p, const char *fmt, ...) {
    if (p->state->why[0]) return PN_SOURCE_FAILED;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->state->why, sizeof p->state->why, fmt, ap);
    va_end(ap);
    return PN_SOURCE_FAILED;
}

enum pn_source_status pn__probe_read(struct pn_probe *p, const char *path) {
    char full[PATH_BYTES];
    int n = snprintf(full, sizeof full, "%s%s", p->root, path);
    p->text[0] = '\0';
    if (n < 0 || (size_t)n >= sizeof full) {
        return pn__probe_fail(p, "%.100s...: path of %d bytes is too long", path, n);
    }
    long len = pn__io_read_text(full, p->text, sizeof p->text);
    if (len == -ENOENT || len == -EOPNOTSUPP) return PN_SOURCE_ABSENT;
    if (len < 0) return pn__probe_fail(p, "%s: %s", path, strerror((int)-len));
    if ((size_t)len + 1 >= sizeof p->text) {
        return pn__probe_fail(p, "%s: longer than %zu bytes", path, sizeof p->text - 2);
    }
    if (strlen(p->text) != (size_t)len) return pn__probe_fail(p, "%s: NUL byte inside", path);
    return PN_SOURCE_UP;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool pn__probe_u64(const char **s, uint64_t *out) {
    const char *c = *s;
    uint64_t v = 0;
    if (!is_digit(*c)) return false;
    for (; is_digit(*c); c++) {
        if (pn__mul_u64(v, 10, &v) || pn__add_u64(v, (uint64_t)(*c - '0'), &v)) return false;
    }
    *s = c;
    *out = v;
    return true;
}

/* By hand: strtod takes signs, hex, "inf" and the locale's decimal point. */
bool pn__probe_decimal(const char **s, double *out) {
    uint64_t whole;
    if (!pn__probe_u64(s, &whole)) return false;
    double v = (double)whole;
    if (**s == '.') {
        const char *from = ++*s;
        uint64_t part;
        if (!pn__probe_u64(s, &part)) return false;
        double scale = 1.0;
        for (const char *c = from; c < *s; c++)
            scale *= 10.0;
        v += (double)part / scale;
    }
    *out = v;
    return true;
}

bool pn__probe_word(const char **s, const char *word) {
    size_t n = strlen(word);
    if (strncmp(*s, word, n) != 0) return false;
    *s += n;
    return true;
}

const char *pn__probe_line(const char *text, const char *key) {
    size_t n = strlen(key);
    for (const char *line = text; *line;) {
        if (strncmp(line, key, n) == 0) return line + n;
        line = strchr(line, '\n');
        if (!line) return NULL;
        line++;
    }
    return NULL;
}

static bool at_line_end(const char *s) {
    return *s == '\n' || *s == '\0';
}

bool pn__probe_scalar(const char *text, uint64_t *out) {
    const char *s = text;
    if (pn__probe_word(&s, "max")) {
        *out = UINT64_MAX;
    } else if (!pn__probe_u64(&s, out)) {
        return false;
    }
    if (*s == '\n') s++;
    return *s == '\0';
}

bool pn__probe_stat(const char *text, const char *key, uint64_t *out) {
    char want[64];
    snprintf(want, sizeof want, "%s ", key);
    const char *s = pn__probe_line(text, want);
    return s && pn__probe_u64(&s, out) && at_line_end(s) && *out <= PN_PROBE_BYTES_MAX;
}

bool pn__probe_kb(const char *text, const char *key, uint64_t *out) {
    char want[64];
    snprintf(want, sizeof want, "%s:", key);
    const char *s = pn__probe_line(text, want);
    if (!s) return false;
    while (*s == ' ' || *s == '\t')
        s++;
    if (!pn__probe_u64(&s, out) || !pn__probe_word(&s, " kB") || !at_line_end(s)) return false;
    return !pn__mul_u64(*out, 1024, out) && *out <= PN_PROBE_BYTES_MAX;
}
