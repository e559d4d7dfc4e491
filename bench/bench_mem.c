/* How long the memory layer's calls take: reading the snapshot, one admission decision, one poll of
 * this machine. The goals (docs/MEMORY.md) are printed beside the figures and decide nothing: a
 * machine that does other work measures that work.
 *
 *   bench_mem [ROUNDS]       ROUNDS of each call in a batch; the best of many batches is printed.
 *
 * Batches are short, so that on a machine that does other work some run undisturbed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "pn_mem.h"

#define BATCH_N 300
#define ROUNDS_DEFAULT 1000
#define HOT_BYTES (1ull << 30)

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* What is computed is added up, so that no compiler leaves it out. */
static uint64_t sink;

static void do_read(void) {
    pn_mem_state state;
    sink += (uint64_t)pn_memwatch_read(&state) + state.seq;
}

/* A dense model of 24 layers: pages of 3 MiB, a little state, scratch that grows. */
static pn_admit_cost cost = {.kv = {{3u << 20, 64, 0}},
                             .state_bytes = 1u << 20,
                             .scratch = {{512, 8u << 20}, {4096, 64u << 20}},
                             .scratch_n = 2};
static pn_mem_state snapshot;
static pn_mem_state small; /* the same machine with 1 GiB to give */

static void do_admit(void) {
    pn_admit_result r;
    pn_admit_request_cost(&cost, 1000, 200, -1, 0, &snapshot, &r);
    sink += r.need_bytes;
}

/* The dear answer: it doesn't fit, so the longest prompt that does is looked for. */
static void do_cap(void) {
    pn_admit_result r;
    pn_admit_request_cost(&cost, 1 << 18, 200, -1, 0, &small, &r);
    sink += (uint64_t)r.fit_tokens;
}

static void do_ticket(void) {
    pn_admit_ticket ticket = {0};
    pn_admit_result r;
    sink += (uint64_t)pn_admit_reserve(&cost, 100, 20, 4096, 0, &ticket, &r, NULL);
    pn_admit_release(&ticket);
}

static void do_poll(void) {
    pn_memwatch_poll_now();
}

static void measure(const char *what, void (*call)(void), long rounds, double goal_ns) {
    double best = 0.0;
    for (int batch = 0; batch < BATCH_N; batch++) {
        double from = now_ns();
        for (long i = 0; i < rounds; i++)
            call();
        double each = (now_ns() - from) / (double)rounds;
        if (batch == 0 || each < best) best = each;
    }
    printf("%-26s %12.1f ns   goal %8.0f   %s\n", what, best, goal_ns,
           best < goal_ns ? "met" : "missed");
}

/* Beside a model that is read in place: its resident pages are estimated at each poll. */
static void measure_hot_poll(long rounds) {
    struct pn_detail why;
    char *weights = calloc(1, HOT_BYTES);
    int id = weights ? pn_mem_hot_range_register(weights, HOT_BYTES, &why) : -1;
    if (id >= 0) measure("poll with a hot range", do_poll, rounds, 200000);
    pn_mem_hot_range_unregister(id);
    free(weights);
}

int main(int argc, char **argv) {
    char *end = NULL;
    long rounds = argc > 1 ? strtol(argv[1], &end, 10) : ROUNDS_DEFAULT;
    if (rounds < 1 || (end && *end)) {
        fprintf(stderr, "usage: bench_mem [ROUNDS]\n");
        return 2;
    }
    pn_memwatch_poll_now();
    if (pn_memwatch_read(&snapshot) != 0) return 1;
    small = snapshot;
    small.headroom_bytes = 1u << 30;
    snprintf(small.headroom_domain, sizeof small.headroom_domain, "host");
    measure("snapshot read", do_read, rounds, 50);
    measure("admission, fits", do_admit, rounds, 1000);
    measure("admission, must search", do_cap, rounds, 1000);
    measure("ticket, there and back", do_ticket, rounds, 1000);
    long poll_n = rounds / 200 ? rounds / 200 : 1;
    measure("poll of this machine", do_poll, poll_n, 200000);
    measure_hot_poll(poll_n);
    return sink == 0; /* never: seq is counted in */
}
