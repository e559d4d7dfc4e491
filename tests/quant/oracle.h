/* A second reading of every block format, for tests: one value at a time, straight from the bit
 * positions in double, with no code shared with src/quant but the numbers of the IQ grids. */
#ifndef PN_TESTS_QUANT_ORACLE_H
#define PN_TESTS_QUANT_ORACLE_H

#include "quant/quant.h"

/* Value of a half as a double, NaN and infinity included. */
double oracle_half(unsigned bits);

/* Value `i` (0 to block_n - 1) of the block at `b`, not rounded. */
double oracle_value(enum pn_type type, const uint8_t *b, unsigned i);

/* A small generator, so that a failing test can be repeated. */
uint64_t oracle_random(uint64_t *state);

/* Distance in representable floats; two NaNs are 0 apart, a NaN and a number UINT32_MAX. */
uint32_t oracle_ulps(float a, float b);

#endif
