/* Types in blocks of 32 and 16 that are unpacked row by row, for AMX. */
#include "ops/cpu/amx_q32.h"

Q32_TYPE(unit32, SIGNED_OFFSET, false, false)
Q32_TYPE(unit16, SIGNED_OFFSET, false, true)

void pn__init_amx_unit32(struct pn_kernels *k) {
    k->matmul_many[PN_TYPE_MXFP4] = matmul_unit32;
    k->matmul_many[PN_TYPE_NVFP4] = matmul_unit16;
    k->matmul_many[PN_TYPE_Q1_0] = matmul_unit32;
    k->matmul_many[PN_TYPE_Q2_0] = matmul_unit32;
}
