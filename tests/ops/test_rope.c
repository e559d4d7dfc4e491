/* Rotary embedding: the table against the formulas of the papers, the rotation against double. */
#include "ops/ops_test.h"

#define ROWS 6
#define HEADS 5
#define DIM 80

static const uint32_t positions[ROWS] = {0, 1, 63, 1000, 8191, 131071};

struct rope_case {
    struct pn_rope rope;
    float x[ROWS * HEADS * DIM];
};

static void run_table(struct backend *b, void *user, float *out) {
    struct rope_case *c = user;
    pn__op_rope_table(&b->step, &c->rope, positions, mat(out, ROWS, c->rope.dim_n));
}

static void run_rope(struct backend *b, void *user, float *out) {
    struct rope_case *c = user;
    float table[ROWS * DIM];
    memcpy(out, c->x, sizeof c->x);
    pn__op_rope_table(&b->step, &c->rope, positions, mat(table, ROWS, c->rope.dim_n));
    pn__op_rope(&b->step, &c->rope, mat(table, ROWS, c->rope.dim_n), heads(out, ROWS, HEADS, DIM));
}

/* Angle of a pair at a position, and the magnitude, in long double: theta = pos * base^(-2i/n),
 * divided by the factor; linear: times scale; yarn: between the two by the ramp. */
static long double angle_of(const struct pn_rope *r, uint32_t i, uint32_t pos, long double *mag) {
    long double extrap = pos * powl(r->freq_base, -2.0L * i / r->dim_n);
    if (r->factors) extrap /= r->factors[i];
    long double interp = extrap * r->freq_scale;
    *mag = r->attn_factor;
    if (r->ext_factor == 0) return interp;
    long double two_pi = 2 * acosl(-1);
    long double lo =
        r->dim_n * logl(r->orig_ctx / (r->beta_fast * two_pi)) / (2 * logl(r->freq_base));
    long double hi =
        r->dim_n * logl(r->orig_ctx / (r->beta_slow * two_pi)) / (2 * logl(r->freq_base));
    lo = fmaxl(0, floorl(lo));
    hi = fminl(r->dim_n - 1, ceill(hi));
    long double ramp = 1 - fminl(1, fmaxl(0, (i - lo) / fmaxl(0.001L, hi - lo)));
    ramp *= r->ext_factor;
    *mag *= 1 + 0.1L * logl(1 / (long double)r->freq_scale);
    return interp * (1 - ramp) + extrap * ramp;
}

static void check_case(struct rope_case *c) {
    const struct pn_rope *r = &c->rope;
    float *table = reference_run(run_table, c, ROWS * r->dim_n);
    float *got = reference_run(run_rope, c, ROWS * HEADS * DIM);
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t i = 0; i < r->dim_n / 2; i++) {
            long double mag;
            long double a = angle_of(r, i, positions[row], &mag);
            double cs = (double)(cosl(a) * mag), sn = (double)(sinl(a) * mag);
            /* The angle itself carries a few roundings of a double. */
            double bound = (U * 1.01 + 8 * 0x1p-53 * (1 + (double)fabsl(a))) * (double)mag;
            ASSERT_NEAR(table[row * r->dim_n + 2 * i], cs, bound);
            ASSERT_NEAR(table[row * r->dim_n + 2 * i + 1], sn, bound);
            for (uint32_t h = 0; h < HEADS; h++) {
                uint64_t at = (row * HEADS + h) * DIM;
                uint64_t i0 = at + (r->neox ? i : 2 * i);
                uint64_t i1 = r->neox ? i0 + r->dim_n / 2 : i0 + 1;
                double x0 = c->x[i0], x1 = c->x[i1];
                double size = (fabs(x0) + fabs(x1)) * (double)mag;
                ASSERT_NEAR(got[i0], x0 * cs - x1 * sn,
                            2 * bound * (fabs(x0) + fabs(x1)) + 2 * U * size);
                ASSERT_NEAR(got[i1], x0 * sn + x1 * cs,
                            2 * bound * (fabs(x0) + fabs(x1)) + 2 * U * size);
            }
        }
        for (uint32_t h = 0; h < HEADS; h++) {
            uint64_t at = (row * HEADS + h) * DIM;
            assert_memory_equal(got + at + r->dim_n, c->x + at + r->dim_n,
                                (DIM - r->dim_n) * sizeof(float));
        }
    }
    same_everywhere(run_table, c, table, ROWS * r->dim_n);
    same_everywhere(run_rope, c, got, ROWS * HEADS * DIM);
    guarded_free(table);
    guarded_free(got);
}

static struct rope_case plain_case(void) {
    struct rope_case c = {.rope = {.dim_n = DIM,
                                   .neox = true,
                                   .freq_base = 10000,
                                   .freq_scale = 1,
                                   .attn_factor = 1,
                                   .beta_fast = 32,
                                   .beta_slow = 1,
                                   .orig_ctx = 2048}};
    struct rng r = {17};
    rng_fill(&r, c.x, PN_ARRAY_N(c.x), 3);
    return c;
}

static void test_kinds(void **state) {
    (void)state;
    for (int neox = 0; neox < 2; neox++) {
        struct rope_case c = plain_case();
        c.rope.neox = neox;
        check_case(&c);
        c.rope.dim_n = 32; /* the rest passes through */
        check_case(&c);
        c.rope.freq_base = 1e6;
        c.rope.freq_scale = 0.125; /* linear */
        check_case(&c);
    }
}

static void test_factors(void **state) {
    (void)state;
    struct rope_case c = plain_case();
    float factors[DIM / 2];
    for (int i = 0; i < DIM / 2; i++)
        factors[i] = 1 + 0.3f * (float)i;
    c.rope.factors = factors;
    c.rope.attn_factor = 1.19;
    check_case(&c);
}

static void test_yarn(void **state) {
    (void)state;
    struct rope_case c = plain_case();
    c.rope.freq_scale = 0.25;
    c.rope.ext_factor = 1;
    check_case(&c);
    c.rope.dim_n = 64;
    c.rope.freq_base = 500000;
    c.rope.orig_ctx = 32768;
    c.rope.ext_factor = 0.7;
    c.rope.attn_factor = 0.9;
    check_case(&c);
    c.rope.orig_ctx = 8; /* both ends of the ramp outside the head */
    check_case(&c);
}

/* Yarn at its ends: the fastest pair keeps its frequency, the slowest is interpolated. */
static void test_yarn_ends(void **state) {
    (void)state;
    struct rope_case c = plain_case();
    c.rope.freq_scale = 0.25;
    c.rope.ext_factor = 1;
    float *table = reference_run(run_table, &c, ROWS * DIM);
    double mag = 1 + 0.1 * log(4);
    uint32_t last = DIM - 2;
    double slow = 1000 * pow(10000, -(double)last / DIM) * 0.25;
    ASSERT_NEAR(table[3 * DIM], cos(1000) * mag, 1e-6);
    ASSERT_NEAR(table[3 * DIM + last + 1], sin(slow) * mag, 1e-6);
    guarded_free(table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_factors),
        cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_yarn_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
