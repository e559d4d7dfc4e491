/* A machine that gets tight under an engine: one that is played back (mem_sim), over which the
 * engine's watch runs, with a tiny model in its folder. */
#ifndef PN_TESTS_ENGINE_TIGHT_H
#define PN_TESTS_ENGINE_TIGHT_H

#include "engine/tiny.h"
#include "mem/mem_sim.h"
#include "support/kept_log.h"

#define TIGHT_CTX 1024u
/* Of 16 GiB with 1 kept free. Above 2 GiB it is OK, to 1.25 WATCH, to 1 TIGHT, then CRITICAL. */
#define OK_GIB 8.0
#define WATCH_GIB 1.5
#define TIGHT_GIB 1.2
#define CRITICAL_GIB 0.9

struct tight {
    struct mem_sim *sim;
    char model[128];        /* a llama that knows TIGHT_CTX tokens */
    int32_t ids[TIGHT_CTX]; /* of its vocabulary */
    struct kept_log log;    /* warnings and worse */
};
extern struct tight tight;

/* For cmocka, around each test. The machine is OK at first; head_dim 0: tiny_llama's. Teardown
 * fails when something is still reserved. */
int tight_setup(uint32_t head_dim);
int tight_teardown(void **state);

/* So much is available and so many percent of the time stalled; then one more poll. */
void tight_machine(double avail_gib, double psi_full);
/* Moves the clock; then one more poll. */
void tight_pass(unsigned seconds);

#endif
