/* Our exponential and its family against libm in double, over dense sweeps of floats. */
#include "ops/cpu/math.h"
#include "support/pn_test.h"

static double ref_exp(double x) {
    return exp(x);
}

static double ref_sigmoid(double x) {
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double ref_silu(double x) {
    return x * ref_sigmoid(x);
}

static double ref_softplus(double x) {
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double ref_gelu(double x) {
    return x * ref_sigmoid(2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
}

/* Distance between got and want in units of the last place of a float at `want`. */
static double ulps(float got, double want) {
    if (isnan(want)) return isnan(got) ? 0 : HUGE_VAL;
    if ((double)got == want) return 0;
    if (isinf((float)want) || isinf(got)) return (float)want == got ? 0 : HUGE_VAL;
    int e;
    frexp(want, &e);
    if (want == 0 || e < -125) e = -125; /* subnormals are 2^-149 apart */
    return fabs((double)got - want) / ldexp(1, e - 24);
}

struct fn {
    const char *name;
    float (*ours)(float x);
    double (*ref)(double x);
};

/* Wrappers, as the functions are inline. */
static float our_exp(float x) {
    return pn__exp(x);
}
static float our_sigmoid(float x) {
    return pn__sigmoid(x);
}
static float our_silu(float x) {
    return pn__silu(x);
}
static float our_softplus(float x) {
    return pn__softplus(x);
}
static float our_gelu(float x) {
    return pn__gelu_tanh(x);
}

static const struct fn fns[] = {
    {"exp", our_exp, ref_exp},         {"sigmoid", our_sigmoid, ref_sigmoid},
    {"silu", our_silu, ref_silu},      {"softplus", our_softplus, ref_softplus},
    {"gelu_tanh", our_gelu, ref_gelu},
};

static void check(const struct fn *f, float x, double *worst, float *worst_x) {
    double off = ulps(f->ours(x), f->ref((double)x));
    if (off > *worst) {
        *worst = off;
        *worst_x = x;
    }
}

static void test_all_exponents(void **state) {
    (void)state;
    for (size_t i = 0; i < PN_ARRAY_N(fns); i++) {
        double worst = 0;
        float worst_x = 0;
        /* Every finite float in steps of a prime: 2,000 in each binade, both signs. */
        for (uint32_t bits = 0; bits < 0x7f800000u; bits += 4099) {
            check(&fns[i], pn__bits_float(bits), &worst, &worst_x);
            check(&fns[i], pn__bits_float(bits | 0x80000000u), &worst, &worst_x);
        }
        print_message("%s: %.4f ulp at %.9g\n", fns[i].name, worst, (double)worst_x);
        if (worst > 0.51) fail_msg("%s(%.9g) is %.3f ulp off", fns[i].name, (double)worst_x, worst);
    }
}

static void test_dense_range(void **state) {
    (void)state;
    for (size_t i = 0; i < PN_ARRAY_N(fns); i++) {
        double worst = 0;
        float worst_x = 0;
        for (int k = -1200000; k <= 1200000; k++)
            check(&fns[i], (float)k * 1e-4f, &worst, &worst_x);
        if (worst > 0.51) fail_msg("%s(%.9g) is %.3f ulp off", fns[i].name, (double)worst_x, worst);
    }
}

static void test_edges(void **state) {
    (void)state;
    assert_true(pn__exp(0.0f) == 1.0f && pn__exp(-0.0f) == 1.0f);
    assert_true(pn__exp(INFINITY) == INFINITY);
    assert_true(pn__exp(-INFINITY) == 0.0f);
    assert_true(pn__exp(88.73f) == INFINITY);   /* past log(FLT_MAX) */
    assert_true(isfinite(pn__exp(88.72f)));     /* just before */
    assert_true(pn__exp(-103.9f) == 0x1p-149f); /* smallest subnormal */
    assert_true(pn__exp(-104.0f) == 0.0f);
    assert_true(pn__exp(3e38f) == INFINITY && pn__exp(-3e38f) == 0.0f);
    assert_true(pn__sigmoid(INFINITY) == 1.0f && pn__sigmoid(-INFINITY) == 0.0f);
    assert_true(pn__sigmoid(0.0f) == 0.5f);
    assert_true(pn__softplus(INFINITY) == INFINITY && pn__softplus(-INFINITY) == 0.0f);
    assert_true(pn__silu(INFINITY) == INFINITY && isnan(pn__silu(-INFINITY)));
    assert_true(pn__gelu_tanh(INFINITY) == INFINITY && isnan(pn__gelu_tanh(-INFINITY)));
    assert_true(pn__silu(-1000.0f) == 0.0f && pn__gelu_tanh(-1000.0f) == 0.0f);
    for (size_t i = 0; i < PN_ARRAY_N(fns); i++)
        assert_true(isnan(fns[i].ours(NAN)));
}

static void test_round_even(void **state) {
    (void)state;
    const float in[] = {0.0f,        0.5f,        1.5f,   2.5f,       -0.5f,
                        -1.5f,       -2.5f,       126.5f, 127.0f,     -127.0f,
                        0.49999997f, -127.00001f, 3.0f,   4194303.0f, -4194303.0f};
    const int want[] = {0, 0, 2, 2, 0, -2, -2, 126, 127, -127, 0, -127, 3, 4194303, -4194303};
    for (size_t i = 0; i < PN_ARRAY_N(in); i++)
        assert_int_equal(pn__round_even(in[i]), want[i]);
    for (int k = -100000; k <= 100000; k++) {
        float x = (float)k * 0.00137f;
        assert_int_equal(pn__round_even(x), (int)rint((double)x));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_exponents),
        cmocka_unit_test(test_dense_range),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_round_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
