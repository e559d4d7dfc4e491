/* What a file's tensors say about its mixture of experts. Headers only, any architecture. */
#ifndef PN_CLI_INSPECT_EXPERTS_H
#define PN_CLI_INSPECT_EXPERTS_H

#include "base/err.h"
#include "gguf/gguf.h"

struct pn_expert_sum {
    uint64_t expert_n;    /* ARCH.expert_count, of a list the highest; 0: no mixture */
    uint64_t used_n;      /* ARCH.expert_used_count, the same; 0: not given */
    uint32_t block_n;     /* blocks that run */
    uint32_t moe_block_n; /* of them with experts */
    uint64_t one_min;     /* bytes of one expert: gate, up and down; they differ by block */
    uint64_t one_max;
    uint64_t all_bytes;   /* of all experts */
    uint64_t token_bytes; /* of weights that one token reads, experts and the rest */
};

/* PN_E_NOMEM. */
int pn__expert_sum(const struct pn_gguf *g, struct pn_expert_sum *out,
                   struct pn_detail *d) PN_MUST_CHECK;

#endif
