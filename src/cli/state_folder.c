#include "cli/state_folder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool pn__state_folder(const struct pn_settings *s, char *out, size_t cap) {
    const char *given = pn__set_text(s, PN_SET_STATE_DIR);
    const char *xdg = pn__set_text(s, PN_SET_XDG_STATE_HOME);
    const char *home = pn__set_text(s, PN_SET_HOME);
    int n = 0;
    if (given) {
        n = snprintf(out, cap, "%s", given);
    } else if (xdg && xdg[0] == '/') { /* the XDG rules: a relative one is to be ignored */
        n = snprintf(out, cap, "%s/pannier", xdg);
    } else if (home && home[0] == '/') {
        n = snprintf(out, cap, "%s/.local/state/pannier", home);
    }
    return n > 0 && (size_t)n < cap;
}

int pn__state_folder_make(const char *folder) {
    char part[PN_STATE_PATH_BYTES];
    snprintf(part, sizeof part, "%s", folder);
    for (char *c = part + 1; *c; c++) {
        if (*c != '/') continue;
        *c = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST) return errno;
        *c = '/';
    }
    if (mkdir(part, 0700) != 0 && errno != EEXIST) return errno;
    return access(folder, W_OK | X_OK) == 0 ? 0 : errno;
}
