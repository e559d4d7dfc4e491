/* The AMX level: AVX-512, and for more than PN_TILE rows of input what has kernels of its own: all
 * types in blocks. */
#include "ops/cpu/amx.h"

void pn__init_amx(struct pn_kernels *k) {
    pn__init_avx512(k);
    k->many_tile = AMX_ROWS;
    pn__init_amx_q32(k);
    pn__init_amx_unit32(k);
    pn__init_amx_k(k);
    pn__init_amx_unit256(k);
}
