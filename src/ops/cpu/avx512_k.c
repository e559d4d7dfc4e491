/* Q2_K to Q6_K and IQ4_XS for AVX-512. */
#include "ops/cpu/avx512_k.h"

K_TYPE(q2_k, 16, true)
K_TYPE(q3_k, 16, false)
K_TYPE(q4_k, 8, true)
K_TYPE(q5_k, 8, true)
K_TYPE(q6_k, 16, false)
K_TYPE(iq4_xs, 8, false)

void pn__init_avx512_k(struct pn_kernels *k) {
    k->matmul[PN_TYPE_Q2_K] = matmul_q2_k;
    k->matmul[PN_TYPE_Q3_K] = matmul_q3_k;
    k->matmul[PN_TYPE_Q4_K] = matmul_q4_k;
    k->matmul[PN_TYPE_Q5_K] = matmul_q5_k;
    k->matmul[PN_TYPE_Q6_K] = matmul_q6_k;
    k->matmul[PN_TYPE_IQ4_XS] = matmul_iq4_xs;
}
