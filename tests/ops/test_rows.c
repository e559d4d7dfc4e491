/* Operations that work row by row: embedding, norms, elementwise, gates. Each against double with
 * a bound from its own roundings, and the same bits everywhere. */
#include "ops/matmul_data.h"

#define ROWS 9
#define COLS 1003 /* a tail, and enough work to be split */

struct rows {
    float x[ROWS * COLS];
    float y[ROWS * COLS];
    float w[COLS];
    float w2[COLS];
    float f;
    float eps;
    enum pn_act act;
};

static struct rows *rows_new(uint64_t seed, float scale) {
    struct rows *d = calloc(1, sizeof *d);
    assert_non_null(d);
    struct rng r = {seed};
    rng_fill(&r, d->x, ROWS * COLS, scale);
    rng_fill(&r, d->y, ROWS * COLS, scale);
    rng_fill(&r, d->w, COLS, 2);
    rng_fill(&r, d->w2, COLS, 2);
    d->f = 0.37f;
    d->eps = 1e-6f;
    return d;
}

static double sigmoid(double x) {
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

/* ---- norms ---- */

static void run_rms_norm(struct backend *b, void *user, float *out) {
    struct rows *d = user;
    pn__op_rms_norm(&b->step, mat(d->x, ROWS, COLS), d->w, d->eps, mat(out, ROWS, COLS));
}

static void run_rms_norm_in_place(struct backend *b, void *user, float *out) {
    struct rows *d = user;
    memcpy(out, d->x, sizeof d->x);
    pn__op_rms_norm(&b->step, mat(out, ROWS, COLS), d->w, d->eps, mat(out, ROWS, COLS));
}

/* Relative error of 1 / sqrt(sum / n + eps): half the sum's, then four roundings. */
#define NORM_ROUNDINGS(n) (((n) / 16.0 + 5) / 2 + 4)

static void test_rms_norm(void **state) {
    (void)state;
    struct rows *d = rows_new(1, 3);
    memset(d->x + 2 * COLS, 0, COLS * sizeof(float)); /* eps alone */
    d->x[3 * COLS + 7] = NAN;
    float *got = reference_run(run_rms_norm, d, ROWS * COLS);
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int i = 0; i < COLS; i++)
            sum += (double)d->x[r * COLS + i] * d->x[r * COLS + i];
        double scale = 1 / sqrt(sum / COLS + d->eps);
        for (int i = 0; i < COLS; i++) {
            double want = d->x[r * COLS + i] * scale * d->w[i];
            if (r == 3)
                assert_true(isnan(got[r * COLS + i]));
            else
                ASSERT_NEAR(got[r * COLS + i], want,
                            (NORM_ROUNDINGS(COLS) + 2) * U * fabs(want) + 0x1p-149);
        }
    }
    same_everywhere(run_rms_norm, d, got, ROWS * COLS);
    same_everywhere(run_rms_norm_in_place, d, got, ROWS * COLS);
    guarded_free(got);
    free(d);
}

#define HEADS 17
#define DIM 59 /* HEADS * DIM == COLS */

static void run_rms_norm_heads(struct backend *b, void *user, float *out) {
    struct rows *d = user;
    memcpy(out, d->x, sizeof d->x);
    pn__op_rms_norm_heads(&b->step, heads(out, ROWS, HEADS, DIM), d->w, d->eps);
}

static void run_l2_norm_heads(struct backend *b, void *user, float *out) {
    struct rows *d = user;
    memcpy(out, d->x, sizeof d->x);
    pn__op_l2_norm_heads(&b->step, heads(out, ROWS, HEADS, DIM), d->eps, d->f);
}

static void test_head_norms(void **state) {
    (void)state;
    struct rows *d = rows_new(2, 3);
    memset(d->x + COLS, 0, COLS * sizeof(float));
    for (int i = 0; i < DIM; i++)
        d->x[i] *= 1e-9f; /* below eps: divided by eps */
    float *rms = reference_run(run_rms_norm_heads, d, ROWS * COLS);
    float *l2 = reference_run(run_l2_norm_heads, d, ROWS * COLS);
    for (int h = 0; h < ROWS * HEADS; h++) {
        const float *x = d->x + h * DIM;
        double sum = 0;
        for (int i = 0; i < DIM; i++)
            sum += (double)x[i] * x[i];
        for (int i = 0; i < DIM; i++) {
            double want = x[i] / sqrt(sum / DIM + d->eps) * d->w[i];
            double bound = (NORM_ROUNDINGS(DIM) + 2) * U;
            ASSERT_NEAR(rms[h * DIM + i], want, bound * fabs(want) + 0x1p-149);
            want = x[i] / fmax(sqrt(sum), d->eps) * d->f;
            ASSERT_NEAR(l2[h * DIM + i], want, bound * fabs(want) + 0x1p-149);
        }
    }
    same_everywhere(run_rms_norm_heads, d, rms, ROWS * COLS);
    same_everywhere(run_l2_norm_heads, d, l2, ROWS * COLS);
    guarded_free(rms);
    guarded_free(l2);
    free(d);
}

/* ---- elementwise ---- */

static void run_add(struct backend *b, void *user, float *out) {
    struct rows *d = user;
    memcpy(out, d->x, sizeof d->x);
    pn__op_add(&b->step, mat(out, ROWS, COLS), mat(d->y, ROWS, COLS));
}

static void run_scale(struct backend *b, void *user, float *out) {
    struct rows *d = user;
    memcpy(out, d->x, sizeof d->x);
    pn__op_scale(&b->step, mat(out, ROWS, COLS), d->f);
}

static void run_glu(struct backend *b, void *user, float *out) {
    struct rows *d = user;
    pn__op_glu(&b->step, d->act, mat(d->x, ROWS, COLS), mat(d->y, ROWS, COLS),
               mat(out, ROWS, COLS));
}

static void run_glu_over_gate(struct backend *b, void *user, float *out) {
    struct rows *d = user;
    memcpy(out, d->x, sizeof d->x);
    pn__op_glu(&b->step, d->act, mat(out, ROWS, COLS), mat(d->y, ROWS, COLS), mat(out, ROWS, COLS));
}

static void run_glu_over_up(struct backend *b, void *user, float *out) {
    struct rows *d = user;
    memcpy(out, d->y, sizeof d->y);
    pn__op_glu(&b->step, d->act, mat(d->x, ROWS, COLS), mat(out, ROWS, COLS), mat(out, ROWS, COLS));
}

static void run_sigmoid_gate(struct backend *b, void *user, float *out) {
    struct rows *d = user;
    memcpy(out, d->x, sizeof d->x);
    pn__op_sigmoid_gate(&b->step, heads(out, ROWS, HEADS, DIM), heads(d->y, ROWS, HEADS, DIM));
}

static void run_silu_gate(struct backend *b, void *user, float *out) {
    struct rows *d = user;
    memcpy(out, d->x, sizeof d->x);
    pn__op_silu_gate(&b->step, heads(out, ROWS, HEADS, DIM), heads(d->y, ROWS, HEADS, DIM));
}

static double of_add(double x, double y) {
    return x + y;
}
static double of_scale(double x, double y) {
    (void)y;
    return x * (double)0.37f;
}
static double of_silu(double x, double y) {
    return x * sigmoid(x) * y;
}
static double of_gelu(double x, double y) {
    return x * sigmoid(2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)) * y;
}
static double of_swiglu_clamped(double x, double y) {
    double g = fmin(x, 7);
    double u = fmax(-7, fmin(y, 7));
    return g * sigmoid((double)(1.702f * (float)g)) * (u + 1);
}
static double of_sigmoid_gate(double x, double y) {
    return x * sigmoid(y);
}
static double of_silu_gate(double x, double y) {
    return x * y * sigmoid(y);
}

/* One function rounded once, then one product or sum. */
static void check_pairs(void (*fn)(struct backend *b, void *user, float *out), struct rows *d,
                        double (*of)(double x, double y)) {
    float *got = reference_run(fn, d, ROWS * COLS);
    for (int i = 0; i < ROWS * COLS; i++) {
        double want = of(d->x[i], d->y[i]);
        /* A subnormal factor is off by half a step of 2^-149, times the other one. */
        double bound =
            2.1 * U * fabs(want) + (2 + fabs((double)d->x[i]) + fabs((double)d->y[i])) * 0x1p-150;
        ASSERT_NEAR(got[i], want, bound);
    }
    same_everywhere(fn, d, got, ROWS * COLS);
    guarded_free(got);
}

static void test_elementwise(void **state) {
    (void)state;
    static const float scales[] = {0.1f, 4, 120, 0x1p-140f};
    for (size_t i = 0; i < PN_ARRAY_N(scales); i++) {
        struct rows *d = rows_new(3 + i, scales[i]);
        check_pairs(run_add, d, of_add);
        check_pairs(run_scale, d, of_scale);
        check_pairs(run_sigmoid_gate, d, of_sigmoid_gate);
        check_pairs(run_silu_gate, d, of_silu_gate);
        d->act = PN_ACT_FN_SILU;
        check_pairs(run_glu, d, of_silu);
        check_pairs(run_glu_over_gate, d, of_silu);
        check_pairs(run_glu_over_up, d, of_silu);
        d->act = PN_ACT_FN_GELU_TANH;
        check_pairs(run_glu, d, of_gelu);
        free(d);
    }
}

/* The value through a half in and out: off by both roundings, the first times gelu's slope. */
static void test_gelu_half(void **state) {
    (void)state;
    struct rows *d = rows_new(30, 12);
    static const float edges[] = {0, 10, -10, 9.9999f, -9.9999f, 1e5f, -1e5f, NAN, -INFINITY};
    for (int i = 0; i < ROWS * COLS; i++)
        d->y[i] = 1;
    memcpy(d->x, edges, sizeof edges);
    d->act = PN_ACT_FN_GELU_HALF;
    float *got = reference_run(run_glu, d, ROWS * COLS);
    for (int i = PN_ARRAY_N(edges); i < ROWS * COLS; i++) {
        double x = d->x[i], want = of_gelu(x, 1);
        double bound = 1.13 * (fabs(x) * 0x1p-11 + 0x1p-25) + fabs(want) * 0x1p-11 + 0x1p-25;
        if (x >= 10) bound = 1e-20 * x; /* x itself, and gelu(x) is x for any purpose */
        if (x <= -10) bound = 2e-22;    /* 0 */
        ASSERT_NEAR(got[i], want, bound);
    }
    assert_true(got[0] == 0 && got[1] == 10 && got[2] == 0 && got[5] == 1e5f && got[6] == 0);
    assert_true(isnan(got[7]) && isnan(got[8]));
    same_everywhere(run_glu, d, got, ROWS * COLS);
    guarded_free(got);
    free(d);
}

/* Both sides of both limits; a NaN stays one. */
static void test_swiglu_clamped(void **state) {
    (void)state;
    struct rows *d = rows_new(7, 20);
    d->act = PN_ACT_FN_SWIGLU_CLAMPED;
    float *got = reference_run(run_glu, d, ROWS * COLS);
    for (int i = 0; i < ROWS * COLS; i++) {
        double want = of_swiglu_clamped(d->x[i], d->y[i]);
        ASSERT_NEAR(got[i], want, 3.1 * U * fabs(want) + 8 * 0x1p-149);
    }
    guarded_free(got);
    d->x[0] = d->y[1] = NAN;
    d->x[2] = -INFINITY;
    got = reference_run(run_glu, d, ROWS * COLS);
    assert_true(isnan(got[0]) && isnan(got[1]) && isnan(got[2]));
    same_everywhere(run_glu, d, got, ROWS * COLS);
    guarded_free(got);
    free(d);
}

static void run_gate_rows(struct backend *b, void *user, float *out) {
    struct rows *d = user;
    memcpy(out, d->x, sizeof d->x);
    pn__op_sigmoid_gate_rows(&b->step, mat(out, ROWS, COLS), mat(d->y, ROWS, 1));
}

static void test_gate_rows(void **state) {
    (void)state;
    struct rows *d = rows_new(8, 6);
    float *got = reference_run(run_gate_rows, d, ROWS * COLS);
    for (int i = 0; i < ROWS * COLS; i++) {
        double want = d->x[i] * sigmoid(d->y[i / COLS]);
        ASSERT_NEAR(got[i], want, 2.1 * U * fabs(want));
    }
    same_everywhere(run_gate_rows, d, got, ROWS * COLS);
    guarded_free(got);
    free(d);
}

static void run_delta_gates(struct backend *b, void *user, float *out) {
    struct rows *d = user;
    memcpy(out, d->x, sizeof d->x);
    memcpy(out + ROWS * COLS, d->y, sizeof d->y);
    pn__op_delta_gates(&b->step, mat(out, ROWS, COLS), mat(out + ROWS * COLS, ROWS, COLS), d->w,
                       d->w2);
}

static void test_delta_gates(void **state) {
    (void)state;
    struct rows *d = rows_new(8, 6);
    float *got = reference_run(run_delta_gates, d, 2 * ROWS * COLS);
    for (int i = 0; i < ROWS * COLS; i++) {
        double in = (double)d->x[i] + d->w2[i % COLS];
        double want = d->w[i % COLS] * (fmax(in, 0) + log1p(exp(-fabs(in))));
        /* The sum is rounded; softplus has slope at most 1. */
        ASSERT_NEAR(got[i], want, 2.1 * U * fabs(want) + U * fabs(in * d->w[i % COLS]));
        want = sigmoid(d->y[i]);
        ASSERT_NEAR(got[ROWS * COLS + i], want, 1.1 * U * want);
    }
    same_everywhere(run_delta_gates, d, got, 2 * ROWS * COLS);
    guarded_free(got);
    free(d);
}

/* ---- rows moved ---- */

struct table {
    struct pn_weight w;
    int32_t ids[ROWS];
    float scale;
};

static void run_embed(struct backend *b, void *user, float *out) {
    struct table *t = user;
    pn__op_embed(&b->step, &t->w, t->ids, ROWS, t->scale, mat(out, ROWS, t->w.col_n));
}

static void test_embed(void **state) {
    (void)state;
    enum pn_type types[PN_TYPE_N];
    uint32_t type_n = matmul_types(types);
    for (uint32_t i = 0; i < type_n; i++) {
        struct rng r = {300 + i};
        struct table t = {.scale = i % 2 ? 1.0f : 25.3f};
        weight_make(&r, types[i], 50, 512, &t.w);
        t.w.scale = i % 3 ? 1.0f : 0.6f;
        for (int k = 0; k < ROWS; k++)
            t.ids[k] = (int32_t)rng_below(&r, 50);
        t.ids[0] = 49;
        float *got = reference_run(run_embed, &t, ROWS * 512);
        float want[512];
        for (int k = 0; k < ROWS; k++) {
            pn__dequant_row(types[i], t.w.data + (uint32_t)t.ids[k] * t.w.row_bytes, want, 512);
            for (int c = 0; c < 512; c++)
                assert_true(got[k * 512 + c] == want[c] * t.w.scale * t.scale);
        }
        same_everywhere(run_embed, &t, got, ROWS * 512);
        guarded_free(got);
        weight_free(&t.w);
    }
}

static const uint32_t taken[] = {8, 0, 3, 3, 5};

static void run_take(struct backend *b, void *user, float *out) {
    struct rows *d = user;
    pn__op_take_rows(&b->step, mat(d->x, ROWS, COLS), taken, PN_ARRAY_N(taken),
                     mat(out, PN_ARRAY_N(taken), COLS));
}

static void test_take_rows_and_fetch(void **state) {
    (void)state;
    struct rows *d = rows_new(9, 1);
    float *got = reference_run(run_take, d, PN_ARRAY_N(taken) * COLS);
    for (size_t i = 0; i < PN_ARRAY_N(taken); i++)
        assert_memory_equal(got + i * COLS, d->x + taken[i] * COLS, COLS * sizeof(float));
    same_everywhere(run_take, d, got, PN_ARRAY_N(taken) * COLS);
    struct backend b;
    backend_open(&b, PN_ISA_REF, 1);
    float *row = guarded_new(COLS);
    pn__step_fetch(&b.step, mat(d->x, ROWS, COLS), 8, row);
    guarded_check(row, COLS);
    assert_memory_equal(row, d->x + 8 * COLS, COLS * sizeof(float));
    backend_close(&b);
    guarded_free(row);
    guarded_free(got);
    free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_head_norms),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_gelu_half),
        cmocka_unit_test(test_swiglu_clamped),
        cmocka_unit_test(test_gate_rows),
        cmocka_unit_test(test_delta_gates),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_take_rows_and_fetch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
