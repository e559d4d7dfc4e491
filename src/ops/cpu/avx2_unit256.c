/* Types in blocks of 256 that are unpacked row by row, for AVX2: by runs of 32, and of 16. */
#include "ops/cpu/avx2_k.h"

/* Form, runs, pairs, minimums. */
K_TYPE(unit8, FORM_S8, 8, false, false)
K_TYPE(unit16, FORM_S8, 16, false, false)

void pn__init_avx2_unit256(struct pn_kernels *k) {
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
