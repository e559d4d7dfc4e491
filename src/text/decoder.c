#include <assert.h>
#include <string.h>

#include "text/utf8.h"
#include "text/vocab.h"

#define REPLACEMENT "\xef\xbf\xbd"
#define REPLACEMENT_LEN 3

/* Every byte of the piece and of the held start may come out as a replacement character. */
size_t pn__decoder_max(const struct pn_vocab *v) {
    return ((size_t)v->piece_len_max + 3) * REPLACEMENT_LEN;
}

/* Adds one byte to the held start of a character and writes what is decided by it. */
static size_t add_byte(struct pn_decoder *dec, uint8_t b, char *buf) {
    size_t n = 0;
    dec->held[dec->held_n++] = b;
    while (dec->held_n) {
        struct pn_utf8_char c = pn__utf8_next((const char *)dec->held, dec->held_n);
        if (c.state == PN_UTF8_PARTIAL) break;
        bool ok = c.state == PN_UTF8_OK;
        size_t len = ok ? c.len : REPLACEMENT_LEN;
        memcpy(buf + n, ok ? (const char *)dec->held : REPLACEMENT, len);
        n += len;
        dec->held_n -= c.len;
        memmove(dec->held, dec->held + c.len, dec->held_n);
    }
    return n;
}

size_t pn__decoder_feed(struct pn_decoder *dec, const struct pn_vocab *v, int32_t id, bool special,
                        char *buf, size_t cap) {
    assert(cap >= pn__decoder_max(v));
    (void)cap;
    struct pn_str piece = pn__vocab_piece(v, id, special);
    size_t n = 0, i = 0;
    if (piece.len && dec->at_start) {
        if (v->add_space_prefix && piece.data[0] == ' ') i = 1;
        dec->at_start = false;
    }
    for (; i < piece.len; i++)
        n += add_byte(dec, (uint8_t)piece.data[i], buf + n);
    return n;
}

size_t pn__decoder_finish(struct pn_decoder *dec) {
    size_t n = dec->held_n;
    dec->held_n = 0;
    return n;
}
