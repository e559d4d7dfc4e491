/* Vectors made smaller: inputs of matmuls to int8, K and V to what pages store. */
#include <math.h>

#include "ops/cpu/math.h"
#include "ops/cpu/wide.h"

/* pn__quant_block of lanes.h: the scale of a block with this maximum, and what its values are
 * multiplied by. 0 where all codes are. */
INLINE float scale_of(uint32_t am_bits, float *d) {
    float am = pn__bits_float(am_bits);
    if (am_bits >= 0x7f800000u || am < 0x1p-100f) {
        *d = am_bits >= 0x7f800000u ? NAN : 0.0f;
        return 0.0f;
    }
    *d = am / 127.0f;
    return 127.0f / am;
}

/* block_n, a constant where this is inlined, values to codes and their sums: the scale. */
INLINE float quant_block(const float *x, int8_t *q, int16_t *sums, uint32_t block_n) {
    W16_BITS max = W16_NO_BITS;
    float d;
    for (uint32_t i = 0; i < block_n; i += 16)
        max = w16_max_bits(max, w16_load(x + i));
    float id = scale_of(w16_top_bits(max), &d);
    if (id == 0.0f) {
        memset(q, 0, block_n);
        memset(sums, 0, block_n / PN_ACT_SUM_LEN * sizeof *sums);
        return d;
    }
    for (uint32_t i = 0; i < block_n; i += 16) {
        c16 codes = w16_codes(w16_mul(w16_load(x + i), w16_set(id)));
        c16_store(q + i, codes);
        sums[i / PN_ACT_SUM_LEN] = c16_sum(codes);
    }
    return d;
}

INLINE void prepare_blocks(const struct pn_acts *a, uint32_t block_n, uint32_t lo, uint32_t hi) {
    for (uint32_t m = lo; m < hi; m++) {
        const float *x = a->x + m * a->x_stride;
        uint64_t at = pn__act_at(a, a->col_n / block_n, 0, m);
        uint32_t step = pn__act_step(a, m);
        for (uint32_t k = 0; k < a->col_n; k += block_n, at += step)
            a->d[at] = quant_block(x + k, a->q + at * block_n,
                                   a->sums + at * (block_n / PN_ACT_SUM_LEN), block_n);
    }
}

static void prepare_q32(const struct pn_acts *a, uint32_t lo, uint32_t hi) {
    prepare_blocks(a, 32, lo, hi);
}

static void prepare_q256(const struct pn_acts *a, uint32_t lo, uint32_t hi) {
    prepare_blocks(a, 256, lo, hi);
}

/* ---- pages ---- */

static void store_f16(const float *x, uint8_t *row, uint32_t dim) {
    uint32_t i = 0;
    for (; i + 16 <= dim; i += 16)
        h16_store(row + 2 * (size_t)i, w16_to_halves(w16_load(x + i)));
    if (i < dim) {
        h16 last = w16_to_halves(w16_load_n(x + i, dim - i));
        memcpy(row + 2 * (size_t)i, &last, 2 * (size_t)(dim - i));
    }
}

/* n <= 32 values, a block or the last one cut short. */
INLINE float quant_part(const float *x, int8_t *q, uint32_t n) {
    uint32_t low_n = n < 16 ? n : 16;
    struct w16 low = w16_load_n(x, low_n), high = w16_load_n(x + low_n, n - low_n);
    float d;
    float id = scale_of(w16_top_bits(w16_max_bits(w16_max_bits(W16_NO_BITS, low), high)), &d);
    c16 codes[2] = {w16_codes(w16_mul(low, w16_set(id))), w16_codes(w16_mul(high, w16_set(id)))};
    if (id == 0.0f) memset(codes, 0, sizeof codes); /* of NaN they are not */
    memcpy(q, codes, n);
    return d;
}

static void store_q8_0(const float *x, uint8_t *row, uint32_t dim) {
    uint32_t block_n = (dim + 31) / 32;
    for (uint32_t b = 0; b < block_n; b++) {
        uint32_t n = dim - b * 32;
        int8_t *q = (int8_t *)row + 2 * (size_t)block_n + b * 32;
        float d = n < 32 ? quant_part(x + b * 32, q, n) : quant_part(x + b * 32, q, 32);
        uint16_t half = pn__f32_to_f16(d);
        memcpy(row + 2 * (size_t)b, &half, sizeof half);
    }
}

void PN_K(init_wide_quant)(struct pn_kernels *k) {
    k->prepare[PN_ACT_Q32] = prepare_q32;
    k->prepare[PN_ACT_Q256] = prepare_q256;
    k->kv_store[PN_KV_F16] = store_f16;
    k->kv_store[PN_KV_Q8_0] = store_q8_0;
}
