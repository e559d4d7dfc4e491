/* From a file's rope keys to the table of cosines and sines that a step uses, against formulas
 * written out once more here (yarn: arXiv:2309.00071). */
#include <math.h>

#include "core/mem/pn_block.h"
#include "engine/golden.h"
#include "engine/tiny.h"
#include "models/model.h"

#define TAU 6.28318530717958647692
#define POSITION_N 4

static const uint32_t positions[POSITION_N] = {0, 31, 32, 127};

static void read_rope(const struct tiny *t, struct pn_rope *rope) {
    char path[128];
    struct pn_detail d = {{0}};
    struct pn_gguf *g;
    const struct pn_family *family;
    struct pn_hparams h;
    snprintf(path, sizeof path, "%s/rope.gguf", tiny_tree.root);
    tiny_write(t, NULL, path);
    PN_ASSERT_OK(pn__gguf_open(path, &d, &g), &d);
    PN_ASSERT_OK(pn__family_find(g, &d, &family), &d);
    PN_ASSERT_OK(pn__model_hparams(g, family, &h, &d), &d);
    pn__gguf_close(g);
    *rope = h.rope;
}

static void make_table(const struct pn_rope *rope, float *out) {
    struct pn_detail d = {{0}};
    struct pn_cpu_config config = {.thread_n = 1, .row_max = 8, .col_max = 64, .dim_max = 64};
    struct pn_block scratch;
    struct pn_cpu *cpu;
    struct pn_step step;
    PN_ASSERT_OK(pn__block_new(PN_OWNER_SCRATCH, pn__cpu_scratch_bytes(&config), PN_BLOCK_COMMIT,
                               &d, &scratch),
                 &d);
    PN_ASSERT_OK(pn__cpu_new(&config, scratch.data, &d, &cpu), &d);
    struct pn_mat table = {
        .data = out, .row_n = POSITION_N, .col_n = rope->dim_n, .stride = rope->dim_n};
    pn__step_begin(&step, cpu);
    pn__op_rope_table(&step, rope, positions, table);
    pn__step_end(&step);
    pn__cpu_free(cpu);
    pn__block_free(&scratch);
}

/* How often a pair turns within the trained length decides how far it is interpolated. */
static double yarn_share(uint32_t i, uint32_t dim, double length) {
    double bound[2];
    static const double turns[2] = {32.0, 1.0};
    for (int k = 0; k < 2; k++) {
        bound[k] = dim * log(length / (turns[k] * TAU)) / (2.0 * log(10000.0));
    }
    double low = floor(bound[0]) < 0.0 ? 0.0 : floor(bound[0]);
    double high = ceil(bound[1]) > dim - 1.0 ? dim - 1.0 : ceil(bound[1]);
    double width = high - low < 0.001 ? 0.001 : high - low;
    double share = (i - low) / width;
    return share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
}

enum scaling { NONE, LINEAR, YARN };

static void compare(const float *table, uint32_t dim, enum scaling how, double factor,
                    double length) {
    double magnitude = how == YARN ? 1.0 + 0.1 * log(factor) : 1.0;
    for (uint32_t p = 0; p < POSITION_N; p++) {
        for (uint32_t i = 0; i < dim / 2; i++) {
            double turn = pow(10000.0, -2.0 * i / dim);
            double share = how == NONE ? 0.0 : how == LINEAR ? 1.0 : yarn_share(i, dim, length);
            double angle = positions[p] * turn * (1.0 - share + share / factor);
            const float *at = table + p * dim + 2 * (size_t)i;
            if (fabs((double)at[0] - cos(angle) * magnitude) < 1.5e-7 &&
                fabs((double)at[1] - sin(angle) * magnitude) < 1.5e-7) {
                continue;
            }
            fail_msg("scaling %d, position %u, pair %u: %.9g and %.9g", how, positions[p], i,
                     (double)at[0], (double)at[1]);
        }
    }
}

static void tables(void **state) {
    (void)state;
    static const struct {
        const char *type;
        enum scaling how;
    } rows[] = {{NULL, NONE}, {"none", NONE}, {"linear", LINEAR}, {"yarn", YARN}};
    static const uint32_t dims[] = {8, 32, 64};
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        for (size_t k = 0; k < PN_ARRAY_N(dims); k++) {
            float table[POSITION_N * 64];
            struct pn_rope rope;
            struct tiny t = tiny_llama;
            t.ctx = 128;
            t.head_dim = dims[k];
            t.rope_type = rows[i].type;
            t.rope_factor = 4.0f;
            t.rope_ctx = rows[i].how == YARN ? 32 : 0;
            read_rope(&t, &rope);
            assert_int_equal(rope.dim_n, dims[k]);
            make_table(&rope, table);
            compare(table, dims[k], rows[i].how, 4.0, 32.0);
        }
    }
}

/* Without an original length, yarn is measured by the trained one. */
static void yarn_without_length(void **state) {
    (void)state;
    float table[POSITION_N * 64];
    struct pn_rope rope;
    struct tiny t = tiny_llama;
    t.ctx = 512;
    t.head_dim = 64;
    t.rope_type = "yarn";
    t.rope_factor = 8.0f;
    read_rope(&t, &rope);
    make_table(&rope, table);
    compare(table, 64, YARN, 8.0, 512.0);
}

/* Window layers of gemma3 are never scaled; the others are. */
static void window_layers_are_not_scaled(void **state) {
    (void)state;
    char path[128];
    float table[POSITION_N * 64];
    struct pn_detail d = {{0}};
    struct pn_gguf *g;
    const struct pn_family *family;
    struct pn_hparams h;
    struct tiny t = tiny_gemma3;
    t.rope_type = "linear";
    t.rope_factor = 4.0f;
    snprintf(path, sizeof path, "%s/gemma3.gguf", tiny_tree.root);
    tiny_write(&t, NULL, path);
    PN_ASSERT_OK(pn__gguf_open(path, &d, &g), &d);
    PN_ASSERT_OK(pn__family_find(g, &d, &family), &d);
    PN_ASSERT_OK(pn__model_hparams(g, family, &h, &d), &d);
    pn__gguf_close(g);
    make_table(&h.rope_local, table);
    compare(table, 8, NONE, 1.0, 0.0);
    make_table(&h.rope, table);
    compare(table, 8, LINEAR, 4.0, 0.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables),
        cmocka_unit_test(yarn_without_length),
        cmocka_unit_test(window_layers_are_not_scaled),
    };
    return cmocka_run_group_tests(tests, tiny_tree_setup, tiny_tree_teardown);
}
