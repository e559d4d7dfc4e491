/* Large tables are in the ledger: booked before they are made, by the difference when they grow,
 * refused where there is no room, and gone from it when they are freed. */
#include <pthread.h>

#include "base/alloc.h"
#include "core/mem/pn_account.h"
#include "pn_mem.h"
#include "support/pn_test.h"

#define MIB (1ull << 20)
#define HEAD 16 /* what a piece has in front of it is booked with it */

static pn_ledger_row scratch(void) {
    static pn_ledger_view v;
    pn_ledger_read(&v);
    return v.cells[PN_PLACE_HOST][PN_OWNER_SCRATCH];
}

static void holds(uint64_t bytes) {
    assert_int_equal(scratch().reserved_bytes, bytes);
    assert_int_equal(scratch().committed_bytes, bytes);
}

static int setup(void **state) {
    (void)state;
    pn_ledger_set_domain(PN_DOMAIN_HOST, "host", 10 * MIB, 0);
    pn__account_allocations();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return scratch().reserved_bytes == 0 && scratch().committed_bytes == 0 ? 0 : -1;
}

static void test_life(void **state) {
    (void)state;
    char *p = pn__calloc(4, MIB);
    assert_non_null(p);
    holds(4 * MIB + HEAD);
    for (uint64_t i = 0; i < 4 * MIB; i++)
        assert_int_equal(p[i], 0);
    assert_int_equal((uintptr_t)p % 16, 0);
    memset(p, 7, 4 * MIB);
    p = pn__realloc_array(p, 8, MIB);
    assert_non_null(p);
    holds(8 * MIB + HEAD);
    assert_true(p[0] == 7 && p[4 * MIB - 1] == 7);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 2 * MIB - HEAD);
    /* Refused: what was there stays, and stays booked. */
    assert_null(pn__realloc_array(p, 27, MIB));
    assert_null(pn__calloc(19, MIB));
    holds(8 * MIB + HEAD);
    assert_int_equal(p[4 * MIB - 1], 7);
    p = pn__realloc_array(p, 1, MIB);
    holds(MIB + HEAD);
    assert_int_equal(p[MIB - 1], 7);
    p = pn__realloc_array(p, 10, 1); /* small: out of the books */
    holds(0);
    assert_int_equal(p[9], 7);
    p = pn__realloc_array(p, 2, MIB);
    holds(2 * MIB + HEAD);
    pn__free(p);
    holds(0);
    pn__free(NULL);
}

/* Where all is promised, tables get a little of what is kept free; whatever is freed repays it. */
static void test_debt(void **state) {
    (void)state;
    pn_booking rest;
    struct pn_detail d;
    PN_ASSERT_OK(pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_KV, 10 * MIB, &rest, &d), &d);
    for (int i = 0; i < 3; i++) {
        char *a = pn__calloc(10, MIB);
        char *b = pn__calloc(5, MIB);
        assert_true(a && b);
        holds(15 * MIB + 2 * HEAD);
        assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 0);
        assert_null(pn__calloc(1, MIB));
        pn__free(a);
        a = pn__calloc(11, MIB - HEAD);
        assert_non_null(a);
        assert_null(pn__calloc(1, MIB));
        pn__free(a);
        pn__free(b);
    }
    assert_int_equal(pn_ledger_release(&rest), 0);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 10 * MIB);
}

static void test_small(void **state) {
    (void)state;
    char *below = pn__calloc(PN_ALLOC_LARGE_BYTES - HEAD - 1, 1);
    holds(0);
    char *at = pn__calloc(PN_ALLOC_LARGE_BYTES - HEAD, 1);
    holds(PN_ALLOC_LARGE_BYTES);
    pn__free(at);
    pn__free(below);
    char *empty = pn__calloc(0, 5);
    assert_non_null(empty);
    pn__free(empty);
    empty = pn__realloc_array(NULL, 0, 5);
    assert_non_null(empty);
    pn__free(empty);
    assert_null(pn__calloc(SIZE_MAX / 2, 2 + 1));
    assert_null(pn__calloc(SIZE_MAX, 1));
    assert_null(pn__realloc_array(NULL, SIZE_MAX - 3, 1));
    holds(0);
}

/* The ledger grants it, the system doesn't. */
static void test_system_refuses(void **state) {
    (void)state;
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, UINT64_MAX, 0);
    assert_null(pn__calloc(1ull << 55, 1));
    holds(0);
    char *p = pn__calloc(1, MIB);
    assert_null(pn__realloc_array(p, 1ull << 55, 1));
    holds(MIB + HEAD);
    pn__free(p);
}

/* Taken before anyone kept books. */
static void test_before(void **state) {
    (void)state;
    pn__alloc_set_hooks(NULL);
    char *one = pn__calloc(1, MIB);
    char *two = pn__calloc(1, MIB);
    pn__account_allocations();
    holds(0);
    two = pn__realloc_array(two, 2, MIB);
    holds(2 * MIB + HEAD);
    pn__free(one);
    holds(2 * MIB + HEAD);
    pn__free(two);
}

static void *churn(void *arg) {
    for (int i = 0; i < 500; i++) {
        char *p = pn__calloc(1, PN_ALLOC_LARGE_BYTES + (size_t)i);
        char *q = p ? pn__realloc_array(p, 2, PN_ALLOC_LARGE_BYTES) : NULL;
        pn__free(q ? q : p);
    }
    return arg;
}

static void test_threads(void **state) {
    (void)state;
    pthread_t threads[8];
    for (size_t i = 0; i < PN_ARRAY_N(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, NULL), 0);
    for (size_t i = 0; i < PN_ARRAY_N(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    holds(0);
    assert_true(scratch().reserved_peak_bytes <= 10 * MIB + PN_ACCOUNT_DEBT_BYTES);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_life),    T(test_debt),           T(test_small), T(test_before),
        T(test_threads), T(test_system_refuses), /* the last: it leaves a high mark */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
