/* A matrix for each head: every type's rows have the bits of the definition, whatever the rows,
 * levels and threads; strides are kept to; the transposed product in its own order. */
#include "ops/matmul_data.h"

#define HEADS 5
#define ROWS_MAX 37
#define GAP 9 /* floats behind each head's part that nobody may touch */

struct heads_case {
    struct pn_weight w; /* HEADS matrices, one behind the other, with rows between them */
    struct pn_head_weights stack;
    uint32_t row_n;
    uint32_t in_dim;
    uint32_t out_dim;
    bool across;
    float *x; /* [row_n, HEADS, in_dim + GAP] */
};

/* `spare` rows of the tensor lie behind each head's matrix. */
static void case_init(struct heads_case *c, uint64_t seed, enum pn_type type, uint32_t row_n,
                      uint32_t w_rows, uint32_t w_cols, uint32_t spare, bool across) {
    struct rng r = {seed};
    *c = (struct heads_case){.row_n = row_n,
                             .in_dim = across ? w_rows : w_cols,
                             .out_dim = across ? w_cols : w_rows,
                             .across = across};
    weight_make(&r, type, HEADS * (w_rows + spare), w_cols, &c->w);
    c->w.scale = 0.75f;
    c->stack = (struct pn_head_weights){c->w, (w_rows + spare) * c->w.row_bytes, NULL};
    c->stack.w.row_n = w_rows;
    uint64_t n = (uint64_t)row_n * HEADS * (c->in_dim + GAP);
    c->x = malloc(n * sizeof *c->x);
    assert_non_null(c->x);
    rng_fill(&r, c->x, n, 2);
}

static void case_free(struct heads_case *c) {
    weight_free(&c->w);
    free(c->x);
}

static struct pn_heads spaced(float *data, uint32_t row_n, uint32_t dim) {
    return (struct pn_heads){data, row_n, HEADS, dim, (uint64_t)HEADS * (dim + GAP), dim + GAP};
}

static uint64_t out_n(const struct heads_case *c) {
    return (uint64_t)c->row_n * HEADS * (c->out_dim + GAP);
}

static void run(struct backend *b, void *user, float *out) {
    struct heads_case *c = user;
    for (uint64_t i = 0; i < out_n(c); i++)
        out[i] = 77.0f;
    struct pn_heads x = spaced(c->x, c->row_n, c->in_dim);
    struct pn_heads y = spaced(out, c->row_n, c->out_dim);
    uint64_t swept_n = b->step.stats.sweep_n;
    if (c->across)
        pn__op_matmul_heads_t(&b->step, x, &c->stack, y);
    else
        pn__op_matmul_heads(&b->step, x, &c->stack, y);
    assert_int_equal(b->step.stats.sweep_n, swept_n + 1);
}

static void check(struct heads_case *c) {
    float *want = malloc(c->out_dim * sizeof *want);
    float *row = malloc(c->stack.w.col_n * sizeof *row);
    assert_true(want && row);
    float *got = reference_run(run, c, out_n(c));
    for (uint32_t r = 0; r < c->row_n; r++)
        for (uint32_t h = 0; h < HEADS; h++) {
            const float *x = c->x + ((uint64_t)r * HEADS + h) * (c->in_dim + GAP);
            const float *y = got + ((uint64_t)r * HEADS + h) * (c->out_dim + GAP);
            struct pn_weight w = c->stack.w;
            w.data += h * c->stack.head_bytes;
            memset(want, 0, c->out_dim * sizeof *want);
            for (uint32_t i = 0; i < w.row_n; i++) {
                if (!c->across) want[i] = canonical_dot(&w, i, x);
                if (!c->across) continue;
                pn__dequant_row(w.type, w.data + i * w.row_bytes, row, w.col_n);
                for (uint32_t k = 0; k < w.col_n; k++)
                    want[k] = fmaf(x[i], row[k], want[k]);
            }
            for (uint32_t k = 0; c->across && k < c->out_dim; k++)
                want[k] *= w.scale;
            assert_true(same_bits(y, want, c->out_dim));
            for (uint32_t k = 0; k < GAP; k++)
                assert_true(y[c->out_dim + k] == 77.0f);
        }
    same_everywhere(run, c, got, out_n(c));
    guarded_free(got);
    free(want);
    free(row);
}

static const uint32_t row_ns[] = {1, 3, ROWS_MAX};

static void test_every_type(void **state) {
    (void)state;
    enum pn_type types[PN_TYPE_N];
    uint32_t type_n = matmul_types(types);
    for (uint32_t i = 0; i < type_n; i++)
        for (size_t k = 0; k < PN_ARRAY_N(row_ns); k++) {
            struct heads_case c;
            case_init(&c, 10 * i + k, types[i], row_ns[k], 33, 256, k, false);
            check(&c);
            case_free(&c);
        }
}

/* Dims of the tiny files: fewer rows than a kernel takes at once, columns that end anywhere. */
static void test_small(void **state) {
    (void)state;
    static const uint32_t shapes[][2] = {{24, 16}, {16, 24}, {1, 5}, {7, 40}};
    for (size_t i = 0; i < PN_ARRAY_N(shapes); i++)
        for (size_t k = 0; k < PN_ARRAY_N(row_ns); k++) {
            struct heads_case c;
            case_init(&c, 500 + i, PN_TYPE_F32, row_ns[k], shapes[i][0], shapes[i][1], 0, false);
            check(&c);
            case_free(&c);
        }
}

static void test_across(void **state) {
    (void)state;
    static const enum pn_type types[] = {PN_TYPE_F32, PN_TYPE_F16, PN_TYPE_BF16, PN_TYPE_Q8_0,
                                         PN_TYPE_Q4_K};
    for (size_t i = 0; i < PN_ARRAY_N(types); i++)
        for (size_t k = 0; k < PN_ARRAY_N(row_ns); k++) {
            struct heads_case c;
            case_init(&c, 700 + i, types[i], row_ns[k], 21, 512, 13, true);
            check(&c);
            case_free(&c);
        }
}

static void test_copy(void **state) {
    (void)state;
    enum { ROWS = 9, DIM = 64, WIDE = 192 };
    static float x[ROWS * HEADS * WIDE], y[ROWS * HEADS * WIDE];
    struct rng r = {3};
    rng_fill(&r, x, PN_ARRAY_N(x), 1);
    struct backend b;
    backend_open(&b, PN_ISA_REF, 3);
    struct pn_heads from = {x + 128, ROWS, HEADS, DIM, HEADS * WIDE, WIDE};
    struct pn_heads to = {y + 10, ROWS, HEADS, DIM, HEADS * WIDE, WIDE};
    pn__op_copy_heads(&b.step, from, to);
    backend_close(&b);
    for (int i = 0; i < ROWS * HEADS * WIDE; i++) {
        int at = i % WIDE - 10;
        assert_true(y[i] == (at >= 0 && at < DIM ? x[i / WIDE * WIDE + 128 + at] : 0.0f));
    }
}

int main(void) {
    backend_config.head_col_max = 512;
    backend_config.col_max = 512;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_across),
        cmocka_unit_test(test_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
