/* From a sample to a level: the bands, the stalls, what isn't known; and the damping that the
 * published level has over the raw one. Pure: time comes in as an argument. */
#ifndef PN_CORE_MEM_LEVEL_H
#define PN_CORE_MEM_LEVEL_H

#include <stdbool.h>
#include <stdint.h>

#include "pn_mem.h"

struct pn_verdict {
    pn_mem_level raw;
    pn_mem_level bytes;  /* of it, what bytes alone say */
    pn_mem_level firm;   /* of it, all but the stalls */
    pn_mem_level margin; /* the same with each band widened by reserve/16: never below `bytes` */
    uint64_t deficit_bytes;
    char why[256]; /* what decided `raw` */
};

/* `psi_some` and `psi_full` are percent, from the sample or worse. Of `dies` only the per-die
 * fields are read. */
void pn__level_derive(const pn_host_sample *sample, double psi_some, double psi_full,
                      const pn_mem_state *dies, struct pn_verdict *out);

/* What is left in a band, for reserve-based domains: CRITICAL at or below the reserve, TIGHT within
 * a quarter of it above, WATCH within one more. */
pn_mem_level pn__level_of_bytes(uint64_t available, uint64_t reserve, uint64_t margin);
pn_mem_level pn__level_of_die(uint64_t free_bytes, uint64_t budget, uint64_t margin);

/* Damping. The level rises with raw at once and falls one step when it has stood above raw, and
 * outside its band by the margin, for its dwell without a break; the next step has its own dwell
 * from then. Zeroed: OK, nothing running. */
struct pn_damper {
    pn_mem_level level;
    bool falling;
    uint64_t since_ns; /* while falling: from when */
};

pn_mem_level pn__damper_step(struct pn_damper *d, const struct pn_verdict *v, uint64_t now_ns);

/* How long `level` must have stood above raw to fall: CRITICAL 5 s, TIGHT 15 s, WATCH 30 s. */
uint64_t pn__dwell_ns(pn_mem_level level);

/* Stalls of the last 10 s up to the newest sample, from the growth of PSI's total= figures: avg10
 * is refreshed every 2 s only. A ring of samples at least 200 ms apart covers the time. */
#define PN_STALL_N 56
struct pn_stall {
    uint64_t ns[PN_STALL_N];
    uint64_t some_usec[PN_STALL_N];
    uint64_t full_usec[PN_STALL_N];
    uint32_t n;    /* filled */
    uint32_t next; /* where the next goes */
};

/* Takes in one sample; percents out, 0 from the first. Figures that went backwards start anew. */
void pn__stall_step(struct pn_stall *s, uint64_t now_ns, uint64_t some_usec, uint64_t full_usec,
                    double *some, double *full);

#endif
