/* The ring of the last decisions, as numbers; words are made when somebody asks. Reading is public,
 * see pn_mem.h. */
#ifndef PN_CORE_MEM_DECISION_H
#define PN_CORE_MEM_DECISION_H

#include "pn_mem.h"

/* Notes it under the next number and the present time. */
void pn__decide(pn_decision e);

#endif
