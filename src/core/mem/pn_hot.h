/* Our own hot file pages: see pn_hot.c. Registering is public, see pn_mem.h. */
#ifndef PN_CORE_MEM_HOT_H
#define PN_CORE_MEM_HOT_H

#include "core/mem/pn_probe.h"

/* Fills hot_file_bytes; SELF must have been sampled. ABSENT when no range is registered. */
enum pn_source_status pn__hot_sample(struct pn_probe *p, pn_host_sample *out);

#endif
