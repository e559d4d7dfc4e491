/* UTF-8, one character at a time: strict decoding (no surrogates, no overlong forms, nothing above
 * U+10FFFF) that also says how far an invalid or unfinished sequence reaches. */
#ifndef PN_TEXT_UTF8_H
#define PN_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum pn_utf8_state {
    PN_UTF8_OK,      /* a whole character of `len` bytes */
    PN_UTF8_INVALID, /* `len` bytes (at least 1) that no further byte can make a character of */
    PN_UTF8_PARTIAL, /* all `len` bytes are the start of a character; more are needed */
};

struct pn_utf8_char {
    enum pn_utf8_state state;
    uint32_t len;
    uint32_t cp; /* only when state is PN_UTF8_OK */
};

/* Looks at the first character of s[0, n), n > 0. An invalid sequence is as long as Unicode's
 * "maximal subpart": the bytes that were still the start of some character, or one byte. */
struct pn_utf8_char pn__utf8_next(const char *s, size_t n);

/* Length of the longest prefix of s[0, n) that is made of whole characters. */
size_t pn__utf8_valid_len(const char *s, size_t n);

/* Length of the longest prefix of s[0, n) in which no character starts. */
size_t pn__utf8_invalid_len(const char *s, size_t n);

/* As pn__utf8_next, but what is no character counts as single bytes, numbered above all scalar
 * values: 0x110000 + byte. So any bytes are a sequence of such units. */
static inline struct pn_utf8_char pn__text_char(const char *s, size_t n) {
    struct pn_utf8_char c = pn__utf8_next(s, n);
    if (c.state != PN_UTF8_OK) return (struct pn_utf8_char){c.state, 1, 0x110000u + (uint8_t)*s};
    return c;
}

/* Writes `cp` (a valid scalar value) and returns how many bytes, 1 to 4. */
uint32_t pn__utf8_put(uint32_t cp, char out[4]);

#endif
