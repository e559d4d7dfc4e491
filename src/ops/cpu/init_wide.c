/* What all levels but the reference have in common, over the reference in a level's table. */
#include "ops/cpu/wide.h"

void PN_K(init_wide)(struct pn_kernels *k) {
    PN_K(init_wide_act)(k);
    PN_K(init_wide_attention)(k);
    PN_K(init_wide_logits)(k);
    PN_K(init_wide_norm)(k);
    PN_K(init_wide_q4)(k);
    PN_K(init_wide_quant)(k);
    PN_K(init_wide_recurrent)(k);
}
