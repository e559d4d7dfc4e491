/* Places, domains, refusals, and the books between two measurements. */
#include "pn_mem.h"
#include "support/pn_test.h"

#define MIB (1ull << 20)

static struct pn_detail detail;

static void unset_all(void) {
    for (unsigned i = 0; i < PN_DOMAIN_N; i++)
        pn_ledger_set_domain(i, NULL, UINT64_MAX, 0);
}

/* Every test begins with no domain set and leaves no byte booked. */
static int setup(void **state) {
    (void)state;
    unset_all();
    return 0;
}

static int teardown(void **state) {
    static pn_ledger_view v;
    (void)state;
    unset_all();
    pn_ledger_read(&v);
    for (unsigned place = 0; place < PN_PLACE_N; place++) {
        if (v.places[place].reserved_bytes || v.places[place].committed_bytes) return -1;
        for (unsigned owner = 0; owner < PN_OWNER_N; owner++) {
            const pn_ledger_row *r = &v.cells[place][owner];
            if (r->reserved_bytes || r->committed_bytes) return -1;
        }
    }
    return 0;
}

static pn_booking book(unsigned place, unsigned owner, uint64_t bytes) {
    pn_booking b;
    PN_ASSERT_OK(pn_ledger_reserve(place, owner, bytes, &b, &detail), &detail);
    return b;
}

static void unbook(pn_booking *b) {
    assert_int_equal(pn_ledger_release(b), 0);
}

static void assert_refused(unsigned place, uint64_t bytes, const char *domain) {
    pn_booking b;
    memset(&b, 0xff, sizeof b);
    assert_int_equal(pn_ledger_reserve(place, PN_OWNER_KV, bytes, &b, &detail), PN_E_NOFIT);
    assert_int_equal(b.live, 0);
    assert_int_equal(b.reserved_bytes, 0);
    if (!strstr(detail.text, domain)) print_error("%s\n", detail.text);
    assert_non_null(strstr(detail.text, domain));
}

static void test_names(void **state) {
    (void)state;
    assert_string_equal(pn_mem_place_name(PN_PLACE_HOST), "host");
    assert_string_equal(pn_mem_place_name(PN_PLACE_FILE), "file");
    assert_string_equal(pn_mem_place_name(PN_PLACE_PINNED), "pinned");
    assert_string_equal(pn_mem_place_name(PN_PLACE_DIE + 15), "die 15");
    assert_string_equal(pn_mem_place_name(PN_PLACE_N), "?");
    assert_string_equal(pn_mem_owner_name(PN_OWNER_WEIGHTS), "weights");
    assert_string_equal(pn_mem_owner_name(PN_OWNER_HTTP), "http");
    assert_string_equal(pn_mem_owner_name(PN_OWNER_N), "?");
    assert_string_equal(pn_mem_domain_name(PN_DOMAIN_RLIMIT), "rlimit");
    assert_string_equal(pn_mem_domain_name(PN_DOMAIN_DIE + 3), "die 3");
    assert_string_equal(pn_mem_domain_name(PN_DOMAIN_NONE), "none");
}

static void test_unset_refuses_nothing(void **state) {
    (void)state;
    unsigned domain;
    assert_true(pn_ledger_headroom(PN_DOMAIN_HOST) == UINT64_MAX);
    assert_true(pn_ledger_place_headroom(PN_PLACE_HOST, &domain) == UINT64_MAX);
    assert_int_equal(domain, PN_DOMAIN_NONE);
    pn_booking b = book(PN_PLACE_HOST, PN_OWNER_KV, 1ull << 50);
    unbook(&b);
    /* But a size that no sum could hold is no memory. */
    assert_refused(PN_PLACE_HOST, UINT64_MAX, "more than can be addressed");
    assert_refused(PN_PLACE_FILE, UINT64_MAX, "more than can be addressed");
    pn_booking half = book(PN_PLACE_HOST, PN_OWNER_KV, 1ull << 59);
    assert_refused(PN_PLACE_PINNED, (1ull << 59) + 1, "more than can be addressed");
    unbook(&half);
}

static void test_refusal_says_it_all(void **state) {
    (void)state;
    static pn_ledger_view before;
    static pn_ledger_view after;
    pn_ledger_set_domain(PN_DOMAIN_HOST, "host", 1000 * MIB, 200 * MIB);
    pn_ledger_set_domain(PN_DOMAIN_CGROUP, "cgroup:/box", 600 * MIB, 64 * MIB);
    pn_booking a = book(PN_PLACE_HOST, PN_OWNER_KV, 100 * MIB);
    pn_booking b = book(PN_PLACE_PINNED, PN_OWNER_EXPERTS, 90 * MIB);
    pn_booking c = book(PN_PLACE_HOST, PN_OWNER_EXPERTS, 46 * MIB);
    unsigned domain;
    assert_true(pn_ledger_headroom(PN_DOMAIN_HOST) == 564 * MIB);
    assert_true(pn_ledger_place_headroom(PN_PLACE_PINNED, &domain) == 300 * MIB);
    assert_int_equal(domain, PN_DOMAIN_CGROUP);
    pn_ledger_read(&before);
    assert_refused(PN_PLACE_HOST, 300 * MIB + 1, "cgroup:/box lacks 1 bytes");
    assert_non_null(strstr(detail.text, "kv: 314572801 bytes"));
    assert_non_null(strstr(detail.text, "give 314572800"));
    assert_non_null(strstr(detail.text, "available 629145600, kept free 67108864"));
    assert_non_null(strstr(detail.text, "experts holds most with 142606336"));
    pn_ledger_read(&after);
    assert_int_equal(after.refusal_n, before.refusal_n + 1);
    before.refusal_n = after.refusal_n;
    assert_memory_equal(&before, &after, sizeof before);
    /* Exactly what is left is granted, and then nothing is, but nothing can always be had. */
    pn_booking rest = book(PN_PLACE_HOST, PN_OWNER_SCRATCH, 300 * MIB);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_CGROUP), 0);
    assert_refused(PN_PLACE_PINNED, 1, "cgroup:/box lacks 1 bytes");
    pn_booking none = book(PN_PLACE_HOST, PN_OWNER_IO, 0);
    pn_booking more;
    assert_int_equal(pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_IO, 1, &more, NULL), PN_E_NOFIT);
    unbook(&none);
    unbook(&rest);
    unbook(&a);
    unbook(&b);
    unbook(&c);
    assert_true(pn_ledger_headroom(PN_DOMAIN_CGROUP) == 536 * MIB);
    assert_refused(PN_PLACE_HOST, 537 * MIB, "nobody holds most with 0");
}

static void test_places_and_domains(void **state) {
    (void)state;
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, 300, 100);
    pn_ledger_set_domain(PN_DOMAIN_DIE + 0, NULL, 1000, 0);
    pn_ledger_set_domain(PN_DOMAIN_DIE + 7, NULL, 50, 0);
    pn_booking file = book(PN_PLACE_FILE, PN_OWNER_WEIGHTS, 1ull << 40);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 200);
    pn_booking die0 = book(PN_PLACE_DIE, PN_OWNER_WEIGHTS, 900);
    pn_booking die7 = book(PN_PLACE_DIE + 7, PN_OWNER_KV, 50);
    pn_booking die3 = book(PN_PLACE_DIE + 3, PN_OWNER_KV, 1ull << 40);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 200);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_DIE + 0), 100);
    assert_refused(PN_PLACE_DIE + 7, 1, "die 7 lacks 1 bytes");
    assert_refused(PN_PLACE_DIE, 101, "weights holds most with 900");
    pn_booking host = book(PN_PLACE_HOST, PN_OWNER_KV, 120);
    assert_refused(PN_PLACE_PINNED, 81, "host lacks 1 bytes");
    pn_booking pinned = book(PN_PLACE_PINNED, PN_OWNER_IO, 80);
    unsigned domain;
    assert_true(pn_ledger_place_headroom(PN_PLACE_FILE, &domain) == UINT64_MAX);
    assert_int_equal(domain, PN_DOMAIN_NONE);
    assert_int_equal(pn_ledger_place_headroom(PN_PLACE_DIE + 7, &domain), 0);
    assert_int_equal(domain, PN_DOMAIN_DIE + 7);
    unbook(&file);
    unbook(&die0);
    unbook(&die3);
    unbook(&die7);
    unbook(&host);
    unbook(&pinned);
    pn_booking b;
    assert_int_equal(pn_ledger_reserve(PN_PLACE_N, 0, 1, &b, &detail), PN_E_INVALID);
    assert_int_equal(pn_ledger_reserve(0, PN_OWNER_N, 1, &b, &detail), PN_E_INVALID);
    pn_ledger_set_domain(PN_DOMAIN_N, NULL, 1, 0);
    assert_true(pn_ledger_headroom(PN_DOMAIN_N) == UINT64_MAX);
}

/* The host has 1000; the figures follow what a kernel would report. */
static void test_between_measurements(void **state) {
    (void)state;
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, 1000, 0);
    pn_booking a = book(PN_PLACE_HOST, PN_OWNER_KV, 600);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 400);
    /* Touching promised bytes changes nothing, before and after it is measured. */
    assert_int_equal(pn_ledger_commit(&a, 250), 0);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 400);
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, 750, 0);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 400);
    /* A neighbour takes 100. */
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, 650, 0);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 300);
    /* Pages given back but still promised. */
    assert_int_equal(pn_ledger_uncommit(&a, 50), 0);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 300);
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, 700, 0);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 300);
    /* Released: all of it can be promised again, at once and when measured. */
    unbook(&a);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 900);
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, 900, 0);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 900);
    /* Less is available than was promised: nothing is left, and the shortfall is named whole. */
    a = book(PN_PLACE_HOST, PN_OWNER_KV, 500);
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, 200, 100);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 0);
    assert_refused(PN_PLACE_HOST, 10, "lacks 410 bytes");
    unbook(&a);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 100);
}

/* Whatever is touched or given back while a measurement runs, no byte is counted free twice. */
static void test_during_a_measurement(void **state) {
    (void)state;
    pn_ledger_mark mark;
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, 1000, 0);
    pn_booking a = book(PN_PLACE_HOST, PN_OWNER_KV, 300);
    pn_booking b = book(PN_PLACE_HOST, PN_OWNER_KV, 200);
    assert_int_equal(pn_ledger_commit(&a, 300), 0);
    /* Freed after the mark, before the reading: 1000 are available, none of them twice. */
    pn_ledger_mark_now(&mark);
    unbook(&a);
    pn_ledger_set_domain_at(PN_DOMAIN_HOST, NULL, 1000, 0, &mark);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 800);
    /* Freed after the reading: 300 too low until the next measurement, never too high. */
    a = book(PN_PLACE_HOST, PN_OWNER_KV, 300);
    assert_int_equal(pn_ledger_commit(&a, 300), 0);
    pn_ledger_mark_now(&mark);
    unbook(&a);
    pn_ledger_set_domain_at(PN_DOMAIN_HOST, NULL, 700, 0, &mark);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 500);
    /* Touched after the mark, before the reading: again too low by as much. */
    pn_ledger_mark_now(&mark);
    assert_int_equal(pn_ledger_commit(&b, 200), 0);
    pn_ledger_set_domain_at(PN_DOMAIN_HOST, NULL, 800, 0, &mark);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 600);
    /* Freed and touched by turns, read at the moment when most was free. */
    pn_ledger_mark_now(&mark);
    assert_int_equal(pn_ledger_uncommit(&b, 200), 0);
    assert_int_equal(pn_ledger_commit(&b, 200), 0);
    pn_ledger_set_domain_at(PN_DOMAIN_HOST, NULL, 1000, 0, &mark);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 800);
    unbook(&b);
}

static void test_old_measurement_is_ignored(void **state) {
    (void)state;
    pn_ledger_mark old;
    pn_ledger_mark_now(&old);
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, 100, 0);
    pn_ledger_set_domain_at(PN_DOMAIN_HOST, NULL, 9999, 0, &old);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 100);
}

/* RLIMIT counts what is mapped, touched or not. */
static void test_rlimit_counts_mapped(void **state) {
    (void)state;
    pn_ledger_set_domain(PN_DOMAIN_RLIMIT, NULL, 1000, 0);
    pn_booking a = book(PN_PLACE_HOST, PN_OWNER_KV, 600);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_RLIMIT), 400);
    assert_int_equal(pn_ledger_mapped(&a), 0);
    assert_int_equal(pn_ledger_mapped(&a), PN_E_STATE);
    assert_int_equal(pn_ledger_commit(&a, 100), 0);
    pn_ledger_set_domain(PN_DOMAIN_RLIMIT, NULL, 400, 0);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_RLIMIT), 400);
    assert_int_equal(pn_ledger_vacate(&a), 0);
    pn_ledger_set_domain(PN_DOMAIN_RLIMIT, NULL, 1000, 0);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_RLIMIT), 400);
    assert_int_equal(a.committed_bytes, 0);
    unbook(&a);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_RLIMIT), 1000);
}

/* Address space of mapped files counts too, against rlimit alone. */
static void test_rlimit_counts_files(void **state) {
    (void)state;
    unsigned domain;
    pn_booking no;
    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, 5000, 0);
    pn_booking free_of_limits = book(PN_PLACE_FILE, PN_OWNER_WEIGHTS, 9000);
    assert_true(pn_ledger_place_headroom(PN_PLACE_FILE, &domain) == UINT64_MAX);
    assert_int_equal(domain, PN_DOMAIN_NONE);
    unbook(&free_of_limits);
    pn_ledger_set_domain(PN_DOMAIN_RLIMIT, NULL, 1000, 0);
    pn_booking f = book(PN_PLACE_FILE, PN_OWNER_WEIGHTS, 700);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_RLIMIT), 300);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 5000);
    assert_int_equal(pn_ledger_place_headroom(PN_PLACE_HOST, &domain), 300);
    assert_int_equal(domain, PN_DOMAIN_RLIMIT);
    assert_int_equal(pn_ledger_place_headroom(PN_PLACE_FILE, &domain), 300);
    assert_int_equal(domain, PN_DOMAIN_RLIMIT);
    assert_int_equal(pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_KV, 301, &no, &detail), PN_E_NOFIT);
    assert_non_null(strstr(detail.text, "rlimit lacks 1 bytes, it can give 300"));
    assert_int_equal(pn_ledger_reserve(PN_PLACE_FILE, PN_OWNER_WEIGHTS, 301, &no, &detail),
                     PN_E_NOFIT);
    assert_non_null(strstr(detail.text, "at file would not fit: rlimit lacks 1 bytes"));
    pn_booking h = book(PN_PLACE_HOST, PN_OWNER_KV, 300);
    assert_int_equal(pn_ledger_place_headroom(PN_PLACE_FILE, NULL), 0);
    /* Once it is mapped the system has taken it off what it calls available. */
    assert_int_equal(pn_ledger_mapped(&f), 0);
    pn_ledger_set_domain(PN_DOMAIN_RLIMIT, NULL, 300, 0);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_RLIMIT), 0);
    unbook(&h);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_RLIMIT), 300);
    assert_int_equal(pn_ledger_vacate(&f), 0);
    pn_ledger_set_domain(PN_DOMAIN_RLIMIT, NULL, 1000, 0);
    unbook(&f);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_RLIMIT), 1000);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 5000);
}

static void test_misuse_is_caught(void **state) {
    (void)state;
    pn_booking none = {0};
    assert_int_equal(pn_ledger_release(&none), PN_E_STATE);
    assert_int_equal(pn_ledger_commit(&none, 0), PN_E_STATE);
    assert_int_equal(pn_ledger_uncommit(&none, 0), PN_E_STATE);
    assert_int_equal(pn_ledger_vacate(&none), PN_E_STATE);
    assert_int_equal(pn_ledger_mapped(&none), PN_E_STATE);

    pn_ledger_set_domain(PN_DOMAIN_HOST, NULL, 1000, 0);
    pn_booking a = book(PN_PLACE_HOST, PN_OWNER_KV, 100);
    pn_booking b = book(PN_PLACE_HOST, PN_OWNER_KV, 100);
    assert_int_equal(pn_ledger_commit(&a, 101), PN_E_INVALID);
    assert_int_equal(pn_ledger_commit(&a, 60), 0);
    assert_int_equal(pn_ledger_commit(&a, 41), PN_E_INVALID);
    assert_int_equal(pn_ledger_commit(&a, UINT64_MAX), PN_E_INVALID);
    assert_int_equal(pn_ledger_uncommit(&a, 61), PN_E_INVALID);
    assert_int_equal(a.committed_bytes, 60);
    unbook(&a);
    /* A double release is caught and takes nothing from the others. */
    assert_int_equal(pn_ledger_release(&a), PN_E_STATE);
    assert_int_equal(pn_ledger_commit(&a, 1), PN_E_STATE);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 900);
    pn_booking torn = b;
    torn.place = PN_PLACE_N;
    assert_int_equal(pn_ledger_release(&torn), PN_E_INVALID);
    torn = b;
    torn.committed_bytes = 101;
    assert_int_equal(pn_ledger_release(&torn), PN_E_INVALID);
    assert_int_equal(pn_ledger_headroom(PN_DOMAIN_HOST), 900);
    unbook(&b);
}

static void test_high_water(void **state) {
    (void)state;
    static pn_ledger_view v;
    unsigned place = PN_PLACE_DIE + 9;
    pn_booking a = book(place, PN_OWNER_KV, 70);
    pn_booking b = book(place, PN_OWNER_STATE, 50);
    assert_int_equal(pn_ledger_commit(&a, 30), 0);
    assert_int_equal(pn_ledger_commit(&b, 45), 0);
    unbook(&b);
    pn_ledger_read(&v);
    const pn_ledger_row *kv = &v.cells[place][PN_OWNER_KV];
    assert_int_equal(kv->reserved_bytes, 70);
    assert_int_equal(kv->committed_bytes, 30);
    assert_int_equal(v.cells[place][PN_OWNER_STATE].reserved_bytes, 0);
    assert_int_equal(v.cells[place][PN_OWNER_STATE].committed_peak_bytes, 45);
    assert_int_equal(v.places[place].reserved_bytes, 70);
    assert_int_equal(v.places[place].committed_bytes, 30);
    assert_int_equal(v.places[place].reserved_peak_bytes, 120);
    assert_int_equal(v.places[place].committed_peak_bytes, 75);
    unbook(&a);
}

static void test_domain_view(void **state) {
    (void)state;
    pn_domain_view v;
    char name[300];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    pn_ledger_domain(PN_DOMAIN_CGROUP, &v);
    assert_int_equal(v.set, 0);
    assert_string_equal(v.name, "cgroup");
    assert_true(v.headroom_bytes == UINT64_MAX);
    assert_int_equal(v.available_bytes, 0);
    pn_ledger_set_domain(PN_DOMAIN_CGROUP, "cgroup:/a", 500, 100);
    pn_booking a = book(PN_PLACE_HOST, PN_OWNER_KV, 30);
    pn_ledger_domain(PN_DOMAIN_CGROUP, &v);
    assert_int_equal(v.set, 1);
    assert_string_equal(v.name, "cgroup:/a");
    assert_int_equal(v.available_bytes, 500);
    assert_int_equal(v.reserve_bytes, 100);
    assert_int_equal(v.headroom_bytes, 370);
    unbook(&a);
    pn_ledger_set_domain(PN_DOMAIN_CGROUP, name, 500, 100);
    pn_ledger_domain(PN_DOMAIN_CGROUP, &v);
    assert_int_equal(strlen(v.name), PN_DOMAIN_NAME_BYTES - 1);
    pn_ledger_domain(PN_DOMAIN_N, &v);
    assert_int_equal(v.set, 0);
}

#define IN_BOOKS(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_BOOKS(test_names),
        IN_BOOKS(test_unset_refuses_nothing),
        IN_BOOKS(test_refusal_says_it_all),
        IN_BOOKS(test_places_and_domains),
        IN_BOOKS(test_between_measurements),
        IN_BOOKS(test_during_a_measurement),
        IN_BOOKS(test_old_measurement_is_ignored),
        IN_BOOKS(test_rlimit_counts_mapped),
        IN_BOOKS(test_rlimit_counts_files),
        IN_BOOKS(test_misuse_is_caught),
        IN_BOOKS(test_high_water),
        IN_BOOKS(test_domain_view),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
