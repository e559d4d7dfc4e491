/* Weights of every type for the matmul tests, and the definition of each type's dot product written
 * once more, plainly, to compare with. */
#ifndef PN_TESTS_OPS_MATMUL_DATA_H
#define PN_TESTS_OPS_MATMUL_DATA_H

#include "ops/ops_test.h"

/* Rows of blocks picked at random from tests/data/quants (F32: random floats), so that every row
 * has real scales; the last row ends where memory does. Free w->data with weight_free. */
void weight_make(struct rng *r, enum pn_type type, uint32_t row_n, uint32_t col_n,
                 struct pn_weight *w);
void weight_free(struct pn_weight *w);

/* All types that a matmul takes. */
uint32_t matmul_types(enum pn_type out[PN_TYPE_N]);

/* An input row as the type's arithmetic sees it: x, or x rounded to bfloat16, or code times scale;
 * `err` is the most that each value moved by that. */
void act_values(enum pn_type type, const float *x, uint32_t n, double *value, double *err);

/* KERNELS' order for one row, in scalar code: what every level must give bit by bit. */
float canonical_dot(const struct pn_weight *w, uint32_t row, const float *x);

/* The same sum in double over dequantised weights and act_values, with the most that float
 * arithmetic in the canonical order may be off. */
double oracle_dot(const struct pn_weight *w, uint32_t row, const double *value, double *bound);

#endif
