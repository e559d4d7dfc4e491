#include "cli/interrupt.h"

#include <signal.h>

/* Sync: written by the handler and by the main thread, a single flag. */
static volatile sig_atomic_t came;

static void on_interrupt(int signo) {
    (void)signo;
    came = 1;
}

void pn__interrupt_catch(void) {
    struct sigaction how = {.sa_handler = on_interrupt};
    sigemptyset(&how.sa_mask);
    sigaction(SIGINT, &how, NULL);
}

bool pn__interrupted(void) {
    return came != 0;
}

void pn__interrupt_clear(void) {
    came = 0;
}
