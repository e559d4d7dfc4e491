#include "core/mem/pn_publish.h"

#include <string.h>

static struct pn_slot slots[PN_SLOT_N];
static _Atomic unsigned newest; /* Sync: stored with release after its slot, loaded with acquire */

void pn__slot_write(struct pn_slot *s, const pn_mem_state *state) {
    uint64_t words[PN_STATE_WORDS];
    memcpy(words, state, sizeof words);
    uint64_t seq = atomic_load_explicit(&s->seq, memory_order_relaxed);
    atomic_store_explicit(&s->seq, seq + 1, memory_order_relaxed);
    for (size_t k = 0; k < PN_STATE_WORDS; k++)
        atomic_store_explicit(&s->words[k], words[k], memory_order_release);
    atomic_store_explicit(&s->seq, seq + 2, memory_order_release);
}

bool pn__slot_read(const struct pn_slot *s, pn_mem_state *out) {
    uint64_t before = atomic_load_explicit(&s->seq, memory_order_acquire);
    if (before % 2 != 0) return false;
    for (size_t k = 0; k < PN_STATE_WORDS; k++) {
        uint64_t word = atomic_load_explicit(&s->words[k], memory_order_acquire);
        memcpy((uint8_t *)out + 8 * k, &word, 8);
    }
    return atomic_load_explicit(&s->seq, memory_order_relaxed) == before;
}

void pn__publish(const pn_mem_state *state) {
    unsigned i = (atomic_load_explicit(&newest, memory_order_relaxed) + 1) % PN_SLOT_N;
    pn__slot_write(&slots[i], state);
    atomic_store_explicit(&newest, i, memory_order_release);
}

bool pn__published(pn_mem_state *out) {
    for (int try_i = 0; try_i < PN_READ_TRY_MAX; try_i++) {
        if (pn__slot_read(&slots[atomic_load_explicit(&newest, memory_order_acquire)], out)) {
            return true;
        }
    }
    return false;
}
