/* The event count that waiting for memory goes by: nobody misses what happens between his look and
 * his wait, for he says which count he looked at. */
#include <pthread.h>
#include <time.h>

#include "pn_mem.h"

/* Sync: under `lock`. */
static uint64_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Deadlines are of the monotonic clock: a wait doesn't depend on somebody setting the time. */
static void make_cond(void) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attr);
    pthread_condattr_destroy(&attr);
}

uint64_t pn_mem_wake_count(void) {
    pthread_mutex_lock(&lock);
    uint64_t now = count;
    pthread_mutex_unlock(&lock);
    return now;
}

void pn_mem_wake(void) {
    pthread_once(&once, make_cond);
    pthread_mutex_lock(&lock);
    count++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

uint64_t pn_mem_wait(uint64_t seen, uint32_t timeout_ms) {
    struct timespec until;
    pthread_once(&once, make_cond);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&lock);
    int rc = 0;
    while (count == seen && rc == 0)
        rc = pthread_cond_timedwait(&changed, &lock, &until);
    uint64_t now = count;
    pthread_mutex_unlock(&lock);
    return now;
}
