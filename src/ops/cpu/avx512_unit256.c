/* Types in blocks of 256 that are unpacked row by row, for AVX-512: by runs of 32, and of 16. */
#include "ops/cpu/avx512_k.h"

K_TYPE(unit8, 8, false)
K_TYPE(unit16, 16, false)

void pn__init_avx512_unit256(struct pn_kernels *k) {
    k->matmul[PN_TYPE_IQ1_S] = matmul_unit8;
    k->matmul[PN_TYPE_IQ1_M] = matmul_unit16;
    k->matmul[PN_TYPE_IQ2_XXS] = matmul_unit8;
    k->matmul[PN_TYPE_IQ2_XS] = matmul_unit16;
    k->matmul[PN_TYPE_IQ2_S] = matmul_unit16;
    k->matmul[PN_TYPE_IQ3_XXS] = matmul_unit8;
    k->matmul[PN_TYPE_IQ3_S] = matmul_unit8;
    k->matmul[PN_TYPE_TQ1_0] = matmul_unit8;
    k->matmul[PN_TYPE_TQ2_0] = matmul_unit8;
}
