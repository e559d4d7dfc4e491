/* Types in blocks of 32 and 16 that are unpacked row by row, for AVX-512. */
#include "ops/cpu/avx512_q32.h"

Q32_TYPE(unit32, SIGNED_OFFSET, false, false)
Q32_TYPE(unit16, SIGNED_OFFSET, false, true)

void pn__init_avx512_unit32(struct pn_kernels *k) {
    k->matmul[PN_TYPE_MXFP4] = matmul_unit32;
    k->matmul[PN_TYPE_NVFP4] = matmul_unit16;
    k->matmul[PN_TYPE_Q1_0] = matmul_unit32;
    k->matmul[PN_TYPE_Q2_0] = matmul_unit32;
}
