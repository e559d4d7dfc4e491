/* What the commands that load a model share. */
#ifndef PN_CLI_ENGINE_CLI_H
#define PN_CLI_ENGINE_CLI_H

#include <jansson.h>

#include "cli/cli.h"
#include "pannier.h"
#include "text/text.h"

/* Options from the settings; the model is positional[0]. Progress is shown when stderr is a
 * terminal. */
void pn__cli_options(const struct pn_settings *s, struct pn_engine_options *o);

/* Progress of something that may take long, on one line of stderr that goes again: shown from a
 * second on, and only on a terminal. Zero it before; done >= total ends it. */
struct pn_progress {
    uint64_t start_ns;
    uint64_t last_ns;
    bool shown;
};
void pn__progress(struct pn_progress *p, const char *what, uint64_t done, uint64_t total,
                  const char *unit);
/* Takes the line away of something that ended before its time. */
void pn__progress_end(struct pn_progress *p);

/* Opens the model's vocabulary alone. */
int pn__cli_vocab(const struct pn_settings *s, struct pn_detail *d,
                  struct pn_vocab **out) PN_MUST_CHECK;

/* Drives until nothing is left to do. */
int pn__cli_drive(pn_engine *e, struct pn_detail *d) PN_MUST_CHECK;

/* A finished request's error as this command's result; 0 when it ended well. */
int pn__cli_done(const struct pn_done *done, struct pn_detail *d) PN_MUST_CHECK;

const char *pn__stop_name(enum pn_stop stop);

/* tok/s, 0 when no time passed. */
double pn__rate(uint64_t n, double seconds);

/* "steps", "weight_passes", "batch_max", "threads_used", "weight_bytes" of a run. */
json_t *pn__stats_json(const struct pn_engine_stats *t);

/* Prints and frees `j` on one line. PN_E_NOMEM when it is NULL or can't be printed. */
int pn__print_json(json_t *j, struct pn_detail *d) PN_MUST_CHECK;

#endif
