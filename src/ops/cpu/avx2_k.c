/* Q2_K to Q6_K and IQ4_XS for AVX2. */
#include "ops/cpu/avx2_k.h"

/* Form, runs, pairs, minimums. Codes of fewer than 4 bits do as those of 4. */
K_TYPE(q2_k, FORM_U4, 16, true, true)
K_TYPE(q3_k, FORM_U4, 16, true, false)
K_TYPE(q4_k, FORM_U4, 8, true, true)
K_TYPE(q5_k, FORM_U5, 8, true, true)
K_TYPE(q6_k, FORM_U6, 16, true, false)
K_TYPE(iq4_xs, FORM_S8, 8, false, false)

void pn__init_avx2_k(struct pn_kernels *k) {
    k->matmul[PN_TYPE_Q2_K] = matmul_q2_k;
    k->matmul[PN_TYPE_Q3_K] = matmul_q3_k;
    k->matmul[PN_TYPE_Q4_K] = matmul_q4_k;
    k->matmul[PN_TYPE_Q5_K] = matmul_q5_k;
    k->matmul[PN_TYPE_Q6_K] = matmul_q6_k;
    k->matmul[PN_TYPE_IQ4_XS] = matmul_iq4_xs;
}
