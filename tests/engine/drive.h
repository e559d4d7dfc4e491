/* Asking an engine and keeping what it said. */
#ifndef PN_TESTS_ENGINE_DRIVE_H
#define PN_TESTS_ENGINE_DRIVE_H

#include "pannier.h"
#include "support/pn_test.h"

/* Everything the callbacks of one request brought. */
struct answer {
    float *rows; /* [row_n, vocab] */
    size_t row_n;
    uint32_t vocab;
    uint32_t positions[1024]; /* of the rows */
    int32_t tokens[1024];
    uint32_t token_n;
    uint32_t done_n; /* times on_done was called */
    struct pn_done done;
};

/* Zeroed, then the request's callbacks are set to fill `a`. */
void answer_init(struct answer *a, struct pn_request *r);
void answer_free(struct answer *a);

/* Submits, drives to the end and expects that the request ended once, for `stop`. */
void ask(pn_engine *e, pn_session *s, struct pn_request r, enum pn_stop stop, struct answer *a);

/* Turns until nothing is left. */
void drive(pn_engine *e);

/* A prompt of five ids, whose logits are all wanted, and an engine for it. */
struct pn_request short_request(void);
struct pn_engine_options short_options(const char *path, enum pn_weights_choice weights);

pn_engine *open_engine(const struct pn_engine_options *o);
pn_session *new_session(pn_engine *e);

/* All reserved bytes of host and file. */
uint64_t ledger_reserved(void);

#endif
