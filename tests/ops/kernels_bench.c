/* test_kernels --bench: each kernel's speed at each level, beside the reference's. */
#include <time.h>

#include "ops/vec_kernels.h"

double now_ns(void) {
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
    const struct vec_kernel *e;
    const struct pn_kernels *k;
    struct vec v;
    float *out;
};

static void run_vec(void *user) {
    struct vec_bench *b = user;
    b->e->run(b->k, &b->v, b->out);
}

static void bench_vectors(const struct backend *levels, const enum pn_isa *isas, uint32_t level_n,
                          const char *filter, uint64_t seed) {
    struct rng r = {seed};
    struct vec_bench b = {.out = guarded_new(2 * VEC_N_MAX)};
    vec_new(&b.v);
    for (size_t i = 0; i < vec_kernel_n; i++) {
        b.e = &vec_kernels[i];
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
                         const char *filter, uint64_t seed) {
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

int kernels_bench(const char *filter, uint64_t seed) {
    enum pn_isa isas[ISA_N];
    struct backend levels[ISA_N];
    uint32_t level_n = isa_list(isas);
    for (uint32_t l = 0; l < level_n; l++)
        backend_open(&levels[l], isas[l], 1);
    bench_vectors(levels, isas, level_n, filter, seed);
    bench_matmul(levels, isas, level_n, filter, seed);
    for (uint32_t l = 0; l < level_n; l++)
        backend_close(&levels[l]);
    return 0;
}
