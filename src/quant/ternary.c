/* One and two bits and less: TQ1_0 and TQ2_0 (blocks of 256, values -1, 0, 1), Q1_0 (blocks of 128,
 * values -1, 1) and Q2_0 (blocks of 64, values -1, 0, 1, 2).
 *
 * Layouts (bytes): TQ1_0 q[48] tail[4] d[2]; TQ2_0 q[64] d[2]; Q1_0 d[2] bits[16]; Q2_0 d[2] q[16].
 * Q1_0 and Q2_0 hold their values in order, from the lowest bits up; the activation beside them
 * comes in 32s, so a file block is four and two units under the same scale. */
#include "quant/bits.h"
#include "quant/unit.h"

static inline void scales_of_one(struct pn_unit *out) {
    for (int i = 0; i < 8; i++)
        out->scales[i] = 1;
}

/* A byte holds base-3 digits as a fraction of 256, first digit first: times 3^n (mod 256) brings
 * digit n to the front, and the integer part of three times the fraction reads it. */
static inline void trits(const uint8_t *restrict q, int n, uint8_t pow3, int8_t *restrict c) {
    for (int i = 0; i < n; i++) {
        uint8_t at_front = (uint8_t)(q[i] * pow3);
        c[i] = (int8_t)(((at_front * 3) >> 8) - 1);
    }
}

/* 32 bytes of five digits are values 0-159 (digit n of byte k is value 32 n + k), 16 bytes of five
 * are 160-239, and four bytes of four are 240-255. */
void pn__unit_tq1_0(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
    const uint8_t *b = pn__block_at(row, unit_i, 54);
    out->d = pn__load_f16(b + 52);
    scales_of_one(out);
    for (int n = 0; n < 5; n++)
        trits(b, 32, pow3[n], out->codes + 32 * n);
    for (int n = 0; n < 5; n++)
        trits(b + 32, 16, pow3[n], out->codes + 160 + 16 * n);
    for (int n = 0; n < 4; n++)
        trits(b + 48, 4, pow3[n], out->codes + 240 + 4 * n);
}

/* Planar in each 32 bytes, as Q2_K. The pattern 3 stands for 2, though no writer makes it. */
void pn__unit_tq2_0(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 66);
    out->d = pn__load_f16(b + 64);
    scales_of_one(out);
    for (int plane = 0; plane < 8; plane++) {
        const uint8_t *q = b + plane / 4 * 32;
        int8_t *restrict c = out->codes + 32 * plane;
        int shift = plane % 4 * 2;
        for (int i = 0; i < 32; i++)
            c[i] = (int8_t)(((q[i] >> shift) & 3) - 1);
    }
}

void pn__unit_q1_0(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i / 4, 18);
    const uint8_t *bits = b + 2 + unit_i % 4 * 4;
    out->d = pn__load_f16(b);
    out->scales[0] = 1;
    for (int k = 0; k < 4; k++)
        pn__store_codes(out->codes + 8 * k, pn__bytes_sub(pn__spread1(bits[k]) << 1, 1));
}

void pn__unit_q2_0(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i / 2, 18);
    const uint8_t *q = b + 2 + unit_i % 2 * 8;
    out->d = pn__load_f16(b);
    out->scales[0] = 1;
    for (int k = 0; k < 4; k++) {
        uint64_t pairs = pn__spread2(pn__load_u16(q + 2 * k));
        pn__store_codes(out->codes + 8 * k, pn__bytes_sub(pairs, 1));
    }
}
