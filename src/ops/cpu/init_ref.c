/* The table of one level, out of the reference kernels. */
#include "ops/cpu/kernels.h"

void PN_K(init_kernels)(struct pn_kernels *k) {
    PN_K(init_matmul)(k);
    PN_K(init_attention)(k);
    PN_K(init_norm)(k);
    PN_K(init_act)(k);
    PN_K(init_logits)(k);
    PN_K(init_rope)(k);
    PN_K(init_recurrent)(k);
    PN_K(init_route)(k);
}
