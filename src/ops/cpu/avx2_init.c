/* The AVX2 level: the reference compiled for it, then what has kernels of its own. */
#include "ops/cpu/avx2.h"

void pn__init_kernels_avx2(struct pn_kernels *k);
void pn__init_wide_avx2(struct pn_kernels *k);

void pn__init_avx2(struct pn_kernels *k) {
    pn__init_kernels_avx2(k);
    pn__init_wide_avx2(k);
    memcpy(k->matmul_narrow, k->matmul, sizeof k->matmul);
    pn__init_avx2_bf16(k);
    pn__init_avx2_float(k);
    pn__init_avx2_q32(k);
    pn__init_avx2_k(k);
    pn__init_avx2_unit32(k);
    pn__init_avx2_unit256(k);
}
