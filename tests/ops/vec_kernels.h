/* What test_kernels compares and measures: kernels over vectors, each with what it is given. */
#ifndef PN_TESTS_OPS_VEC_KERNELS_H
#define PN_TESTS_OPS_VEC_KERNELS_H

#include "ops/cpu/cpu.h"
#include "ops/matmul_data.h"

#define VEC_N_MAX 4096 /* longest vector */

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

void vec_new(struct vec *v);
void vec_free(struct vec *v);
/* x has `values`, the others now and then too. n <= VEC_N_MAX. */
void vec_fill(struct vec *v, struct rng *r, uint32_t n, enum values values);
void fill(struct rng *r, float *x, uint32_t n, enum values values);

/* What a kernel writes is at most 2 n floats at out. */
struct vec_kernel {
    const char *name;
    void (*run)(const struct pn_kernels *k, const struct vec *v, float *out);
    bool bytes;       /* what is written is no floats: a NaN has its exact bits too */
    uint32_t bench_n; /* a usual length */
};
extern const struct vec_kernel vec_kernels[];
extern const size_t vec_kernel_n;

/* kernels_bench.c: prints the speed of the kernels whose names contain `filter`. */
int kernels_bench(const char *filter, uint64_t seed);
double now_ns(void);

#endif
