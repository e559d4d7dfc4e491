/* Shedders: caches that can give memory back, asked in order, and looked at afterwards. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "core/mem/pn_decision.h"

struct shedder {
    char name[PN_SHEDDER_NAME_BYTES]; /* "": free */
    int order;
    uint64_t floor_bytes;
    uint64_t (*held)(void *user);
    void (*shed)(void *user, uint64_t bytes);
    void *user;
};

/* Sync: under shed_lock. While `busy` the table is constant, so that callbacks run under no lock.
 */
static struct shedder shedders[PN_SHEDDER_MAX];
static bool busy;
static pthread_mutex_t shed_lock = PTHREAD_MUTEX_INITIALIZER;

int pn_shed_register(const char *name, int order, uint64_t (*held)(void *user),
                     uint64_t floor_bytes, void (*shed)(void *user, uint64_t bytes), void *user) {
    if (!name || !name[0] || strlen(name) >= PN_SHEDDER_NAME_BYTES || order < 0 || !held || !shed) {
        return PN_E_INVALID;
    }
    int id = PN_E_NOFIT;
    pthread_mutex_lock(&shed_lock);
    if (busy) id = PN_E_BUSY;
    for (int i = 0; i < PN_SHEDDER_MAX && id == PN_E_NOFIT; i++) {
        if (shedders[i].name[0]) continue;
        shedders[i] = (struct shedder){
            .order = order, .floor_bytes = floor_bytes, .held = held, .shed = shed, .user = user};
        memcpy(shedders[i].name, name, strlen(name));
        id = i;
    }
    pthread_mutex_unlock(&shed_lock);
    return id;
}

int pn_shed_unregister(int id) {
    int rc = 0;
    pthread_mutex_lock(&shed_lock);
    if (busy) {
        rc = PN_E_BUSY;
    } else if (id < 0 || id >= PN_SHEDDER_MAX || !shedders[id].name[0]) {
        rc = PN_E_INVALID;
    } else {
        shedders[id] = (struct shedder){0};
    }
    pthread_mutex_unlock(&shed_lock);
    return rc;
}

/* The next after `last` in order (then in place); -1 at the end. */
static int next_in_order(int last) {
    int next = -1;
    for (int i = 0; i < PN_SHEDDER_MAX; i++) {
        if (!shedders[i].name[0]) continue;
        bool after = last < 0 || shedders[i].order > shedders[last].order ||
                     (shedders[i].order == shedders[last].order && i > last);
        if (after && (next < 0 || shedders[i].order < shedders[next].order)) next = i;
    }
    return next;
}

/* Asks for `bytes`, at most what is above the floor; what was freed. */
static uint64_t ask(const struct shedder *s, uint64_t bytes) {
    uint64_t before = s->held(s->user);
    uint64_t want = pn__min_u64(bytes, pn__sub_floor_u64(before, s->floor_bytes));
    if (want == 0) return 0;
    s->shed(s->user, want);
    uint64_t freed = pn__sub_floor_u64(before, s->held(s->user));
    pn_decision e = {.kind = PN_DECISION_SHED, .c = want, .d = freed};
    memcpy(e.name, s->name, sizeof e.name);
    pn__decide(e);
    return freed;
}

uint64_t pn_shed(pn_mem_level level, uint64_t deficit_bytes) {
    uint64_t freed = 0;
    if (level == PN_MEM_LEVEL_OK || deficit_bytes == 0) return 0;
    pthread_mutex_lock(&shed_lock);
    bool mine = !busy;
    busy = true;
    pthread_mutex_unlock(&shed_lock);
    if (!mine) return 0;
    for (int i = next_in_order(-1); i >= 0 && freed < deficit_bytes; i = next_in_order(i)) {
        if (level == PN_MEM_LEVEL_WATCH && shedders[i].order > 0) break;
        freed += ask(&shedders[i], deficit_bytes - freed);
    }
    if (level == PN_MEM_LEVEL_CRITICAL) {
        for (int i = next_in_order(-1); i >= 0; i = next_in_order(i))
            freed += ask(&shedders[i], UINT64_MAX);
    }
    pthread_mutex_lock(&shed_lock);
    busy = false;
    pthread_mutex_unlock(&shed_lock);
    return freed;
}

uint64_t pn_shed_snapshot(const pn_mem_state *s) {
    /* Sync: relaxed; whoever moves it on sheds. */
    static _Atomic uint64_t last_seq;
    uint64_t last = atomic_load_explicit(&last_seq, memory_order_relaxed);
    if (pn_ladder_disabled() || s->stale || s->seq == last) return 0;
    if (!atomic_compare_exchange_strong_explicit(&last_seq, &last, s->seq, memory_order_relaxed,
                                                 memory_order_relaxed)) {
        return 0;
    }
    return pn_shed(s->byte_level, s->deficit_bytes);
}
