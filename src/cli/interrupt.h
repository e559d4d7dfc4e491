/* Ctrl-C in a conversation: it stops what the model is saying, not the program. */
#ifndef PN_CLI_INTERRUPT_H
#define PN_CLI_INTERRUPT_H

#include <stdbool.h>

#include "base/err.h"

/* From here on SIGINT only sets a mark. PN_E_IO when the system has no pipe to give. */
int pn__interrupt_catch(struct pn_detail *d) PN_MUST_CHECK;

/* Whether one came since the mark was last cleared. */
bool pn__interrupted(void);
void pn__interrupt_clear(void);

/* Readable when a SIGINT came since one last looked at the mark: what waits for input looks first
 * and waits for this, too, so that none is missed in between. -1 before pn__interrupt_catch. */
int pn__interrupt_fd(void);

#endif
