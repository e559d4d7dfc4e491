#include <string.h>

#include "base/alloc.h"
#include "text/utf8.h"
#include "text/vocab.h"

/* Bytes that print as they are: '!' to '~', U+00A1 to U+00AC, U+00AE to U+00FF. The other 68 take
 * U+0100 and on, in order (GPT-2's bytes_to_unicode). */
static bool prints(uint32_t b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

/* The others in order: 0x00 to 0x20, 0x7F to 0xA0, 0xAD. */
uint32_t pn__byte_to_cp(uint8_t b) {
    if (prints(b)) return b;
    if (b <= 0x20) return 0x100u + b;
    if (b <= 0xA0) return 0x121u + (b - 0x7Fu);
    return 0x143;
}

int pn__cp_to_byte(uint32_t cp) {
    if (cp < 0x100) return prints(cp) ? (int)cp : -1;
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* The byte that "<0xXX>" names, or -1. */
static int byte_of_text(struct pn_str s) {
    if (s.len != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>') return -1;
    int hi = hex_digit(s.data[3]);
    int lo = hex_digit(s.data[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

/* U+2581 becomes a space. */
static size_t decode_spaces(struct pn_str s, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < s.len;) {
        bool space = s.len - i >= PN_SPM_SPACE_LEN &&
                     memcmp(s.data + i, PN_SPM_SPACE, PN_SPM_SPACE_LEN) == 0;
        out[n++] = space ? ' ' : s.data[i];
        i += space ? PN_SPM_SPACE_LEN : 1;
    }
    return n;
}

/* Characters of the byte alphabet become bytes; what is none of it stays as it is. */
static size_t decode_bytes(struct pn_str s, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < s.len;) {
        struct pn_utf8_char c = pn__utf8_next(s.data + i, s.len - i);
        int b = c.state == PN_UTF8_OK ? pn__cp_to_byte(c.cp) : -1;
        if (b >= 0) {
            out[n++] = (char)b;
        } else {
            memcpy(out + n, s.data + i, c.len);
            n += c.len;
        }
        i += c.len;
    }
    return n;
}

/* Writes at most text-length bytes. */
static size_t make_piece(const struct pn_vocab *v, uint32_t id, char *out) {
    struct pn_str s = pn__strtab_get(&v->strings, id);
    uint8_t attr = v->attr[id];
    if (attr & (PN_ATTR_SPECIAL | PN_ATTR_USER)) {
        memcpy(out, s.data, s.len);
        return s.len;
    }
    if (attr & PN_ATTR_BYTE) {
        int b = byte_of_text(s);
        if (b >= 0) {
            *out = (char)b;
            return 1;
        }
    } else if (!(attr & PN_ATTR_NORMAL)) {
        return 0;
    }
    return v->kind == PN_VOCAB_BPE_BYTES ? decode_bytes(s, out) : decode_spaces(s, out);
}

int pn__vocab_make_pieces(struct pn_vocab *v, struct pn_detail *d) {
    size_t most = v->n ? v->strings.end[v->n - 1] : 0;
    v->piece = pn__calloc(most, 1);
    v->piece_end = pn__calloc(v->n, sizeof *v->piece_end);
    if (!v->piece || !v->piece_end)
        return pn__fail(d, PN_E_NOMEM, "vocabulary: no memory for %zu bytes of pieces", most);
    uint32_t at = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        uint32_t len = (uint32_t)make_piece(v, i, v->piece + at);
        at += len;
        v->piece_end[i] = at;
        if (len > v->piece_len_max) v->piece_len_max = len;
    }
    return 0;
}

struct pn_str pn__vocab_piece(const struct pn_vocab *v, int32_t id, bool special) {
    struct pn_str none = {"", 0};
    if (id < 0 || (uint32_t)id >= v->n) return none;
    if (!special && (v->attr[id] & PN_ATTR_SPECIAL)) return none;
    uint32_t from = id ? v->piece_end[id - 1] : 0;
    return (struct pn_str){v->piece + from, v->piece_end[id] - from};
}
