/* The NEON level: the reference compiled for aarch64, then what has kernels of its own. */
#include "ops/cpu/neon.h"

#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static bool has_dot(void) {
#if defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#else
    return false;
#endif
}

void pn__init_neon(struct pn_kernels *k) {
    pn__init_kernels_neon(k);
    pn__init_wide_neon(k);
    pn__init_neon_float(k);
    if (has_dot())
        pn__init_neon_blocks_neondot(k);
    else
        pn__init_neon_blocks_neon(k);
    memcpy(k->matmul_narrow, k->matmul, sizeof k->matmul);
}
