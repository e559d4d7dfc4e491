/* Types in blocks of 32 and 16 that are unpacked row by row, for AVX2. */
#include "ops/cpu/avx2_q32.h"

Q32_TYPE(unit32, FORM_S8, 0, false, false)
Q32_TYPE(unit16, FORM_S8, 0, false, true)

void pn__init_avx2_unit32(struct pn_kernels *k) {
    k->matmul[PN_TYPE_MXFP4] = matmul_unit32;
    k->matmul[PN_TYPE_NVFP4] = matmul_unit16;
    k->matmul[PN_TYPE_Q1_0] = matmul_unit32;
    k->matmul[PN_TYPE_Q2_0] = matmul_unit32;
}
