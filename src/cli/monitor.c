#include "cli/monitor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/last_words.h"
#include "pn_mem.h"

/* How often the thread looks whether the level has changed: as often as the watch may poll when
 * memory isn't filling. */
#define LOOK_MS PN_MEMWATCH_POLL_MS

enum { WORD_PRINT = 'p', WORD_STOP = 's' };

/* Sync: written by start and stop, which don't overlap; constant while the thread runs. `leaving`
 * is set by a handler and read by the thread. */
static pthread_t thread;
static int pipe_fds[2] = {-1, -1};
static bool running;
static _Atomic bool leaving;

/* Signals that end us politely; each with the disposition it had. */
static const int endings[] = {SIGINT, SIGTERM, SIGHUP};

/* ---- handlers: only what is safe in one ---------------------------------------------------- */

static void on_print(int sig) {
    (void)sig;
    int kept = errno;
    const char word = WORD_PRINT;
    /* A full pipe means that enough has been asked for. */
    ssize_t n = write(pipe_fds[1], &word, 1);
    (void)n;
    errno = kept;
}

static void on_ending(int sig) {
    atomic_store(&leaving, true);
    pn__last_words_remove();
    signal(sig, SIG_DFL);
    raise(sig); /* takes effect when this handler returns */
}

static void install(int sig, void (*handler)(int)) {
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = handler;
    sa.sa_flags = SA_RESTART;
    sigemptyset(&sa.sa_mask);
    sigaction(sig, &sa, NULL);
}

/* What the caller of this program chose to have ignored (nohup) stays so. */
static void install_endings(void) {
    struct sigaction old;
    for (size_t i = 0; i < PN_ARRAY_N(endings); i++) {
        if (sigaction(endings[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) {
            install(endings[i], on_ending);
        }
    }
}

/* ---- the thread ---------------------------------------------------------------------------- */

static void print_decisions(void) {
    static pn_decision all[PN_DECISION_N]; /* the thread's */
    size_t n = pn_decisions_read(all, PN_DECISION_N);
    uint64_t now = pn__clock_ns();
    char text[256];
    fprintf(stderr, "pannier: the last %zu decisions\n", n);
    for (size_t i = 0; i < n; i++) {
        double ago = all[i].ns < now ? pn__clock_s(all[i].ns, now) : 0.0;
        fprintf(stderr, "pannier: %6llu  %9.3f s ago  %s\n", (unsigned long long)all[i].seq, ago,
                pn_decision_text(&all[i], text, sizeof text));
    }
    fflush(stderr);
}

/* True when stop was asked for. */
static bool obey(void) {
    char words[64];
    ssize_t n = read(pipe_fds[0], words, sizeof words);
    bool print = false;
    for (ssize_t i = 0; i < n; i++) {
        if (words[i] == WORD_STOP) return true;
        print = true;
    }
    if (print) print_decisions();
    return false;
}

static void *run(void *arg) {
    bool keep = arg != NULL;
    pn_mem_level written = PN_MEM_LEVEL_N;
    uint64_t written_ns = 0;
    for (;;) {
        struct pollfd p = {.fd = pipe_fds[0], .events = POLLIN};
        if (poll(&p, 1, keep ? LOOK_MS : -1) > 0 && obey()) return NULL;
        pn_mem_state s;
        if (!keep || pn_memwatch_read(&s) != 0 || s.seq == 0 || s.stale) continue;
        uint64_t now = pn__clock_ns();
        if (s.level == written && pn__clock_s(written_ns, now) < PN_MONITOR_WRITE_S) continue;
        if (atomic_load(&leaving)) continue;
        keep = pn__last_words_write(&s);
        written = s.level;
        written_ns = now;
    }
}

/* With all signals blocked, which the thread inherits. */
static int spawn(bool keep) {
    static char yes;
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int err = pthread_create(&thread, NULL, run, keep ? &yes : NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return err;
}

int pn__monitor_start(const struct pn_settings *s, const char *command, struct pn_detail *d) {
    if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        return pn__fail(d, PN_E_NOMEM, "a pipe for signals: %s", strerror(errno));
    }
    bool keep = pn__last_words_open(s, command);
    int err = spawn(keep);
    if (err) {
        close(pipe_fds[0]);
        close(pipe_fds[1]);
        return pn__fail(d, PN_E_NOMEM, "a thread for signals: %s", strerror(err));
    }
    running = true;
    install(SIGUSR1, on_print);
    if (keep) install_endings();
    return 0;
}

void pn__monitor_stop(void) {
    if (!running) return;
    /* After this no handler writes into the pipe. */
    signal(SIGUSR1, SIG_IGN);
    const char word = WORD_STOP;
    while (write(pipe_fds[1], &word, 1) < 0 && (errno == EINTR || errno == EAGAIN)) {
    }
    pthread_join(thread, NULL);
    pn__last_words_remove();
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    running = false;
}
