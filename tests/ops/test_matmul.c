/* Matmul of every weight type: against the definition bit by bit, against a sum in double, and the
 * same bits whatever the rows, threads, cuts and levels. */
#include "base/alloc.h"
#include "ops/matmul_data.h"

#define N 37 /* neither a multiple of 4 nor of 16 */

static const uint32_t batch_sizes[] = {1, 2, 3, 5, 8, 17, 64, 70};
#define ROW_N 70

static uint32_t cols_of(enum pn_type type) {
    if (pn__unit_fn(type)) return pn__type_info(type)->block_n == 256 ? 768 : 384;
    return 203; /* a tail */
}

static void run(struct backend *b, const struct pn_weight *w, const float *bias, const float *x,
                uint32_t row_n, float *out) {
    struct pn_matmul part = {w, bias, mat(out, row_n, w->row_n)};
    struct pn_mat in = mat((float *)x, row_n, w->col_n);
    pn__op_matmul(&b->step, in, &part, 1);
}

/* Inputs with everything in them: plain rows, zeros, subnormals, huge and tiny values, one spike,
 * equal magnitudes (codes of +-127 throughout). */
static float *make_inputs(struct rng *r, uint32_t row_n, uint32_t col_n) {
    float *x = malloc((uint64_t)row_n * col_n * sizeof *x);
    assert_non_null(x);
    for (uint32_t m = 0; m < row_n; m++) {
        float *row = x + (uint64_t)m * col_n;
        rng_fill(r, row, col_n, 1 + (float)(m % 5));
        for (uint32_t k = 0; k < col_n; k++) {
            if (m % 9 == 1) row[k] = 0;
            if (m % 9 == 2) row[k] *= 0x1p-130f;
            if (m % 9 == 3) row[k] *= 0x1p100f;
            if (m % 9 == 4) row[k] *= k % 32 == 7 ? 1e6f : 1.0f;
            if (m % 9 == 5) row[k] = copysignf(0.75f, row[k]);
            if (m % 9 == 6) row[k] *= 0x1p-98f;
            if (m % 9 == 7) row[k] *= 0x1p-110f; /* below what is told from zero */
        }
    }
    return x;
}

static void check_type(enum pn_type type) {
    struct rng r = {0x9e3779b97f4a7c15u + type};
    struct pn_weight w;
    uint32_t col_n = cols_of(type);
    weight_make(&r, type, N, col_n, &w);
    w.scale = type == PN_TYPE_NVFP4 ? 0.37f : 1.0f;
    float *x = make_inputs(&r, ROW_N, col_n);
    float *out = guarded_new(ROW_N * N);
    double value[2048], err[2048];
    struct backend b;
    backend_open(&b, PN_ISA_REF, 1);
    run(&b, &w, NULL, x, ROW_N, out);
    guarded_check(out, ROW_N * N);
    for (uint32_t m = 0; m < ROW_N; m++) {
        const float *row = x + (uint64_t)m * col_n;
        act_values(type, row, col_n, value, err);
        for (uint32_t n = 0; n < N; n++) {
            float got = out[m * N + n];
            float want = canonical_dot(&w, n, row);
            if (memcmp(&got, &want, 4) != 0)
                fail_msg("%s row %u, output %u: %.9g, by definition %.9g", pn__type_name(type), m,
                         n, got, want);
            double bound;
            double sum = oracle_dot(&w, n, value, &bound);
            if (isfinite((float)sum)) ASSERT_NEAR(got, sum, bound + 0x1p-120);
        }
    }
    backend_close(&b);
    guarded_free(out);
    free(x);
    weight_free(&w);
}

static void test_definition(void **state) {
    (void)state;
    enum pn_type types[PN_TYPE_N];
    uint32_t n = matmul_types(types);
    assert_true(n >= 25);
    for (uint32_t i = 0; i < n; i++)
        check_type(types[i]);
}

/* What preparing the input may cost: never more than half a step a value. */
static void test_float_oracle(void **state) {
    (void)state;
    enum pn_type types[PN_TYPE_N];
    uint32_t type_n = matmul_types(types);
    for (uint32_t i = 0; i < type_n; i++) {
        struct rng r = {77 + i};
        struct pn_weight w;
        uint32_t col_n = cols_of(types[i]);
        weight_make(&r, types[i], 8, col_n, &w);
        float x[768], out[8], row[768];
        double value[768], err[768];
        rng_fill(&r, x, col_n, 1);
        act_values(types[i], x, col_n, value, err);
        struct backend b;
        backend_open(&b, PN_ISA_REF, 1);
        run(&b, &w, NULL, x, 1, out);
        for (uint32_t n = 0; n < 8; n++) {
            double bound, sum = 0, moved = 0;
            oracle_dot(&w, n, value, &bound);
            pn__dequant_row(types[i], w.data + n * w.row_bytes, row, col_n);
            for (uint32_t k = 0; k < col_n; k++) {
                sum += (double)row[k] * x[k];
                moved += fabs((double)row[k]) * err[k];
            }
            ASSERT_NEAR(out[n], sum, bound + moved);
        }
        backend_close(&b);
        weight_free(&w);
    }
}

/* Law 3: each row's outputs in every batch, on every level, with every number of threads. */
static void check_same(enum pn_type type, const float *want, const struct pn_weight *w,
                       const float *x, enum pn_isa isa, uint32_t thread_n) {
    struct backend b;
    backend_open(&b, isa, thread_n);
    for (size_t i = 0; i < PN_ARRAY_N(batch_sizes); i++) {
        uint32_t size = batch_sizes[i];
        float *out = guarded_new(ROW_N * N);
        for (uint32_t at = 0; at < ROW_N; at += size) {
            uint32_t n = ROW_N - at < size ? ROW_N - at : size;
            run(&b, w, NULL, x + (uint64_t)at * w->col_n, n, out + at * N);
        }
        guarded_check(out, ROW_N * N);
        if (!same_bits(out, want, ROW_N * N))
            fail_msg("%s at %s, %u threads, batches of %u", pn__type_name(type), pn__isa_name(isa),
                     thread_n, size);
        guarded_free(out);
    }
    backend_close(&b);
}

static void test_same_bits(void **state) {
    (void)state;
    enum pn_type types[PN_TYPE_N];
    enum pn_isa levels[ISA_N];
    uint32_t type_n = matmul_types(types);
    uint32_t level_n = isa_list(levels);
    for (uint32_t i = 0; i < type_n; i++) {
        struct rng r = {4242 + i};
        struct pn_weight w;
        uint32_t col_n = cols_of(types[i]);
        weight_make(&r, types[i], N, col_n, &w);
        float *x = make_inputs(&r, ROW_N, col_n);
        /* Non-finite rows too: what comes out of them is NaN, and the others don't notice. */
        x[10 * col_n + 5] = NAN;
        x[20 * col_n + col_n - 1] = INFINITY;
        float *want = guarded_new(ROW_N * N);
        struct backend b;
        backend_open(&b, PN_ISA_REF, 1);
        run(&b, &w, NULL, x, ROW_N, want);
        backend_close(&b);
        for (uint32_t l = 0; l < level_n; l++)
            for (uint32_t t = 1; t <= 4; t++)
                check_same(types[i], want, &w, x, levels[l], t);
        guarded_free(want);
        free(x);
        weight_free(&w);
    }
}

/* Rows of any length and number against any number of inputs, `step` apart: tails of every tile.
 * any_bits: rows are any bits at all, so with infinities, NaNs, subnormals and extreme scales. */
static void check_shape(enum pn_type type, uint32_t col_n, uint32_t row_n, bool any_bits,
                        uint32_t step, uint64_t seed) {
    struct rng r = {seed};
    struct pn_weight w;
    enum pn_isa levels[ISA_N];
    uint32_t level_n = isa_list(levels);
    weight_make(&r, type, row_n, col_n, &w);
    uint8_t *bytes = (uint8_t *)w.data;
    for (uint64_t i = 0; any_bits && i < w.row_bytes * row_n; i++)
        bytes[i] = (uint8_t)rng_u32(&r);
    float *x = make_inputs(&r, ROW_N, col_n);
    float *bias = malloc(row_n * sizeof *bias);
    rng_fill(&r, bias, row_n, 1);
    float *want = guarded_new((uint64_t)ROW_N * row_n);
    struct backend b;
    backend_open(&b, PN_ISA_REF, 1);
    run(&b, &w, bias, x, ROW_N, want);
    backend_close(&b);
    for (uint32_t l = 0; l < level_n; l++) {
        backend_open(&b, levels[l], 1 + l % 2);
        for (uint32_t m = 1; m <= ROW_N; m += m < 9 ? 1 : step) {
            float *out = guarded_new((uint64_t)m * row_n);
            run(&b, &w, bias, x, m, out);
            guarded_check(out, (uint64_t)m * row_n);
            if (!same_bits(out, want, (uint64_t)m * row_n))
                fail_msg("%s of %u x %u at %s, %u rows, seed %llu", pn__type_name(type), row_n,
                         col_n, pn__isa_name(levels[l]), m, (unsigned long long)seed);
            guarded_free(out);
        }
        backend_close(&b);
    }
    guarded_free(want);
    free(bias);
    free(x);
    weight_free(&w);
}

static void test_float_shapes(void **state) {
    (void)state;
    static const enum pn_type types[] = {PN_TYPE_F32, PN_TYPE_F16, PN_TYPE_BF16};
    static const uint32_t shapes[][2] = {{1, 1},   {5, 4},   {15, 9},  {16, 8},   {17, 3},
                                         {31, 17}, {32, 16}, {33, 2},  {47, 21},  {64, 64},
                                         {95, 67}, {100, 5}, {130, 1}, {2049, 7}, {3101, 6}};
    for (size_t t = 0; t < PN_ARRAY_N(types); t++)
        for (size_t i = 0; i < PN_ARRAY_N(shapes); i++)
            check_shape(types[t], shapes[i][0], shapes[i][1], shapes[i][0] < 40, 1,
                        1000 * t + i + 1);
}

static void test_block_shapes(void **state) {
    (void)state;
    static const uint32_t shapes[][2] = {{1, 16}, {2, 17}, {3, 33}, {5, 15}, {9, 64}, {1, 131}};
    enum pn_type types[PN_TYPE_N];
    uint32_t type_n = matmul_types(types);
    for (uint32_t t = 0; t < type_n; t++)
        for (size_t i = 0; pn__unit_fn(types[t]) && i < PN_ARRAY_N(shapes); i++) {
            uint32_t block_n = pn__type_info(types[t])->block_n;
            check_shape(types[t], shapes[i][0] * block_n, shapes[i][1], i % 2, 20,
                        100000 + 1000 * t + i);
        }
}

static void test_non_finite(void **state) {
    (void)state;
    enum pn_type types[PN_TYPE_N];
    uint32_t type_n = matmul_types(types);
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (uint32_t i = 0; i < type_n; i++) {
        struct rng r = {99 + i};
        struct pn_weight w;
        uint32_t col_n = cols_of(types[i]);
        weight_make(&r, types[i], N, col_n, &w);
        for (size_t v = 0; v < PN_ARRAY_N(bad); v++) {
            float x[768], out[N];
            rng_fill(&r, x, col_n, 1);
            x[rng_below(&r, col_n)] = bad[v];
            struct backend b;
            backend_open(&b, PN_ISA_REF, 2);
            run(&b, &w, NULL, x, 1, out);
            backend_close(&b);
            for (uint32_t n = 0; n < N; n++)
                if (isfinite(out[n])) fail_msg("%s hid a %g", pn__type_name(types[i]), bad[v]);
        }
        weight_free(&w);
    }
}

/* Several matrices of different kinds and heights in one call, with bias, scale and strides. */
static void test_parts(void **state) {
    (void)state;
    static const enum pn_type types[] = {PN_TYPE_Q4_K, PN_TYPE_F16, PN_TYPE_Q8_0, PN_TYPE_BF16,
                                         PN_TYPE_Q6_K, PN_TYPE_F32, PN_TYPE_Q4_1, PN_TYPE_NVFP4};
    enum { K = 256, M = 5, STRIDE = 300 };
    struct rng r = {5};
    struct pn_weight w[PN_MATMUL_MAX];
    struct pn_matmul parts[PN_MATMUL_MAX];
    float x[M * STRIDE], bias[200];
    rng_fill(&r, x, M * STRIDE, 1);
    rng_fill(&r, bias, 200, 1);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < PN_MATMUL_MAX; i++) {
        uint32_t n = 1 + 27 * i;
        weight_make(&r, types[i], n, K, &w[i]);
        w[i].scale = i % 2 ? 1.0f : 1.7f;
        float *out = guarded_new(M * STRIDE);
        parts[i] = (struct pn_matmul){&w[i], i % 3 ? bias : NULL, {out, M, n, STRIDE}};
        bytes += w[i].row_bytes * n;
    }
    struct backend b;
    backend_open(&b, PN_ISA_REF, 3);
    pn__op_matmul(&b.step, (struct pn_mat){x, M, K, STRIDE}, parts, PN_MATMUL_MAX);
    for (uint32_t i = 0; i < PN_MATMUL_MAX; i++) {
        for (uint32_t m = 0; m < M; m++)
            for (uint32_t n = 0; n < w[i].row_n; n++) {
                float want = canonical_dot(&w[i], n, x + m * STRIDE);
                if (parts[i].bias) want += bias[n];
                assert_memory_equal(&parts[i].out.data[m * STRIDE + n], &want, 4);
            }
        guarded_check(parts[i].out.data, M * STRIDE);
        guarded_free(parts[i].out.data);
        weight_free(&w[i]);
    }
    assert_int_equal(b.step.stats.matmul_n, PN_MATMUL_MAX);
    assert_int_equal(b.step.stats.sweep_n, PN_MATMUL_MAX);
    assert_int_equal(b.step.stats.weight_bytes, bytes);
    assert_int_equal(b.step.stats.row_max, M);
    assert_int_equal(b.step.stats.thread_n, 3);
    backend_close(&b);
}

/* Whatever the batch, the weights are read once; and no operation allocates. */
static void test_stats(void **state) {
    (void)state;
    struct rng r = {6};
    struct pn_weight w;
    weight_make(&r, PN_TYPE_Q4_0, 128, 512, &w);
    float *x = make_inputs(&r, BACKEND_ROW_MAX, 512);
    float *out = guarded_new(BACKEND_ROW_MAX * 128);
    for (uint32_t t = 1; t <= 4; t++) {
        struct backend b;
        backend_open(&b, PN_ISA_REF, t);
        uint64_t allocs = pn__alloc_count();
        run(&b, &w, NULL, x, BACKEND_ROW_MAX, out);
        assert_int_equal(pn__alloc_count(), allocs);
        assert_int_equal(b.step.stats.sweep_n, 1);
        assert_int_equal(b.step.stats.weight_bytes, 128 * w.row_bytes);
        assert_int_equal(b.step.stats.row_max, BACKEND_ROW_MAX);
        assert_int_equal(b.step.stats.thread_n, t);
        run(&b, &w, NULL, x, 1, out);
        assert_int_equal(b.step.stats.matmul_n, 2);
        assert_int_equal(b.step.stats.sweep_n, 2);
        backend_close(&b);
    }
    guarded_free(out);
    free(x);
    weight_free(&w);
}

/* A thread without rows of its own did not take part. */
static void test_idle_threads_not_counted(void **state) {
    (void)state;
    struct rng r = {8};
    struct pn_weight w;
    weight_make(&r, PN_TYPE_F32, 32, 512, &w); /* two shares of 16 rows, nothing to prepare */
    float *x = make_inputs(&r, 8, 512);
    float *out = guarded_new(8 * 32);
    struct backend b;
    backend_open(&b, PN_ISA_REF, 4);
    run(&b, &w, NULL, x, 8, out);
    assert_int_equal(b.step.stats.thread_n, 2);
    backend_close(&b);
    guarded_free(out);
    free(x);
    weight_free(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_float_oracle),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_float_shapes),
        cmocka_unit_test(test_block_shapes),
        cmocka_unit_test(test_non_finite),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_stats),
        cmocka_unit_test(test_idle_threads_not_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
