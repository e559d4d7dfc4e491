#include "core/mem/pn_trigger.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/io.h"

static int open_and_write(const char *path, const char *spec) {
    int fd = pn__io()->open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return -errno;
    /* The kernel wants the terminator too. */
    if (write(fd, spec, strlen(spec) + 1) >= 0) return fd;
    int err = errno;
    pn__io()->close(fd);
    return -err;
}

/* Sync: constant while the watch runs. */
static pn_trigger_open_fn open_fn;

void pn__trigger_set_open(pn_trigger_open_fn fn) {
    open_fn = fn;
}

bool pn__trigger_is_hooked(void) {
    return open_fn != NULL;
}

void pn__trigger_arm(struct pn_trigger *t, const char *path) {
    static const char *const specs[] = {"some 100000 1000000", "some 200000 2000000"};
    for (size_t i = 0; i < PN_ARRAY_N(specs); i++) {
        t->fd = open_fn ? open_fn(path, specs[i]) : open_and_write(path, specs[i]);
        if (t->fd >= 0) {
            snprintf(t->note, sizeof t->note, "armed: %s at %.80s", specs[i], path);
            return;
        }
        snprintf(t->note, sizeof t->note, "none: %.80s: %s", path, strerror(-t->fd));
        t->fd = -1;
    }
}

void pn__trigger_close(struct pn_trigger *t) {
    if (t->fd >= 0) pn__io()->close(t->fd);
    t->fd = -1;
}
