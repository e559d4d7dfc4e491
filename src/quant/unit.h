/* The unpackers of every block type, by family, as unit.c lists them (pn_unit_fn of quant.h). */
#ifndef PN_QUANT_UNIT_H
#define PN_QUANT_UNIT_H

#include "quant/quant.h"

/* X(TYPE, function suffix, unit_n, sub_n, sub_len, has_min) */
#define PN_UNIT_TABLE(X)                   \
    /* legacy.c */                         \
    X(Q4_0, q4_0, 32, 1, 32, false)        \
    X(Q4_1, q4_1, 32, 1, 32, true)         \
    X(Q5_0, q5_0, 32, 1, 32, false)        \
    X(Q5_1, q5_1, 32, 1, 32, true)         \
    X(Q8_0, q8_0, 32, 1, 32, false)        \
    /* kquants.c */                        \
    X(Q2_K, q2_k, 256, 16, 16, true)       \
    X(Q3_K, q3_k, 256, 16, 16, false)      \
    X(Q4_K, q4_k, 256, 8, 32, true)        \
    X(Q5_K, q5_k, 256, 8, 32, true)        \
    X(Q6_K, q6_k, 256, 16, 16, false)      \
    /* iquants.c */                        \
    X(IQ1_S, iq1_s, 256, 8, 32, false)     \
    X(IQ1_M, iq1_m, 256, 16, 16, false)    \
    X(IQ2_XXS, iq2_xxs, 256, 8, 32, false) \
    X(IQ2_XS, iq2_xs, 256, 16, 16, false)  \
    X(IQ2_S, iq2_s, 256, 16, 16, false)    \
    X(IQ3_XXS, iq3_xxs, 256, 8, 32, false) \
    X(IQ3_S, iq3_s, 256, 8, 32, false)     \
    X(IQ4_NL, iq4_nl, 32, 1, 32, false)    \
    X(IQ4_XS, iq4_xs, 256, 8, 32, false)   \
    /* ternary.c */                        \
    X(TQ1_0, tq1_0, 256, 8, 32, false)     \
    X(TQ2_0, tq2_0, 256, 8, 32, false)     \
    X(Q1_0, q1_0, 32, 1, 32, false)        \
    X(Q2_0, q2_0, 32, 1, 32, false)        \
    /* fp4.c */                            \
    X(MXFP4, mxfp4, 32, 1, 32, false)      \
    X(NVFP4, nvfp4, 16, 1, 16, false)

#define PN_UNIT_DECLARE(id, suffix, n, sub_n, sub_len, has_min) \
    void pn__unit_##suffix(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out);
PN_UNIT_TABLE(PN_UNIT_DECLARE)
#undef PN_UNIT_DECLARE

#endif
