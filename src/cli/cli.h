/* The program: one function a subcommand, called by main.c with its settings parsed.
 *
 * A command returns 0 or a negative PN_E_* with the reason in `d`; main prints that one line and
 * turns the code into the exit code. Results go to stdout, everything else to stderr. The model is
 * positional[0]: main has checked that it is there (`mem` has none) and that nothing follows it.
 */
#ifndef PN_CLI_H
#define PN_CLI_H

#include <stdbool.h>

#include "base/err.h"
#include "base/settings.h"

int pn__cmd_run(const struct pn_settings *s, struct pn_detail *d) PN_MUST_CHECK;
int pn__cmd_logits(const struct pn_settings *s, struct pn_detail *d) PN_MUST_CHECK;
int pn__cmd_bench(const struct pn_settings *s, struct pn_detail *d) PN_MUST_CHECK;
int pn__cmd_plan(const struct pn_settings *s, struct pn_detail *d) PN_MUST_CHECK;
int pn__cmd_inspect(const struct pn_settings *s, struct pn_detail *d) PN_MUST_CHECK;
int pn__cmd_tokenize(const struct pn_settings *s, struct pn_detail *d) PN_MUST_CHECK;
int pn__cmd_template(const struct pn_settings *s, struct pn_detail *d) PN_MUST_CHECK;
int pn__cmd_mem(const struct pn_settings *s, struct pn_detail *d) PN_MUST_CHECK;

/* Hands the settings of the memory layer (reserves, thresholds, the ladder's switch) to it. */
void pn__cli_memory(const struct pn_settings *s);

/* Exit codes, stable. */
enum pn_exit {
    PN_EXIT_DONE = 0,
    PN_EXIT_ERROR = 1,
    PN_EXIT_USAGE = 2, /* PN_E_USAGE: what was typed is wrong */
    PN_EXIT_NOFIT = 3, /* PN_E_NOFIT: there isn't the memory for it */
};

/* PN_E_IO when something written to stdout so far was lost (disk full, reader gone); flushes. Long
 * output calls it now and then so as not to work for nobody; main calls it once at the end. */
int pn__out_check(struct pn_detail *d) PN_MUST_CHECK;

/* Whether stderr is a terminal: progress is shown only then. */
bool pn__err_is_terminal(void);

#endif
