#include "text/utf8.h"

/* How many bytes a character with this first byte has (0: none starts with it), and the range that
 * the second byte must be in; Unicode table 3-7. */
static uint32_t lead_len(uint8_t b, uint8_t *lo, uint8_t *hi) {
    *lo = 0x80;
    *hi = 0xBF;
    if (b < 0x80) return 1;
    if (b < 0xC2) return 0;
    if (b < 0xE0) return 2;
    if (b < 0xF0) {
        if (b == 0xE0) *lo = 0xA0;
        if (b == 0xED) *hi = 0x9F;
        return 3;
    }
    if (b > 0xF4) return 0;
    if (b == 0xF0) *lo = 0x90;
    if (b == 0xF4) *hi = 0x8F;
    return 4;
}

struct pn_utf8_char pn__utf8_next(const char *s, size_t n) {
    const uint8_t *b = (const uint8_t *)s;
    uint8_t lo, hi;
    uint32_t len = lead_len(b[0], &lo, &hi);
    if (len == 0) return (struct pn_utf8_char){PN_UTF8_INVALID, 1, 0};
    if (len == 1) return (struct pn_utf8_char){PN_UTF8_OK, 1, b[0]};
    uint32_t cp = b[0] & (0x7Fu >> len);
    for (uint32_t i = 1; i < len; i++) {
        if (i == n) return (struct pn_utf8_char){PN_UTF8_PARTIAL, i, 0};
        if (b[i] < lo || b[i] > hi) return (struct pn_utf8_char){PN_UTF8_INVALID, i, 0};
        cp = cp << 6 | (b[i] & 0x3Fu);
        lo = 0x80;
        hi = 0xBF;
    }
    return (struct pn_utf8_char){PN_UTF8_OK, len, cp};
}

size_t pn__utf8_valid_len(const char *s, size_t n) {
    size_t i = 0;
    while (i < n) {
        if ((uint8_t)s[i] < 0x80) {
            i++;
            continue;
        }
        struct pn_utf8_char c = pn__utf8_next(s + i, n - i);
        if (c.state != PN_UTF8_OK) break;
        i += c.len;
    }
    return i;
}

size_t pn__utf8_invalid_len(const char *s, size_t n) {
    size_t i = 0;
    while (i < n) {
        struct pn_utf8_char c = pn__utf8_next(s + i, n - i);
        if (c.state == PN_UTF8_OK) break;
        i += c.len;
    }
    return i;
}

uint32_t pn__utf8_put(uint32_t cp, char out[4]) {
    uint8_t *b = (uint8_t *)out;
    if (cp < 0x80) {
        b[0] = (uint8_t)cp;
        return 1;
    }
    if (cp < 0x800) {
        b[0] = (uint8_t)(0xC0 | cp >> 6);
        b[1] = (uint8_t)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        b[0] = (uint8_t)(0xE0 | cp >> 12);
        b[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3F));
        b[2] = (uint8_t)(0x80 | (cp & 0x3F));
        return 3;
    }
    b[0] = (uint8_t)(0xF0 | cp >> 18);
    b[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3F));
    b[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3F));
    b[3] = (uint8_t)(0x80 | (cp & 0x3F));
    return 4;
}
