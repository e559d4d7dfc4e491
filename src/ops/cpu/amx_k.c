/* Q2_K to Q6_K and IQ4_XS for AMX. */
#include "ops/cpu/amx_k.h"

/* A product of Q2_K is at most 15 * 3; halves of Q5_K's, 7 * 31. Q3_K's are in [-128, 124] with
 * their sign turned. */
K_TYPE(q2_k, .run_n = 16, .has_min = true)
K_TYPE(q3_k, .run_n = 16, .is_signed = true, .offset = 4, .turned = true)
K_TYPE(q4_k, .run_n = 8, .has_min = true, .cut = 3)
K_TYPE(q5_k, .run_n = 8, .has_min = true, .cut = 3)
K_TYPE(q6_k, .run_n = 16, .is_signed = true, .offset = 32, .cut = 7)
K_TYPE(iq4_xs, .run_n = 8, .is_signed = true, .offset = SIGNED_OFFSET, .cut = 7)

void pn__init_amx_k(struct pn_kernels *k) {
    k->matmul_many[PN_TYPE_Q2_K] = matmul_q2_k;
    k->matmul_many[PN_TYPE_Q3_K] = matmul_q3_k;
    k->matmul_many[PN_TYPE_Q4_K] = matmul_q4_k;
    k->matmul_many[PN_TYPE_Q5_K] = matmul_q5_k;
    k->matmul_many[PN_TYPE_Q6_K] = matmul_q6_k;
    k->matmul_many[PN_TYPE_IQ4_XS] = matmul_iq4_xs;
}
