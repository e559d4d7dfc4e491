/* Ctrl-C in a conversation: it stops what the model is saying, not the program. */
#ifndef PN_CLI_INTERRUPT_H
#define PN_CLI_INTERRUPT_H

#include <stdbool.h>

/* From here on SIGINT only sets a mark, and ends a read that waits (no SA_RESTART). */
void pn__interrupt_catch(void);

/* Whether one came since the mark was last cleared. */
bool pn__interrupted(void);
void pn__interrupt_clear(void);

#endif
