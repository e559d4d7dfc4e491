/* Quantisation of rows to F32, F16, BF16, Q8_0 and Q4_0.
 *
 * The rounding is ggml's reference: the scale is found in float, codes are computed with its float
 * reciprocal, and only then the scale is rounded to half; Q8_0 rounds halves away from zero. */
#include <string.h>

#include "quant/bits.h"
#include "quant/quant.h"

#define BLOCK 32
#define F32_INF_BITS 0x7f800000
#define F16_NAN 0x7e00

/* |x| of the largest, as bits: those of finite floats are in the order of their values, and NaN
 * lies above infinity. */
static int32_t max_bits(const float *x) {
    int32_t max = 0;
    for (int i = 0; i < BLOCK; i++) {
        int32_t mag = (int32_t)(pn__bits_of_f32(x[i]) & 0x7fffffffu);
        max = mag > max ? mag : max;
    }
    return max;
}

/* 1 / d, or 0 where d is 0 or so small that the reciprocal would be infinite: the half of such a
 * scale is 0 and so is every value. */
static float reciprocal(float d) {
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    return (pn__bits_of_f32(inverse) & 0x7fffffffu) < F32_INF_BITS ? inverse : 0.0f;
}

static void store_half(uint8_t *to, uint16_t h) {
    memcpy(to, &h, sizeof h);
}

static void quant_q8_0(const float *restrict x, uint8_t *restrict to) {
    int32_t max = max_bits(x);
    if (max >= F32_INF_BITS) {
        store_half(to, F16_NAN);
        memset(to + 2, 0, BLOCK);
        return;
    }
    float d = pn__f32_of_bits((uint32_t)max) / 127.0f;
    float inverse = reciprocal(d);
    store_half(to, pn__half_narrow(d));
    int8_t *restrict codes = (int8_t *)(to + 2);
    for (int i = 0; i < BLOCK; i++) {
        /* |v| is 127 and a rounding at most, so the cast is in range; v - whole is exact. */
        float v = x[i] * inverse;
        int32_t whole = (int32_t)v;
        float rest = v - (float)whole;
        codes[i] = (int8_t)(whole + (rest >= 0.5f) - (rest <= -0.5f));
    }
}

static void quant_q4_0(const float *restrict x, uint8_t *restrict to) {
    int32_t max = max_bits(x);
    if (max >= F32_INF_BITS) {
        store_half(to, F16_NAN);
        memset(to + 2, 0x88, BLOCK / 2);
        return;
    }
    /* The first value of the largest magnitude becomes code 0, that is -8. */
    int first = 0;
    while ((int32_t)(pn__bits_of_f32(x[first]) & 0x7fffffffu) != max)
        first++;
    float d = x[first] / -8.0f;
    float inverse = reciprocal(d);
    store_half(to, pn__half_narrow(d));
    for (int i = 0; i < BLOCK / 2; i++) {
        /* Between 0.5 less a rounding and 16.5: the cast truncates a positive number. */
        int32_t low = (int32_t)(x[i] * inverse + 8.5f);
        int32_t high = (int32_t)(x[i + BLOCK / 2] * inverse + 8.5f);
        low = low < 15 ? low : 15;
        high = high < 15 ? high : 15;
        to[2 + i] = (uint8_t)(low | high << 4);
    }
}

int pn__quant_row(enum pn_type type, const float *src, void *dst, uint64_t col_n) {
    uint8_t *to = dst;
    const struct pn_type_info *info = pn__type_info(type);
    if (!info) return PN_E_UNSUPPORTED;
    if (col_n % info->block_n != 0) return PN_E_INVALID;
    switch (type) {
    case PN_TYPE_F32:
        if (col_n > 0) memcpy(to, src, col_n * sizeof *src);
        return 0;
    case PN_TYPE_F16:
        for (uint64_t i = 0; i < col_n; i++)
            store_half(to + 2 * i, pn__half_narrow(src[i]));
        return 0;
    case PN_TYPE_BF16:
        for (uint64_t i = 0; i < col_n; i++)
            store_half(to + 2 * i, pn__bfloat_narrow(src[i]));
        return 0;
    case PN_TYPE_Q8_0:
        for (uint64_t i = 0; i < col_n / BLOCK; i++)
            quant_q8_0(src + i * BLOCK, to + i * 34);
        return 0;
    case PN_TYPE_Q4_0:
        for (uint64_t i = 0; i < col_n / BLOCK; i++)
            quant_q4_0(src + i * BLOCK, to + i * 18);
        return 0;
    default:
        return PN_E_UNSUPPORTED;
    }
}
