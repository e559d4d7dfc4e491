/* Domains: what the pools may promise, from one measurement to the next. The protocol is described
 * in pn_ledger.c. */
#include <pthread.h>
#include <string.h>

#include "base/checked.h"
#include "core/mem/pn_ledger.h"

#define NAME_WORDS (PN_DOMAIN_NAME_BYTES / 8)
_Static_assert(PN_DOMAIN_NAME_BYTES % 8 == 0, "names are copied in words");

/* Readers' tries for a quiet copy of a domain's figures. */
#define READ_TRY_MAX 64

/* Sync: base: atomic, any thread. seq and the words: written under domain_lock, release; read by
 * anyone, acquire, between two equal even reads of seq. mark_seq: under domain_lock. */
struct domain {
    _Atomic int64_t base;
    _Atomic uint64_t seq;
    _Atomic uint64_t name_words[NAME_WORDS];
    _Atomic uint64_t available;
    _Atomic uint64_t reserve;
    uint64_t mark_seq; /* of the figures in use */
};

static struct domain domains[PN_DOMAIN_N] = {
    {.base = PN_BASE_UNSET}, {.base = PN_BASE_UNSET}, {.base = PN_BASE_UNSET},
    {.base = PN_BASE_UNSET}, {.base = PN_BASE_UNSET}, {.base = PN_BASE_UNSET},
    {.base = PN_BASE_UNSET}, {.base = PN_BASE_UNSET}, {.base = PN_BASE_UNSET},
    {.base = PN_BASE_UNSET}, {.base = PN_BASE_UNSET}, {.base = PN_BASE_UNSET},
    {.base = PN_BASE_UNSET}, {.base = PN_BASE_UNSET}, {.base = PN_BASE_UNSET},
    {.base = PN_BASE_UNSET}, {.base = PN_BASE_UNSET}, {.base = PN_BASE_UNSET},
    {.base = PN_BASE_UNSET},
};
_Static_assert(PN_DOMAIN_N == 19, "every domain starts unset");

/* RLIMIT_DATA's; domains[PN_DOMAIN_RLIMIT].base is RLIMIT_AS's. Sync: atomic, any thread. */
static _Atomic int64_t data_base = PN_BASE_UNSET;

static _Atomic uint64_t mark_n; /* Sync: relaxed */
static pthread_mutex_t domain_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t get(const _Atomic uint64_t *a) {
    return atomic_load_explicit(a, memory_order_relaxed);
}

static int pool_of_domain(unsigned domain) {
    return domain < PN_DOMAIN_DIE ? PN_POOL_HOST : (int)(1 + domain - PN_DOMAIN_DIE);
}

int64_t pn__address_base(void) {
    int64_t base = atomic_load_explicit(&domains[PN_DOMAIN_RLIMIT].base, memory_order_relaxed);
    /* Sequentially consistent: see reserve_file in pn_ledger.c. */
    return base == PN_BASE_UNSET ? base : base - (int64_t)atomic_load(&pn__file_space.reserved);
}

static int64_t base_of(unsigned domain) {
    if (domain != PN_DOMAIN_RLIMIT) {
        return atomic_load_explicit(&domains[domain].base, memory_order_relaxed);
    }
    int64_t space = pn__address_base();
    int64_t data = atomic_load_explicit(&data_base, memory_order_relaxed);
    return space < data ? space : data;
}

int64_t pn__domain_least(int pool, unsigned *domain) {
    unsigned from = pool == PN_POOL_HOST ? 0 : PN_DOMAIN_DIE + (unsigned)pool - 1;
    unsigned to = pool == PN_POOL_HOST ? PN_DOMAIN_DIE : from + 1;
    int64_t least = PN_BASE_UNSET;
    *domain = PN_DOMAIN_NONE;
    for (unsigned i = from; i < to; i++) {
        int64_t base = base_of(i);
        if (base >= least) continue;
        least = base;
        *domain = i;
    }
    return least;
}

uint64_t pn__room_under(int64_t base, uint64_t reserved) {
    if (base == PN_BASE_UNSET) return UINT64_MAX;
    return base > (int64_t)reserved ? (uint64_t)base - reserved : 0;
}

uint64_t pn_ledger_headroom(unsigned domain) {
    if (domain >= PN_DOMAIN_N) return UINT64_MAX;
    return pn__room_under(base_of(domain), get(&pn__pools[pool_of_domain(domain)].reserved));
}

void pn_ledger_mark_now(pn_ledger_mark *out) {
    out->seq = atomic_fetch_add_explicit(&mark_n, 1, memory_order_relaxed) + 1;
    out->mapped_bytes = atomic_load(&pn__pools[PN_POOL_HOST].mapped_ever);
    out->mapped_file_bytes = atomic_load(&pn__file_space.mapped_ever);
    for (int i = 0; i < PN_POOL_N; i++)
        out->committed_bytes[i] = atomic_load(&pn__pools[i].committed_ever);
}

/* The least that can have been taken from the domain's pool at any moment since the mark; of
 * rlimit: of data. */
static int64_t taken_since(unsigned domain, const pn_ledger_mark *mark) {
    int i = pool_of_domain(domain);
    if (domain == PN_DOMAIN_RLIMIT) {
        return (int64_t)(mark->mapped_bytes - atomic_load(&pn__pools[i].unmapped_ever));
    }
    return (int64_t)(mark->committed_bytes[i] - atomic_load(&pn__pools[i].uncommitted_ever));
}

static int64_t file_taken_since(const pn_ledger_mark *mark) {
    return (int64_t)(mark->mapped_file_bytes - atomic_load(&pn__file_space.unmapped_ever));
}

static int64_t base_from(uint64_t available, uint64_t reserve, int64_t taken) {
    if (available == UINT64_MAX) return PN_BASE_UNSET;
    return (int64_t)pn__min_u64(available, PN_POOL_BYTES_MAX) -
           (int64_t)pn__min_u64(reserve, PN_POOL_BYTES_MAX) + taken;
}

/* Name and figures, for messages. Needs domain_lock. */
static void store_figures(struct domain *m, const char *name, uint64_t available,
                          uint64_t reserve) {
    uint64_t words[NAME_WORDS] = {0};
    size_t len = strnlen(name, PN_DOMAIN_NAME_BYTES - 1);
    memcpy(words, name, len);
    uint64_t seq = get(&m->seq);
    atomic_store_explicit(&m->seq, seq + 1, memory_order_relaxed);
    for (int i = 0; i < NAME_WORDS; i++)
        atomic_store_explicit(&m->name_words[i], words[i], memory_order_release);
    atomic_store_explicit(&m->available, available, memory_order_release);
    atomic_store_explicit(&m->reserve, reserve, memory_order_release);
    atomic_store_explicit(&m->seq, seq + 2, memory_order_release);
}

/* Needs domain_lock. */
static void store_domain(unsigned domain, const char *name, uint64_t available, uint64_t reserve,
                         const pn_ledger_mark *mark) {
    struct domain *m = &domains[domain];
    if (mark->seq < m->mark_seq) return;
    m->mark_seq = mark->seq;
    store_figures(m, name, available, reserve);
    int64_t taken = taken_since(domain, mark);
    if (domain == PN_DOMAIN_RLIMIT) {
        taken += file_taken_since(mark);
        atomic_store_explicit(&data_base, PN_BASE_UNSET, memory_order_relaxed);
    }
    atomic_store_explicit(&m->base, base_from(available, reserve, taken), memory_order_relaxed);
}

void pn__ledger_set_rlimits(uint64_t as_available, uint64_t as_reserve, uint64_t data_available,
                            uint64_t data_reserve, const pn_ledger_mark *mark) {
    struct domain *m = &domains[PN_DOMAIN_RLIMIT];
    const char *name = pn_mem_domain_name(PN_DOMAIN_RLIMIT);
    pthread_mutex_lock(&domain_lock);
    if (mark->seq >= m->mark_seq) {
        m->mark_seq = mark->seq;
        if (pn__sub_floor_u64(data_available, data_reserve) <
            pn__sub_floor_u64(as_available, as_reserve)) {
            store_figures(m, name, data_available, data_reserve);
        } else {
            store_figures(m, name, as_available, as_reserve);
        }
        int64_t taken = taken_since(PN_DOMAIN_RLIMIT, mark);
        int64_t data = base_from(data_available, data_reserve, taken);
        int64_t space = base_from(as_available, as_reserve, taken + file_taken_since(mark));
        atomic_store_explicit(&data_base, data, memory_order_relaxed);
        atomic_store_explicit(&m->base, space, memory_order_relaxed);
    }
    pthread_mutex_unlock(&domain_lock);
}

void pn_ledger_set_domain_at(unsigned domain, const char *name, uint64_t available_bytes,
                             uint64_t reserve_bytes, const pn_ledger_mark *mark) {
    if (domain >= PN_DOMAIN_N) return;
    pn_ledger_mark now;
    if (!mark) {
        pn_ledger_mark_now(&now);
        mark = &now;
    }
    pthread_mutex_lock(&domain_lock);
    store_domain(domain, name ? name : pn_mem_domain_name(domain), available_bytes, reserve_bytes,
                 mark);
    pthread_mutex_unlock(&domain_lock);
}

void pn_ledger_set_domain(unsigned domain, const char *name, uint64_t available_bytes,
                          uint64_t reserve_bytes) {
    pn_ledger_set_domain_at(domain, name, available_bytes, reserve_bytes, NULL);
}

bool pn__ledger_is_set(unsigned domain) {
    return base_of(domain) != PN_BASE_UNSET;
}

void pn_ledger_domain(unsigned domain, pn_domain_view *out) {
    memset(out, 0, sizeof *out);
    if (domain >= PN_DOMAIN_N) return;
    struct domain *m = &domains[domain];
    uint64_t words[NAME_WORDS];
    bool quiet = false;
    for (int try_i = 0; try_i < READ_TRY_MAX && !quiet; try_i++) {
        /* Acquires what the writer's last store of seq released. */
        uint64_t before = atomic_load_explicit(&m->seq, memory_order_acquire);
        for (int i = 0; i < NAME_WORDS; i++)
            words[i] = atomic_load_explicit(&m->name_words[i], memory_order_acquire);
        out->available_bytes = atomic_load_explicit(&m->available, memory_order_acquire);
        out->reserve_bytes = atomic_load_explicit(&m->reserve, memory_order_acquire);
        /* A word of a newer copy was read with acquire, so its odd seq is seen here. */
        quiet = before % 2 == 0 && get(&m->seq) == before;
    }
    memcpy(out->name, words, sizeof out->name);
    if (!quiet || !out->name[0]) {
        memset(out->name, 0, sizeof out->name);
        memcpy(out->name, pn_mem_domain_name(domain), strlen(pn_mem_domain_name(domain)));
    }
    out->set = pn__ledger_is_set(domain);
    out->headroom_bytes = pn_ledger_headroom(domain);
    if (!quiet || !out->set) out->available_bytes = out->reserve_bytes = 0;
}
