/* What the two halves of the watch share: pn_memwatch.c (sampling, deriving, publishing) and
 * pn_watch_thread.c (when to sample). The interface is public, see pn_mem.h. */
#ifndef PN_CORE_MEM_WATCH_H
#define PN_CORE_MEM_WATCH_H

#include <stdint.h>

#include "core/mem/pn_probe.h"

#define PN_ROOT_BYTES 1024

/* Milliseconds to the next poll, from the newest sample. */
uint32_t pn__watch_interval_ms(void);

/* Where PSI triggers can be armed, from the newest sample: paths under the root, or "" where the
 * source isn't up. False when a folder stands for the machine. */
bool pn__watch_psi_paths(char host[PN_ROOT_BYTES + PN_GROUP_FILE_BYTES],
                         char group[PN_ROOT_BYTES + PN_GROUP_FILE_BYTES]);

/* For pn_memwatch_info_read. */
void pn__watch_note_trigger(const char *note);
void pn__watch_count_trigger(void);

#endif
