/* What macOS says about memory: see pn_macos.c. Only there, and in its test. */
#ifndef PN_CORE_MEM_MACOS_H
#define PN_CORE_MEM_MACOS_H

#include "core/mem/pn_probe.h"

/* As pn__host_sample, of the real machine: `p->root` is not looked at. */
void pn__macos_sample(struct pn_probe *p, pn_host_sample *out);

#endif
