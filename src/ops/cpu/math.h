/* The engine's own exponential and what follows from it.
 *
 * All of it is computed in double by plain additions, multiplications and divisions and rounded to
 * float once, so it is within 0.51 ulp, needs no fused multiply-add to be fast on an old machine,
 * and gives the same bits at every level: IEEE 754 defines each step. No libm.
 *
 * A NaN goes in and comes out. exp and softplus of +inf are +inf; silu and gelu of -inf are NaN, as
 * an infinite hidden value must not vanish.
 */
#ifndef PN_OPS_CPU_MATH_H
#define PN_OPS_CPU_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t pn__float_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float pn__bits_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* exp to a relative error below 2^-42. Beyond +-700 infinity and 0: far outside float's range. */
static inline double pn__exp_d(double x) {
    /* Adding 1.5 * 2^52 leaves the nearest integer in the low bits of the sum. */
    const double magic = 6755399441055744.0;
    double in = x > 700.0 ? 700.0 : x;
    in = in < -700.0 ? -700.0 : in;
    double shifted = in * 1.4426950408889634 + magic;
    double n = shifted - magic;
    /* ln 2 in two parts; the first has 20 low bits clear, so n times it is exact. */
    double r = (in - n * 0x1.62e42fefp-1) - n * 0x1.473de6af278edp-34;
    /* Taylor: |r| <= ln 2 / 2, and r^12 / 12! is below 2^-46. */
    double p = 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    double two_n;
    memcpy(&two_n, &bits, sizeof two_n);
    double e = p * two_n;
    e = x > 700.0 ? HUGE_VAL : e;
    return x < -700.0 ? 0.0 : e;
}

/* 1 / (1 + exp(-x)), accurate relative to itself for every x. */
static inline double pn__sigmoid_d(double x) {
    double z = pn__exp_d(x < 0.0 ? x : -x);
    return (x < 0.0 ? z : 1.0) / (1.0 + z);
}

/* log(1 + exp(x)). */
static inline double pn__softplus_d(double x) {
    double z = pn__exp_d(x < 0.0 ? x : -x); /* (0, 1] */
    /* log(1 + z) = 2 atanh(s), s = z / (2 + z) <= 1/3; the series ends below 2^-45 relative. */
    double s = z / (2.0 + z);
    double s2 = s * s;
    double p = 1.0 / 27;
    for (int i = 25; i >= 1; i -= 2)
        p = p * s2 + 1.0 / i;
    return (x < 0.0 ? 0.0 : x) + 2.0 * s * p;
}

static inline float pn__exp(float x) {
    return (float)pn__exp_d((double)x);
}

static inline float pn__sigmoid(float x) {
    return (float)pn__sigmoid_d((double)x);
}

static inline float pn__softplus(float x) {
    return (float)pn__softplus_d((double)x);
}

static inline float pn__silu(float x) {
    return (float)((double)x * pn__sigmoid_d((double)x));
}

/* x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x sigmoid(2 u). */
static inline float pn__gelu_tanh(float x) {
    double v = (double)x;
    double u2 = 1.5957691216057308 * (v + 0.044715 * v * v * v);
    return (float)(v * pn__sigmoid_d(u2));
}

/* Rounds to the nearest integer, halves to even; |x| < 2^22. The integer is in the low bits. */
static inline int32_t pn__round_even(float x) {
    return (int32_t)(pn__float_bits(x + 12582912.0f) - 0x4b400000u);
}

#endif
