/* The folder for what the program keeps between its runs. */
#ifndef PN_CLI_STATE_FOLDER_H
#define PN_CLI_STATE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/settings.h"

/* Room for a path of the folder and one of its files. */
#define PN_STATE_PATH_BYTES 4096

/* --state-dir, or pannier in the XDG state folder. False where no folder is wanted or none is
 * known. */
bool pn__state_folder(const struct pn_settings *s, char *out, size_t cap);

/* Makes the folder and those above it. 0 when it can be written, or an errno. */
int pn__state_folder_make(const char *folder);

#endif
