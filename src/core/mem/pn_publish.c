#include "core/mem/pn_publish.h"

#include <string.h>

static struct pn_slot slots[PN_SLOT_N];
static _Atomic unsigned newest; /* Sync: stored with release after its slot, loaded with acquire */

/* Words are copied in groups of this many; those that are all zero (dies that aren't there, the
 * ends of names: most of a state) are only cleared. */
#define GROUP_WORDS 8
_Static_assert(PN_STATE_WORDS <= GROUP_WORDS * 64, "a bit for each group");

static inline void copy_word(const _Atomic uint64_t *from, uint8_t *to) {
    uint64_t word = atomic_load_explicit(from, memory_order_acquire);
    memcpy(to, &word, 8);
}

/* Written out: a loop of single words takes half as long again. */
static inline void copy_group(const _Atomic uint64_t *from, uint8_t *to) {
    copy_word(from, to);
    copy_word(from + 1, to + 8);
    copy_word(from + 2, to + 16);
    copy_word(from + 3, to + 24);
    copy_word(from + 4, to + 32);
    copy_word(from + 5, to + 40);
    copy_word(from + 6, to + 48);
    copy_word(from + 7, to + 56);
}

void pn__slot_write(struct pn_slot *s, const pn_mem_state *state) {
    uint64_t words[PN_STATE_WORDS];
    uint64_t filled = 0;
    memcpy(words, state, sizeof words);
    for (size_t k = 0; k < PN_STATE_WORDS; k++)
        filled |= (uint64_t)(words[k] != 0) << (k / GROUP_WORDS);
    uint64_t seq = atomic_load_explicit(&s->seq, memory_order_relaxed);
    atomic_store_explicit(&s->seq, seq + 1, memory_order_relaxed);
    for (size_t k = 0; k < PN_STATE_WORDS; k++)
        atomic_store_explicit(&s->words[k], words[k], memory_order_release);
    atomic_store_explicit(&s->filled, filled, memory_order_release);
    atomic_store_explicit(&s->seq, seq + 2, memory_order_release);
}

bool pn__slot_read(const struct pn_slot *s, pn_mem_state *out) {
    uint64_t before = atomic_load_explicit(&s->seq, memory_order_acquire);
    if (before % 2 != 0) return false;
    uint64_t filled = atomic_load_explicit(&s->filled, memory_order_acquire);
    uint8_t *to = (uint8_t *)out;
    size_t k = 0;
    for (; k + GROUP_WORDS <= PN_STATE_WORDS; k += GROUP_WORDS, filled >>= 1) {
        if (filled & 1) {
            copy_group(&s->words[k], to + 8 * k);
        } else {
            memset(to + 8 * k, 0, 8 * GROUP_WORDS);
        }
    }
    for (; k < PN_STATE_WORDS; k++)
        copy_word(&s->words[k], to + 8 * k);
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
