/* Eight threads reserve, touch, give back and release at random, beside one that measures and one
 * that reads: never is more granted than there is, and at the end the books are empty. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "pn_mem.h"
#include "support/pn_test.h"

#define THREAD_N 8
#define BOOKING_N 16
#define ROUND_N 300000
#define CAPACITY 100000ull /* of the simulated machine */
#define RESERVE 10000ull

/* The simulated machine: bytes that are truly touched, and those promised. */
static _Atomic uint64_t touched;
static _Atomic uint64_t promised;
static _Atomic uint64_t granted_n;
static _Atomic uint64_t refused_n;
static _Atomic int broken_n; /* invariants seen broken; cmocka asserts on its own thread only */
static _Atomic int stop;
static pthread_barrier_t start;

static uint64_t next(uint64_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static void expect(bool ok) {
    if (!ok) atomic_fetch_add(&broken_n, 1);
}

static void touch_some(pn_booking *b, uint64_t *x) {
    uint64_t left = b->reserved_bytes - b->committed_bytes;
    uint64_t bytes = left ? next(x) % (left + 1) : 0;
    atomic_fetch_add(&touched, bytes);
    expect(pn_ledger_commit(b, bytes) == 0);
}

static void give_back_some(pn_booking *b, uint64_t *x) {
    uint64_t bytes = b->committed_bytes ? next(x) % (b->committed_bytes + 1) : 0;
    expect(pn_ledger_uncommit(b, bytes) == 0);
    atomic_fetch_sub(&touched, bytes);
}

static void end(pn_booking *b) {
    uint64_t bytes = b->reserved_bytes;
    uint64_t committed = b->committed_bytes;
    expect(pn_ledger_vacate(b) == 0);
    atomic_fetch_sub(&touched, committed);
    atomic_fetch_sub(&promised, bytes);
    expect(pn_ledger_release(b) == 0);
    expect(pn_ledger_release(b) == PN_E_STATE);
}

static void begin(pn_booking *b, uint64_t *x) {
    static const unsigned places[] = {PN_PLACE_HOST, PN_PLACE_PINNED};
    uint64_t bytes = next(x) % 8000;
    int rc =
        pn_ledger_reserve(places[next(x) % 2], (unsigned)(next(x) % PN_OWNER_N), bytes, b, NULL);
    if (rc == PN_E_NOFIT) {
        atomic_fetch_add(&refused_n, 1);
        expect(b->live == 0);
        return;
    }
    expect(rc == 0);
    atomic_fetch_add(&granted_n, 1);
    /* Between this booking's grant and this sum others may have ended: the sum is never above what
     * the ledger had granted at some moment. */
    uint64_t now = atomic_fetch_add(&promised, bytes) + bytes;
    expect(now <= CAPACITY - RESERVE);
}

static void *work(void *arg) {
    uint64_t x = 0x9e3779b97f4a7c15ull * (1 + (uint64_t)(uintptr_t)arg);
    pn_booking bookings[BOOKING_N] = {{0}};
    pthread_barrier_wait(&start);
    for (int i = 0; i < ROUND_N; i++) {
        pn_booking *b = &bookings[next(&x) % BOOKING_N];
        if (!b->live) {
            begin(b, &x);
            continue;
        }
        switch (next(&x) % 4) {
        case 0:
            end(b);
            break;
        case 1:
            give_back_some(b, &x);
            break;
        default:
            touch_some(b, &x);
        }
    }
    for (int i = 0; i < BOOKING_N; i++) {
        if (bookings[i].live) end(&bookings[i]);
    }
    return NULL;
}

static void *measure(void *arg) {
    (void)arg;
    while (!atomic_load(&stop)) {
        pn_ledger_mark mark;
        pn_ledger_mark_now(&mark);
        uint64_t used = atomic_load(&touched);
        expect(used <= CAPACITY - RESERVE);
        sched_yield(); /* A slow measurement: much is touched and given back meanwhile. */
        pn_ledger_set_domain_at(PN_DOMAIN_HOST, NULL, CAPACITY - used, RESERVE, &mark);
    }
    return NULL;
}

static void *look(void *arg) {
    static pn_ledger_view v;
    (void)arg;
    while (!atomic_load(&stop)) {
        expect(pn_ledger_headroom(PN_DOMAIN_HOST) <= CAPACITY - RESERVE);
        pn_ledger_read(&v);
        for (unsigned place = 0; place < PN_PLACE_N; place++)
            expect(v.places[place].reserved_peak_bytes <= CAPACITY - RESERVE);
    }
    return NULL;
}

static void assert_empty(void) {
    static pn_ledger_view v;
    pn_ledger_read(&v);
    for (unsigned place = 0; place < PN_PLACE_N; place++) {
        assert_int_equal(v.places[place].reserved_bytes, 0);
        assert_int_equal(v.places[place].committed_bytes, 0);
        for (unsigned owner = 0; owner < PN_OWNER_N; owner++) {
            assert_int_equal(v.cells[place][owner].reserved_bytes, 0);
            assert_int_equal(v.cells[place][owner].committed_bytes, 0);
        }
    }
}

static void test_never_over_granted(void **state) {
    (void)state;
    pthread_t threads[THREAD_N + 2];
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, CAPACITY, RESERVE);
    assert_int_equal(pthread_barrier_init(&start, NULL, THREAD_N), 0);
    for (int i = 0; i < THREAD_N; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i), 0);
    assert_int_equal(pthread_create(&threads[THREAD_N], NULL, measure, NULL), 0);
    assert_int_equal(pthread_create(&threads[THREAD_N + 1], NULL, look, NULL), 0);
    for (int i = 0; i < THREAD_N; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&stop, 1);
    pthread_join(threads[THREAD_N], NULL);
    pthread_join(threads[THREAD_N + 1], NULL);

    assert_int_equal(atomic_load(&broken_n), 0);
    assert_int_equal(atomic_load(&touched), 0);
    /* Both outcomes were reached, often. */
    assert_true(atomic_load(&granted_n) > 1000);
    assert_true(atomic_load(&refused_n) > 100);
    assert_empty();
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, CAPACITY, RESERVE);
    assert_true(pn_ledger_headroom(PN_DOMAIN_HOST) == CAPACITY - RESERVE);
}

static void *publish(void *arg) {
    (void)arg;
    for (uint64_t i = 0; !atomic_load(&stop); i++)
        pn_ledger_set_domain(PN_DOMAIN_DIE, i % 2 ? "odd" : "even", 1000 + i, 2000 + i);
    return NULL;
}

/* Name and figures of a domain are of one moment, beside a writer that never pauses. */
static void test_view_is_whole(void **state) {
    (void)state;
    pthread_t writer;
    int quiet_n = 0;
    int change_n = 0;
    uint64_t last = 0;
    atomic_store(&stop, 0);
    pn_ledger_set_domain(PN_DOMAIN_DIE, "even", 1000, 2000);
    assert_int_equal(pthread_create(&writer, NULL, publish, NULL), 0);
    /* On one core the writer rarely runs in between: then the number of tries ends it. */
    for (int i = 0; i < 2000000 && change_n < 20000; i++) {
        pn_domain_view v;
        pn_ledger_domain(PN_DOMAIN_DIE, &v);
        if (strcmp(v.name, "die 0") == 0) continue; /* no quiet copy: the kind's name */
        quiet_n++;
        change_n += v.available_bytes != last;
        last = v.available_bytes;
        expect(v.reserve_bytes == v.available_bytes + 1000);
        expect(strcmp(v.name, v.available_bytes % 2 ? "odd" : "even") == 0);
    }
    atomic_store(&stop, 1);
    pthread_join(writer, NULL);
    pn_ledger_set_domain(PN_DOMAIN_DIE, NULL, UINT64_MAX, 0);
    assert_int_equal(atomic_load(&broken_n), 0);
    assert_true(quiet_n > 100);
}

static void *release_shared(void *arg) {
    pn_booking *b = arg;
    return pn_ledger_release(b) == 0 ? b : NULL;
}

/* Two threads release the same booking: one succeeds, and the bytes come back once. */
static void test_double_release_race(void **state) {
    (void)state;
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, 1000, 0);
    for (int i = 0; i < 500; i++) {
        pn_booking b;
        pthread_t threads[2];
        void *won[2];
        assert_int_equal(pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_IO, 10, &b, NULL), 0);
        for (int t = 0; t < 2; t++)
            assert_int_equal(pthread_create(&threads[t], NULL, release_shared, &b), 0);
        for (int t = 0; t < 2; t++)
            pthread_join(threads[t], &won[t]);
        assert_true((won[0] != NULL) != (won[1] != NULL));
        assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 1000);
    }
    assert_empty();
}

/* ---- two counters under one limit ----------------------------------------------------------- */

#define SPACE 10000ull

static _Atomic uint64_t space;

static void *take_space(void *arg) {
    unsigned place = arg ? PN_PLACE_FILE : PN_PLACE_HOST;
    uint64_t x = 0x9e3779b97f4a7c15ull * (3 + place);
    for (int i = 0; i < ROUND_N / 3; i++) {
        pn_booking b;
        uint64_t bytes = SPACE / 4 + next(&x) % SPACE;
        if (pn_ledger_reserve(place, PN_OWNER_WEIGHTS, bytes, &b, NULL) != 0) {
            atomic_fetch_add(&refused_n, 1);
            continue;
        }
        atomic_fetch_add(&granted_n, 1);
        expect(atomic_fetch_add(&space, bytes) + bytes <= SPACE);
        atomic_fetch_sub(&space, bytes);
        expect(pn_ledger_release(&b) == 0);
    }
    return NULL;
}

/* Files and memory share RLIMIT_AS but not a counter: never are both granted more than it leaves.
 */
static void test_space(void **state) {
    (void)state;
    pthread_t threads[4];
    atomic_store(&broken_n, 0);
    atomic_store(&granted_n, 0);
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, UINT64_MAX, 0);
    pn_ledger_set_domain(PN_DOMAIN_RLIMIT, NULL, SPACE, 0);
    for (size_t i = 0; i < PN_ARRAY_N(threads); i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, take_space, i % 2 ? &threads[i] : NULL),
                         0);
    }
    for (size_t i = 0; i < PN_ARRAY_N(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(broken_n, 0);
    assert_true(granted_n > 0);
    assert_true(pn_ledger_headroom(PN_DOMAIN_RLIMIT) == SPACE);
    pn_ledger_set_domain(PN_DOMAIN_RLIMIT, NULL, UINT64_MAX, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_over_granted),
        cmocka_unit_test(test_view_is_whole),
        cmocka_unit_test(test_double_release_race),
        cmocka_unit_test(test_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
