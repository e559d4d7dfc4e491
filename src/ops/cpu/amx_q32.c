/* Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and IQ4_NL for AMX. */
#include "ops/cpu/amx_q32.h"

Q32_TYPE(q4_0, 8, false, false)
Q32_TYPE(q4_1, 0, true, false)
Q32_TYPE(q5_0, 16, false, false)
Q32_TYPE(q5_1, 0, true, false)
Q32_TYPE(q8_0, 128, false, false)
Q32_TYPE(iq4_nl, 128, false, false)

void pn__init_amx_q32(struct pn_kernels *k) {
    k->matmul_many[PN_TYPE_Q4_0] = matmul_q4_0;
    k->matmul_many[PN_TYPE_Q4_1] = matmul_q4_1;
    k->matmul_many[PN_TYPE_Q5_0] = matmul_q5_0;
    k->matmul_many[PN_TYPE_Q5_1] = matmul_q5_1;
    k->matmul_many[PN_TYPE_Q8_0] = matmul_q8_0;
    k->matmul_many[PN_TYPE_IQ4_NL] = matmul_iq4_nl;
}
