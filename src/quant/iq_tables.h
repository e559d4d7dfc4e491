/* The grids of the IQ types: which combinations of values an index can stand for.
 *
 * An entry of an IQ1 or IQ2 grid is eight 2-bit digits, of an IQ3 grid four 3-bit digits, the first
 * value in the lowest bits. What a digit v stands for:
 *     IQ1_S, IQ1_M             v - 1                       -1 0 1
 *     IQ2_XXS, IQ2_XS, IQ2_S   8 + 17 v + (v == 2)         8 25 43
 *     IQ3_XXS                  4 + 8 v + 2 (v == 7)        4 12 20 28 36 44 52 62
 *     IQ3_S                    1 + 2 v                     1 3 5 7 9 11 13 15 */
#ifndef PN_QUANT_IQ_TABLES_H
#define PN_QUANT_IQ_TABLES_H

#include <stdint.h>

extern const uint16_t pn__iq1_grid[2048];
extern const uint16_t pn__iq2_xxs_grid[256];
extern const uint16_t pn__iq2_xs_grid[512];
extern const uint16_t pn__iq2_s_grid[1024];
extern const uint16_t pn__iq3_xxs_grid[256];
extern const uint16_t pn__iq3_s_grid[512];

/* IQ4_NL and IQ4_XS: what a nibble stands for. */
extern const int8_t pn__iq4_values[16];

#endif
