/* What goes on beside a command that watches memory: a small file with the last snapshot, and an
 * answer to SIGUSR1.
 *
 * The file. Whoever is killed from outside can't say any more what it saw. So the newest snapshot
 * stands in --state-dir as last-PID.txt, a few lines of text: written at the first snapshot, when
 * the level changes and every PN_MONITOR_WRITE_S seconds, each time whole under another name and
 * then renamed. Its inode is locked (flock) for as long as the process lives, before it gets its
 * name. A start looks through the folder: a file that can be locked belongs to nobody who lives; it
 * is told in one log line and removed. A clean end, SIGINT, SIGTERM and SIGHUP remove it.
 *
 * SIGUSR1 prints the last decisions with their numbers on stderr. The handler only writes a byte
 * into a pipe; a thread, which sleeps otherwise, does the rest. */
#ifndef PN_CLI_MONITOR_H
#define PN_CLI_MONITOR_H

#include "cli/cli.h"

#define PN_MONITOR_WRITE_S 10

/* Starts it; `command` is named in the file. A folder that can't be written is no error: then there
 * is no file, and the log says so. PN_E_NOMEM when the system refuses a thread or a pipe. */
int pn__monitor_start(const struct pn_settings *s, const char *command,
                      struct pn_detail *d) PN_MUST_CHECK;

/* Ends it and removes the file. SIGUSR1 is ignored from then on. May be called when nothing was
 * started. */
void pn__monitor_stop(void);

#endif
