/* Checked arithmetic, arenas, and the allocation that fails on demand. */
#include "support/pn_test.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/checked.h"
#include "base/clock.h"

static void test_checked(void **state) {
    (void)state;
    uint64_t v;
    assert_false(pn__add_u64(UINT64_MAX - 1, 1, &v));
    assert_true(v == UINT64_MAX);
    assert_true(pn__add_u64(UINT64_MAX, 1, &v));
    assert_false(pn__sub_u64(5, 5, &v));
    assert_int_equal(v, 0);
    assert_true(pn__sub_u64(5, 6, &v));
    assert_false(pn__mul_u64(1ull << 32, (1ull << 32) - 1, &v));
    assert_true(v == 0xffffffff00000000ull);
    assert_true(pn__mul_u64(1ull << 32, 1ull << 32, &v));
    assert_false(pn__mul_u64(0, UINT64_MAX, &v));
    assert_int_equal(v, 0);
    assert_false(pn__align_u64(0, 64, &v));
    assert_int_equal(v, 0);
    assert_false(pn__align_u64(1, 64, &v));
    assert_int_equal(v, 64);
    assert_false(pn__align_u64(64, 64, &v));
    assert_int_equal(v, 64);
    assert_false(pn__align_u64(UINT64_MAX - 63, 64, &v));
    assert_true(v == UINT64_MAX - 63);
    assert_true(pn__align_u64(UINT64_MAX - 62, 64, &v));
    assert_int_equal(pn__min_u64(3, 4), 3);
    assert_int_equal(pn__max_u64(3, 4), 4);
    assert_int_equal(pn__sub_floor_u64(3, 4), 0);
    assert_int_equal(pn__sub_floor_u64(4, 3), 1);
}

struct parts {
    float *a;   /* [7] */
    uint8_t *b; /* [1] */
    double *c;  /* [33] */
    void *d;    /* [0] */
};

static void carve(struct pn_arena *a, struct parts *p) {
    p->a = pn__arena_take(a, 7, sizeof *p->a);
    p->b = pn__arena_take(a, 1, 1);
    p->c = pn__arena_take(a, 33, sizeof *p->c);
    p->d = pn__arena_take(a, 0, 8);
}

/* The counted size is the size that carving needs, to the byte. */
static void test_arena_counts_what_it_carves(void **state) {
    (void)state;
    struct pn_arena count;
    struct pn_arena real;
    struct pn_arena small;
    struct parts p;
    pn__arena_init(&count, NULL, 0);
    carve(&count, &p);
    assert_null(p.a);
    assert_null(p.c);
    assert_false(count.overflow);
    assert_int_equal(count.used_bytes, 64 + 64 + 320);

    uint8_t *base = aligned_alloc(PN_ARENA_ALIGN, count.used_bytes);
    assert_non_null(base);
    pn__arena_init(&real, base, count.used_bytes);
    carve(&real, &p);
    assert_false(real.overflow);
    assert_int_equal(real.used_bytes, count.used_bytes);
    assert_ptr_equal(p.a, base);
    assert_ptr_equal(p.b, base + 64);
    assert_ptr_equal(p.c, base + 128);
    assert_ptr_equal(p.d, base + 448);
    memset(p.a, 1, 7 * sizeof *p.a);
    memset(p.b, 2, 1);
    memset(p.c, 3, 33 * sizeof *p.c);
    assert_int_equal(*p.b, 2);

    pn__arena_init(&small, base, count.used_bytes - 1);
    carve(&small, &p);
    assert_true(small.overflow);
    assert_non_null(p.b);
    assert_null(p.c);
    assert_null(p.d);
    free(base);
}

/* A carve that wraps is not followed by one that seems to work. */
static void test_arena_overflow_sticks(void **state) {
    (void)state;
    static const uint64_t bad[][2] = {{1ull << 32, 1ull << 32}, {UINT64_MAX, 1}, {UINT64_MAX, 2}};
    for (size_t i = 0; i < PN_ARRAY_N(bad); i++) {
        uint64_t room[64];
        struct pn_arena a;
        pn__arena_init(&a, room, sizeof room);
        assert_null(pn__arena_take(&a, bad[i][0], bad[i][1]));
        assert_true(a.overflow);
        assert_int_equal(a.used_bytes, 0);
        assert_null(pn__arena_take(&a, 1, 1));
    }
    struct pn_arena count;
    pn__arena_init(&count, NULL, 0);
    pn__arena_take(&count, UINT64_MAX - 127, 1);
    assert_false(count.overflow);
    pn__arena_take(&count, 128, 1);
    assert_true(count.overflow);
}

static void test_alloc(void **state) {
    (void)state;
    uint64_t before = pn__alloc_count();
    uint8_t *zeroed = pn__calloc(100, 3);
    assert_non_null(zeroed);
    for (int i = 0; i < 300; i++)
        assert_int_equal(zeroed[i], 0);
    pn__free(zeroed);
    assert_null(pn__calloc(SIZE_MAX / 2, 3));
    void *empty = pn__calloc(0, 8);
    void *other = pn__calloc(8, 0);
    assert_non_null(empty);
    assert_ptr_not_equal(empty, other);
    pn__free(empty);
    pn__free(other);
    pn__free(NULL);

    uint32_t *list = pn__realloc_array(NULL, 2, sizeof *list);
    assert_non_null(list);
    list[0] = 11;
    list[1] = 22;
    assert_null(pn__realloc_array(list, SIZE_MAX / 2, 4));
    list = pn__realloc_array(list, 1000, sizeof *list);
    assert_non_null(list);
    assert_int_equal(list[0], 11);
    assert_int_equal(list[1], 22);
    pn__free(list);

    char *copy = pn__strdup("name");
    assert_string_equal(copy, "name");
    pn__free(copy);
    assert_int_equal(pn__alloc_count() - before, 8);
}

static void test_alloc_fails_once(void **state) {
    (void)state;
    for (uint64_t nth = 1; nth <= 4; nth++) {
        pn__alloc_fail_nth(nth);
        for (uint64_t i = 1; i <= 5; i++) {
            void *p = i == 3 ? pn__strdup("x") : pn__calloc(1, 1);
            if (i == nth) {
                assert_null(p);
            } else {
                assert_non_null(p);
            }
            pn__free(p);
        }
    }
    pn__alloc_fail_nth(1);
    pn__alloc_fail_nth(0);
    uint32_t *list = pn__realloc_array(NULL, 1, 4);
    assert_non_null(list);
    *list = 5;
    pn__alloc_fail_nth(1);
    assert_null(pn__realloc_array(list, 9, 4));
    assert_int_equal(*list, 5);
    pn__free(list);
}

static uint64_t by_hand(void *user) {
    return *(uint64_t *)user;
}

static void test_clock(void **state) {
    (void)state;
    uint64_t a = pn__clock_ns();
    uint64_t b = pn__clock_ns();
    assert_true(a > 0 && b >= a);
    uint64_t now = 5;
    pn__clock_set(by_hand, &now);
    assert_int_equal(pn__clock_ns(), 5);
    now = 2500000005;
    assert_true(pn__clock_s(5, pn__clock_ns()) == 2.5);
    pn__clock_set(NULL, NULL);
    assert_true(pn__clock_ns() >= b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checked),
        cmocka_unit_test(test_arena_counts_what_it_carves),
        cmocka_unit_test(test_arena_overflow_sticks),
        cmocka_unit_test(test_alloc),
        cmocka_unit_test(test_alloc_fails_once),
        cmocka_unit_test(test_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
