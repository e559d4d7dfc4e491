/* Blocks of 32 with one half as scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
 *
 * Layouts (bytes): Q4_0 d[2] q[16]; Q4_1 d[2] m[2] q[16]; Q5_0 d[2] high[4] q[16]; Q5_1 d[2] m[2]
 * high[4] q[16]; Q8_0 d[2] q[32]. Byte k of q holds value k in its low nibble and value k + 16 in
 * its high one; bit k of `high` is the fifth bit of value k. The loops have fixed counts and no
 * aliases, so that compilers turn them into vector code on any baseline. */
#include "quant/bits.h"
#include "quant/unit.h"

static inline void nibbles(const uint8_t *restrict q, int8_t *restrict codes, int minus) {
    for (int i = 0; i < 16; i++)
        codes[i] = (int8_t)((q[i] & 15) - minus);
    for (int i = 0; i < 16; i++)
        codes[i + 16] = (int8_t)((q[i] >> 4) - minus);
}

static inline void five_bits(const uint8_t *restrict high, const uint8_t *restrict q,
                             int8_t *restrict codes, int minus) {
    uint8_t top[32];
    for (int k = 0; k < 4; k++) {
        uint64_t sixteens = pn__spread1(high[k]) << 4;
        memcpy(top + 8 * k, &sixteens, sizeof sixteens);
    }
    for (int i = 0; i < 16; i++)
        codes[i] = (int8_t)(((q[i] & 15) | top[i]) - minus);
    for (int i = 0; i < 16; i++)
        codes[i + 16] = (int8_t)(((q[i] >> 4) | top[i + 16]) - minus);
}

/* w = d * c + m is d * c - dmin * 1 with dmin = -m. */
static inline void set_min(struct pn_unit *out, float m) {
    out->dmin = -m;
    out->mins[0] = 1;
}

void pn__unit_q4_0(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 18);
    out->d = pn__load_f16(b);
    out->scales[0] = 1;
    nibbles(b + 2, out->codes, 8);
}

void pn__unit_q4_1(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 20);
    out->d = pn__load_f16(b);
    out->scales[0] = 1;
    set_min(out, pn__load_f16(b + 2));
    nibbles(b + 4, out->codes, 0);
}

void pn__unit_q5_0(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 22);
    out->d = pn__load_f16(b);
    out->scales[0] = 1;
    five_bits(b + 2, b + 6, out->codes, 16);
}

void pn__unit_q5_1(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 24);
    out->d = pn__load_f16(b);
    out->scales[0] = 1;
    set_min(out, pn__load_f16(b + 2));
    five_bits(b + 4, b + 8, out->codes, 0);
}

void pn__unit_q8_0(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 34);
    out->d = pn__load_f16(b);
    out->scales[0] = 1;
    memcpy(out->codes, b + 2, 32);
}
