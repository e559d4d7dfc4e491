#include "engine/tight.h"

#include "engine/drive.h"

struct tight tight;

int tight_setup(uint32_t head_dim) {
    void *sim;
    struct tiny t = tiny_llama;
    tight.log.text[0] = '\0';
    pn_log_set(kept_log_add, &tight.log, PN_LOG_WARN);
    if (mem_sim_setup(&sim) != 0) return -1;
    tight.sim = sim;
    pn_ledger_set_reserves(1ull << 30, 0);
    tight_machine(OK_GIB, 0);
    t.ctx = TIGHT_CTX;
    if (head_dim) t.head_dim = head_dim;
    snprintf(tight.model, sizeof tight.model, "%s/llama.gguf", tight.sim->tree.root);
    tiny_write(&t, NULL, tight.model);
    for (uint32_t i = 0; i < TIGHT_CTX; i++)
        tight.ids[i] = (int32_t)(i * 7 % t.vocab);
    return 0;
}

int tight_teardown(void **state) {
    (void)state;
    void *sim = tight.sim;
    mem_sim_teardown(&sim);
    pn_log_set(NULL, NULL, PN_LOG_WARN);
    return ledger_reserved() == 0 ? 0 : -1;
}

void tight_machine(double avail_gib, double psi_full) {
    mem_sim_host(tight.sim, 16, avail_gib);
    mem_sim_psi(tight.sim, psi_full, psi_full, 0, 0);
    mem_sim_step(tight.sim, 0);
}

void tight_pass(unsigned seconds) {
    mem_sim_step(tight.sim, seconds * 1000);
}
