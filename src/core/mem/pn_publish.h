/* Publishing a snapshot to readers that never wait.
 *
 * Protocol. There are PN_SLOT_N slots, each with an even/odd counter and the state as words. A
 * publish (one at a time: the caller holds a lock) takes the slot after the newest, makes its
 * counter odd, stores the words, makes the counter even again, and then names the slot the newest.
 * A reader copies the newest slot and looks whether its counter was the same even number before and
 * after; if not it tries again.
 *
 * All words are atomics: stored with release and loaded with acquire, so that a reader that met one
 * newer word also sees the odd counter that went before it. With one slot, a writer that never
 * pauses would leave readers hardly a gap; with several it must publish PN_SLOT_N - 1 times more
 * during one copy of some 100 words before it comes back to the slot. Tries are bounded all the
 * same. Most of a state is zero (dies that aren't there, the ends of names): one more word, stored
 * and loaded like the others, says which groups of eight words must be copied.
 *
 * What a stale read costs: nothing. A snapshot is a measurement of the past in any case; sample_ns
 * says of when. */
#ifndef PN_CORE_MEM_PUBLISH_H
#define PN_CORE_MEM_PUBLISH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "pn_mem.h"

#define PN_SLOT_N 8
#define PN_READ_TRY_MAX 64

#define PN_STATE_WORDS (sizeof(pn_mem_state) / 8)
_Static_assert(sizeof(pn_mem_state) % 8 == 0, "the state is copied in words");

/* Sync: as in the protocol above; one writer at a time. */
struct pn_slot {
    _Atomic uint64_t seq;
    _Atomic uint64_t filled; /* bit g: some word of the g-th group of eight isn't zero */
    _Atomic uint64_t words[PN_STATE_WORDS];
};

void pn__slot_write(struct pn_slot *s, const pn_mem_state *state);

/* One try; false, and `out` undefined, when a write was under way. */
bool pn__slot_read(const struct pn_slot *s, pn_mem_state *out);

/* One publisher at a time. */
void pn__publish(const pn_mem_state *state);

/* False when none of the tries was quiet; `out` is undefined then. Before the first publish the
 * state is zero. */
bool pn__published(pn_mem_state *out);

#endif
