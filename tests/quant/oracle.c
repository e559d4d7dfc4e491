#include "quant/oracle.h"

#include <math.h>
#include <string.h>

#include "quant/iq_tables.h"

double oracle_half(unsigned bits) {
    double sign = bits & 0x8000 ? -1 : 1;
    int exp = (bits >> 10) & 31;
    double man = bits & 1023;
    if (exp == 31) return man != 0 ? NAN : sign * INFINITY;
    if (exp == 0) return sign * ldexp(man, -24);
    return sign * ldexp(1024 + man, exp - 25);
}

uint64_t oracle_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t oracle_ulps(float a, float b) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b) ? 0 : UINT32_MAX;
    int32_t x, y;
    memcpy(&x, &a, 4);
    memcpy(&y, &b, 4);
    int64_t px = x < 0 ? INT32_MIN - (int64_t)x : x;
    int64_t py = y < 0 ? INT32_MIN - (int64_t)y : y;
    int64_t apart = px - py;
    return (uint32_t)(apart < 0 ? -apart : apart);
}

static double half_at(const uint8_t *p) {
    return oracle_half(p[0] | (unsigned)p[1] << 8);
}

/* `n` bits at bit position `at` of a little-endian bit string. */
static unsigned bits_at(const uint8_t *p, unsigned at, unsigned n) {
    unsigned v = 0;
    for (unsigned k = 0; k < n; k++)
        v |= (unsigned)(p[(at + k) / 8] >> ((at + k) % 8) & 1) << k;
    return v;
}

static unsigned nibble_of_32(const uint8_t *q, unsigned i) {
    return bits_at(q, i % 16 * 8 + i / 16 * 4, 4);
}

static double e2m1(unsigned n) {
    static const double mags[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return (n & 8 ? -1 : 1) * mags[n & 7];
}

static double e4m3(unsigned e) {
    int exp = (e >> 3) & 15;
    double man = e & 7;
    if (e == 0x7f) return 0;
    return exp == 0 ? ldexp(man, -9) : ldexp(8 + man, exp - 10);
}

static double legacy(enum pn_type type, const uint8_t *b, unsigned i) {
    double d = half_at(b), m = half_at(b + 2);
    switch (type) {
    case PN_TYPE_Q4_0:
        return d * ((int)nibble_of_32(b + 2, i) - 8);
    case PN_TYPE_Q4_1:
        return d * nibble_of_32(b + 4, i) + m;
    case PN_TYPE_Q5_0:
        return d * ((int)(nibble_of_32(b + 6, i) + 16 * bits_at(b + 2, i, 1)) - 16);
    case PN_TYPE_Q5_1:
        return d * (nibble_of_32(b + 8, i) + 16 * bits_at(b + 4, i, 1)) + m;
    case PN_TYPE_Q8_0:
        return d * (int8_t)b[2 + i];
    case PN_TYPE_Q1_0:
        return bits_at(b + 2, i, 1) ? d : -d;
    case PN_TYPE_Q2_0:
        return d * ((int)bits_at(b + 2, 2 * i, 2) - 1);
    case PN_TYPE_IQ4_NL:
        return d * pn__iq4_values[nibble_of_32(b + 2, i)];
    case PN_TYPE_MXFP4:
        return ldexp(e2m1(nibble_of_32(b + 1, i)), b[0] - 127);
    case PN_TYPE_NVFP4:
        return e4m3(b[i / 16]) * e2m1(bits_at(b + 4 + i / 16 * 8, i % 8 * 8 + i % 16 / 8 * 4, 4));
    default:
        return NAN;
    }
}

/* Two bits of a planar q: 32 bytes hold 128 values. */
static unsigned pair_of_256(const uint8_t *q, unsigned i) {
    return bits_at(q + i / 128 * 32, i % 32 * 8 + i % 128 / 32 * 2, 2);
}

static unsigned nibble_of_256(const uint8_t *q, unsigned i) {
    return bits_at(q + i / 64 * 32, i % 32 * 8 + i % 64 / 32 * 4, 4);
}

/* Scale and minimum of 32-run s (Q4_K, Q5_K) out of 12 bytes. */
static void scale_min(const uint8_t *p, unsigned s, unsigned *scale, unsigned *min) {
    if (s < 4) {
        *scale = p[s] % 64;
        *min = p[s + 4] % 64;
    } else {
        *scale = p[s + 4] % 16 + p[s - 4] / 64 * 16;
        *min = p[s + 4] / 16 + p[s] / 64 * 16;
    }
}

static double kquant(enum pn_type type, const uint8_t *b, unsigned i) {
    unsigned scale, min;
    switch (type) {
    case PN_TYPE_Q2_K:
        return half_at(b + 80) * (b[i / 16] % 16) * pair_of_256(b + 16, i) -
               half_at(b + 82) * (b[i / 16] / 16);
    case PN_TYPE_Q3_K: {
        const uint8_t *s = b + 96;
        unsigned run = i / 16;
        int l = (int)(bits_at(s, run % 8 * 8 + run / 8 * 4, 4) +
                      16 * bits_at(s + 8, run % 4 * 8 + run / 4 * 2, 2)) -
                32;
        int q = (int)pair_of_256(b + 32, i) - (bits_at(b, i % 32 * 8 + i / 32, 1) ? 0 : 4);
        return half_at(b + 108) * l * q;
    }
    case PN_TYPE_Q4_K:
        scale_min(b + 4, i / 32, &scale, &min);
        return half_at(b) * scale * nibble_of_256(b + 16, i) - half_at(b + 2) * min;
    case PN_TYPE_Q5_K:
        scale_min(b + 4, i / 32, &scale, &min);
        return half_at(b) * scale *
                   (nibble_of_256(b + 48, i) + 16 * bits_at(b + 16, i % 32 * 8 + i / 32, 1)) -
               half_at(b + 2) * min;
    case PN_TYPE_Q6_K: {
        unsigned in = i % 128;
        unsigned low = bits_at(b + i / 128 * 64, in % 64 * 8 + in / 64 * 4, 4);
        unsigned high = bits_at(b + 128 + i / 128 * 32, in % 32 * 8 + in / 32 * 2, 2);
        return half_at(b + 208) * (int8_t)b[192 + i / 16] * ((int)(low + 16 * high) - 32);
    }
    case PN_TYPE_TQ1_0: {
        unsigned at = i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4;
        unsigned digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
        unsigned q = b[at];
        while (digit-- > 0)
            q = q * 3 % 256;
        return half_at(b + 52) * ((int)(q * 3 / 256) - 1);
    }
    case PN_TYPE_TQ2_0:
        return half_at(b + 64) * ((int)pair_of_256(b, i) - 1);
    default:
        return NAN;
    }
}

static double sign_if(unsigned bit) {
    return bit ? -1 : 1;
}

/* Sign of value k of 8 when only seven are stored and their number is even. */
static double even_sign(unsigned seven, unsigned k) {
    unsigned n = 0;
    for (unsigned j = 0; j < 7; j++)
        n += seven >> j & 1;
    return sign_if(k < 7 ? seven >> k & 1 : n & 1);
}

static double iq2_value(unsigned entry, unsigned k) {
    static const double values[4] = {8, 25, 43, NAN};
    return values[entry >> (2 * k) & 3];
}

static double iq1(enum pn_type type, const uint8_t *b, unsigned i) {
    unsigned g = i / 8, index, minus, l;
    double d;
    if (type == PN_TYPE_IQ1_S) {
        const uint8_t *high = b + 34 + i / 32 * 2;
        index = b[2 + g] + 256 * bits_at(high, g % 4 * 3, 3);
        l = bits_at(high, 12, 3);
        minus = bits_at(high, 15, 1);
        d = half_at(b);
    } else {
        const uint8_t *s = b + 48;
        index = b[g] + 256 * bits_at(b + 32, 4 * g, 3);
        minus = bits_at(b + 32, 4 * g + 3, 1);
        l = bits_at(s, i / 64 * 16 + i / 16 % 4 * 3, 3);
        d = oracle_half(s[1] / 16u + s[3] / 16u * 16 + s[5] / 16u * 256 + s[7] / 16u * 4096);
    }
    int v = (int)(pn__iq1_grid[index] >> (2 * (i % 8)) & 3) - 1;
    return d * (2 * l + 1) * (v + (minus ? -0.125 : 0.125));
}

static double iquant(enum pn_type type, const uint8_t *b, unsigned i) {
    static const double xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    unsigned g = i / 8, k = i % 8, run = i / 32, quad = i / 4;
    double d = half_at(b);
    switch (type) {
    case PN_TYPE_IQ1_S:
    case PN_TYPE_IQ1_M:
        return iq1(type, b, i);
    case PN_TYPE_IQ2_XXS: {
        const uint8_t *p = b + 2 + run * 8;
        return d * (0.5 + bits_at(p + 4, 28, 4)) * 0.25 * iq2_value(pn__iq2_xxs_grid[p[g % 4]], k) *
               even_sign(bits_at(p + 4, g % 4 * 7, 7), k);
    }
    case PN_TYPE_IQ2_XS:
        return d * (0.5 + bits_at(b + 66, i / 16 * 4, 4)) * 0.25 *
               iq2_value(pn__iq2_xs_grid[bits_at(b + 2, g * 16, 9)], k) *
               even_sign(bits_at(b + 2, g * 16 + 9, 7), k);
    case PN_TYPE_IQ2_S:
        return d * (0.5 + bits_at(b + 74, i / 16 * 4, 4)) * 0.25 *
               iq2_value(pn__iq2_s_grid[b[2 + g] + 256 * bits_at(b + 66, 2 * g, 2)], k) *
               sign_if(bits_at(b + 34, i, 1));
    case PN_TYPE_IQ3_XXS:
        return d * (0.5 + bits_at(b + 66, run * 32 + 28, 4)) * 0.5 *
               xxs[pn__iq3_xxs_grid[b[2 + quad]] >> (3 * (i % 4)) & 7] *
               even_sign(bits_at(b + 66, run * 32 + g % 4 * 7, 7), k);
    case PN_TYPE_IQ3_S: {
        unsigned entry = pn__iq3_s_grid[b[2 + quad] + 256 * bits_at(b + 66, quad, 1)];
        return d * (1 + 2 * bits_at(b + 106, run * 4, 4)) * (1 + 2 * (entry >> (3 * (i % 4)) & 7)) *
               sign_if(bits_at(b + 74, i, 1));
    }
    case PN_TYPE_IQ4_XS: {
        int l = (int)(bits_at(b + 4, run * 4, 4) + 16 * bits_at(b + 2, run * 2, 2)) - 32;
        return d * l * pn__iq4_values[nibble_of_32(b + 8 + run * 16, i % 32)];
    }
    default:
        return NAN;
    }
}

double oracle_value(enum pn_type type, const uint8_t *b, unsigned i) {
    switch (type) {
    case PN_TYPE_Q4_0:
    case PN_TYPE_Q4_1:
    case PN_TYPE_Q5_0:
    case PN_TYPE_Q5_1:
    case PN_TYPE_Q8_0:
    case PN_TYPE_Q1_0:
    case PN_TYPE_Q2_0:
    case PN_TYPE_IQ4_NL:
    case PN_TYPE_MXFP4:
    case PN_TYPE_NVFP4:
        return legacy(type, b, i);
    case PN_TYPE_Q2_K:
    case PN_TYPE_Q3_K:
    case PN_TYPE_Q4_K:
    case PN_TYPE_Q5_K:
    case PN_TYPE_Q6_K:
    case PN_TYPE_TQ1_0:
    case PN_TYPE_TQ2_0:
        return kquant(type, b, i);
    default:
        return iquant(type, b, i);
    }
}
