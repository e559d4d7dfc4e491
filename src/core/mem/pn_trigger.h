/* PSI triggers: a descriptor that wakes the poll thread when tasks stall, so that a stall that
 * comes between two polls is seen at once. Needs Linux 5.2 and rights that differ by kernel; where
 * it isn't granted, polling goes on alone. */
#ifndef PN_CORE_MEM_TRIGGER_H
#define PN_CORE_MEM_TRIGGER_H

#include <stdbool.h>
#include <stddef.h>

struct pn_trigger {
    int fd;         /* to poll for POLLPRI; -1: none */
    char note[128]; /* "armed: ..." or why not */
};

/* 100 ms of stalls within 1 s; without CAP_SYS_RESOURCE kernels take multiples of 2 s only, so then
 * 200 ms within 2 s. A failure is no error: `note` says it. */
void pn__trigger_arm(struct pn_trigger *t, const char *path);
void pn__trigger_close(struct pn_trigger *t);

/* Test seam: opens `path` and writes `spec` to it; the descriptor or -errno. NULL: the system's.
 * Only while the watch doesn't run. */
typedef int (*pn_trigger_open_fn)(const char *path, const char *spec);
void pn__trigger_set_open(pn_trigger_open_fn fn);
bool pn__trigger_is_hooked(void);

#endif
