/* Unicode normalisation form C, for the vocabularies that ask for it.
 *
 * GGUF has no key for it; the one place where a file can ask is the tokenizer.json of Hugging Face
 * that it may carry whole under `tokenizer.huggingface.json`. Files without that are never
 * normalised, as the reference engine does it.
 */
#ifndef PN_TEXT_NFC_H
#define PN_TEXT_NFC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"
#include "base/err.h"
#include "gguf/gguf.h"

/* Whether the file asks: its normaliser is NFC or a sequence that has NFC in it. PN_E_FORMAT when
 * the key is no string; a text that is no JSON is reported in the log and asks for nothing. */
int pn__nfc_wanted(const struct pn_gguf *g, bool *out, struct pn_detail *d) PN_MUST_CHECK;

/* Growable text; zero it before the first use. */
struct pn_buf {
    char *data;
    size_t n;
    size_t cap;
};
void pn__buf_free(struct pn_buf *b);

/* Writes text[0, n) in form C to `out`, over what was there. Bytes that are not UTF-8 stay as they
 * are. More than 30 combining marks in a row are normalised 30 at a time (UAX 15, D3, Stream-Safe
 * Text), which keeps the time linear. PN_E_NOMEM. */
int pn__nfc(const char *text, size_t n, struct pn_buf *out, struct pn_detail *d) PN_MUST_CHECK;

#endif
