/* The functions of math.h step by step, eight doubles at a time: the same bits. */
#ifndef PN_OPS_CPU_WIDE_MATH_H
#define PN_OPS_CPU_WIDE_MATH_H

#include <math.h>

#include "ops/cpu/wide.h"

/* pn__exp_d. */
INLINE struct d8 d8_exp(struct d8 x) {
    static const double terms[] = {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                                   1.0 / 720,     1.0 / 120,    1.0 / 24,    1.0 / 6,
                                   0.5,           1.0,          1.0};
    const struct d8 magic = d8_set(6755399441055744.0);
    const struct d8 most = d8_set(700.0), least = d8_set(-700.0);
    struct d8 in = d8_if_less(most, x, most, x);
    in = d8_if_less(in, least, least, in);
    struct d8 shifted = d8_add(d8_mul(in, d8_set(1.4426950408889634)), magic);
    struct d8 n = d8_sub(shifted, magic);
    struct d8 r = d8_sub(in, d8_mul(n, d8_set(0x1.62e42fefp-1)));
    r = d8_sub(r, d8_mul(n, d8_set(0x1.473de6af278edp-34)));
    struct d8 p = d8_set(1.0 / 39916800);
#pragma GCC unroll 11
    for (int i = 0; i < 11; i++)
        p = d8_add(d8_mul(p, r), d8_set(terms[i]));
    struct d8 e = d8_mul(p, d8_two_to(shifted));
    e = d8_if_less(most, x, d8_set(HUGE_VAL), e);
    return d8_if_less(x, least, d8_set(0.0), e);
}

/* pn__sigmoid_d. */
INLINE struct d8 d8_sigmoid(struct d8 x) {
    const struct d8 one = d8_set(1.0);
    struct d8 z = d8_exp(d8_minus_abs(x));
    return d8_div(d8_if_less(x, d8_set(0.0), z, one), d8_add(one, z));
}

/* pn__softplus_d. */
INLINE struct d8 d8_softplus(struct d8 x) {
    const struct d8 zero = d8_set(0.0);
    struct d8 z = d8_exp(d8_minus_abs(x));
    struct d8 s = d8_div(z, d8_add(d8_set(2.0), z));
    struct d8 s2 = d8_mul(s, s);
    struct d8 p = d8_set(1.0 / 27);
#pragma GCC unroll 13
    for (int i = 25; i >= 1; i -= 2)
        p = d8_add(d8_mul(p, s2), d8_set(1.0 / i));
    return d8_add(d8_if_less(x, zero, zero, x), d8_mul(d8_mul(d8_set(2.0), s), p));
}

INLINE struct d8 d8_silu(struct d8 x) {
    return d8_mul(x, d8_sigmoid(x));
}

/* pn__gelu_tanh before it is rounded. */
INLINE struct d8 d8_gelu(struct d8 x) {
    struct d8 cube = d8_mul(d8_mul(d8_mul(d8_set(0.044715), x), x), x);
    return d8_mul(x, d8_sigmoid(d8_mul(d8_set(1.5957691216057308), d8_add(x, cube))));
}

/* fn of sixteen floats, rounded once. */
INLINE struct w16 w16_rounded(struct w16 x, struct d8 (*fn)(struct d8 x)) {
    struct d8 d[2];
    w16_to_d8(x, d);
    d[0] = fn(d[0]);
    d[1] = fn(d[1]);
    return w16_of_d8(d);
}

INLINE struct w16 w16_silu(struct w16 x) {
    return w16_rounded(x, d8_silu);
}

/* ---- the same bits by less work ---- */

/* exp of n registers of values from -87 to 0, side by side: a polynomial of degree 8 with fused
 * multiply-adds. It stays within 6,497 last places of what pn__exp_d gives (the most over all
 * floats), and so rounds to the same float unless it stands near the middle between two. */
INLINE void d8_exp_near(struct d8 *x, struct d8 *e, int n) {
    static const double terms[] = {
        0x1.a1a81b762ffbep-13, 0x1.6c18b33699ce5p-10, 0x1.111082af9b531p-7, 0x1.5555540513aadp-5,
        0x1.555555a081624p-3,  0x1.0000000087f2bp-1,  0x1.ffffffffd563dp-1, 0x1.ffffffffff7a3p-1,
    };
    const struct d8 magic = d8_set(6755399441055744.0);
    struct d8 shifted[8];
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        shifted[i] = d8_fma(x[i], d8_set(1.4426950408889634), magic);
        x[i] = d8_fma(d8_sub(shifted[i], magic), d8_set(-0.6931471805599453), x[i]);
        e[i] = d8_set(0x1.9eda96dd6fcfap-16);
    }
    /* Unrolled, gcc would do one register's chain after the other's. */
#pragma GCC unroll 1
    for (int k = 0; k < 8; k++) {
        struct d8 term = d8_set(terms[k]);
#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            e[i] = d8_fma(e[i], x[i], term);
    }
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        e[i] = d8_mul(e[i], d8_two_to(shifted[i]));
}

/* Lanes that stand within 2^14 last places of the middle between two floats: what is near them may
 * round to either. Not for what is subnormal as a float. */
INLINE uint32_t d8_near_middle(struct d8 x) {
    enum { NEAR = 1 << 14, HALF = 1 << 28 };
    return d8_none_of(x, HALF + NEAR, 2 * HALF - 2 * NEAR);
}

/* Registers of sixteen floats that silu takes side by side. */
#if defined(__AVX512F__)
#define SILU_N 2
#else
#define SILU_N 1
#endif

/* silu of SILU_N registers. Where the short way may round otherwise, or leaves its range, math.h's
 * steps decide for all of them. */
INLINE void w16_silus(const struct w16 x[SILU_N], struct w16 out[SILU_N]) {
    const struct d8 zero = d8_set(0.0), one = d8_set(1.0);
    struct d8 v[2 * SILU_N], a[2 * SILU_N], z[2 * SILU_N];
    uint32_t open = 0;
#pragma GCC unroll 4
    for (int i = 0; i < SILU_N; i++) {
        struct w16 size = w16_max(x[i], w16_sub(w16_set(0), x[i]));
        open |= w16_less(w16_set(87.0f), size) | w16_less(size, w16_set(0x1p-120f));
        w16_to_d8(x[i], v + 2 * i);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 2 * SILU_N; i++)
        a[i] = d8_minus_abs(v[i]);
    d8_exp_near(a, z, 2 * SILU_N);
#pragma GCC unroll 4
    for (int i = 0; i < 2 * SILU_N; i++) {
        struct d8 top = d8_mul(v[i], d8_if_less(v[i], zero, z[i], one));
        v[i] = d8_div(top, d8_add(one, z[i]));
        open |= d8_near_middle(v[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < SILU_N; i++)
        out[i] = __builtin_expect(open != 0, 0) ? w16_silu(x[i]) : w16_of_d8(v + 2 * i);
}

INLINE struct w16 w16_sigmoid(struct w16 x) {
    return w16_rounded(x, d8_sigmoid);
}

INLINE struct w16 w16_gelu(struct w16 x) {
    return w16_rounded(x, d8_gelu);
}

#endif
