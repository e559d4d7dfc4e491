#include "text/nfc.h"

#include <jansson.h>
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "base/log.h"
#include "text/utf8.h"

#define MARKS_MAX 30
/* A stretch of this many characters ends before the next one that composes with nothing in front of
 * it, at the latest when it is twice as long. */
#define STRETCH_N 512
/* No character decomposes canonically into more than 4. */
#define DECOMPOSED_MAX (2 * STRETCH_N * 4)

static bool is_nfc(const json_t *normalizer) {
    const char *type = json_string_value(json_object_get(normalizer, "type"));
    if (!type) return false;
    if (strcmp(type, "NFC") == 0) return true;
    if (strcmp(type, "Sequence") != 0) return false;
    const json_t *list = json_object_get(normalizer, "normalizers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *part = json_string_value(json_object_get(json_array_get(list, i), "type"));
        if (part && strcmp(part, "NFC") == 0) return true;
    }
    return false;
}

int pn__nfc_wanted(const struct pn_gguf *g, bool *out, struct pn_detail *d) {
    static const char key[] = "tokenizer.huggingface.json";
    struct pn_str text;
    json_error_t err;
    *out = false;
    int rc = pn__gguf_get_str(g, key, &text, d);
    if (rc <= 0) return rc;
    json_t *root = json_loadb(text.data, text.len, 0, &err);
    if (root)
        *out = is_nfc(json_object_get(root, "normalizer"));
    else
        pn__log(PN_LOG_WARN, "key '%s': %s at byte %d; no normaliser is taken from it", key,
                err.text, err.position);
    json_decref(root);
    return 0;
}

void pn__buf_free(struct pn_buf *b) {
    pn__free(b->data);
    memset(b, 0, sizeof *b);
}

static int reserve(struct pn_buf *b, size_t more, struct pn_detail *d) {
    if (b->cap - b->n >= more) return 0;
    size_t cap = b->cap * 2 > b->n + more ? b->cap * 2 : b->n + more;
    char *grown = pn__realloc_array(b->data, cap, 1);
    if (!grown) return pn__fail(d, PN_E_NOMEM, "tokenize: no memory for %zu bytes", cap);
    b->data = grown;
    b->cap = cap;
    return 0;
}

/* Whether the character may compose with the one in front of it: those that do are marks or the
 * vowels and final consonants of Hangul. */
static bool joins(uint32_t cp) {
    if (cp >= 0x1160 && cp <= 0x11FF) return true;
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

/* Bytes of the next stretch of text[0, n), which is valid UTF-8. */
static size_t stretch_len(const char *text, size_t n) {
    size_t at = 0, marks = 0;
    for (size_t chars = 0; at < n && chars < 2 * STRETCH_N; chars++) {
        struct pn_utf8_char c = pn__utf8_next(text + at, n - at);
        if (chars >= STRETCH_N && !joins(c.cp)) break;
        if (marks == MARKS_MAX) break;
        bool mark = utf8proc_get_property((utf8proc_int32_t)c.cp)->combining_class != 0;
        marks = mark ? marks + 1 : 0;
        at += c.len;
    }
    return at;
}

static int add_stretch(const char *text, size_t n, struct pn_buf *out, struct pn_detail *d) {
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    utf8proc_int32_t cp[DECOMPOSED_MAX];
    utf8proc_ssize_t count = utf8proc_decompose((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n,
                                                cp, DECOMPOSED_MAX, options);
    if (count >= 0 && count <= DECOMPOSED_MAX) count = utf8proc_normalize_utf32(cp, count, options);
    if (count < 0 || count > DECOMPOSED_MAX)
        return pn__fail(d, PN_E_UNSUPPORTED, "tokenize: NFC failed (utf8proc error %d)",
                        (int)count);
    int rc = reserve(out, (size_t)count * 4, d);
    for (utf8proc_ssize_t i = 0; rc == 0 && i < count; i++)
        out->n += pn__utf8_put((uint32_t)cp[i], out->data + out->n);
    return rc;
}

int pn__nfc(const char *text, size_t n, struct pn_buf *out, struct pn_detail *d) {
    out->n = 0;
    for (size_t at = 0; at < n;) {
        size_t valid = pn__utf8_valid_len(text + at, n - at);
        for (size_t end = at + valid; at < end;) {
            size_t len = stretch_len(text + at, end - at);
            int rc = add_stretch(text + at, len, out, d);
            if (rc) return rc;
            at += len;
        }
        size_t bad = pn__utf8_invalid_len(text + at, n - at);
        int rc = reserve(out, bad, d);
        if (rc) return rc;
        if (bad) memcpy(out->data + out->n, text + at, bad);
        out->n += bad;
        at += bad;
    }
    return 0;
}
