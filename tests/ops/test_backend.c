/* Making a backend: levels, shapes that are refused, failing allocations, work on every thread. */
#include <stdatomic.h>

#include "base/alloc.h"
#include "ops/ops_test.h"

static const struct pn_cpu_config small = {
    .thread_n = 3, .isa = PN_ISA_REF, .row_max = 4, .col_max = 64, .dim_max = 16};

static void test_levels(void **state) {
    (void)state;
    assert_int_equal(pn__isa_best(PN_ISA_REF), PN_ISA_REF);
    for (int i = PN_ISA_REF; i <= PN_ISA_NEON; i++) {
        enum pn_isa isa = (enum pn_isa)i, best = pn__isa_best(isa);
        assert_true(best <= isa);
        assert_string_not_equal(pn__isa_name(isa), "?");
        struct pn_cpu_config c = small;
        struct pn_detail d;
        struct pn_cpu *cpu;
        c.isa = isa;
        void *scratch = aligned_alloc(64, pn__cpu_scratch_bytes(&c));
        int rc = pn__cpu_new(&c, scratch, &d, &cpu);
        if (best == isa) {
            assert_int_equal(rc, 0);
            assert_int_equal(pn__cpu_isa(cpu), isa);
            assert_int_equal(pn__cpu_thread_n(cpu), 3);
        } else {
            assert_int_equal(rc, PN_E_UNSUPPORTED);
            assert_null(cpu);
            assert_non_null(strstr(d.text, pn__isa_name(isa)));
        }
        pn__cpu_free(cpu);
        free(scratch);
    }
}

static void test_bad_shapes(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct pn_cpu_config c = small;
        struct pn_detail d;
        struct pn_cpu *cpu;
        if (i == 0) c.row_max = 0;
        if (i == 1) c.col_max = 0;
        if (i == 2) c.dim_max = 0;
        if (i == 3) c.thread_n = 257;
        assert_int_equal(pn__cpu_new(&c, NULL, &d, &cpu), PN_E_INVALID);
        assert_null(cpu);
    }
    struct pn_cpu_config huge = {
        .thread_n = 1, .row_max = UINT32_MAX, .col_max = UINT32_MAX, .dim_max = UINT32_MAX};
    assert_true(pn__cpu_scratch_bytes(&huge) == UINT64_MAX);
}

static void test_scratch_grows(void **state) {
    (void)state;
    struct pn_cpu_config c = small;
    uint64_t was = pn__cpu_scratch_bytes(&c);
    c.thread_n++;
    assert_true(pn__cpu_scratch_bytes(&c) > was);
    was = pn__cpu_scratch_bytes(&c);
    c.row_max *= 2;
    assert_true(pn__cpu_scratch_bytes(&c) > was);
}

static void test_allocations_fail(void **state) {
    (void)state;
    void *scratch = aligned_alloc(64, pn__cpu_scratch_bytes(&small));
    for (uint64_t nth = 1;; nth++) {
        struct pn_detail d;
        struct pn_cpu *cpu = NULL;
        pn__alloc_fail_nth(nth);
        int rc = pn__cpu_new(&small, scratch, &d, &cpu);
        pn__alloc_fail_nth(0);
        if (rc == 0) {
            pn__cpu_free(cpu);
            assert_true(nth > 5); /* backend, pool, workers, two threads, slots */
            break;
        }
        assert_int_equal(rc, PN_E_NOMEM);
        assert_null(cpu);
    }
    free(scratch);
    pn__cpu_free(NULL);
}

static void note(void *user, uint32_t thread_i, uint32_t thread_n) {
    _Atomic uint32_t *seen = user;
    atomic_fetch_or(seen, 1u << thread_i | thread_n << 16);
}

static void test_run(void **state) {
    (void)state;
    struct backend b;
    _Atomic uint32_t seen = 0;
    backend_open(&b, PN_ISA_REF, 3);
    pn__cpu_run(b.cpu, note, &seen);
    assert_int_equal(atomic_load(&seen), 7 | 3 << 16);
    backend_close(&b);
}

static void test_default_threads(void **state) {
    (void)state;
    struct backend b;
    backend_open(&b, PN_ISA_REF, 0);
    assert_true(pn__cpu_thread_n(b.cpu) >= 1);
    backend_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),        cmocka_unit_test(test_bad_shapes),
        cmocka_unit_test(test_scratch_grows), cmocka_unit_test(test_allocations_fail),
        cmocka_unit_test(test_run),           cmocka_unit_test(test_default_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
