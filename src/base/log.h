/* The log: levels and one callback for the process. Nothing is printed unless a callback is set:
 * cli/ sets one that writes to stderr, an embedder sets its own. */
#ifndef PN_BASE_LOG_H
#define PN_BASE_LOG_H

#include "base/compiler.h"
#include "pn_mem.h"

/* Formats one line (at most 1023 bytes, cleaned by pn__text_clean) and hands it to the callback
 * when `level` is at or below the set level. Safe from any thread; the callback is never called
 * under a lock. */
void pn__log(enum pn_log_level level, const char *fmt, ...) PN_PRINTF(2, 3);

#endif
