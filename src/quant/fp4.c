/* Four-bit floats: MXFP4 (blocks of 32 under a power of two) and NVFP4 (blocks of 64, each 16 under
 * a small float of its own).
 *
 * An E2M1 value is 0, 0.5, 1, 1.5, 2, 3, 4 or 6 with a sign. Codes hold twice that and the scale
 * half of what the file says, so both are exact. Layouts (bytes): MXFP4 e[1] q[16]; NVFP4 e[4]
 * q[32], of which q[8s..8s+7] is run s: low nibbles its first half, high nibbles the second. */
#include "quant/bits.h"
#include "quant/unit.h"

static const int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2^(e - 128): half of the E8M0 scale 2^(e - 127). Below e = 2 that is a subnormal float. The
 * pattern 255 is NaN in the standard, but files are read as their writers read them: 2^127. */
static float half_of_e8m0(uint8_t e) {
    return pn__f32_of_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* Half of an unsigned E4M3: bias 7, subnormals in units of 2^-9. Bit 7 is not read; 0x7f (NaN in
 * the standard) is 0. */
static float half_of_e4m3(uint8_t e) {
    if (e == 0x7f) return 0.0f;
    uint32_t exp = (e >> 3) & 15, man = e & 7;
    if (exp == 0) return (float)man * 0x1p-10f;
    return pn__f32_of_bits((exp + 127 - 7 - 1) << 23 | man << 20);
}

void pn__unit_mxfp4(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i, 17);
    out->d = half_of_e8m0(b[0]);
    out->scales[0] = 1;
    for (int i = 0; i < 16; i++) {
        out->codes[i] = e2m1_doubled[b[i + 1] & 15];
        out->codes[i + 16] = e2m1_doubled[b[i + 1] >> 4];
    }
}

void pn__unit_nvfp4(const void *restrict row, uint64_t unit_i, struct pn_unit *restrict out) {
    const uint8_t *b = pn__block_at(row, unit_i / 4, 36);
    unsigned run = unit_i % 4;
    const uint8_t *q = b + 4 + 8 * run;
    out->d = half_of_e4m3(b[run]);
    out->scales[0] = 1;
    for (int i = 0; i < 8; i++) {
        out->codes[i] = e2m1_doubled[q[i] & 15];
        out->codes[i + 8] = e2m1_doubled[q[i] >> 4];
    }
}
