/* A machine played back: a folder for /proc and /sys, a clock moved by hand, and the watch polled
 * at each step. Bytes are GiB as doubles, for reading. */
#ifndef PN_TESTS_MEM_SIM_H
#define PN_TESTS_MEM_SIM_H

#include <stdatomic.h>

#include "mem/mem_tree.h"
#include "pn_mem.h"

#define GIB 1073741824.0

struct mem_sim {
    struct mem_tree tree;
    _Atomic uint64_t now_ns; /* the watch may run meanwhile */
    pn_mem_state state;      /* as read after the last step */
};

/* 16 GiB with 12 available, no stalls, no groups; reserves of 1 GiB and 64 MiB. Made for cmocka:
 * *state is a struct mem_sim. */
int mem_sim_setup(void **state);
int mem_sim_teardown(void **state);

void mem_sim_host(struct mem_sim *m, double total, double avail);
/* Percents, and stalled time so far in ms. */
void mem_sim_psi(struct mem_sim *m, double some, double full, uint64_t some_ms, uint64_t full_ms);
/* We are in the v2 group /box. max 0: no limit. */
void mem_sim_group(struct mem_sim *m, double current, double max, double file, double shmem);

/* Moves the clock and polls. */
void mem_sim_step(struct mem_sim *m, unsigned ms);
/* Reads again without polling. */
void mem_sim_read(struct mem_sim *m);

#endif
