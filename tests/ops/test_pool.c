/* The thread pool: every thread takes part once a run, no run is lost, idle workers sleep. */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ops/cpu/pool.h"
#include "support/pn_test.h"

#define THREADS 4

struct tally {
    uint32_t seen[THREADS]; /* plain: the pool's hand-over must order them */
    uint32_t total;
};

static void count_one(void *user, uint32_t thread_i, uint32_t thread_n) {
    struct tally *t = user;
    if (thread_n != THREADS) return; /* the tally then shows it */
    t->seen[thread_i]++;
}

static void sleep_ms(long ms) {
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&ts, NULL);
}

static void test_many_runs(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_pool *pool;
    PN_ASSERT_OK(pn__pool_new(THREADS, false, &d, &pool), &d);
    assert_int_equal(pn__pool_thread_n(pool), THREADS);
    struct tally t = {{0}, 0};
    for (uint32_t run = 1; run <= 10000; run++) {
        pn__pool_run(pool, count_one, &t);
        for (int i = 0; i < THREADS; i++)
            if (t.seen[i] != run) fail_msg("thread %d: %u runs of %u", i, t.seen[i], run);
    }
    pn__pool_free(pool);
}

/* Runs after pauses around the spinning time: workers are found awake, going to sleep, asleep. */
static void test_runs_after_pauses(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_pool *pool;
    PN_ASSERT_OK(pn__pool_new(THREADS, false, &d, &pool), &d);
    struct tally t = {{0}, 0};
    for (uint32_t run = 1; run <= 300; run++) {
        struct timespec ts = {.tv_nsec = (long)(run % 60) * 1000};
        nanosleep(&ts, NULL);
        pn__pool_run(pool, count_one, &t);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(t.seen[i], run);
    }
    pn__pool_free(pool);
}

static void slow_worker(void *user, uint32_t thread_i, uint32_t thread_n) {
    struct tally *t = user;
    (void)thread_n;
    if (thread_i > 0) sleep_ms(2); /* the owner gives up spinning and sleeps */
    t->seen[thread_i]++;
}

static void test_owner_sleeps(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_pool *pool;
    PN_ASSERT_OK(pn__pool_new(THREADS, false, &d, &pool), &d);
    struct tally t = {{0}, 0};
    for (uint32_t run = 1; run <= 20; run++) {
        pn__pool_run(pool, slow_worker, &t);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(t.seen[i], run);
    }
    pn__pool_free(pool);
}

/* Threads of this process other than this one, and how many of them sleep. */
static void count_tasks(uint32_t *other_n, uint32_t *asleep_n) {
    *other_n = *asleep_n = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.' || atoi(e->d_name) == getpid()) continue;
        char path[300];
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", e->d_name);
        FILE *f = fopen(path, "r");
        if (!f) continue;
        char line[256] = "";
        if (fgets(line, sizeof line, f)) {
            char *name_end = strrchr(line, ')');
            (*other_n)++;
            if (name_end && name_end[2] == 'S') (*asleep_n)++;
        }
        fclose(f);
    }
    closedir(dir);
}

static void test_idle_workers_sleep(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_pool *pool;
    uint32_t before_n, n, asleep_n;
    count_tasks(&before_n, &asleep_n); /* a sanitizer may have a thread of its own */
    PN_ASSERT_OK(pn__pool_new(THREADS, false, &d, &pool), &d);
    struct tally t = {{0}, 0};
    pn__pool_run(pool, count_one, &t);
    sleep_ms(100);
    count_tasks(&n, &asleep_n);
    assert_int_equal(n - before_n, THREADS - 1);
    assert_int_equal(asleep_n, n);
    pn__pool_free(pool);
}

/* Idle time costs no CPU: after a pause the process has used next to none of it. */
static void test_idle_costs_nothing(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_pool *pool;
    PN_ASSERT_OK(pn__pool_new(THREADS, false, &d, &pool), &d);
    struct tally t = {{0}, 0};
    pn__pool_run(pool, count_one, &t);
    clock_t from = clock();
    sleep_ms(300);
    double used_s = (double)(clock() - from) / CLOCKS_PER_SEC;
    pn__pool_free(pool);
    if (used_s > 0.05) fail_msg("%.3f s of CPU time in 0.3 s of idling", used_s);
}

static void check_masked(void *user, uint32_t thread_i, uint32_t thread_n) {
    struct tally *t = user;
    (void)thread_n;
    sigset_t set;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    t->seen[thread_i] = (uint32_t)sigismember(&set, SIGTERM);
}

static void test_workers_block_signals(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_pool *pool;
    PN_ASSERT_OK(pn__pool_new(THREADS, false, &d, &pool), &d);
    struct tally t = {{0}, 0};
    pn__pool_run(pool, check_masked, &t);
    assert_int_equal(t.seen[0], 0);
    for (int i = 1; i < THREADS; i++)
        assert_int_equal(t.seen[i], 1);
    pn__pool_free(pool);
}

static void note_cpus(void *user, uint32_t thread_i, uint32_t thread_n) {
    cpu_set_t *sets = user;
    (void)thread_n;
    sched_getaffinity(0, sizeof sets[thread_i], &sets[thread_i]);
}

static void test_pinning(void **state) {
    (void)state;
    struct pn_detail d;
    cpu_set_t own;
    cpu_set_t sets[2];
    struct pn_pool *pool;
    assert_int_equal(sched_getaffinity(0, sizeof own, &own), 0);
    if (CPU_COUNT(&own) < 2) {
        print_message("skipped: one usable CPU, nothing to bind to\n");
        skip();
    }
    for (int pin = 0; pin <= 1; pin++) {
        PN_ASSERT_OK(pn__pool_new(2, pin, &d, &pool), &d);
        assert_int_equal(pn__pool_pinned_n(pool), pin);
        pn__pool_run(pool, note_cpus, sets);
        assert_true(CPU_EQUAL(&sets[0], &own)); /* the caller's thread isn't ours to bind */
        assert_int_equal(CPU_COUNT(&sets[1]), pin ? 1 : CPU_COUNT(&own));
        pn__pool_free(pool);
    }
    /* More threads than CPUs: nobody is bound. */
    PN_ASSERT_OK(pn__pool_new((uint32_t)CPU_COUNT(&own) + 1, true, &d, &pool), &d);
    assert_int_equal(pn__pool_pinned_n(pool), 0);
    pn__pool_free(pool);
}

/* Every allocation and every thread creation fails once; nothing is left behind. */
static void test_creation_fails_cleanly(void **state) {
    (void)state;
    uint32_t before_n, n, asleep_n;
    count_tasks(&before_n, &asleep_n);
    uint64_t nth = 1;
    for (;; nth++) {
        struct pn_detail d;
        struct pn_pool *pool = NULL;
        pn__alloc_fail_nth(nth);
        int rc = pn__pool_new(THREADS, false, &d, &pool);
        pn__alloc_fail_nth(0);
        if (rc == 0) {
            pn__pool_free(pool);
            break;
        }
        assert_int_equal(rc, PN_E_NOMEM);
        assert_null(pool);
        assert_true(strlen(d.text) > 0);
        /* A joined thread may linger in /proc for a moment. */
        for (int i = 0; i < 100; i++) {
            count_tasks(&n, &asleep_n);
            if (n == before_n) break;
            sleep_ms(1);
        }
        assert_int_equal(n, before_n);
    }
    assert_int_equal(nth, 2 + (THREADS - 1) + 1); /* pool, workers, three threads, success */
}

static void test_bad_counts(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_pool *pool;
    assert_int_equal(pn__pool_new(0, false, &d, &pool), PN_E_INVALID);
    assert_int_equal(pn__pool_new(PN_THREAD_MAX + 1, false, &d, &pool), PN_E_INVALID);
    pn__pool_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_runs),
        cmocka_unit_test(test_pinning),
        cmocka_unit_test(test_runs_after_pauses),
        cmocka_unit_test(test_owner_sleeps),
        cmocka_unit_test(test_idle_workers_sleep),
        cmocka_unit_test(test_idle_costs_nothing),
        cmocka_unit_test(test_workers_block_signals),
        cmocka_unit_test(test_creation_fails_cleanly),
        cmocka_unit_test(test_bad_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
