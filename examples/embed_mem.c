/* libpnmem in another engine: watch the machine, ask before taking, give back in order.
 * cc -std=c11 embed_mem.c $(pkg-config --cflags --static --libs pnmem) */
#include <pn_mem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t cache_bytes; /* stands for a cache of ours; empty here */
static uint64_t cache_held(void *user) {
    return *(uint64_t *)user;
}
static void cache_shed(void *user, uint64_t bytes) {
    *(uint64_t *)user -= bytes;
}

static int answer(int n_prompt, int n_new) {
    /* A page of KV is 1 MiB for 64 tokens; scratch is 8 MiB, whatever the length. */
    const pn_admit_cost cost = {
        .kv = {{1 << 20, 64, 0}}, .scratch = {{0, 8 << 20}}, .scratch_n = 1};
    pn_admit_ticket ticket;
    pn_admit_result result;
    struct pn_detail why;
    int rc = pn_admit_reserve(&cost, n_prompt, n_new, 4096, 0, &ticket, &result, &why);
    if (rc < 0) {
        printf("refused, %d tokens would do: %s\n", result.fit_tokens, why.text);
        return rc;
    }
    void *scratch = malloc(8 << 20); /* promised to us, so it is there */
    if (scratch) memset(scratch, 0, 8 << 20);
    pn_ledger_commit(&ticket.scratch, 8 << 20); /* touched */
    printf("admitted: %llu bytes\n", (unsigned long long)result.need_bytes);
    pn_ledger_vacate(&ticket.scratch); /* before it goes back */
    free(scratch);
    pn_admit_release(&ticket);
    return 0;
}

int main(void) {
    const pn_ladder_config configured = {.max_slots = 4, .prefill_window = 4096};
    pn_mem_state now;
    if (pn_memwatch_start() != 0) return 1; /* the library's only thread */
    int cache = pn_shed_register("cache", 0, cache_held, 0, cache_shed, &cache_bytes);
    answer(1000, 100);
    answer(3000, 2000);     /* longer than the context of 4096: never */
    pn_memwatch_read(&now); /* once a turn of the engine's loop */
    pn_ladder_plan plan = pn_ladder_plan_from_state(&now, &configured);
    if (plan.shed_caches) pn_shed(now.level, now.deficit_bytes);
    printf("level %s, %d slots\n", pn_mem_level_name(now.level), plan.max_slots);
    pn_shed_unregister(cache);
    pn_memwatch_stop();
    return 0;
}
