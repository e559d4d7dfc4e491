/* The watch as a machine: start and stop, readers against a writer that never pauses, staleness,
 * dies, triggers, and starts that fail. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "core/mem/pn_publish.h"
#include "core/mem/pn_trigger.h"
#include "mem/mem_sim.h"
#include "support/pn_test.h"

static void nap_ms(unsigned ms) {
    usleep(ms * 1000);
}

/* Waits up to 10 s for a poll count of at least `n`. */
static bool polls_reach(uint64_t n) {
    pn_memwatch_info info;
    for (int i = 0; i < 2000; i++) {
        pn_memwatch_info_read(&info);
        if (info.poll_n >= n) return true;
        nap_ms(5);
    }
    return false;
}

/* ---- readers and writers ------------------------------------------------------------------ */

static _Atomic bool writer_stop;

/* Every field says the same number: a torn copy shows. */
static void fill(pn_mem_state *s, uint64_t n) {
    memset(s, 0, sizeof *s);
    s->seq = n;
    s->host_total_bytes = s->host_avail_bytes = s->eff_avail_bytes = n;
    s->headroom_bytes = s->deficit_bytes = s->sample_ns = n;
    for (int i = 0; i < PN_DIE_MAX; i++)
        s->per_die_free[i] = s->per_die_budget[i] = s->per_die_used[i] = n;
}

static void *write_always(void *arg) {
    pn_mem_state s;
    (void)arg;
    for (uint64_t n = 1; !atomic_load(&writer_stop); n++) {
        fill(&s, n);
        pn__publish(&s);
    }
    return NULL;
}

struct reader {
    pthread_t thread;
    uint64_t good_n;
    uint64_t failed_n;
    uint64_t torn_n;
    uint64_t back_n;
};

static void *read_always(void *arg) {
    struct reader *r = arg;
    pn_mem_state s;
    pn_mem_state want;
    uint64_t last = 0;
    while (r->good_n + r->failed_n < 50000) {
        if (!pn__published(&s)) {
            r->failed_n++;
            continue;
        }
        r->good_n++;
        fill(&want, s.seq);
        r->torn_n += memcmp(&s, &want, sizeof s) != 0;
        r->back_n += s.seq < last;
        last = s.seq;
    }
    return NULL;
}

static void test_writer_that_never_pauses(void **state) {
    (void)state;
    pthread_t writer;
    struct reader readers[3] = {0};
    pn_mem_state s;
    fill(&s, 0);
    pn__publish(&s);
    atomic_store(&writer_stop, false);
    assert_int_equal(pthread_create(&writer, NULL, write_always, NULL), 0);
    for (size_t i = 0; i < PN_ARRAY_N(readers); i++)
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_always, &readers[i]), 0);
    for (size_t i = 0; i < PN_ARRAY_N(readers); i++)
        assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
    atomic_store(&writer_stop, true);
    assert_int_equal(pthread_join(writer, NULL), 0);
    for (size_t i = 0; i < PN_ARRAY_N(readers); i++) {
        assert_int_equal(readers[i].torn_n, 0);
        assert_int_equal(readers[i].back_n, 0);
        /* A reader that is put to sleep in mid-copy fails that try, and hardly ever 64 of them. */
        assert_true(readers[i].failed_n < 10);
    }
    fill(&s, 0);
    pn__publish(&s);
}

static struct pn_slot slot;

/* Rests now and then, so that with one slot readers get something. */
static void *write_slot(void *arg) {
    pn_mem_state s;
    (void)arg;
    for (uint64_t n = 1; !atomic_load(&writer_stop); n++) {
        fill(&s, n);
        pn__slot_write(&slot, &s);
        if (n % 64 == 0) usleep(1);
    }
    return NULL;
}

/* On a single slot copies do collide with writes: those that are called good are whole. */
static void test_slot(void **state) {
    (void)state;
    pthread_t writer;
    pn_mem_state s;
    pn_mem_state want;
    uint64_t good_n = 0;
    uint64_t bad_n = 0;
    fill(&s, 0);
    pn__slot_write(&slot, &s);
    atomic_store(&writer_stop, false);
    assert_int_equal(pthread_create(&writer, NULL, write_slot, NULL), 0);
    /* Both kinds are waited for, up to a bound that no machine reaches. */
    for (uint64_t i = 0; i < 100000000 && (good_n < 200000 || bad_n < 100); i++) {
        if (!pn__slot_read(&slot, &s)) {
            bad_n++;
            continue;
        }
        good_n++;
        fill(&want, s.seq);
        assert_memory_equal(&s, &want, sizeof s);
    }
    atomic_store(&writer_stop, true);
    assert_int_equal(pthread_join(writer, NULL), 0);
    assert_true(good_n > 0 && bad_n > 0);
}

static void *poll_many(void *arg) {
    for (int i = 0; i < 200; i++) {
        if (arg) {
            pn_memwatch_set_die(i % 18 - 1, 1u << 20, 2u << 20, 3);
        } else {
            pn_memwatch_poll_now();
        }
    }
    return NULL;
}

/* poll_now, set_die, the thread and readers at once; seq only grows. */
static void test_all_at_once(void **state) {
    struct mem_sim *m = *state;
    pthread_t threads[4];
    pn_mem_state s;
    pn_memwatch_info info;
    uint64_t last = 0;
    assert_int_equal(pn_memwatch_start(), 0);
    for (size_t i = 0; i < PN_ARRAY_N(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, poll_many, i % 2 ? m : NULL), 0);
    for (int i = 0; i < 20000; i++) {
        assert_int_equal(pn_memwatch_read(&s), 0);
        assert_true(s.seq >= last);
        assert_true(s.host_total_bytes == 16ull << 30);
        last = s.seq;
    }
    for (size_t i = 0; i < PN_ARRAY_N(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    pn_memwatch_stop();
    pn_memwatch_read(&s);
    assert_int_equal(s.n_dies, 16);
    pn_memwatch_info_read(&info);
    assert_true(info.bad_die_n > 0);
}

/* ---- life --------------------------------------------------------------------------------- */

static void test_life(void **state) {
    (void)state;
    pn_mem_state s;
    assert_false(pn_memwatch_running());
    pn_memwatch_stop();
    assert_int_equal(pn_memwatch_read(&s), 0);
    assert_int_equal(s.seq, 0);
    assert_true(s.stale && s.level == PN_MEM_LEVEL_TIGHT);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pn_memwatch_start(), 0);
        assert_int_equal(pn_memwatch_start(), 0);
        assert_true(pn_memwatch_running());
        assert_int_equal(pn_memwatch_read(&s), 0); /* real figures from the first read on */
        assert_true(s.seq > 0 && !s.stale);
        assert_true(s.host_total_bytes == 16ull << 30);
        assert_int_equal(s.level, PN_MEM_LEVEL_OK);
        assert_int_equal(pn_memwatch_set_root("/nowhere"), PN_E_STATE);
        pn_memwatch_info info;
        pn_memwatch_info_read(&info);
        assert_true(polls_reach(info.poll_n + 2));
        pn_memwatch_stop();
        assert_false(pn_memwatch_running());
        pn_memwatch_info_read(&info);
        nap_ms(300);
        pn_memwatch_info after;
        pn_memwatch_info_read(&after);
        assert_int_equal(after.poll_n, info.poll_n);
    }
    char endless[2000];
    memset(endless, 'x', sizeof endless);
    endless[sizeof endless - 1] = '\0';
    assert_int_equal(pn_memwatch_set_root(endless), PN_E_INVALID);
}

static int open_fds(void) {
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void test_failed_start(void **state) {
    (void)state;
    int before = open_fds();
    for (uint64_t nth = 1; nth <= 2; nth++) {
        pn__alloc_fail_nth(nth);
        assert_int_equal(pn_memwatch_start(), PN_E_NOMEM);
        pn__alloc_fail_nth(0);
        assert_false(pn_memwatch_running());
        assert_int_equal(open_fds(), before);
    }
    assert_int_equal(pn_memwatch_start(), 0);
    assert_true(pn_memwatch_running());
    pn_memwatch_stop();
    assert_int_equal(open_fds(), before);
}

static void test_stale(void **state) {
    struct mem_sim *m = *state;
    mem_sim_step(m, 250);
    m->now_ns += 750000000;
    mem_sim_read(m);
    assert_false(m->state.stale);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_OK);
    m->now_ns += 1;
    mem_sim_read(m);
    assert_true(m->state.stale);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_TIGHT);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_TIGHT);
    /* A die's figures don't make those of the host fresh. */
    pn_memwatch_set_die(0, 5, 5, 0);
    mem_sim_read(m);
    assert_true(m->state.stale);
    mem_sim_host(m, 16, 0.5);
    mem_sim_step(m, 0);
    m->now_ns += 10000000000u;
    mem_sim_read(m);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_CRITICAL); /* never better than it was */
}

static void test_dies(void **state) {
    struct mem_sim *m = *state;
    const uint64_t gib = 1ull << 30;
    pn_memwatch_info info;
    pn_booking b;
    mem_sim_step(m, 250);
    uint64_t seq = m->state.seq;
    pn_memwatch_set_die(3, 10 * gib, 22 * gib, 12 * gib);
    mem_sim_read(m);
    assert_int_equal(m->state.seq, seq + 1);
    assert_int_equal(m->state.n_dies, 4);
    assert_true(m->state.per_die_free[3] == 10 * gib && m->state.per_die_used[3] == 12 * gib);
    assert_true(m->state.per_die_budget[3] == 22 * gib);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_OK);
    assert_true(pn_ledger_headroom(PN_DOMAIN_DIE + 3) == 9 * gib);
    assert_int_equal(pn_ledger_reserve(PN_PLACE_DIE + 3, PN_OWNER_KV, 9 * gib + 1, &b, NULL),
                     PN_E_NOFIT);
    pn_memwatch_set_die(3, gib, 22 * gib, 21 * gib);
    mem_sim_read(m);
    assert_int_equal(m->state.level, PN_MEM_LEVEL_TIGHT);
    pn_memwatch_set_die(-1, 0, 1, 1);
    pn_memwatch_set_die(16, 0, 1, 1);
    pn_memwatch_set_die(INT32_MIN, 0, 1, 1);
    mem_sim_read(m);
    assert_int_equal(m->state.seq, seq + 2);
    pn_memwatch_info_read(&info);
    assert_true(info.bad_die_n >= 3);
    assert_non_null(strstr(info.why, "die 3: 1.000 GiB available"));
    /* The next host sample keeps what is known of the dies. */
    mem_sim_step(m, 250);
    assert_int_equal(m->state.raw_level, PN_MEM_LEVEL_TIGHT);
}

/* ---- triggers ----------------------------------------------------------------------------- */

static int refuse_errno;
static int asked_n;
static char asked[256];

static int refuse_trigger(const char *path, const char *spec) {
    asked_n++;
    snprintf(asked, sizeof asked, "%s %s", path, spec);
    return -refuse_errno;
}

static void test_trigger_refused(void **state) {
    struct mem_sim *m = *state;
    static const int errors[] = {EPERM, EINVAL, EACCES, EOPNOTSUPP};
    pn_memwatch_info info;
    pn__trigger_set_open(refuse_trigger);
    for (size_t i = 0; i < PN_ARRAY_N(errors); i++) {
        refuse_errno = errors[i];
        asked_n = 0;
        assert_int_equal(pn_memwatch_start(), 0);
        assert_int_equal(asked_n, 2); /* a window of 1 s, then one of 2 s */
        assert_non_null(strstr(asked, "/proc/pressure/memory some 200000 2000000"));
        pn_memwatch_info_read(&info);
        assert_memory_equal(info.trigger, "none: ", 6);
        assert_true(i > 0 || polls_reach(info.poll_n + 1));
        pn_memwatch_stop();
    }
    mem_tree_remove(&m->tree, "proc/pressure/memory");
    assert_int_equal(pn_memwatch_set_root(m->tree.root), 0);
    asked_n = 0;
    assert_int_equal(pn_memwatch_start(), 0);
    assert_int_equal(asked_n, 0);
    pn_memwatch_info_read(&info);
    assert_string_equal(info.trigger, "none: no PSI");
    pn_memwatch_stop();
    pn__trigger_set_open(NULL);
    assert_int_equal(pn_memwatch_start(), 0);
    pn_memwatch_info_read(&info);
    assert_string_equal(info.trigger, "none: a folder stands for the machine");
    pn_memwatch_stop();
}

static int ends[2];

static int open_socket(const char *path, const char *spec) {
    (void)path;
    if (strcmp(spec, "some 100000 1000000") == 0) return -EINVAL;
    return ends[0];
}

/* Urgent data is what makes a socket POLLPRI, as a trigger does: the thread polls at once, but not
 * more often than every 20 ms however long it stays so. */
static void test_trigger_fires(void **state) {
    (void)state;
    pn_memwatch_info info;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) PN_SKIP_TEST("no socket pairs");
    if (send(ends[1], "!", 1, MSG_OOB) != 1) {
        close(ends[0]);
        close(ends[1]);
        PN_SKIP_TEST("no urgent data on local sockets (before Linux 5.15)");
    }
    pn__trigger_set_open(open_socket);
    assert_int_equal(pn_memwatch_start(), 0);
    struct timespec from;
    struct timespec to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < 1000; i++) {
        pn_memwatch_info_read(&info);
        if (info.trigger_n >= 10) break;
        nap_ms(5);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    assert_memory_equal(info.trigger, "armed: some 200000 2000000", 26);
    assert_true(info.trigger_n >= 10);
    double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
    assert_true(ms >= 20.0 * 8 && ms < 10 * 250.0);
    /* The other end gone: the trigger is lost and closed, polling goes on. */
    close(ends[1]);
    uint64_t fired = 0;
    for (int i = 0; i < 200; i++) {
        pn_memwatch_info_read(&info);
        if (strcmp(info.trigger, "none: lost") == 0) break;
        nap_ms(10);
    }
    assert_string_equal(info.trigger, "none: lost");
    fired = info.trigger_n;
    assert_true(polls_reach(info.poll_n + 2));
    pn_memwatch_info_read(&info);
    assert_int_equal(info.trigger_n, fired);
    pn_memwatch_stop();
    pn__trigger_set_open(NULL);
}

/* The machine this runs on. */
static void test_this_machine(void **state) {
    (void)state;
    pn_memwatch_info info;
    pn_mem_state s;
    pn__clock_set(NULL, NULL);
    pn_ledger_set_reserves(UINT64_MAX, UINT64_MAX);
    assert_int_equal(pn_memwatch_set_root(NULL), 0);
    assert_int_equal(pn_memwatch_start(), 0);
    pn_memwatch_info_read(&info);
    assert_true(polls_reach(info.poll_n + 2));
    assert_int_equal(pn_memwatch_read(&s), 0);
    assert_false(s.stale);
    assert_true(s.host_total_bytes > 0 && s.eff_avail_bytes <= s.host_avail_bytes);
    assert_true(s.bind_domain[0] != '\0');
    pn_memwatch_stop();
}

#define SIM(f) cmocka_unit_test_setup_teardown(f, mem_sim_setup, mem_sim_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slot),
        cmocka_unit_test(test_writer_that_never_pauses),
        SIM(test_life),
        SIM(test_all_at_once),
        SIM(test_failed_start),
        SIM(test_stale),
        SIM(test_dies),
        SIM(test_trigger_refused),
        SIM(test_trigger_fires),
        SIM(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
