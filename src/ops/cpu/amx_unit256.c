/* Types in blocks of 256 that are unpacked row by row, for AMX: by runs of 32, and of 16. */
#include "ops/cpu/amx_k.h"

K_TYPE(unit8, .run_n = 8, .is_signed = true, .offset = SIGNED_OFFSET, .cut = 7)
K_TYPE(unit16, .run_n = 16, .is_signed = true, .offset = SIGNED_OFFSET, .cut = 7)

void pn__init_amx_unit256(struct pn_kernels *k) {
    k->matmul_many[PN_TYPE_IQ1_S] = matmul_unit8;
    k->matmul_many[PN_TYPE_IQ1_M] = matmul_unit16;
    k->matmul_many[PN_TYPE_IQ2_XXS] = matmul_unit8;
    k->matmul_many[PN_TYPE_IQ2_XS] = matmul_unit16;
    k->matmul_many[PN_TYPE_IQ2_S] = matmul_unit16;
    k->matmul_many[PN_TYPE_IQ3_XXS] = matmul_unit8;
    k->matmul_many[PN_TYPE_IQ3_S] = matmul_unit8;
    k->matmul_many[PN_TYPE_TQ1_0] = matmul_unit8;
    k->matmul_many[PN_TYPE_TQ2_0] = matmul_unit8;
}
