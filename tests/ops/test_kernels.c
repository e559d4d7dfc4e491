/* Each small kernel of each level's table against the reference's, bit by bit: random and edge
 * values, every length up to 70 and some beyond, outputs between canaries, inputs that end where
 * memory does. Matmul and attention have programs of their own (test_matmul.c, test_attention.c).
 *
 * usage: test_kernels [--seed N] [--bench [NAME]]
 *
 * The seed is printed; a failure repeats with it. --bench measures instead: one thread, data in the
 * caches, the best of several runs; NAME picks the kernels whose names contain it. */
#include "ops/cpu/x86_units.h"
#include "ops/vec_kernels.h"

static uint64_t seed;

/* ---- comparing ---- */

static void check_entry(const struct vec_kernel *e, enum pn_isa isa, const struct pn_kernels *ref,
                        const struct pn_kernels *k) {
    struct rng r = {seed + (uint64_t)(e - vec_kernels)};
    struct vec v;
    vec_new(&v);
    for (uint32_t n = 1; n <= VEC_N_MAX; n = n < 70 ? n + 1 : n * 2 - 3) {
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
        for (size_t i = 0; i < vec_kernel_n; i++)
            check_entry(&vec_kernels[i], levels[l], &ref.cpu->kernels, &b.cpu->kernels);
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

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_delta),
    };
    seed = (uint64_t)now_ns();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bench") == 0)
            return kernels_bench(i + 1 < argc ? argv[i + 1] : "", seed);
        if (strcmp(argv[i], "--seed") != 0 || i + 1 == argc) {
            fprintf(stderr, "usage: test_kernels [--seed N] [--bench [NAME]]\n");
            return 2;
        }
        seed = strtoull(argv[++i], NULL, 10);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
