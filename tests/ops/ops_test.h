/* What the tests of ops/ share: seeded random data, buffers with canaries, backends of every shape.
 */
#ifndef PN_TESTS_OPS_OPS_TEST_H
#define PN_TESTS_OPS_OPS_TEST_H

#include <math.h>

#include "ops/ops.h"
#include "support/pn_test.h"

/* Half an ulp of 1: the bound of one rounding, relative. */
#define U 0x1p-24

/* xorshift, seeded by each test so that a failure repeats. */
struct rng {
    uint64_t state;
};
uint32_t rng_u32(struct rng *r);
uint32_t rng_below(struct rng *r, uint32_t n);
float rng_float(struct rng *r); /* -1 … 1 */
void rng_fill(struct rng *r, float *x, uint64_t n, float scale);

/* `n` floats, all NaN of a known pattern, with guards around. */
float *guarded_new(uint64_t n);
void guarded_check(const float *p, uint64_t n); /* fails when a guard was written */
void guarded_free(float *p);
/* True when no element still has the pattern. */
bool guarded_all_written(const float *p, uint64_t n);

/* Memory that ends at a page that can't be read: a load past the end ends the program. */
struct fence {
    uint8_t *base;
    size_t bytes;
};
void fence_new(struct fence *f, size_t bytes);
void fence_free(struct fence *f);
/* Its last `bytes` bytes. */
void *fence_end(const struct fence *f, size_t bytes);
/* Frees the fence whose fence_end(bytes) this is, all that was asked for. */
void fence_free_at(void *end, size_t bytes);

/* Equal bits, where any NaN equals any NaN: which payload survives is up to the compiler. */
bool same_bits(const float *a, const float *b, uint64_t n);

/* A backend with its scratch and an open step. */
struct backend {
    struct pn_cpu *cpu;
    void *scratch;
    struct pn_step step;
};
#define BACKEND_ROW_MAX 128
#define BACKEND_COL_MAX 4096
#define BACKEND_DIM_MAX 576
extern struct pn_cpu_config backend_config; /* of those opened next; what isn't set is above */
void backend_open(struct backend *b, enum pn_isa isa, uint32_t thread_n);
void backend_close(struct backend *b);

#define ISA_N 5 /* levels that there are */
/* Levels present here, REF first. */
uint32_t isa_list(enum pn_isa out[ISA_N]);

/* Runs fn(backend, user, out) at every level with 1 to 4 threads; out [n] must be written whole,
 * with intact guards, and have the bits of `want`, which is the reference level's on one thread. */
void same_everywhere(void (*fn)(struct backend *b, void *user, float *out), void *user,
                     const float *want, uint64_t n);
/* What the reference level gives on one thread, guarded. */
float *reference_run(void (*fn)(struct backend *b, void *user, float *out), void *user, uint64_t n);

static inline struct pn_mat mat(float *data, uint32_t row_n, uint32_t col_n) {
    return (struct pn_mat){data, row_n, col_n, col_n};
}

/* [row_n, head_n, dim] packed. */
static inline struct pn_heads heads(float *data, uint32_t row_n, uint32_t head_n, uint32_t dim) {
    return (struct pn_heads){data, row_n, head_n, dim, (uint64_t)head_n * dim, dim};
}

#define ASSERT_NEAR(got, want, bound)                                            \
    do {                                                                         \
        double got_ = (got), want_ = (want), bound_ = (bound);                   \
        if (!(fabs(got_ - want_) <= bound_))                                     \
            fail_msg("%.9g is not %.9g: off by %.3g, allowed %.3g", got_, want_, \
                     fabs(got_ - want_), bound_);                                \
    } while (0)

#endif
