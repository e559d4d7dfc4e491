/* wide.h in registers of NEON. Unlike x86's, its maximum passes a NaN on: where a comparison is
 * promised it is written out. */
#ifndef PN_OPS_CPU_WIDE_NEON_H
#define PN_OPS_CPU_WIDE_NEON_H

#include <arm_neon.h>

struct w16 {
    float32x4_t v[4];
};

struct d8 {
    float64x2_t v[4];
};

typedef float32x4_t f4;
typedef int8x16_t c16;
typedef struct {
    uint16x8_t v[2];
} h16;

/* out.v[i] = expression of i. */
#define W16_EACH(type, expression)  \
    do {                            \
        type out;                   \
        for (int i = 0; i < 4; i++) \
            out.v[i] = expression;  \
        return out;                 \
    } while (0)

INLINE struct w16 w16_set(float f) {
    W16_EACH(struct w16, vdupq_n_f32(f));
}

INLINE struct w16 w16_load(const float *p) {
    W16_EACH(struct w16, vld1q_f32(p + 4 * i));
}

INLINE void w16_store(float *p, struct w16 x) {
    for (int i = 0; i < 4; i++)
        vst1q_f32(p + 4 * i, x.v[i]);
}

INLINE struct w16 w16_load_n(const float *p, uint32_t n) {
    float all[16] = {0};
    memcpy(all, p, n * sizeof *p);
    return w16_load(all);
}

INLINE void w16_store_n(float *p, struct w16 x, uint32_t n) {
    float all[16];
    w16_store(all, x);
    memcpy(p, all, n * sizeof *p);
}

INLINE struct w16 w16_add(struct w16 a, struct w16 b) {
    W16_EACH(struct w16, vaddq_f32(a.v[i], b.v[i]));
}

INLINE struct w16 w16_sub(struct w16 a, struct w16 b) {
    W16_EACH(struct w16, vsubq_f32(a.v[i], b.v[i]));
}

INLINE struct w16 w16_mul(struct w16 a, struct w16 b) {
    W16_EACH(struct w16, vmulq_f32(a.v[i], b.v[i]));
}

INLINE struct w16 w16_div(struct w16 a, struct w16 b) {
    W16_EACH(struct w16, vdivq_f32(a.v[i], b.v[i]));
}

INLINE struct w16 w16_fma(struct w16 a, struct w16 b, struct w16 c) {
    W16_EACH(struct w16, vfmaq_f32(c.v[i], a.v[i], b.v[i]));
}

INLINE struct w16 w16_fms(struct w16 a, struct w16 b, struct w16 c) {
    W16_EACH(struct w16, vfmaq_f32(vnegq_f32(c.v[i]), a.v[i], b.v[i]));
}

INLINE void w16_unzip(const float *p, struct w16 *even, struct w16 *odd) {
    for (int i = 0; i < 4; i++, p += 8) {
        float32x4x2_t x = vld2q_f32(p);
        even->v[i] = x.val[0];
        odd->v[i] = x.val[1];
    }
}

INLINE float32x4_t w16_turn4(float32x4_t x, float32x4_t by) {
    const uint64x2_t minus_even = vdupq_n_u64(0x80000000u);
    float32x4_t swapped = vmulq_f32(vtrn2q_f32(x, x), vrev64q_f32(by));
    swapped = vreinterpretq_f32_u64(veorq_u64(vreinterpretq_u64_f32(swapped), minus_even));
    return vfmaq_f32(swapped, vtrn1q_f32(x, x), by);
}

INLINE struct w16 w16_turn(struct w16 x, struct w16 by) {
    W16_EACH(struct w16, w16_turn4(x.v[i], by.v[i]));
}

INLINE f4 w16_quarter(struct w16 x) {
    return vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
}

#define W16_BITS uint32x4_t
#define W16_NO_BITS vdupq_n_u32(0)

INLINE uint32x4_t w16_max_bits(uint32x4_t max, struct w16 x) {
    for (int i = 0; i < 4; i++)
        max = vmaxq_u32(max, vreinterpretq_u32_f32(vabsq_f32(x.v[i])));
    return max;
}

INLINE uint32_t w16_top_bits(uint32x4_t max) {
    return vmaxvq_u32(max);
}

INLINE c16 w16_codes(struct w16 x) {
    int16x8_t half[2];
    for (int i = 0; i < 2; i++)
        half[i] = vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(x.v[2 * i])),
                               vqmovn_s32(vcvtnq_s32_f32(x.v[2 * i + 1])));
    return vcombine_s8(vqmovn_s16(half[0]), vqmovn_s16(half[1]));
}

INLINE h16 w16_to_halves(struct w16 x) {
    h16 out;
    for (int i = 0; i < 2; i++)
        out.v[i] = vcombine_u16(vreinterpret_u16_f16(vcvt_f16_f32(x.v[2 * i])),
                                vreinterpret_u16_f16(vcvt_f16_f32(x.v[2 * i + 1])));
    return out;
}

INLINE struct w16 w16_of_halves(h16 h) {
    struct w16 out;
    for (int i = 0; i < 2; i++) {
        out.v[2 * i] = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(h.v[i])));
        out.v[2 * i + 1] = vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(h.v[i])));
    }
    return out;
}

INLINE struct w16 w16_if_le(struct w16 a, struct w16 b, struct w16 yes, struct w16 no) {
    W16_EACH(struct w16, vbslq_f32(vcleq_f32(a.v[i], b.v[i]), yes.v[i], no.v[i]));
}

INLINE struct w16 w16_max(struct w16 a, struct w16 b) {
    W16_EACH(struct w16, vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]));
}

INLINE uint32_t w16_less(struct w16 a, struct w16 b) {
    const uint32x4_t lane = {1, 2, 4, 8};
    uint32_t mask = 0;
    for (int i = 0; i < 4; i++)
        mask |= vaddvq_u32(vandq_u32(vcltq_f32(a.v[i], b.v[i]), lane)) << (4 * i);
    return mask;
}

INLINE struct w16 w16_between(struct w16 x, uint32_t lo, uint32_t hi, struct w16 other) {
    const uint32x4_t first = {0, 1, 2, 3};
    for (uint32_t i = 0; i < 4; i++) {
        uint32x4_t lane = vaddq_u32(first, vdupq_n_u32(4 * i));
        uint32x4_t in =
            vandq_u32(vcgeq_u32(lane, vdupq_n_u32(lo)), vcleq_u32(lane, vdupq_n_u32(hi)));
        x.v[i] = vbslq_f32(in, x.v[i], other.v[i]);
    }
    return x;
}

INLINE struct w16 w16_of_codes(c16 c) {
    int16x8_t half[2] = {vmovl_s8(vget_low_s8(c)), vmovl_high_s8(c)};
    struct w16 out;
    for (int i = 0; i < 2; i++) {
        out.v[2 * i] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(half[i])));
        out.v[2 * i + 1] = vcvtq_f32_s32(vmovl_high_s16(half[i]));
    }
    return out;
}

/* Four rows of four. */
INLINE void w16_transpose4(const float32x4_t r[4], float32x4_t out[4]) {
    float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1]));
    float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3]));
    float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
    out[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    out[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    out[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    out[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

INLINE void w16_transpose(const struct w16 r[16], struct w16 out[16]) {
#pragma GCC unroll 16
    for (int part = 0; part < 16; part++) { /* rows 4 * down …, columns 4 * right … */
        int down = part / 4, right = part % 4;
        float32x4_t x[4], y[4];
        for (int i = 0; i < 4; i++)
            x[i] = r[4 * down + i].v[right];
        w16_transpose4(x, y);
        for (int i = 0; i < 4; i++)
            out[4 * right + i].v[down] = y[i];
    }
}

INLINE struct w16 w16_quarters(const struct w16 x[4]) {
    W16_EACH(struct w16, w16_quarter(x[i]));
}

INLINE f4 f4_ones(f4 a, f4 b, f4 c, f4 d) {
    f4 x[4] = {a, b, c, d}, y[4];
    w16_transpose4(x, y);
    return vaddq_f32(vaddq_f32(y[0], y[2]), vaddq_f32(y[1], y[3]));
}

INLINE struct w16 w16_ones(const struct w16 x[4]) {
    W16_EACH(struct w16, f4_ones(x[0].v[i], x[1].v[i], x[2].v[i], x[3].v[i]));
}

INLINE float w16_top(struct w16 x) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.v[0], x.v[1]), vmaxq_f32(x.v[2], x.v[3])));
}

INLINE float w16_sum(struct w16 x) {
    f4 q = w16_quarter(x);
    float32x2_t two = vadd_f32(vget_low_f32(q), vget_high_f32(q));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

INLINE f4 w16_sum4(const struct w16 x[4]) {
    return f4_ones(w16_quarter(x[0]), w16_quarter(x[1]), w16_quarter(x[2]), w16_quarter(x[3]));
}

/* ---- doubles ---- */

INLINE void d8_store(double *p, struct d8 x) {
    for (int i = 0; i < 4; i++)
        vst1q_f64(p + 2 * i, x.v[i]);
}

INLINE void w16_to_d8(struct w16 x, struct d8 out[2]) {
    for (int i = 0; i < 4; i++) {
        out[i / 2].v[i % 2 * 2] = vcvt_f64_f32(vget_low_f32(x.v[i]));
        out[i / 2].v[i % 2 * 2 + 1] = vcvt_high_f64_f32(x.v[i]);
    }
}

INLINE struct w16 w16_of_d8(const struct d8 x[2]) {
    W16_EACH(struct w16,
             vcvt_high_f32_f64(vcvt_f32_f64(x[i / 2].v[i % 2 * 2]), x[i / 2].v[i % 2 * 2 + 1]));
}

INLINE struct d8 d8_set(double x) {
    W16_EACH(struct d8, vdupq_n_f64(x));
}

INLINE struct d8 d8_add(struct d8 a, struct d8 b) {
    W16_EACH(struct d8, vaddq_f64(a.v[i], b.v[i]));
}

INLINE struct d8 d8_sub(struct d8 a, struct d8 b) {
    W16_EACH(struct d8, vsubq_f64(a.v[i], b.v[i]));
}

INLINE struct d8 d8_mul(struct d8 a, struct d8 b) {
    W16_EACH(struct d8, vmulq_f64(a.v[i], b.v[i]));
}

INLINE struct d8 d8_div(struct d8 a, struct d8 b) {
    W16_EACH(struct d8, vdivq_f64(a.v[i], b.v[i]));
}

INLINE struct d8 d8_fma(struct d8 a, struct d8 b, struct d8 c) {
    W16_EACH(struct d8, vfmaq_f64(c.v[i], a.v[i], b.v[i]));
}

INLINE struct d8 d8_if_less(struct d8 a, struct d8 b, struct d8 yes, struct d8 no) {
    W16_EACH(struct d8, vbslq_f64(vcltq_f64(a.v[i], b.v[i]), yes.v[i], no.v[i]));
}

INLINE struct d8 d8_minus_abs(struct d8 x) {
    W16_EACH(struct d8, vnegq_f64(vabsq_f64(x.v[i])));
}

INLINE struct d8 d8_two_to(struct d8 x) {
    W16_EACH(struct d8, vreinterpretq_f64_s64(vshlq_n_s64(
                            vaddq_s64(vreinterpretq_s64_f64(x.v[i]), vdupq_n_s64(1023)), 52)));
}

INLINE uint32_t d8_none_of(struct d8 x, int64_t add, int64_t mask) {
    uint32_t none = 0;
    for (int i = 0; i < 4; i++) {
        int64x2_t bits = vaddq_s64(vreinterpretq_s64_f64(x.v[i]), vdupq_n_s64(add));
        uint64x2_t zero = vceqzq_s64(vandq_s64(bits, vdupq_n_s64(mask)));
        none |= ((uint32_t)vgetq_lane_u64(zero, 0) & 1) << (2 * i) |
                ((uint32_t)vgetq_lane_u64(zero, 1) & 1) << (2 * i + 1);
    }
    return none;
}

/* ---- small ones ---- */

INLINE f4 f4_set(float f) {
    return vdupq_n_f32(f);
}

INLINE f4 f4_load(const float *p) {
    return vld1q_f32(p);
}

INLINE void f4_store(float *p, f4 x) {
    vst1q_f32(p, x);
}

INLINE f4 f4_sub(f4 a, f4 b) {
    return vsubq_f32(a, b);
}

INLINE f4 f4_mul(f4 a, f4 b) {
    return vmulq_f32(a, b);
}

INLINE c16 c16_load(const uint8_t *p) {
    return vreinterpretq_s8_u8(vld1q_u8(p));
}

INLINE void c16_store(void *p, c16 c) {
    vst1q_s8(p, c);
}

INLINE int16_t c16_sum(c16 c) {
    return vaddlvq_s8(c);
}

INLINE c16 c16_lookup(const int8_t table[16], const uint8_t *p) {
    uint8x8_t bytes = vld1_u8(p);
    uint8x8_t even = vand_u8(bytes, vdup_n_u8(15)), odd = vshr_n_u8(bytes, 4);
    return vqtbl1q_s8(vld1q_s8(table), vcombine_u8(vzip1_u8(even, odd), vzip2_u8(even, odd)));
}

INLINE h16 h16_set(uint16_t h) {
    return (h16){{vdupq_n_u16(h), vdupq_n_u16(h)}};
}

INLINE h16 h16_load(const uint8_t *p) {
    return (h16){{vreinterpretq_u16_u8(vld1q_u8(p)), vreinterpretq_u16_u8(vld1q_u8(p + 16))}};
}

INLINE void h16_store(uint8_t *p, h16 h) {
    vst1q_u8(p, vreinterpretq_u8_u16(h.v[0]));
    vst1q_u8(p + 16, vreinterpretq_u8_u16(h.v[1]));
}

#endif
