/* The experts' operation has the bits of the plain operations put together row by row: for each
 * row and each of its experts gate, up, act, down, and the sum in router order. At every level,
 * whatever the threads, the rows, the types and where the experts lie. */
#include "ops/matmul_data.h"

#define ROW_MAX 70
#define TOP_K 4
#define EXPERTS 12
#define EMBD 256
#define EMBD_OUT 87 /* down's rows: neither a multiple of 4 nor of 16 */
#define FF_MAX 256

struct mixture {
    struct pn_experts e;
    struct pn_weight all[3]; /* every expert's gate, up, down stacked */
    float scales[EXPERTS];
    float biases[EXPERTS * (FF_MAX + 100)];
    struct pn_expert_view views[EXPERTS];
    float x[ROW_MAX * EMBD];
    uint32_t row_n;
    int32_t ids[ROW_MAX * TOP_K];
    float weights[ROW_MAX * TOP_K];
    bool plain; /* by plain operations */
};

static void part_init(struct mixture *t, struct rng *r, int which, enum pn_type type,
                      uint32_t row_n, uint32_t col_n, struct pn_expert_part *out) {
    weight_make(r, type, EXPERTS * row_n, col_n, &t->all[which]);
    *out = (struct pn_expert_part){.w = t->all[which],
                                   .expert_bytes = row_n * t->all[which].row_bytes};
    out->w.row_n = row_n;
}

static struct mixture *mixture_new(uint64_t seed, const enum pn_type types[3], uint32_t ff) {
    struct mixture *t = calloc(1, sizeof *t);
    assert_non_null(t);
    struct rng r = {seed};
    t->e = (struct pn_experts){.expert_n = EXPERTS, .act = PN_ACT_FN_SILU};
    part_init(t, &r, 0, types[0], ff, EMBD, &t->e.gate);
    part_init(t, &r, 1, types[1], ff, EMBD, &t->e.up);
    part_init(t, &r, 2, types[2], EMBD_OUT, ff, &t->e.down);
    rng_fill(&r, t->x, ROW_MAX * EMBD, 0.5f);
    rng_fill(&r, t->biases, PN_ARRAY_N(t->biases), 0.2f);
    for (uint32_t i = 0; i < EXPERTS; i++)
        t->scales[i] = 0.5f + (float)i / 8;
    /* Experts of unequal popularity: one takes nearly every row, some none. */
    for (uint32_t m = 0; m < ROW_MAX; m++) {
        for (uint32_t k = 0; k < TOP_K; k++) {
            int32_t id = k == m % TOP_K && m % 9 ? 7 : (int32_t)rng_below(&r, EXPERTS - 2);
            bool again = true;
            while (again) {
                again = false;
                for (uint32_t j = 0; j < k; j++)
                    again = again || t->ids[m * TOP_K + j] == id;
                if (again) id = (id + 1) % (EXPERTS - 1);
            }
            t->ids[m * TOP_K + k] = id;
            t->weights[m * TOP_K + k] = rng_float(&r);
        }
    }
    return t;
}

static void mixture_free(struct mixture *t) {
    for (int i = 0; i < 3; i++)
        weight_free(&t->all[i]);
    free(t);
}

static void one_matmul(struct backend *b, const struct pn_expert_part *p, uint32_t id, float *x,
                       float *out) {
    struct pn_weight w = p->w;
    w.data += id * p->expert_bytes;
    if (p->scales) w.scale = p->scales[id];
    struct pn_matmul part = {&w, p->bias ? p->bias + id * p->bias_stride : NULL,
                             mat(out, 1, w.row_n)};
    pn__op_matmul(&b->step, mat(x, 1, w.col_n), &part, 1);
}

static void run_plain(struct backend *b, struct mixture *t, float *out) {
    uint32_t ff = t->e.gate.w.row_n;
    float gate[FF_MAX], up[FF_MAX], y[EMBD_OUT];
    for (uint32_t m = 0; m < t->row_n; m++) {
        float *to = out + m * EMBD_OUT;
        for (uint32_t i = 0; i < EMBD_OUT; i++)
            to[i] = t->ids[m * TOP_K] < 0 ? NAN : 0;
        for (uint32_t k = 0; k < TOP_K; k++) {
            int32_t id = t->ids[m * TOP_K + k];
            if (id < 0) continue;
            one_matmul(b, &t->e.gate, (uint32_t)id, t->x + m * EMBD, gate);
            one_matmul(b, &t->e.up, (uint32_t)id, t->x + m * EMBD, up);
            pn__op_glu(&b->step, t->e.act, mat(gate, 1, ff), mat(up, 1, ff), mat(gate, 1, ff));
            one_matmul(b, &t->e.down, (uint32_t)id, gate, y);
            for (uint32_t i = 0; i < EMBD_OUT; i++)
                to[i] = fmaf(t->weights[m * TOP_K + k], y[i], to[i]);
        }
    }
}

static void run(struct backend *b, void *user, float *out) {
    struct mixture *t = user;
    uint32_t faults[ROW_MAX] = {0};
    if (t->plain) {
        run_plain(b, t, out);
        return;
    }
    struct pn_route route = {t->ids, mat(t->weights, t->row_n, TOP_K), faults, t->row_n, TOP_K};
    pn__op_experts(&b->step, mat(t->x, t->row_n, EMBD), &t->e, &route,
                   mat(out, t->row_n, EMBD_OUT));
}

static const uint32_t row_counts[] = {1, 2, 3, 5, 16, 41, ROW_MAX};

static void check_rows(struct mixture *t) {
    for (size_t i = 0; i < PN_ARRAY_N(row_counts); i++) {
        uint64_t n = row_counts[i] * EMBD_OUT;
        t->row_n = row_counts[i];
        t->plain = true;
        float *want = reference_run(run, t, n);
        t->plain = false;
        same_everywhere(run, t, want, n);
        guarded_free(want);
    }
}

static void test_types(void **state) {
    (void)state;
    static const enum pn_type mixes[][3] = {
        {PN_TYPE_F32, PN_TYPE_F32, PN_TYPE_F32},
        {PN_TYPE_F16, PN_TYPE_F16, PN_TYPE_F16},
        {PN_TYPE_BF16, PN_TYPE_BF16, PN_TYPE_BF16},
        {PN_TYPE_Q4_0, PN_TYPE_Q4_0, PN_TYPE_Q4_0},
        {PN_TYPE_Q8_0, PN_TYPE_Q8_0, PN_TYPE_Q8_0},
        {PN_TYPE_Q4_K, PN_TYPE_Q4_K, PN_TYPE_Q6_K},
        {PN_TYPE_Q4_K, PN_TYPE_Q8_0, PN_TYPE_F16},
        {PN_TYPE_F32, PN_TYPE_BF16, PN_TYPE_Q4_1},
        {PN_TYPE_MXFP4, PN_TYPE_MXFP4, PN_TYPE_Q5_K},
        {PN_TYPE_IQ4_NL, PN_TYPE_Q4_0, PN_TYPE_IQ2_XS},
    };
    for (size_t i = 0; i < PN_ARRAY_N(mixes); i++) {
        struct mixture *t = mixture_new(11 + i, mixes[i], FF_MAX);
        check_rows(t);
        mixture_free(t);
    }
}

/* Widths with tails, and narrower than a kernel's sixteen rows. */
static void test_widths(void **state) {
    (void)state;
    static const enum pn_type q8[3] = {PN_TYPE_Q8_0, PN_TYPE_Q8_0, PN_TYPE_Q8_0};
    static const enum pn_type f32[3] = {PN_TYPE_F32, PN_TYPE_F32, PN_TYPE_F32};
    static const uint32_t floats[] = {1, 5, 24, 100};
    for (size_t i = 0; i < PN_ARRAY_N(floats); i++) {
        struct mixture *t = mixture_new(31 + i, f32, floats[i]);
        check_rows(t);
        mixture_free(t);
    }
    for (uint32_t ff = 32; ff <= 160; ff += 64) {
        struct mixture *t = mixture_new(41 + ff, q8, ff);
        check_rows(t);
        mixture_free(t);
    }
}

static void test_bias_scale_act(void **state) {
    (void)state;
    static const enum pn_type mix[3] = {PN_TYPE_MXFP4, PN_TYPE_NVFP4, PN_TYPE_Q8_0};
    struct mixture *t = mixture_new(77, mix, FF_MAX);
    t->e.act = PN_ACT_FN_SWIGLU_CLAMPED;
    t->e.gate.bias = t->biases;
    t->e.up.bias = t->biases + 40;
    t->e.down.bias = t->biases + 80;
    t->e.gate.bias_stride = t->e.up.bias_stride = FF_MAX;
    t->e.down.bias_stride = FF_MAX + 1;
    t->e.up.scales = t->scales;
    check_rows(t);
    mixture_free(t);
}

/* Gate and up in one tensor; and experts that a store has put anywhere. */
static void test_places(void **state) {
    (void)state;
    static const enum pn_type mix[3] = {PN_TYPE_Q4_0, PN_TYPE_Q4_0, PN_TYPE_Q4_0};
    struct mixture *t = mixture_new(78, mix, FF_MAX);
    struct pn_experts in_place = t->e;
    uint64_t half = in_place.gate.expert_bytes;
    uint8_t *fused = malloc(2 * EXPERTS * half);
    uint8_t *apart[EXPERTS];
    assert_non_null(fused);
    for (uint32_t i = 0; i < EXPERTS; i++) {
        uint32_t slot = EXPERTS - 1 - i;
        uint64_t down = in_place.down.expert_bytes;
        memcpy(fused + 2 * i * half, in_place.gate.w.data + i * half, half);
        memcpy(fused + (2 * i + 1) * half, in_place.up.w.data + i * half, half);
        apart[slot] = malloc(2 * half + down);
        assert_non_null(apart[slot]);
        memcpy(apart[slot], in_place.gate.w.data + i * half, half);
        memcpy(apart[slot] + half, in_place.up.w.data + i * half, half);
        memcpy(apart[slot] + 2 * half, in_place.down.w.data + i * down, down);
        t->views[i] =
            (struct pn_expert_view){apart[slot], apart[slot] + half, apart[slot] + 2 * half};
    }
    t->row_n = 41;
    uint64_t n = t->row_n * EMBD_OUT;
    float *want = reference_run(run, t, n);
    t->e.gate.w.data = fused;
    t->e.up.w.data = fused + half;
    t->e.gate.expert_bytes = t->e.up.expert_bytes = 2 * half;
    same_everywhere(run, t, want, n);
    t->e = in_place;
    t->e.gate.w.data = t->e.up.w.data = t->e.down.w.data = NULL;
    t->e.views = t->views;
    same_everywhere(run, t, want, n);
    guarded_free(want);
    for (uint32_t i = 0; i < EXPERTS; i++)
        free(apart[i]);
    free(fused);
    mixture_free(t);
}

/* Rows with a fault are NaN; their neighbours don't notice. Also when there is nothing else. */
static void test_faults(void **state) {
    (void)state;
    static const enum pn_type mix[3] = {PN_TYPE_Q4_0, PN_TYPE_Q4_0, PN_TYPE_Q4_0};
    struct mixture *t = mixture_new(79, mix, FF_MAX);
    for (uint32_t i = 0; i < 2 * TOP_K; i++) {
        t->ids[i] = -1;
        t->weights[i] = NAN;
    }
    check_rows(t);
    mixture_free(t);
}

/* Each expert that is used is read once, whatever the number of rows. */
static void test_read_once(void **state) {
    (void)state;
    static const enum pn_type mix[3] = {PN_TYPE_Q4_0, PN_TYPE_Q4_K, PN_TYPE_Q8_0};
    struct mixture *t = mixture_new(80, mix, FF_MAX);
    for (uint32_t thread_n = 1; thread_n <= 4; thread_n++) {
        for (size_t i = 0; i < PN_ARRAY_N(row_counts); i++) {
            struct backend b;
            bool used[EXPERTS] = {false};
            uint64_t used_n = 0;
            t->row_n = row_counts[i];
            for (uint32_t k = 0; k < t->row_n * TOP_K; k++)
                used[t->ids[k]] = true;
            for (uint32_t id = 0; id < EXPERTS; id++)
                used_n += used[id];
            float *out = guarded_new(t->row_n * EMBD_OUT);
            backend_open(&b, pn__isa_best(PN_ISA_NEON), thread_n);
            run(&b, t, out);
            assert_int_equal(b.step.stats.matmul_n, 3 * used_n);
            assert_int_equal(b.step.stats.sweep_n, 3 * used_n);
            assert_int_equal(
                b.step.stats.weight_bytes,
                used_n * (t->e.gate.expert_bytes + t->e.up.expert_bytes + t->e.down.expert_bytes));
            backend_close(&b);
            guarded_free(out);
        }
    }
    mixture_free(t);
}

int main(void) {
    backend_config.row_max = ROW_MAX;
    backend_config.col_max = EMBD;
    backend_config.expert_max = EXPERTS;
    backend_config.top_k_max = TOP_K;
    backend_config.expert_ff_max = FF_MAX;
    backend_config.expert_acts = ~0u;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),          cmocka_unit_test(test_widths),
        cmocka_unit_test(test_bias_scale_act), cmocka_unit_test(test_places),
        cmocka_unit_test(test_faults),         cmocka_unit_test(test_read_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
