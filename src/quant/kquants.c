/* K-quants: blocks of 256 whose runs of 16 or 32 values have small integer scales (and, for Q2_K,
 * Q4_K and Q5_K, minimums) under one half each.
 *
 * Layouts (bytes):
 *     Q2_K  scales[16] q[64] d[2] dmin[2]          Q4_K  d[2] dmin[2] scales[12] q[128]
 *     Q3_K  high[32] q[64] scales[12] d[2]         Q5_K  d[2] dmin[2] scales[12] high[32] q[128]
 *     Q6_K  low[128] high[64] scales[16] d[2]
 * All are planar: within 32 bytes of q the lowest bits of every byte are 32 neighbours, the next
 * bits the next 32. Bit s of high[k] belongs to value k of the s-th 32 (Q3_K, Q5_K). */
#include "quant/bits.h"
#include "quant/unit.h"

/* Eight 6-bit scales and minimums in 12 bytes: the first four of each lie in the low bits of bytes
 * 0-3 and 4-7; of the last four the low nibbles are in bytes 8-11 (scale low, minimum high) and the
 * top two bits above the first four's. */
static inline void scales_of_12(const uint8_t *restrict s, struct pn_unit *restrict out) {
    for (int i = 0; i < 4; i++) {
        out->scales[i] = s[i] & 63;
        out->mins[i] = s[i + 4] & 63;
        out->scales[i + 4] = (int16_t)((s[i + 8] & 15) | (s[i] >> 6) << 4);
        out->mins[i + 4] = (int16_t)((s[i + 8] >> 4) | (s[i + 4] >> 6) << 4);
    }
}

void pn__unit_q2_k(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 84);
    out->d = pn__load_f16(b + 80);
    out->dmin = pn__load_f16(b + 82);
    for (int i = 0; i < 16; i++) {
        out->scales[i] = b[i] & 15;
        out->mins[i] = b[i] >> 4;
    }
    const uint8_t *q = b + 16;
    int8_t *restrict c = out->codes;
    for (int half = 0; half < 2; half++, q += 32, c += 128) {
        for (int i = 0; i < 32; i++)
            c[i] = q[i] & 3;
        for (int i = 0; i < 32; i++)
            c[i + 32] = (q[i] >> 2) & 3;
        for (int i = 0; i < 32; i++)
            c[i + 64] = (q[i] >> 4) & 3;
        for (int i = 0; i < 32; i++)
            c[i + 96] = (int8_t)(q[i] >> 6);
    }
}

/* 16 scales of 6 bits, 32 too high: low nibbles in bytes 0-7 (scales 0-7 low, 8-15 high), the top
 * two bits of scale i in byte 8 + i % 4 at bit 2 * (i / 4). */
static inline void q3_k_scales(const uint8_t *restrict s, int16_t *restrict scales) {
    for (int i = 0; i < 16; i++) {
        int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
        int high = (s[8 + i % 4] >> (2 * (i / 4))) & 3;
        scales[i] = (int16_t)((low | high << 4) - 32);
    }
}

/* One plane of 32 codes: two low bits at `shift`, and -4 where bit `plane` of `high` is clear. */
static inline void q3_k_plane(const uint8_t *restrict q, const uint8_t *restrict high, int shift,
                              int plane, int8_t *restrict c) {
    for (int i = 0; i < 32; i++) {
        int top = ((high[i] >> plane) & 1) << 2;
        c[i] = (int8_t)((((q[i] >> shift) & 3) | top) - 4);
    }
}

void pn__unit_q3_k(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 110);
    out->d = pn__load_f16(b + 108);
    q3_k_scales(b + 96, out->scales);
    for (int plane = 0; plane < 8; plane++)
        q3_k_plane(b + 32 + plane / 4 * 32, b, plane % 4 * 2, plane, out->codes + plane * 32);
}

void pn__unit_q4_k(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 144);
    out->d = pn__load_f16(b);
    out->dmin = pn__load_f16(b + 2);
    scales_of_12(b + 4, out);
    const uint8_t *q = b + 16;
    int8_t *restrict c = out->codes;
    for (int pair = 0; pair < 4; pair++, q += 32, c += 64) {
        for (int i = 0; i < 32; i++)
            c[i] = q[i] & 15;
        for (int i = 0; i < 32; i++)
            c[i + 32] = (int8_t)(q[i] >> 4);
    }
}

void pn__unit_q5_k(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 176);
    out->d = pn__load_f16(b);
    out->dmin = pn__load_f16(b + 2);
    scales_of_12(b + 4, out);
    const uint8_t *high = b + 16, *q = b + 48;
    int8_t *restrict c = out->codes;
    for (int pair = 0; pair < 4; pair++, q += 32, c += 64) {
        int bit = 2 * pair;
        for (int i = 0; i < 32; i++) {
            c[i] = (int8_t)((q[i] & 15) | ((high[i] >> bit) & 1) << 4);
            c[i + 32] = (int8_t)((q[i] >> 4) | ((high[i] >> (bit + 1)) & 1) << 4);
        }
    }
}

void pn__unit_q6_k(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 210);
    out->d = pn__load_f16(b + 208);
    for (int i = 0; i < 16; i++)
        out->scales[i] = (int8_t)b[192 + i];
    const uint8_t *low = b, *high = b + 128;
    int8_t *restrict c = out->codes;
    for (int half = 0; half < 2; half++, low += 64, high += 32, c += 128) {
        for (int i = 0; i < 32; i++) {
            c[i] = (int8_t)(((low[i] & 15) | (high[i] & 3) << 4) - 32);
            c[i + 32] = (int8_t)(((low[i + 32] & 15) | ((high[i] >> 2) & 3) << 4) - 32);
            c[i + 64] = (int8_t)(((low[i] >> 4) | ((high[i] >> 4) & 3) << 4) - 32);
            c[i + 96] = (int8_t)(((low[i + 32] >> 4) | (high[i] >> 6) << 4) - 32);
        }
    }
}
