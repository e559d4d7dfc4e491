/* half and bfloat16: exact widening of every pattern, round to nearest even on narrowing. */
#include "support/pn_test.h"

#include <fenv.h>
#include <math.h>

#include "quant/half.h"
#include "quant/oracle.h"

static void half_widens_exactly(void **state) {
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float f = pn__f16_to_f32((uint16_t)h);
        double want = oracle_half(h);
        if (isnan(want)) {
            assert_true(isnan(f));
            /* Sign and payload stay; quiet. */
            assert_int_equal(pn__bits_of_f32(f) >> 31, h >> 15);
            assert_int_equal((pn__bits_of_f32(f) >> 13) & 0x3ff, (h & 0x3ff) | 0x200);
        } else {
            assert_true((double)f == want);
            assert_int_equal(!!signbit(f), h >> 15);
        }
    }
}

static void half_round_trips(void **state) {
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        unsigned want = h;
        if ((h & 0x7fff) > 0x7c00) want |= 0x200;
        assert_int_equal(pn__f32_to_f16(pn__f16_to_f32((uint16_t)h)), want);
        assert_int_equal(pn__half_narrow(pn__half_widen((uint16_t)h)), want);
    }
}

/* Nearest multiple of the last place of a format with `man_bits` stored bits, lowest exponent
 * `exp_min` and values below 2^exp_end, in double (nearbyint rounds to even). */
static double rounded(float f, int man_bits, int exp_min, int exp_end) {
    int exp;
    double v = f;
    frexp(v, &exp);
    exp -= 1;
    if (exp < exp_min) exp = exp_min;
    double r = ldexp(nearbyint(ldexp(v, man_bits - exp)), exp - man_bits);
    return fabs(r) >= ldexp(1, exp_end) ? copysign(INFINITY, v) : r;
}

static void check_narrow(uint32_t bits) {
    float f = pn__f32_of_bits(bits);
    uint16_t half = pn__f32_to_f16(f), bf = pn__f32_to_bf16(f);
    float back = pn__f16_to_f32(half), bf_back = pn__bf16_to_f32(bf);
    assert_int_equal(half >> 15, bits >> 31);
    assert_int_equal(bf >> 15, bits >> 31);
    if (isnan(f)) {
        assert_true(isnan(back));
        assert_true(isnan(bf_back));
        return;
    }
    if (isinf(f)) {
        assert_true(back == f);
        assert_true(bf_back == f);
        return;
    }
    if ((double)back != rounded(f, 10, -14, 16)) fail_msg("half of %a gave %a", f, back);
    if ((double)bf_back != rounded(f, 7, -126, 128)) fail_msg("bf16 of %a gave %a", f, bf_back);
}

/* Around every half and every middle between two halves, and the same for bfloat16. */
static void narrowing_rounds_to_even(void **state) {
    (void)state;
    for (unsigned h = 0; h < 0x7c00; h++) {
        uint32_t low = pn__bits_of_f32((float)oracle_half(h));
        float next = h + 1 == 0x7c00 ? 65536.0f : (float)oracle_half(h + 1);
        uint32_t mid = pn__bits_of_f32((float)((oracle_half(h) + next) / 2));
        for (int off = -1; off <= 1; off++) {
            if (low != 0 || off >= 0) check_narrow(low + (uint32_t)off);
            check_narrow((mid + (uint32_t)off) | 0x80000000u);
        }
    }
    for (uint32_t top = 0; top < 65536; top++) {
        check_narrow(top << 16 | 0x7fff);
        check_narrow(top << 16 | 0x8000);
        check_narrow(top << 16 | 0x8001);
        check_narrow(top << 16 | 0xffff);
        check_narrow(top << 16);
    }
}

static void narrowing_at_random(void **state) {
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 1000000; i++)
        check_narrow((uint32_t)oracle_random(&seed));
}

/* The tables of the standard's corner cases, written out. */
static void narrowing_corners(void **state) {
    (void)state;
    static const struct {
        float f;
        uint16_t half, bf;
    } rows[] = {
        {0.0f, 0, 0},
        {-0.0f, 0x8000, 0x8000},
        {1.0f, 0x3c00, 0x3f80},
        {65504.0f, 0x7bff, 0x4780},
        {65519.996f, 0x7bff, 0x4780},
        {65520.0f, 0x7c00, 0x4780},
        {0x1p-24f, 0x0001, 0x3380},
        {0x1p-25f, 0x0000, 0x3300},
        {0x1.000002p-25f, 0x0001, 0x3300},
        {0x1.8p-24f, 0x0002, 0x33c0},
        {0x1.ffep-15f, 0x0400, 0x3880},
        {0x1p-149f, 0, 0},
        {0x1.fffffep127f, 0x7c00, 0x7f80},
        {INFINITY, 0x7c00, 0x7f80},
        {-INFINITY, 0xfc00, 0xff80},
    };
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        assert_int_equal(pn__f32_to_f16(rows[i].f), rows[i].half);
        assert_int_equal(pn__f32_to_bf16(rows[i].f), rows[i].bf);
    }
    /* A NaN whose payload lies below what is kept must not become infinity. */
    assert_int_equal(pn__f32_to_f16(pn__f32_of_bits(0x7f800001)), 0x7e00);
    assert_int_equal(pn__f32_to_bf16(pn__f32_of_bits(0x7f800001)), 0x7fc0);
    assert_int_equal(pn__f32_to_bf16(pn__f32_of_bits(0xffffffff)), 0xffff);
}

/* The processor's rounding mode has no say. */
static void rounding_mode_is_ignored(void **state) {
    (void)state;
    assert_int_equal(fesetround(FE_UPWARD), 0);
    uint16_t half = pn__f32_to_f16(0x1.002p0f), bf = pn__f32_to_bf16(0x1.01p0f);
    fesetround(FE_TONEAREST);
    assert_int_equal(half, 0x3c00);
    assert_int_equal(bf, 0x3f80);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_widens_exactly),      cmocka_unit_test(half_round_trips),
        cmocka_unit_test(narrowing_rounds_to_even), cmocka_unit_test(narrowing_at_random),
        cmocka_unit_test(narrowing_corners),        cmocka_unit_test(rounding_mode_is_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
