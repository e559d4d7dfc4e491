/* Writing error details. The table of codes is public: include/pn_err.h. */
#ifndef PN_BASE_ERR_H
#define PN_BASE_ERR_H

#include <stddef.h>

#include "base/compiler.h"
#include "pn_err.h"

/* Formats the detail line and returns `code`, so that a failure is one statement:
 *     return pn__fail(d, PN_E_FORMAT, "tensor '%s': ...", name);
 * The text goes through pn__text_clean, so hostile names cannot forge lines. */
int pn__fail(struct pn_detail *d, int code, const char *fmt, ...) PN_PRINTF(3, 4);

/* Puts `prefix: ` in front of the text already in `d` (cut when too long); returns `code`. */
int pn__fail_in(struct pn_detail *d, int code, const char *prefix);

/* Makes NUL-terminated `text` in a buffer of `cap` bytes one line of valid UTF-8: control
 * characters and invalid bytes become '?', a character cut by the end of the buffer goes. */
void pn__text_clean(char *text, size_t cap);

#endif
