/* The file with the last snapshot: see cli/monitor.h. */
#ifndef PN_CLI_LAST_WORDS_H
#define PN_CLI_LAST_WORDS_H

#include "cli/cli.h"
#include "pn_mem.h"

/* Finds the folder (--state-dir, or the XDG state folder), makes it, says what a predecessor who
 * was killed saw last, and readies the file's names. False: no file will be kept; where the folder
 * was asked for and can't be used, the log says why. */
bool pn__last_words_open(const struct pn_settings *s, const char *command);

/* Writes `state`, in whole or not at all. False: it couldn't; the log says why, once. */
bool pn__last_words_write(const pn_mem_state *state);

/* Removes the file. Safe in a signal handler. */
void pn__last_words_remove(void);

#endif
