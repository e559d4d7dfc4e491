/* IQ types: groups of values drawn from a grid by index (iq_tables.h), with separate signs, and
 * runs of 16 or 32 under odd scales 2 l + 1; IQ4_NL and IQ4_XS: nibbles through a table.
 *
 * Where the reference multiplies by (l + 1/2) / 4 or adds 1/8 to a value, the power of two goes
 * into d (exact: halves are far from float's ends) and codes and scales stay whole.
 * Layouts (bytes):
 *     IQ1_S    d[2] index[32] high[16]                IQ3_XXS  d[2] index[64] signs+scales[32]
 *     IQ1_M    index[32] high[16] scales[8]           IQ3_S    d[2] index[64] high[8] signs[32]
 *     IQ2_XXS  d[2] (index[4] signs+scale[4]) x 8              scales[4]
 *     IQ2_XS   d[2] index+signs[64] scales[8]         IQ4_NL   d[2] q[16]
 *     IQ2_S    d[2] index[32] signs[32] high[8]       IQ4_XS   d[2] scales_high[2] scales_low[4]
 *              scales[8]                                       q[128] */
#include "quant/bits.h"
#include "quant/iq_tables.h"
#include "quant/unit.h"

/* The format stores seven of eight signs; the eighth makes their number even. */
static inline uint8_t even_signs(uint32_t seven) {
    return (uint8_t)(seven | (uint32_t)__builtin_parity(seven) << 7);
}

static inline int16_t odd_scale(uint32_t l) {
    return (int16_t)(2 * l + 1);
}

static inline uint64_t iq2_values(uint16_t entry) {
    uint64_t v = pn__spread2(entry);
    return PN_BYTES(8) + (v << 4) + v + ((v >> 1) & PN_BYTES(1));
}

static inline uint64_t iq3_digits(const uint16_t *grid, uint32_t first, uint32_t second) {
    return pn__spread3(grid[first]) | (uint64_t)pn__spread3(grid[second]) << 32;
}

static inline uint64_t iq3_xxs_values(uint64_t v) {
    uint64_t sevens = v & v >> 1 & v >> 2 & PN_BYTES(1);
    return PN_BYTES(4) + 8 * v + 2 * sevens;
}

/* Codes 8 g + 1 or 8 g - 1 for g = v - 1: eight times the reference's g + 1/8 or g - 1/8. */
static inline uint64_t iq1_codes(uint32_t index, bool minus) {
    return pn__bytes_sub(8 * pn__spread2(pn__iq1_grid[index]), minus ? 9 : 7);
}

void pn__unit_iq1_s(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 50);
    out->d = pn__load_f16(b) * 0.125f;
    for (int run = 0; run < 8; run++) {
        uint32_t high = pn__load_u16(b + 34 + 2 * run);
        out->scales[run] = odd_scale((high >> 12) & 7);
        for (int k = 0; k < 4; k++) {
            uint32_t index = b[2 + 4 * run + k] | ((high >> (3 * k)) & 7) << 8;
            pn__store_codes(out->codes + 32 * run + 8 * k, iq1_codes(index, high >> 15));
        }
    }
}

/* The scales are four 16-bit words of four 3-bit scales each; their top nibbles, the first word's
 * lowest, make up the half that is d. */
void pn__unit_iq1_m(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 56);
    uint32_t d = 0;
    for (int k = 0; k < 4; k++) {
        uint32_t word = pn__load_u16(b + 48 + 2 * k);
        d |= (word >> 12) << (4 * k);
        for (int i = 0; i < 4; i++)
            out->scales[4 * k + i] = odd_scale((word >> (3 * i)) & 7);
    }
    out->d = pn__half_widen((uint16_t)d) * 0.125f;
    for (int k = 0; k < 32; k++) {
        uint32_t high = (uint32_t)b[32 + k / 2] >> (k % 2 * 4);
        uint32_t index = b[k] | (high & 7) << 8;
        pn__store_codes(out->codes + 8 * k, iq1_codes(index, high & 8));
    }
}

void pn__unit_iq2_xxs(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 66);
    out->d = pn__load_f16(b) * 0.125f;
    for (int run = 0; run < 8; run++) {
        const uint8_t *index = b + 2 + 8 * run;
        uint32_t signs = pn__load_u32(index + 4);
        out->scales[run] = odd_scale(signs >> 28);
        for (int k = 0; k < 4; k++) {
            uint64_t values = iq2_values(pn__iq2_xxs_grid[index[k]]);
            uint8_t sign = even_signs((signs >> (7 * k)) & 127);
            pn__store_codes(out->codes + 32 * run + 8 * k, pn__bytes_sign(values, sign));
        }
    }
}

static inline void nibble_scales(const uint8_t *restrict from, int n, int16_t *restrict scales) {
    for (int i = 0; i < n; i++)
        scales[i] = odd_scale(((uint32_t)from[i / 2] >> (i % 2 * 4)) & 15);
}

void pn__unit_iq2_xs(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 74);
    out->d = pn__load_f16(b) * 0.125f;
    nibble_scales(b + 66, 16, out->scales);
    for (int k = 0; k < 32; k++) {
        uint32_t word = pn__load_u16(b + 2 + 2 * k);
        uint64_t values = iq2_values(pn__iq2_xs_grid[word & 511]);
        pn__store_codes(out->codes + 8 * k, pn__bytes_sign(values, even_signs(word >> 9)));
    }
}

void pn__unit_iq2_s(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 82);
    out->d = pn__load_f16(b) * 0.125f;
    nibble_scales(b + 74, 16, out->scales);
    for (int k = 0; k < 32; k++) {
        uint32_t high = ((uint32_t)b[66 + k / 4] >> (k % 4 * 2)) & 3;
        uint64_t values = iq2_values(pn__iq2_s_grid[b[2 + k] | high << 8]);
        pn__store_codes(out->codes + 8 * k, pn__bytes_sign(values, b[34 + k]));
    }
}

void pn__unit_iq3_xxs(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 98);
    out->d = pn__load_f16(b) * 0.25f;
    for (int run = 0; run < 8; run++) {
        const uint8_t *index = b + 2 + 8 * run;
        uint32_t signs = pn__load_u32(b + 66 + 4 * run);
        out->scales[run] = odd_scale(signs >> 28);
        for (int k = 0; k < 4; k++) {
            uint64_t digits = iq3_digits(pn__iq3_xxs_grid, index[2 * k], index[2 * k + 1]);
            uint8_t sign = even_signs((signs >> (7 * k)) & 127);
            pn__store_codes(out->codes + 32 * run + 8 * k,
                            pn__bytes_sign(iq3_xxs_values(digits), sign));
        }
    }
}

void pn__unit_iq3_s(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 110);
    out->d = pn__load_f16(b);
    nibble_scales(b + 106, 8, out->scales);
    for (int k = 0; k < 32; k++) {
        uint32_t high = (uint32_t)b[66 + k / 4] >> (k % 4 * 2);
        uint32_t first = b[2 + 2 * k] | (high & 1) << 8;
        uint32_t second = b[3 + 2 * k] | (high & 2) << 7;
        uint64_t values = PN_BYTES(1) + 2 * iq3_digits(pn__iq3_s_grid, first, second);
        pn__store_codes(out->codes + 8 * k, pn__bytes_sign(values, b[74 + k]));
    }
}

static inline void iq4_codes(const uint8_t *restrict q, int8_t *restrict codes) {
    for (int i = 0; i < 16; i++)
        codes[i] = pn__iq4_values[q[i] & 15];
    for (int i = 0; i < 16; i++)
        codes[i + 16] = pn__iq4_values[q[i] >> 4];
}

void pn__unit_iq4_nl(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 18);
    out->d = pn__load_f16(b);
    out->scales[0] = 1;
    iq4_codes(b + 2, out->codes);
}

/* Scales of 6 bits, 32 too high: nibbles in scales_low, the two top bits in scales_high. */
void pn__unit_iq4_xs(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 136);
    uint32_t high = pn__load_u16(b + 2);
    out->d = pn__load_f16(b);
    for (int run = 0; run < 8; run++) {
        uint32_t low = ((uint32_t)b[4 + run / 2] >> (run % 2 * 4)) & 15;
        uint32_t top = (high >> (2 * run)) & 3;
        out->scales[run] = (int16_t)((int)(low | top << 4) - 32);
        iq4_codes(b + 8 + 16 * run, out->codes + 32 * run);
    }
}
