/* Writing error details. The table of codes is public: include/pn_err.h. */
#ifndef PN_BASE_ERR_H
#define PN_BASE_ERR_H

#include <stddef.h>

#include "base/compiler.h"
#include "pn_err.h"

/* Formats the detail line and returns `code`, so that a failure is one statement:
 *     return pn__fail(d, PN_E_FORMAT, "tensor '%s': ...", name);
 * The text goes through pn__text_clean, so hostile names cannot forge lines. A macro, so that the
 * compiler and its analyser see that the value is not 0. */
#define pn__fail(d, code, ...) (pn__fail_set(d, __VA_ARGS__), pn__fail_code(code))
static inline int pn__fail_code(int code) {
    return code;
}
void pn__fail_set(struct pn_detail *d, const char *fmt, ...) PN_PRINTF(2, 3);

/* Puts `prefix: ` in front of the text already in `d` (cut when too long); returns `code`. */
int pn__fail_in(struct pn_detail *d, int code, const char *prefix);

/* Makes NUL-terminated `text` in a buffer of `cap` bytes one line of valid UTF-8: control
 * characters and invalid bytes become '?', a character cut by the end of the buffer goes. */
void pn__text_clean(char *text, size_t cap);

#endif
