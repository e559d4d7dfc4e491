/* From a row of logits to a token. */
#ifndef PN_ENGINE_SAMPLER_H
#define PN_ENGINE_SAMPLER_H

#include "base/compiler.h"
#include "base/err.h"
#include "ops/ops.h"
#include "pannier.h"

struct pn_candidate {
    float logit;
    int32_t id;
};

/* Greedy at temp 0. Else: the top_k best; of those the shortest head whose probability reaches
 * top_p; of those the ones at min_p times the best or above; then one is drawn at temperature temp.
 * Equal logits rank by id, lowest first. `scratch` holds n candidates and is used as far as needed,
 * not at all at temp 0; nothing is allocated. `cpu` walks the row, NULL: the reference. *rng is
 * moved on by one draw. PN_E_NUMERIC when a logit is NaN or +inf, or all are -inf. */
int pn__sample(const struct pn_cpu *cpu, const struct pn_sampling *p, const float *logits,
               uint32_t n, struct pn_candidate *scratch, uint64_t *rng, struct pn_detail *d,
               int32_t *out) PN_MUST_CHECK;

#endif
