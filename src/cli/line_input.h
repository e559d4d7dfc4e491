/* Standard input, a line at a time: edited and with a history on a terminal (libedit), read plainly
 * from a pipe or file. Lines are UTF-8 without their line feed. */
#ifndef PN_CLI_LINE_INPUT_H
#define PN_CLI_LINE_INPUT_H

#include <stddef.h>

#include "base/err.h"
#include "base/settings.h"

#define PN_LINE_BYTES_MAX ((size_t)16 << 20)

struct pn_lines;

/* What pn__lines_next found. */
enum pn_line {
    PN_LINE_END = 0,
    PN_LINE_TEXT = 1,
    PN_LINE_INTERRUPTED = 2, /* Ctrl-C: what was typed is dropped */
};

/* Edited when standard input is a terminal and stdout or stderr is one to show it on; needs
 * pn__interrupt_catch. PN_E_NOMEM. */
int pn__lines_new(const struct pn_settings *s, struct pn_detail *d,
                  struct pn_lines **out) PN_MUST_CHECK;
void pn__lines_free(struct pn_lines *l);

bool pn__lines_edited(const struct pn_lines *l);

/* One of enum pn_line, with the line, valid until the next call, in *line and *len; or an error:
 * PN_E_IO, PN_E_NOMEM, PN_E_INVALID (what is not UTF-8, a line beyond PN_LINE_BYTES_MAX), with
 * the line's number. The prompt is shown when lines are edited. */
int pn__lines_next(struct pn_lines *l, const char **line, size_t *len,
                   struct pn_detail *d) PN_MUST_CHECK;

#endif
