/* The watch's thread: sleeps for the interval that the last sample asks for, or until a PSI trigger
 * or stop wakes it, and polls. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/alloc.h"
#include "base/io.h"
#include "base/log.h"
#include "core/mem/pn_trigger.h"
#include "core/mem/pn_watch.h"

enum { FD_WAKE, FD_HOST, FD_GROUP, FD_N };

/* Sync: life_lock for start and stop; triggers and wake_fd are constant while the thread runs, but
 * for the triggers' fd, which the thread may close. running: atomic, written under life_lock. */
static pthread_mutex_t life_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;
static int wake_fd = -1;
static struct pn_trigger triggers[FD_N];
static _Atomic bool running;

bool pn_memwatch_running(void) {
    return atomic_load_explicit(&running, memory_order_acquire);
}

/* Waits for `ms`; true: stop. Sets *fired when a trigger woke us. */
static bool wait_ms(int ms, bool with_triggers, bool *fired) {
    struct pollfd fds[FD_N] = {{.fd = wake_fd, .events = POLLIN}};
    for (int i = FD_HOST; i < FD_N; i++)
        fds[i] = (struct pollfd){.fd = with_triggers ? triggers[i].fd : -1, .events = POLLPRI};
    *fired = false;
    /* An interrupted wait is a short one. */
    if (poll(fds, FD_N, ms) <= 0) return false;
    for (int i = FD_HOST; i < FD_N; i++) {
        if (fds[i].revents & (POLLERR | POLLNVAL | POLLHUP)) {
            pn__log(PN_LOG_INFO, "memory: PSI trigger lost, polling only");
            pn__trigger_close(&triggers[i]);
            pn__watch_note_trigger("none: lost");
        } else if (fds[i].revents & POLLPRI) {
            *fired = true;
        }
    }
    return fds[FD_WAKE].revents != 0;
}

static void *run(void *arg) {
    bool fired;
    (void)arg;
    for (;;) {
        if (wait_ms((int)pn__watch_interval_ms(), true, &fired)) return NULL;
        if (fired) pn__watch_count_trigger();
        pn_memwatch_poll_now();
        /* Whatever a trigger does, there are no more polls than the shortest interval allows. */
        bool ignored;
        if (fired && wait_ms(PN_MEMWATCH_POLL_MS_MIN, false, &ignored)) return NULL;
    }
}

static void arm_triggers(void) {
    char host[PN_ROOT_BYTES + PN_GROUP_FILE_BYTES];
    char group[PN_ROOT_BYTES + PN_GROUP_FILE_BYTES];
    char note[sizeof triggers[0].note] = "none: no PSI";
    bool real = pn__watch_psi_paths(host, group);
    triggers[FD_HOST].fd = triggers[FD_GROUP].fd = -1;
    if (!real && !pn__trigger_is_hooked()) {
        pn__watch_note_trigger("none: a folder stands for the machine");
        return;
    }
    if (host[0]) pn__trigger_arm(&triggers[FD_HOST], host);
    if (group[0]) pn__trigger_arm(&triggers[FD_GROUP], group);
    for (int i = FD_GROUP; i >= FD_HOST; i--) {
        bool here = i == FD_HOST ? host[0] : group[0];
        if (here) snprintf(note, sizeof note, "%s", triggers[i].note);
        if (here && triggers[i].fd >= 0) break;
    }
    pn__watch_note_trigger(note);
}

static void close_all(void) {
    for (int i = FD_HOST; i < FD_N; i++)
        pn__trigger_close(&triggers[i]);
    if (wake_fd >= 0) pn__io()->close(wake_fd);
    wake_fd = -1;
}

/* With all signals blocked, which the thread inherits: handlers belong to the program's threads. */
static int spawn(void) {
    sigset_t all;
    sigset_t old;
    if (pn__alloc_should_fail()) return EAGAIN;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int err = pthread_create(&thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return err;
}

int pn_memwatch_start(void) {
    int rc = 0;
    pthread_mutex_lock(&life_lock);
    if (pn_memwatch_running()) goto done;
    pn_memwatch_poll_now();
    wake_fd = pn__alloc_should_fail() ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0) {
        rc = PN_E_NOMEM;
        goto done;
    }
    arm_triggers();
    if (spawn() != 0) {
        close_all();
        rc = PN_E_NOMEM;
        goto done;
    }
    atomic_store_explicit(&running, true, memory_order_release);
done:
    pthread_mutex_unlock(&life_lock);
    return rc;
}

void pn_memwatch_stop(void) {
    pthread_mutex_lock(&life_lock);
    if (pn_memwatch_running()) {
        eventfd_write(wake_fd, 1);
        pthread_join(thread, NULL);
        close_all();
        atomic_store_explicit(&running, false, memory_order_release);
    }
    pthread_mutex_unlock(&life_lock);
}
