#include "ops/ops_test.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"

#define GUARD_N 32
#define PATTERN 0x7fc5a5a5u

uint32_t rng_u32(struct rng *r) {
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return (uint32_t)(r->state >> 16);
}

uint32_t rng_below(struct rng *r, uint32_t n) {
    return rng_u32(r) % n;
}

float rng_float(struct rng *r) {
    return (float)((int32_t)rng_u32(r)) * 0x1p-31f;
}

void rng_fill(struct rng *r, float *x, uint64_t n, float scale) {
    for (uint64_t i = 0; i < n; i++)
        x[i] = rng_float(r) * scale;
}

static bool is_pattern(const float *p) {
    uint32_t bits;
    memcpy(&bits, p, sizeof bits);
    return bits == PATTERN;
}

float *guarded_new(uint64_t n) {
    uint32_t *all = malloc((n + 2 * GUARD_N) * sizeof *all);
    assert_non_null(all);
    for (uint64_t i = 0; i < n + 2 * GUARD_N; i++)
        all[i] = PATTERN;
    return (float *)all + GUARD_N;
}

void guarded_check(const float *p, uint64_t n) {
    for (int i = 0; i < GUARD_N; i++) {
        if (!is_pattern(p - 1 - i)) fail_msg("written %d before the start", i + 1);
        if (!is_pattern(p + n + i)) fail_msg("written %d past the end", i);
    }
}

bool guarded_all_written(const float *p, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (is_pattern(p + i)) return false;
    return true;
}

void guarded_free(float *p) {
    if (p) free(p - GUARD_N);
}

void fence_new(struct fence *f, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    f->bytes = (bytes + page - 1) / page * page;
    f->base =
        mmap(NULL, f->bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f->base != MAP_FAILED);
    assert_int_equal(mprotect(f->base + f->bytes, page, PROT_NONE), 0);
}

void fence_free(struct fence *f) {
    if (f->base) munmap(f->base, f->bytes + (size_t)sysconf(_SC_PAGESIZE));
    f->base = NULL;
}

void *fence_end(const struct fence *f, size_t bytes) {
    assert_true(bytes <= f->bytes);
    return f->base + (f->bytes - bytes);
}

void fence_free_at(void *end, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t all = (bytes + page - 1) / page * page;
    struct fence f = {(uint8_t *)end + bytes - all, all};
    if (end) fence_free(&f);
}

bool same_bits(const float *a, const float *b, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        if (isnan(a[i]) && isnan(b[i])) continue;
        if (memcmp(&a[i], &b[i], sizeof *a) != 0) {
            print_error("element %llu: %.9g and %.9g\n", (unsigned long long)i, a[i], b[i]);
            return false;
        }
    }
    return true;
}

struct pn_cpu_config backend_config = {
    .row_max = BACKEND_ROW_MAX, .col_max = BACKEND_COL_MAX, .dim_max = BACKEND_DIM_MAX};

void backend_open(struct backend *b, enum pn_isa isa, uint32_t thread_n) {
    struct pn_cpu_config config = backend_config;
    struct pn_detail d;
    config.thread_n = thread_n;
    config.isa = isa;
    uint64_t bytes = pn__cpu_scratch_bytes(&config);
    b->scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(b->scratch);
    memset(b->scratch, 0xff, bytes); /* NaN: nothing may rely on zeros */
    PN_ASSERT_OK(pn__cpu_new(&config, b->scratch, &d, &b->cpu), &d);
    pn__step_begin(&b->step, b->cpu);
}

void backend_close(struct backend *b) {
    pn__step_end(&b->step);
    pn__cpu_free(b->cpu);
    free(b->scratch);
}

uint32_t isa_list(enum pn_isa out[ISA_N]) {
    uint32_t n = 0;
    out[n++] = PN_ISA_REF;
    for (int i = PN_ISA_AVX2; i <= PN_ISA_NEON; i++)
        if (pn__isa_best((enum pn_isa)i) == (enum pn_isa)i) out[n++] = (enum pn_isa)i;
    return n;
}

float *reference_run(void (*fn)(struct backend *b, void *user, float *out), void *user,
                     uint64_t n) {
    struct backend b;
    float *out = guarded_new(n);
    backend_open(&b, PN_ISA_REF, 1);
    fn(&b, user, out);
    backend_close(&b);
    guarded_check(out, n);
    assert_true(guarded_all_written(out, n));
    return out;
}

void same_everywhere(void (*fn)(struct backend *b, void *user, float *out), void *user,
                     const float *want, uint64_t n) {
    enum pn_isa levels[ISA_N];
    uint32_t level_n = isa_list(levels);
    for (uint32_t i = 0; i < level_n; i++) {
        for (uint32_t thread_n = 1; thread_n <= 4; thread_n++) {
            struct backend b;
            float *out = guarded_new(n);
            backend_open(&b, levels[i], thread_n);
            uint64_t allocs = pn__alloc_count();
            fn(&b, user, out);
            assert_int_equal(pn__alloc_count(), allocs);
            backend_close(&b);
            guarded_check(out, n);
            if (!same_bits(out, want, n))
                fail_msg("differs at %s, %u threads", pn__isa_name(levels[i]), thread_n);
            guarded_free(out);
        }
    }
}
