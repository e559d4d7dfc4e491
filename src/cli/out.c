#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

int pn__out_check(struct pn_detail *d) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    return pn__fail(d, PN_E_IO, "standard output: %s", errno ? strerror(errno) : "write error");
}

bool pn__err_is_terminal(void) {
    return isatty(STDERR_FILENO) == 1;
}
