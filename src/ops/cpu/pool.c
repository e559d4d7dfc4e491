/* Hand-over of a run, and why no wake-up is lost.
 *
 * `turn` counts runs. The owner writes the job, sets `left` to the number of workers, then adds 1
 * to `turn`; a worker that sees a new `turn` takes the job and finally subtracts 1 from `left`.
 * Both words are futexes, and both hand-overs use the same rule: the waiter announces itself
 * (`asleep`, `owner_asleep`), then calls futex_wait with the old value; the other side changes the
 * word, then looks for the announcement. All four accesses are sequentially consistent, so either
 * the announcement is seen and a wake follows, or the kernel sees the new value and doesn't sleep.
 *
 * A futex_wake may arrive late, after the other side has moved on by itself; it is then a spurious
 * wake-up of a loop that looks again. The pool outlives every such call: free joins the workers.
 */
#include "ops/cpu/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

#define SPIN_NS 20000
#define SPIN_ROUND 32 /* pauses between two looks at the clock: below 2 us on any CPU so far */
#define STACK_BYTES (512 * 1024)

struct worker {
    struct pn_pool *pool;
    uint32_t thread_i;
    pthread_t thread;
};

struct pn_pool {
    /* Sync: written by the owner between runs, read by workers after an acquire of `turn`. */
    void (*fn)(void *user, uint32_t thread_i, uint32_t thread_n);
    void *user;
    bool stop;

    uint32_t thread_n;      /* constant after init */
    struct worker *workers; /* [thread_n - 1], constant after init */
    uint32_t worker_n;      /* threads that were created: owner only */
    uint32_t pinned_n;      /* of them bound to a CPU: owner only */

    /* Padding keeps what workers spin on off the lines that others write. */
    char pad0[PN_CACHE_LINE];
    _Atomic uint32_t turn;
    _Atomic uint32_t asleep; /* workers in or about to enter futex_wait on `turn` */
    char pad1[PN_CACHE_LINE];
    _Atomic uint32_t left;
    _Atomic uint32_t owner_asleep;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t old) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void cpu_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* The real clock, not base/clock's: a test that stops time must not make a thread spin for ever. */
static uint64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Spins until *word is (want_equal) or is no longer (!want_equal) `value`: true. Or until the time
 * is up: false. */
static bool spin(_Atomic uint32_t *word, uint32_t value, bool want_equal) {
    uint64_t end_ns = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPIN_ROUND; i++) {
            if ((atomic_load_explicit(word, memory_order_acquire) == value) == want_equal)
                return true;
            cpu_pause();
        }
    } while (now_ns() < end_ns);
    return false;
}

static void wait_turn(struct pn_pool *pool, uint32_t seen) {
    if (spin(&pool->turn, seen, false)) return;
    atomic_fetch_add_explicit(&pool->asleep, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&pool->turn, memory_order_seq_cst) == seen)
        futex_wait(&pool->turn, seen);
    atomic_fetch_sub_explicit(&pool->asleep, 1, memory_order_relaxed);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    struct pn_pool *pool = w->pool;
    uint32_t seen = 0;
    for (;;) {
        wait_turn(pool, seen);
        seen++;
        if (pool->stop) return NULL;
        pool->fn(pool->user, w->thread_i, pool->thread_n);
        /* Release: the owner's acquire of 0 sees what this run wrote. */
        if (atomic_fetch_sub_explicit(&pool->left, 1, memory_order_seq_cst) == 1 &&
            atomic_load_explicit(&pool->owner_asleep, memory_order_seq_cst))
            futex_wake_all(&pool->left);
    }
}

static void start_turn(struct pn_pool *pool) {
    /* Release: a worker's acquire of `turn` sees the job. */
    atomic_fetch_add_explicit(&pool->turn, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&pool->asleep, memory_order_seq_cst) > 0) futex_wake_all(&pool->turn);
}

static void wait_all(struct pn_pool *pool) {
    if (spin(&pool->left, 0, true)) return;
    atomic_store_explicit(&pool->owner_asleep, 1, memory_order_seq_cst);
    uint32_t left;
    while ((left = atomic_load_explicit(&pool->left, memory_order_seq_cst)) > 0)
        futex_wait(&pool->left, left);
    atomic_store_explicit(&pool->owner_asleep, 0, memory_order_relaxed);
}

static int create_workers(struct pn_pool *pool, struct pn_detail *d) {
    pthread_attr_t attr;
    int err = pthread_attr_init(&attr);
    if (err) return pn__fail(d, PN_E_NOMEM, "thread attributes: %s", strerror(err));
    err = pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (!err && pool->worker_n < pool->thread_n - 1) {
        struct worker *w = &pool->workers[pool->worker_n];
        w->pool = pool;
        w->thread_i = pool->worker_n + 1;
        err = pn__alloc_should_fail() ? EAGAIN : pthread_create(&w->thread, &attr, worker_main, w);
        if (!err) pool->worker_n++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (!err) return 0;
    return pn__fail(d, PN_E_NOMEM, "thread %u of %u could not be created: %s", pool->worker_n + 2,
                    pool->thread_n, strerror(err));
}

/* A binding that the system refuses costs a little speed and is only counted. */
static void pin_workers(struct pn_pool *pool) {
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    if ((uint32_t)CPU_COUNT(&all) < pool->thread_n) return;
    size_t cpu = SIZE_MAX;
    for (uint32_t i = 0; i < pool->thread_n; i++) {
        do {
            cpu++; /* from SIZE_MAX to 0 */
        } while (!CPU_ISSET(cpu, &all));
        if (i == 0) continue; /* the caller's */
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pool->pinned_n +=
            pthread_setaffinity_np(pool->workers[i - 1].thread, sizeof one, &one) == 0;
    }
}

int pn__pool_new(uint32_t thread_n, bool pin, struct pn_detail *d, struct pn_pool **out) {
    *out = NULL;
    if (thread_n < 1 || thread_n > PN_THREAD_MAX)
        return pn__fail(d, PN_E_INVALID, "%u threads asked for, 1 to %d are possible", thread_n,
                        PN_THREAD_MAX);
    struct pn_pool *pool = pn__calloc(1, sizeof *pool);
    if (!pool) return pn__fail(d, PN_E_NOMEM, "thread pool");
    int rc;
    pool->thread_n = thread_n;
    pool->workers = pn__calloc(thread_n, sizeof *pool->workers);
    if (!pool->workers) {
        rc = pn__fail(d, PN_E_NOMEM, "thread pool of %u", thread_n);
        goto fail;
    }
    rc = create_workers(pool, d);
    if (rc) goto fail;
    if (pin) pin_workers(pool);
    *out = pool;
    return 0;

fail:
    pn__pool_free(pool);
    return rc;
}

void pn__pool_free(struct pn_pool *pool) {
    if (!pool) return;
    pool->stop = true;
    start_turn(pool);
    for (uint32_t i = 0; i < pool->worker_n; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pn__free(pool->workers);
    pn__free(pool);
}

uint32_t pn__pool_thread_n(const struct pn_pool *pool) {
    return pool->thread_n;
}

uint32_t pn__pool_pinned_n(const struct pn_pool *pool) {
    return pool->pinned_n;
}

void pn__pool_run(struct pn_pool *pool,
                  void (*fn)(void *user, uint32_t thread_i, uint32_t thread_n), void *user) {
    if (pool->thread_n == 1) {
        fn(user, 0, 1);
        return;
    }
    pool->fn = fn;
    pool->user = user;
    atomic_store_explicit(&pool->left, pool->thread_n - 1, memory_order_relaxed);
    start_turn(pool);
    fn(user, 0, pool->thread_n);
    wait_all(pool);
}
