/* Quantisation: ggml's reference rounding written out by hand, error bounds, round trips, and rows
 * that no scale can hold (zeros, tiny, huge, NaN). */
#include "support/pn_test.h"

#include <math.h>

#include "quant/oracle.h"

#define ROW_N 4096

/* Q8_0 and Q4_0 of one block by the reference's own steps, with libm's roundf. */
static void reference_q8_0(const float *x, uint8_t *to) {
    float largest = 0;
    for (int i = 0; i < 32; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    float d = largest / 127, inverse = d != 0 ? 1 / d : 0;
    uint16_t half = pn__f32_to_f16(d);
    memcpy(to, &half, 2);
    for (int i = 0; i < 32; i++)
        to[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
}

static void reference_q4_0(const float *x, uint8_t *to) {
    float largest = 0, with_sign = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > largest) {
            largest = fabsf(x[i]);
            with_sign = x[i];
        }
    float d = with_sign / -8, inverse = d != 0 ? 1 / d : 0;
    uint16_t half = pn__f32_to_f16(d);
    memcpy(to, &half, 2);
    memset(to + 2, 0, 16);
    for (int i = 0; i < 32; i++) {
        int q = (int)truncf(x[i] * inverse + 8.5f);
        to[2 + i % 16] |= (uint8_t)((q > 15 ? 15 : q) << (i / 16 * 4));
    }
}

static float uniform(uint64_t *seed) {
    return (float)((double)(oracle_random(seed) >> 11) * 0x1p-52 - 1);
}

/* Values of every size between blocks, and within some blocks. */
static void fill(float *x, unsigned n, uint64_t seed) {
    for (unsigned i = 0; i < n; i++) {
        int exp = (int)(i / 32 % 40) - 20;
        if (i / 32 % 3 == 0) exp += (int)(oracle_random(&seed) % 8);
        x[i] = ldexpf(uniform(&seed), exp);
    }
}

static void matches_reference(void **state) {
    (void)state;
    static float x[ROW_N];
    static uint8_t got[ROW_N / 32 * 34], want[ROW_N / 32 * 34];
    for (uint64_t seed = 1; seed <= 50; seed++) {
        fill(x, ROW_N, seed);
        assert_int_equal(pn__quant_row(PN_TYPE_Q8_0, x, got, ROW_N), 0);
        for (int b = 0; b < ROW_N / 32; b++)
            reference_q8_0(x + 32 * b, want + 34 * b);
        assert_memory_equal(got, want, ROW_N / 32 * 34);
        assert_int_equal(pn__quant_row(PN_TYPE_Q4_0, x, got, ROW_N), 0);
        for (int b = 0; b < ROW_N / 32; b++)
            reference_q4_0(x + 32 * b, want + 18 * b);
        assert_memory_equal(got, want, ROW_N / 32 * 18);
    }
}

/* A block of 127 and halves, whose reciprocal scale is 1: halves go away from zero, and the float
 * just below one half does not. Worked out by hand. */
static void halves_by_hand(void **state) {
    (void)state;
    float x[32] = {127.0f, 0.5f,  -0.5f,       1.5f,         -1.5f,
                   2.5f,   -2.5f, 0.49999997f, -0.49999997f, 126.5f};
    static const int8_t want[10] = {127, 1, -1, 2, -2, 3, -3, 0, 0, 127};
    uint8_t q8[34];
    assert_int_equal(pn__quant_row(PN_TYPE_Q8_0, x, q8, 32), 0);
    assert_int_equal(q8[0] | q8[1] << 8, 0x3c00);
    assert_memory_equal(q8 + 2, want, sizeof want);

    /* Largest is -8: d = 1, code = x + 8.5 cut off, at most 15. 0.5 goes up, -0.5 goes to 8. */
    float y[32] = {-8.0f, 7.4f, 0.5f, -0.5f, 8.0f, -7.5f, 1.0f, 0.49f};
    static const uint8_t codes[8] = {0, 15, 9, 8, 15, 1, 9, 8};
    uint8_t q4[18];
    assert_int_equal(pn__quant_row(PN_TYPE_Q4_0, y, q4, 32), 0);
    assert_int_equal(q4[0] | q4[1] << 8, 0x3c00);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(q4[2 + i] & 15, i < 8 ? codes[i] : 8);
        assert_int_equal(q4[2 + i] >> 4, 8);
    }
    /* Of two largest the first gives the sign: 8 first makes d -1. */
    y[0] = 8.0f;
    y[4] = -8.0f;
    assert_int_equal(pn__quant_row(PN_TYPE_Q4_0, y, q4, 32), 0);
    assert_int_equal(q4[0] | q4[1] << 8, 0xbc00);
    assert_int_equal(q4[2] & 15, 0);
    assert_int_equal(q4[6] & 15, 15);
}

/* Error of a value: half a step by rounding (a whole one for Q4_0's clipped end), plus what
 * rounding the scale to half moves the code: 2^-11 of it, or half a subnormal half, 2^-25, a code.
 */
static void error_bounds(void **state) {
    (void)state;
    static float x[ROW_N], back[ROW_N];
    static uint8_t q[ROW_N / 32 * 34];
    static const struct {
        enum pn_type type;
        double steps, code_max;
    } rows[] = {{PN_TYPE_Q8_0, 0.5, 127}, {PN_TYPE_Q4_0, 1.0, 8}};
    for (size_t r = 0; r < PN_ARRAY_N(rows); r++)
        for (uint64_t seed = 100; seed < 120; seed++) {
            fill(x, ROW_N, seed);
            assert_int_equal(pn__quant_row(rows[r].type, x, q, ROW_N), 0);
            pn__dequant_row(rows[r].type, q, back, ROW_N);
            for (unsigned i = 0; i < ROW_N; i++) {
                double largest = 0;
                for (unsigned k = 0; k < 32; k++)
                    largest = fmax(largest, fabs(x[i / 32 * 32 + k]));
                double d = largest / rows[r].code_max;
                if (d >= 65520) { /* no half holds it: see edges */
                    assert_false(isfinite(back[i]));
                    continue;
                }
                double scale_error = fmax(d * 0x1p-11, 0x1p-25);
                double bound = rows[r].steps * d + rows[r].code_max * scale_error + d * 0x1p-15;
                assert_true(fabs((double)back[i] - x[i]) <= bound);
            }
        }
}

/* Floats that the format can hold come back as they were, and quantising again changes nothing. */
static void round_trips(void **state) {
    (void)state;
    float x[64], back[64];
    uint8_t q[256], again[256];
    for (int step = -10; step <= 10; step++) {
        for (int i = 0; i < 64; i++)
            x[i] = ldexpf((float)(i % 32 == 0 ? 127 : i * 4 - 127), step);
        assert_int_equal(pn__quant_row(PN_TYPE_Q8_0, x, q, 64), 0);
        pn__dequant_row(PN_TYPE_Q8_0, q, back, 64);
        assert_memory_equal(back, x, sizeof x);
        for (int i = 0; i < 64; i++)
            x[i] = ldexpf((float)(i % 16 - 8), step);
        assert_int_equal(pn__quant_row(PN_TYPE_Q4_0, x, q, 64), 0);
        pn__dequant_row(PN_TYPE_Q4_0, q, back, 64);
        assert_memory_equal(back, x, sizeof x);
    }
    for (unsigned h = 0; h < 0x7c00; h += 64) {
        uint16_t halves[64];
        for (unsigned i = 0; i < 64; i++)
            halves[i] = (uint16_t)((h + i) | (i & 1 ? 0x8000 : 0));
        pn__dequant_row(PN_TYPE_F16, halves, x, 64);
        assert_int_equal(pn__quant_row(PN_TYPE_F16, x, again, 64), 0);
        assert_memory_equal(again, halves, sizeof halves);
        pn__dequant_row(PN_TYPE_BF16, halves, x, 64);
        assert_int_equal(pn__quant_row(PN_TYPE_BF16, x, again, 64), 0);
        assert_memory_equal(again, halves, sizeof halves);
    }
    for (unsigned n = 0; n <= 64; n++) {
        memset(q, 0xee, sizeof q);
        assert_int_equal(pn__quant_row(PN_TYPE_F32, x, q, n), 0);
        assert_memory_equal(q, x, n * sizeof *x);
        if (n < 64) assert_int_equal(q[4 * n], 0xee);
    }
}

static void expect_all(enum pn_type type, const float *x, float want) {
    uint8_t q[34];
    float back[32];
    assert_int_equal(pn__quant_row(type, x, q, 32), 0);
    pn__dequant_row(type, q, back, 32);
    for (int i = 0; i < 32; i++) {
        if (isnan(want))
            assert_true(isnan(back[i]));
        else
            assert_true(back[i] == want);
    }
}

static void edges(void **state) {
    (void)state;
    static const enum pn_type types[] = {PN_TYPE_Q8_0, PN_TYPE_Q4_0};
    for (size_t t = 0; t < PN_ARRAY_N(types); t++) {
        float x[32] = {0};
        expect_all(types[t], x, 0.0f);
        /* Reciprocal infinite, scale 0 as a half, and both. */
        for (int i = 0; i < 32; i++)
            x[i] = 0x1p-149f;
        expect_all(types[t], x, 0.0f);
        for (int i = 0; i < 32; i++)
            x[i] = 0x1p-127f;
        expect_all(types[t], x, 0.0f);
        for (int i = 0; i < 32; i++)
            x[i] = 0x1p-60f;
        expect_all(types[t], x, 0.0f);
        /* One bad value spoils its block and no other. */
        static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
        for (size_t b = 0; b < PN_ARRAY_N(bad); b++)
            for (int at = 0; at < 32; at += 31) {
                float row[96], back[96];
                uint8_t q[102];
                for (int i = 0; i < 96; i++)
                    row[i] = 1.0f;
                row[32 + at] = bad[b];
                expect_all(types[t], row + 32, NAN);
                assert_int_equal(pn__quant_row(types[t], row, q, 96), 0);
                pn__dequant_row(types[t], q, back, 96);
                assert_true(!isnan(back[31]) && isnan(back[32]) && isnan(back[63]));
                assert_true(!isnan(back[64]));
                unsigned bytes = pn__type_info(types[t])->block_bytes;
                for (unsigned i = 2; i < bytes; i++)
                    assert_int_equal(q[bytes + i], types[t] == PN_TYPE_Q8_0 ? 0 : 0x88);
            }
        /* A scale beyond half's range is infinite, not a wrong number. */
        for (int i = 0; i < 32; i++)
            x[i] = 0x1.fffffep127f;
        uint8_t q[34];
        float back[32];
        assert_int_equal(pn__quant_row(types[t], x, q, 32), 0);
        pn__dequant_row(types[t], q, back, 32);
        for (int i = 0; i < 32; i++)
            assert_true(isinf(back[i]));
    }
}

static void refusals(void **state) {
    (void)state;
    float x[256] = {0};
    uint8_t to[2048];
    for (unsigned t = 0; t < PN_TYPE_N + 1; t++) {
        bool can = t == PN_TYPE_F32 || t == PN_TYPE_F16 || t == PN_TYPE_BF16 || t == PN_TYPE_Q8_0 ||
                   t == PN_TYPE_Q4_0;
        assert_int_equal(pn__quant_row((enum pn_type)t, x, to, 256), can ? 0 : PN_E_UNSUPPORTED);
    }
    assert_int_equal(pn__quant_row(PN_TYPE_Q8_0, x, to, 31), PN_E_INVALID);
    assert_int_equal(pn__quant_row(PN_TYPE_Q4_0, x, to, 40), PN_E_INVALID);
    assert_int_equal(pn__quant_row(PN_TYPE_Q8_0, x, to, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_reference),
        cmocka_unit_test(halves_by_hand),
        cmocka_unit_test(error_bounds),
        cmocka_unit_test(round_trips),
        cmocka_unit_test(edges),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
