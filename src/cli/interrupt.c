#include "cli/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Sync: `came` is set by the handler, on whichever thread it runs, and cleared by the main thread.
 * The pipe is made before the handler stands. */
static volatile sig_atomic_t came;
static int pipe_fds[2] = {-1, -1};

static void on_interrupt(int signo) {
    int kept = errno;
    (void)signo;
    came = 1;
    /* A full pipe is readable already. */
    ssize_t n = write(pipe_fds[1], "c", 1);
    (void)n;
    errno = kept;
}

int pn__interrupt_catch(struct pn_detail *d) {
    struct sigaction how = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    if (pipe_fds[0] < 0 && pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        return pn__fail(d, PN_E_IO, "a pipe for Ctrl-C: %s", strerror(errno));
    }
    sigemptyset(&how.sa_mask);
    sigaction(SIGINT, &how, NULL);
    return 0;
}

bool pn__interrupted(void) {
    return came != 0;
}

void pn__interrupt_clear(void) {
    char words[64];
    /* In this order: one that comes in between leaves the mark, with or without its byte. */
    came = 0;
    while (pipe_fds[0] >= 0 && read(pipe_fds[0], words, sizeof words) > 0) {
    }
}

int pn__interrupt_fd(void) {
    return pipe_fds[0];
}
