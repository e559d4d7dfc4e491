/* half and bfloat16 conversions, inline for kernels; quant.h has the same as functions.
 * Exact one way, round to nearest even the other, on every bit pattern: subnormals are kept and a
 * NaN stays a quiet NaN with its sign and the payload's upper bits. Integer arithmetic only, so the
 * rounding and flush modes of the processor don't matter. */
#ifndef PN_QUANT_HALF_H
#define PN_QUANT_HALF_H

#include <stdint.h>
#include <string.h>

static inline float pn__f32_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t pn__bits_of_f32(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float pn__half_widen(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exp = (h >> 10) & 0x1fu;
    uint32_t man = h & 0x3ffu;
    if (exp - 1u < 30u) return pn__f32_of_bits(sign | (exp + 112) << 23 | man << 13);
    if (exp == 31) {
        uint32_t quiet = man ? 0x400000u : 0;
        return pn__f32_of_bits(sign | 0x7f800000u | quiet | man << 13);
    }
    if (man == 0) return pn__f32_of_bits(sign);
    /* Subnormal, man * 2^-24: shift the leading one up to bit 10, which is then implied. */
    uint32_t up = (uint32_t)__builtin_clz(man) - 21;
    return pn__f32_of_bits(sign | (113 - up) << 23 | ((man << up) & 0x3ffu) << 13);
}

static inline uint16_t pn__half_narrow(float f) {
    uint32_t bits = pn__bits_of_f32(f);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t mag = bits & 0x7fffffffu;
    if (mag >= 0x7f800000u) {
        uint32_t quiet = mag > 0x7f800000u ? 0x200u | ((mag >> 13) & 0x3ffu) : 0;
        return (uint16_t)(sign | 0x7c00u | quiet);
    }
    if (mag >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* 2^16 and up */
    if (mag >= 0x38800000u) {                                  /* 2^-14 and up: normal */
        /* A carry out of the mantissa raises the exponent, up to infinity where that is right. */
        uint32_t odd = (mag >> 13) & 1u;
        return (uint16_t)(sign | ((mag - 0x38000000u + 0xfffu + odd) >> 13));
    }
    if (mag < 0x33000000u) return (uint16_t)sign; /* below 2^-25 */
    /* Subnormal: units of 2^-24. The value is man * 2^(exp - 150), so shift by 126 - exp, 14..24.
     */
    uint32_t shift = 126 - (mag >> 23);
    uint32_t man = (mag & 0x7fffffu) | 0x800000u;
    uint32_t odd = (man >> shift) & 1u;
    return (uint16_t)(sign | ((man + (1u << (shift - 1)) - 1 + odd) >> shift));
}

static inline float pn__bfloat_widen(uint16_t h) {
    return pn__f32_of_bits((uint32_t)h << 16);
}

static inline uint16_t pn__bfloat_narrow(float f) {
    uint32_t bits = pn__bits_of_f32(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#endif
