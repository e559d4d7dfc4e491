/* Each small kernel of each level's table against the reference's, bit by bit: random and edge
 * values, every length up to 70 and some beyond, outputs between canaries, inputs that end where
 * memory does. Matmul and attention have programs of their own (test_matmul.c, test_attention.c).
 *
 * usage: test_kernels [--seed N] [--bench [NAME]]
 *
 * The seed is printed; a failure repeats with it. --bench measures instead: one thread, data in the
 * caches, the best of several runs; NAME picks the kernels whose names contain it. */
#include <time.h>

#include "ops/cpu/cpu.h"
#include "ops/cpu/x86_units.h"
#include "ops/matmul_data.h"

#define N_MAX 4096 /* longest vector */

static uint64_t seed;

/* What a vector kernel is given. x … w2 end at the end of memory. */
struct vec {
    struct fence fences[4];
    const float *x;
    const float *y;
    const float *w;
    const float *w2;
    float f;
    float eps;
    uint32_t n;
};

static void vec_new(struct vec *v) {
    for (int i = 0; i < 4; i++)
        fence_new(&v->fences[i], N_MAX * sizeof(float));
}

static void vec_free(struct vec *v) {
    for (int i = 0; i < 4; i++)
        fence_free(&v->fences[i]);
}

enum values {
    PLAIN,
    ZEROS,
    SUBNORMAL,
    HUGE_ONES,
    NEARLY_NOTHING, /* around what quantisation tells from zero */
    EQUAL,
    WIDE, /* any finite float */
    WITH_NAN,
    WITH_INF,
    VALUES_N,
};

static float any_finite(struct rng *r) {
    uint32_t bits = rng_u32(r);
    float f;
    if ((bits & 0x7f800000u) == 0x7f800000u) bits ^= 0x40000000u;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void fill(struct rng *r, float *x, uint32_t n, enum values values) {
    for (uint32_t i = 0; i < n; i++) {
        float f = rng_float(r);
        switch (values) {
        case ZEROS:
            x[i] = copysignf(0, f);
            break;
        case SUBNORMAL:
            x[i] = f * 0x1p-130f;
            break;
        case HUGE_ONES:
            x[i] = f * 0x1p127f;
            break;
        case NEARLY_NOTHING:
            x[i] = f * 0x1p-99f;
            break;
        case EQUAL:
            x[i] = copysignf(0.75f, f);
            break;
        case WIDE:
            x[i] = any_finite(r);
            break;
        default:
            x[i] = f * (i % 3 == 0 ? 40 : 2);
        }
    }
    if (values == WITH_NAN) x[rng_below(r, n)] = NAN;
    if (values == WITH_INF) x[rng_below(r, n)] = rng_u32(r) & 1 ? INFINITY : -INFINITY;
}

static void vec_fill(struct vec *v, struct rng *r, uint32_t n, enum values values) {
    float *at[4];
    for (int i = 0; i < 4; i++) {
        at[i] = fence_end(&v->fences[i], n * sizeof(float));
        fill(r, at[i], n, i == 0 || rng_u32(r) % 4 == 0 ? values : PLAIN);
    }
    v->x = at[0];
    v->y = at[1];
    v->w = at[2];
    v->w2 = at[3];
    v->f = rng_float(r) * 3;
    v->eps = 1e-6f;
    v->n = n;
}

/* ---- the kernels; what each writes is at most 2 n floats at out ---- */

static void run_add(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->add(out, v->y, v->n);
}

static void run_scale(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->scale(out, v->f, v->n);
}

static void run_glu_silu(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->glu[PN_ACT_FN_SILU](v->x, v->y, out, v->n);
}

static void run_glu_silu_over_gate(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->glu[PN_ACT_FN_SILU](out, v->y, out, v->n);
}

static void run_glu_silu_over_up(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->y, v->n * sizeof *out);
    k->glu[PN_ACT_FN_SILU](v->x, out, out, v->n);
}

static void run_glu_gelu(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->glu[PN_ACT_FN_GELU_TANH](v->x, v->y, out, v->n);
}

static void run_glu_gelu_half(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->glu[PN_ACT_FN_GELU_HALF](v->x, v->y, out, v->n);
}

static void run_sigmoid_gate(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->sigmoid_gate(out, v->y, v->n);
}

static void run_silu_gate(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->silu_gate(out, v->y, v->n);
}

static void run_delta_gates(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    memcpy(out + v->n, v->y, v->n * sizeof *out);
    k->delta_gates(out, out + v->n, v->w, v->w2, v->n);
}

static void run_rms_norm(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->rms_norm(v->x, v->w, v->eps, out, v->n);
}

static void run_rms_norm_in_place(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->rms_norm(out, v->w, v->eps, out, v->n);
}

static void run_l2_norm(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->l2_norm(out, v->eps, v->f, v->n);
}

static void run_rope(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->rope(out, v->y + v->n % 2, v->n & ~1u, false);
}

static void run_rope_neox(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->rope(out, v->y + v->n % 2, v->n & ~1u, true);
}

static void run_kv_f32(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->kv_store[PN_KV_F32](v->x, (uint8_t *)out, v->n);
}

static void run_kv_f16(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->kv_store[PN_KV_F16](v->x, (uint8_t *)out, v->n);
}

static void run_kv_q8_0(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->kv_store[PN_KV_Q8_0](v->x, (uint8_t *)out, v->n);
}

static void run_kv_q4(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->kv_store[PN_KV_Q4](v->x, (uint8_t *)out, v->n);
}

/* A row of n / block blocks, as the second of three that share a tile: codes, sums, scales. */
static void prepare(const struct pn_kernels *k, const struct vec *v, float *out,
                    enum pn_act_kind kind, uint32_t block_n) {
    uint32_t col_n = v->n / block_n * block_n;
    int8_t *q = (int8_t *)out;
    struct pn_acts a = {.x = v->x + (v->n - col_n),
                        .x_stride = 0,
                        .row_n = 3,
                        .col_n = col_n,
                        .tile = 3,
                        .q = q,
                        .sums = (int16_t *)(void *)(q + 3 * col_n),
                        .d = (float *)(void *)(q + 3 * col_n + 3 * col_n / PN_ACT_SUM_LEN * 2)};
    k->prepare[kind](&a, 1, 2);
}

static void run_prepare_q32(const struct pn_kernels *k, const struct vec *v, float *out) {
    prepare(k, v, out, PN_ACT_Q32, 32);
}

static void run_prepare_q256(const struct pn_kernels *k, const struct vec *v, float *out) {
    prepare(k, v, out, PN_ACT_Q256, 256);
}

/* Two halves of a number that is no float. */
static void put_u64(float *out, uint64_t bits) {
    float f[2] = {(float)(bits >> 40), (float)(bits & 0xffffff)};
    memcpy(out, f, sizeof f);
}

static void run_best(const struct pn_kernels *k, const struct vec *v, float *out) {
    put_u64(out, (uint64_t)k->best(v->x, v->n));
}

static void run_sum_exp(const struct pn_kernels *k, const struct vec *v, float *out) {
    double sum = k->sum_exp(v->x, v->n, 40.0f, 0.7);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    put_u64(out, isnan(sum) ? 0 : bits ^ bits << 24);
}

static const struct entry {
    const char *name;
    void (*run)(const struct pn_kernels *k, const struct vec *v, float *out);
    bool bytes;       /* what is written is no floats: a NaN has its exact bits too */
    uint32_t bench_n; /* a usual length */
} entries[] = {
    {"add", run_add, false, 2048},
    {"scale", run_scale, false, 2048},
    {"glu_silu", run_glu_silu, false, 2048},
    {"glu_silu_over_gate", run_glu_silu_over_gate, false, 0},
    {"glu_silu_over_up", run_glu_silu_over_up, false, 0},
    {"glu_gelu", run_glu_gelu, false, 2048},
    {"glu_gelu_half", run_glu_gelu_half, false, 2048},
    {"sigmoid_gate", run_sigmoid_gate, false, 256},
    {"silu_gate", run_silu_gate, false, 256},
    {"delta_gates", run_delta_gates, false, 32},
    {"best", run_best, false, 4096},
    {"sum_exp", run_sum_exp, false, 4096},
    {"rms_norm", run_rms_norm, false, 2048},
    {"rms_norm_in_place", run_rms_norm_in_place, false, 128},
    {"l2_norm", run_l2_norm, false, 128},
    {"rope", run_rope, false, 128},
    {"rope_neox", run_rope_neox, false, 128},
    {"kv_f32", run_kv_f32, true, 128},
    {"kv_f16", run_kv_f16, true, 128},
    {"kv_q8_0", run_kv_q8_0, true, 128},
    {"kv_q4", run_kv_q4, true, 128},
    {"prepare_q32", run_prepare_q32, true, 4096},
    {"prepare_q256", run_prepare_q256, true, 4096},
};

/* ---- comparing ---- */

static void check_entry(const struct entry *e, enum pn_isa isa, const struct pn_kernels *ref,
                        const struct pn_kernels *k) {
    struct rng r = {seed + (uint64_t)(e - entries)};
    struct vec v;
    vec_new(&v);
    for (uint32_t n = 1; n <= N_MAX; n = n < 70 ? n + 1 : n * 2 - 3) {
        for (int values = 0; values < VALUES_N; values++) {
            vec_fill(&v, &r, n, (enum values)values);
            uint32_t shift = rng_below(&r, 16); /* out begins anywhere in a line */
            uint64_t all_n = 2 * n + 16;
            float *want = guarded_new(all_n), *got = guarded_new(all_n);
            e->run(ref, &v, want + shift);
            e->run(k, &v, got + shift);
            guarded_check(got, all_n);
            bool same = e->bytes ? memcmp(want, got, all_n * sizeof *got) == 0
                                 : same_bits(want, got, all_n);
            if (!same)
                fail_msg("%s at %s: %u values of kind %d, --seed %llu", e->name, pn__isa_name(isa),
                         n, values, (unsigned long long)seed);
            guarded_free(want);
            guarded_free(got);
        }
    }
    vec_free(&v);
}

static void test_vectors(void **state) {
    (void)state;
    enum pn_isa levels[ISA_N];
    uint32_t level_n = isa_list(levels);
    struct backend ref, b;
    backend_open(&ref, PN_ISA_REF, 1);
    for (uint32_t l = 1; l < level_n; l++) {
        backend_open(&b, levels[l], 1);
        for (size_t i = 0; i < PN_ARRAY_N(entries); i++)
            check_entry(&entries[i], levels[l], &ref.cpu->kernels, &b.cpu->kernels);
        backend_close(&b);
    }
    backend_close(&ref);
}

/* ---- units ---- */

/* Any bits unpacked by AVX2 as by the definition. */
static void check_units(enum pn_type type, struct rng *r) {
#if defined(__x86_64__)
    const struct pn_type_info *info = pn__type_info(type);
    struct pn_unit_shape shape = pn__unit_shape(type);
    struct fence f;
    fence_new(&f, info->block_bytes);
    uint8_t *block = fence_end(&f, info->block_bytes);
    for (int round = 0; round < 300; round++) {
        for (uint32_t i = 0; i < info->block_bytes; i++)
            block[i] = (uint8_t)rng_u32(r);
        for (uint32_t u = 0; u < info->block_n / shape.unit_n; u++) {
            struct pn_unit want, got;
            memset(&want, 0x5a, sizeof want);
            memset(&got, 0x5a, sizeof got);
            pn__unit_unpack(type, block, u, &want);
            pn__unit_fn_x86(type)(block, u, &got);
            if (memcmp(want.codes, got.codes, shape.unit_n) != 0 ||
                memcmp(want.scales, got.scales, shape.sub_n * sizeof *want.scales) != 0 ||
                !same_bits(&want.d, &got.d, 1))
                fail_msg("%s, unit %u, --seed %llu", pn__type_name(type), u,
                         (unsigned long long)seed);
        }
    }
    fence_free(&f);
#else
    (void)type;
    (void)r;
#endif
}

static void test_units(void **state) {
    (void)state;
    if (pn__isa_best(PN_ISA_AVX2) != PN_ISA_AVX2) PN_SKIP_TEST("no AVX2 here");
    enum pn_type types[PN_TYPE_N];
    uint32_t n = matmul_types(types);
    struct rng r = {seed};
    for (uint32_t i = 0; i < n; i++)
        if (pn__unit_fn(types[i])) check_units(types[i], &r);
}

/* ---- recurrent layers ---- */

struct recurrent {
    float *in; /* all inputs, one after the other */
    uint64_t in_n;
    float *out; /* outputs and state */
    uint64_t out_n;
};

static void recurrent_new(struct recurrent *c, struct rng *r, uint64_t in_n, uint64_t out_n,
                          uint64_t state_n, enum values values) {
    *c = (struct recurrent){malloc(in_n * sizeof(float)), in_n, guarded_new(out_n + state_n),
                            out_n + state_n};
    assert_non_null(c->in);
    fill(r, c->in, (uint32_t)in_n, values);
    fill(r, c->out + out_n, (uint32_t)state_n, PLAIN);
}

static void recurrent_free(struct recurrent *c) {
    free(c->in);
    guarded_free(c->out);
}

static void conv_case(const struct pn_kernels *k, uint64_t case_seed, struct recurrent *c) {
    struct rng r = {case_seed};
    uint32_t col_n = 1 + rng_below(&r, 150), row_n = 1 + rng_below(&r, 9);
    uint32_t kernel_n = 1 + rng_below(&r, 11);
    uint64_t in_n = (uint64_t)col_n * row_n, w_n = (uint64_t)col_n * kernel_n;
    enum values values = (enum values)rng_below(&r, VALUES_N);
    recurrent_new(c, &r, in_n + w_n, in_n, (uint64_t)(kernel_n - 1) * col_n, values);
    struct pn_conv conv = {.x = c->in,
                           .out = c->out,
                           .x_stride = col_n,
                           .out_stride = col_n,
                           .state = c->out + in_n,
                           .w = c->in + in_n,
                           .row_n = row_n,
                           .col_n = col_n,
                           .kernel_n = kernel_n};
    uint32_t cut = rng_below(&r, col_n + 1);
    k->conv_silu(&conv, 0, cut);
    k->conv_silu(&conv, cut, col_n);
}

static void delta_case(const struct pn_kernels *k, uint64_t case_seed, struct recurrent *c) {
    struct rng r = {case_seed};
    uint32_t k_dim = 1 + rng_below(&r, 140), v_dim = 1 + rng_below(&r, 40);
    uint32_t row_n = 1 + rng_below(&r, r.state % 3 ? 5 : 150);
    enum values values = rng_u32(&r) % 4 ? PLAIN : (enum values)rng_below(&r, VALUES_N);
    uint64_t row = 2 * (uint64_t)k_dim + v_dim + 2;
    uint64_t out_n = (uint64_t)row_n * v_dim;
    recurrent_new(c, &r, row * row_n, out_n, (uint64_t)v_dim * k_dim, values);
    for (uint64_t i = 0; values == PLAIN && i < row * row_n; i++)
        c->in[i] *= 0.01f; /* states that neither vanish nor grow out of range */
    struct pn_delta delta = {.state = c->out + out_n,
                             .q = c->in,
                             .k = c->in + k_dim,
                             .v = c->in + 2 * (uint64_t)k_dim,
                             .out = c->out,
                             .g = c->in + 2 * (uint64_t)k_dim + v_dim,
                             .beta = c->in + 2 * (uint64_t)k_dim + v_dim + 1,
                             .q_stride = row,
                             .k_stride = row,
                             .v_stride = row,
                             .out_stride = v_dim,
                             .g_stride = row,
                             .beta_stride = row,
                             .row_n = row_n,
                             .k_dim = k_dim,
                             .v_dim = v_dim};
    uint32_t cut = rng_below(&r, v_dim + 1);
    k->delta_net(&delta, 0, cut);
    k->delta_net(&delta, cut, v_dim);
}

static void check_recurrent(const char *name,
                            void (*run)(const struct pn_kernels *k, uint64_t case_seed,
                                        struct recurrent *c)) {
    enum pn_isa levels[ISA_N];
    uint32_t level_n = isa_list(levels);
    struct backend ref, b;
    backend_open(&ref, PN_ISA_REF, 1);
    for (uint32_t l = 1; l < level_n; l++) {
        backend_open(&b, levels[l], 1);
        for (uint64_t i = 0; i < 200; i++) {
            struct recurrent want, got;
            run(&ref.cpu->kernels, seed + 7919 * i + 1, &want);
            run(&b.cpu->kernels, seed + 7919 * i + 1, &got);
            guarded_check(got.out, got.out_n);
            if (!same_bits(want.out, got.out, want.out_n))
                fail_msg("%s at %s: case %llu, --seed %llu", name, pn__isa_name(levels[l]),
                         (unsigned long long)i, (unsigned long long)seed);
            recurrent_free(&want);
            recurrent_free(&got);
        }
        backend_close(&b);
    }
    backend_close(&ref);
}

static void test_conv(void **state) {
    (void)state;
    check_recurrent("conv_silu", conv_case);
}

static void test_delta(void **state) {
    (void)state;
    check_recurrent("delta_net", delta_case);
}

/* ---- measuring ---- */

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Nanoseconds a call: the best of several rounds of some milliseconds. */
static double measure(void (*fn)(void *user), void *user) {
    double best = HUGE_VAL;
    uint64_t n = 1;
    for (int round = 0; round < 7; round++) {
        double start = now_ns();
        for (uint64_t i = 0; i < n; i++)
            fn(user);
        double took = now_ns() - start;
        if (took / (double)n < best) best = took / (double)n;
        if (took < 3e6) n = (uint64_t)((double)n * 4e6 / (took + 1)) + 1;
    }
    return best;
}

/* Prints `amount` of `unit` at each level, and the ratio to the reference. `amount` / ns is it. */
static void print_line(const char *name, const char *shape, double amount, const char *unit,
                       const double *ns, const enum pn_isa *levels, uint32_t level_n) {
    printf("%-14s %-18s", name, shape);
    for (uint32_t l = 0; l < level_n; l++) {
        printf("  %s %8.2f %s", pn__isa_name(levels[l]), amount / ns[l], unit);
        if (l > 0) printf(" x%-5.1f", ns[0] / ns[l]);
    }
    printf("\n");
    fflush(stdout);
}

struct vec_bench {
    const struct entry *e;
    const struct pn_kernels *k;
    struct vec v;
    float *out;
};

static void run_vec(void *user) {
    struct vec_bench *b = user;
    b->e->run(b->k, &b->v, b->out);
}

static void bench_vectors(const struct backend *levels, const enum pn_isa *isas, uint32_t level_n,
                          const char *filter) {
    struct rng r = {seed};
    struct vec_bench b = {.out = guarded_new(2 * N_MAX)};
    vec_new(&b.v);
    for (size_t i = 0; i < PN_ARRAY_N(entries); i++) {
        b.e = &entries[i];
        if (b.e->bench_n == 0 || !strstr(b.e->name, filter)) continue;
        double ns[ISA_N];
        char shape[32];
        vec_fill(&b.v, &r, b.e->bench_n, PLAIN);
        for (uint32_t l = 0; l < level_n; l++) {
            b.k = &levels[l].cpu->kernels;
            ns[l] = measure(run_vec, &b);
        }
        snprintf(shape, sizeof shape, "%u", b.e->bench_n);
        print_line(b.e->name, shape, b.e->bench_n, "values/ns", ns, isas, level_n);
    }
    vec_free(&b.v);
    guarded_free(b.out);
}

struct matmul_bench {
    struct backend *b;
    struct pn_weight w;
    float *x;
    float *out;
    uint32_t row_n;
};

static void run_matmul(void *user) {
    struct matmul_bench *m = user;
    struct pn_matmul part = {&m->w, NULL, mat(m->out, m->row_n, m->w.row_n)};
    pn__op_matmul(&m->b->step, mat(m->x, m->row_n, m->w.col_n), &part, 1);
}

/* Preparing the inputs is part of it. */
static void bench_matmul(struct backend *levels, const enum pn_isa *isas, uint32_t level_n,
                         const char *filter) {
    enum { ROWS = 1024, COLS = 2048, M_MAX = 64 };
    static const uint32_t sizes[] = {1, 4, 8, 16, 64};
    enum pn_type types[PN_TYPE_N];
    uint32_t type_n = matmul_types(types);
    struct rng r = {seed};
    struct matmul_bench m = {.x = malloc(M_MAX * COLS * sizeof(float)),
                             .out = malloc(M_MAX * ROWS * sizeof(float))};
    assert_true(m.x && m.out);
    rng_fill(&r, m.x, M_MAX * COLS, 1);
    for (uint32_t t = 0; t < type_n; t++) {
        if (!strstr(pn__type_name(types[t]), filter)) continue;
        weight_make(&r, types[t], ROWS, COLS, &m.w);
        for (size_t i = 0; i < PN_ARRAY_N(sizes); i++) {
            double ns[ISA_N];
            char shape[32];
            m.row_n = sizes[i];
            for (uint32_t l = 0; l < level_n; l++) {
                m.b = &levels[l];
                ns[l] = measure(run_matmul, &m);
            }
            snprintf(shape, sizeof shape, "%dx%d, %u", ROWS, COLS, m.row_n);
            if (m.row_n == 1)
                print_line(pn__type_name(types[t]), shape, (double)m.w.row_bytes * ROWS, "GB/s  ",
                           ns, isas, level_n);
            else
                print_line(pn__type_name(types[t]), shape, 2.0 * ROWS * COLS * m.row_n, "Gop/s ",
                           ns, isas, level_n);
        }
        weight_free(&m.w);
    }
    free(m.x);
    free(m.out);
}

static int bench(const char *filter) {
    enum pn_isa isas[ISA_N];
    struct backend levels[ISA_N];
    uint32_t level_n = isa_list(isas);
    for (uint32_t l = 0; l < level_n; l++)
        backend_open(&levels[l], isas[l], 1);
    bench_vectors(levels, isas, level_n, filter);
    bench_matmul(levels, isas, level_n, filter);
    for (uint32_t l = 0; l < level_n; l++)
        backend_close(&levels[l]);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_delta),
    };
    seed = (uint64_t)now_ns();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bench") == 0) return bench(i + 1 < argc ? argv[i + 1] : "");
        if (strcmp(argv[i], "--seed") != 0 || i + 1 == argc) {
            fprintf(stderr, "usage: test_kernels [--seed N] [--bench [NAME]]\n");
            return 2;
        }
        seed = strtoull(argv[++i], NULL, 10);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
