/* The ledger: who was promised which byte, and what is left to promise.
 *
 * Protocol
 * --------
 * A *pool* is real memory that can run out: pool 0 is the host's (places host and pinned), pool
 * 1 + i is die i's. Each pool has one counter, `reserved`: the bytes of all live bookings in it,
 * touched or not. A *domain* watches one pool and holds one number, `base`: what `reserved` may
 * grow to. Pool 0 is watched by three domains (host, cgroup, rlimit), a die by one. So
 *
 *     headroom(domain) = base - reserved
 *
 * and a reservation is one compare-and-swap of `reserved` against the least base of the pool: no
 * lock, and no two callers are granted the same bytes. Pages of mapped files belong to no pool, but
 * their address space counts against RLIMIT_AS together with the host's: it has a counter of its
 * own, and whoever raises one of the two looks at the other afterwards (reserve_file says why that
 * is enough).
 *
 * A measurement sets base. What the system calls available has the bytes that we have *taken*
 * (touched, or for RLIMIT: mapped) already taken off, but not those that are only promised:
 *
 *     headroom = available - reserve - (reserved - taken)
 *     base     = available - reserve + taken           both figures at the measurement
 *
 * Between two measurements nothing has to be corrected: bytes touched since were reserved before,
 * bytes released lower `reserved`.
 *
 * `taken` and `available` can't be read at one instant, and a base that counts freed bytes both as
 * available and as taken would grant memory that isn't there. So taking and giving back are counted
 * apart, each only ever upwards, in a fixed order around what happens to the memory:
 *
 *     touch, then committed_ever += n          uncommitted_ever += n, then give the pages back
 *     map, then mapped_ever += n               unmapped_ever += n, then unmap, then reserved -= n
 *
 * A mark reads committed_ever before the measurement; uncommitted_ever is read after it. At each
 * moment between, the bytes truly taken are at least committed_ever(before) -
 * uncommitted_ever(after), so base is never too high. What happened during the measurement can make
 * it too low by as much, until the next one. What the kernel itself counts late (per-CPU deltas, a
 * few MiB) is what the reserves are there for.
 *
 * A domain's name and figures, for messages only, are published by a counter that is odd while they
 * change; a reader that doesn't get a quiet copy in a bounded number of tries uses the kind's name.
 * A mutex orders the writers; no reservation takes it. */
#include <stdatomic.h>
#include <string.h>

#include "base/checked.h"
#include "base/err.h"
#include "core/mem/pn_ledger.h"
#include "pn_mem.h"

/* Sync: relaxed atomics. */
struct account {
    _Atomic uint64_t reserved;
    _Atomic uint64_t committed;
    _Atomic uint64_t reserved_peak;
    _Atomic uint64_t committed_peak;
};

struct pn_pool pn__pools[PN_POOL_N];
struct pn_pool pn__file_space;

static struct account cells[PN_PLACE_N][PN_OWNER_N];
static struct account places[PN_PLACE_N];
static _Atomic uint64_t refusal_n;

#define DIE_NAMES                                                                             \
    "die 0", "die 1", "die 2", "die 3", "die 4", "die 5", "die 6", "die 7", "die 8", "die 9", \
        "die 10", "die 11", "die 12", "die 13", "die 14", "die 15"

static const char *const place_names[PN_PLACE_N] = {"host", "file", "pinned", DIE_NAMES};
static const char *const domain_names[PN_DOMAIN_N] = {"host", "cgroup", "rlimit", DIE_NAMES};
static const char *const owner_names[PN_OWNER_N] = {"weights", "kv",      "state", "experts",
                                                    "prefix",  "scratch", "io",    "http"};

const char *pn_mem_place_name(unsigned place) {
    return place < PN_PLACE_N ? place_names[place] : "?";
}

const char *pn_mem_owner_name(unsigned owner) {
    return owner < PN_OWNER_N ? owner_names[owner] : "?";
}

const char *pn_mem_domain_name(unsigned domain) {
    return domain < PN_DOMAIN_N ? domain_names[domain] : "none";
}

/* -1 for places that belong to no pool. */
static int pool_of_place(unsigned place) {
    if (place == PN_PLACE_FILE) return -1;
    return place < PN_PLACE_DIE ? PN_POOL_HOST : (int)(1 + place - PN_PLACE_DIE);
}

/* Where a place's bytes are counted. */
static struct pn_pool *counters_of(unsigned place) {
    int pool = pool_of_place(place);
    return pool < 0 ? &pn__file_space : &pn__pools[pool];
}

static uint64_t get(const _Atomic uint64_t *a) {
    return atomic_load_explicit(a, memory_order_relaxed);
}

uint64_t pn_ledger_place_headroom(unsigned place, unsigned *domain) {
    unsigned which = PN_DOMAIN_NONE;
    uint64_t room = UINT64_MAX;
    int pool = place < PN_PLACE_N ? pool_of_place(place) : -1;
    if (pool >= 0) {
        int64_t base = pn__domain_least(pool, &which);
        room = pn__room_under(base, get(&pn__pools[pool].reserved));
    } else if (place == PN_PLACE_FILE && pn__address_base() != PN_BASE_UNSET) {
        which = PN_DOMAIN_RLIMIT;
        room = pn__room_under(pn__address_base(), get(&pn__pools[PN_POOL_HOST].reserved));
    }
    if (domain) *domain = which;
    return room;
}

static void raise_peak(_Atomic uint64_t *peak, uint64_t v) {
    uint64_t old = get(peak);
    while (v > old && !atomic_compare_exchange_weak_explicit(peak, &old, v, memory_order_relaxed,
                                                             memory_order_relaxed)) {
    }
}

static void add(_Atomic uint64_t *sum, _Atomic uint64_t *peak, uint64_t bytes) {
    raise_peak(peak, atomic_fetch_add_explicit(sum, bytes, memory_order_relaxed) + bytes);
}

static void sub(_Atomic uint64_t *sum, uint64_t bytes) {
    atomic_fetch_sub_explicit(sum, bytes, memory_order_relaxed);
}

/* The owner that holds most of a pool; its bytes in *bytes. */
static unsigned largest_owner(int pool, uint64_t *bytes) {
    unsigned largest = 0;
    *bytes = 0;
    for (unsigned owner = 0; owner < PN_OWNER_N; owner++) {
        uint64_t sum = 0;
        for (unsigned place = 0; place < PN_PLACE_N; place++) {
            if (pool_of_place(place) == pool) sum += get(&cells[place][owner].reserved);
        }
        if (sum <= *bytes) continue;
        *bytes = sum;
        largest = owner;
    }
    return largest;
}

/* `reserved` is what the pool's counter was when `bytes` more didn't fit under `base`. */
static int refuse(int pool, unsigned domain, int64_t base, uint64_t reserved, unsigned place,
                  unsigned owner, uint64_t bytes, struct pn_detail *d) {
    atomic_fetch_add_explicit(&refusal_n, 1, memory_order_relaxed);
    if (!d) return PN_E_NOFIT;
    if (domain == PN_DOMAIN_NONE) {
        return pn__fail(d, PN_E_NOFIT, "%s: %llu bytes at %s is more than can be addressed",
                        owner_names[owner], (unsigned long long)bytes, place_names[place]);
    }
    pn_domain_view v;
    uint64_t held;
    pn_ledger_domain(domain, &v);
    unsigned most = largest_owner(pool, &held);
    /* All three are far below 2^63. A base below `reserved` adds to what is lacking. */
    uint64_t lacking = (uint64_t)((int64_t)(reserved + bytes) - base);
    return pn__fail(d, PN_E_NOFIT,
                    "%s: %llu bytes (%.1f MiB) at %s would not fit: %s lacks %llu bytes, it can "
                    "give %llu (available %llu, kept free %llu); %s holds most with %llu",
                    owner_names[owner], (unsigned long long)bytes, (double)bytes / 1048576.0,
                    place_names[place], v.name, (unsigned long long)lacking,
                    (unsigned long long)pn__room_under(base, reserved),
                    (unsigned long long)v.available_bytes, (unsigned long long)v.reserve_bytes,
                    held ? owner_names[most] : "nobody", (unsigned long long)held);
}

/* True when host and file space together are more than RLIMIT_AS leaves. */
static bool over_address_space(void) {
    int64_t base = pn__address_base();
    return base != PN_BASE_UNSET && (int64_t)atomic_load(&pn__pools[PN_POOL_HOST].reserved) > base;
}

/* Counts first and looks then, as take_from_pool does for the host: of two callers on either side
 * who don't fit together each has counted before it looks, all of it sequentially consistent, so at
 * least one sees the other and goes back. Both may be refused in such a moment, never both granted.
 */
static int reserve_file(unsigned owner, uint64_t bytes, struct pn_detail *d) {
    atomic_fetch_add(&pn__file_space.reserved, bytes);
    if (!over_address_space()) return 0;
    atomic_fetch_sub(&pn__file_space.reserved, bytes);
    return refuse(PN_POOL_HOST, PN_DOMAIN_RLIMIT, pn__address_base(),
                  get(&pn__pools[PN_POOL_HOST].reserved), PN_PLACE_FILE, owner, bytes, d);
}

/* Takes `bytes` out of the place's pool, or refuses. */
static int take_from_pool(unsigned place, unsigned owner, uint64_t bytes, struct pn_detail *d) {
    int pool = pool_of_place(place);
    if (bytes > PN_POOL_BYTES_MAX) {
        return refuse(pool, PN_DOMAIN_NONE, 0, 0, place, owner, bytes, d);
    }
    if (pool < 0) return reserve_file(owner, bytes, d);
    uint64_t reserved = get(&pn__pools[pool].reserved);
    do {
        unsigned domain;
        int64_t base = pn__domain_least(pool, &domain);
        uint64_t room = pn__room_under(base, reserved);
        if (domain == PN_DOMAIN_NONE) room = pn__sub_floor_u64(PN_POOL_BYTES_MAX, reserved);
        if (bytes > room) {
            return refuse(pool, domain, base, reserved, place, owner, bytes, d);
        }
    } while (!atomic_compare_exchange_weak_explicit(&pn__pools[pool].reserved, &reserved,
                                                    reserved + bytes, memory_order_seq_cst,
                                                    memory_order_relaxed));
    if (pool != PN_POOL_HOST || !over_address_space()) return 0;
    atomic_fetch_sub(&pn__pools[pool].reserved, bytes);
    return refuse(pool, PN_DOMAIN_RLIMIT, pn__address_base(), reserved, place, owner, bytes, d);
}

void pn__ledger_overbook(unsigned owner, uint64_t bytes) {
    struct account *cell = &cells[PN_PLACE_HOST][owner];
    atomic_fetch_add(&pn__pools[PN_POOL_HOST].reserved, bytes);
    add(&cell->reserved, &cell->reserved_peak, bytes);
    add(&places[PN_PLACE_HOST].reserved, &places[PN_PLACE_HOST].reserved_peak, bytes);
}

int pn_ledger_reserve(unsigned place, unsigned owner, uint64_t bytes, pn_booking *out,
                      struct pn_detail *d) {
    memset(out, 0, sizeof *out);
    if (place >= PN_PLACE_N || owner >= PN_OWNER_N) {
        return pn__fail(d, PN_E_INVALID, "no place %u or no owner %u", place, owner);
    }
    int rc = take_from_pool(place, owner, bytes, d);
    if (rc < 0) return rc;
    struct account *cell = &cells[place][owner];
    add(&cell->reserved, &cell->reserved_peak, bytes);
    add(&places[place].reserved, &places[place].reserved_peak, bytes);
    *out = (pn_booking){.reserved_bytes = bytes, .place = place, .owner = owner, .live = 1};
    return 0;
}

static bool plausible(const pn_booking *b) {
    return b->place < PN_PLACE_N && b->owner < PN_OWNER_N &&
           b->reserved_bytes <= PN_POOL_BYTES_MAX && b->committed_bytes <= b->reserved_bytes &&
           b->mapped <= 1;
}

/* 0 when the booking can be worked on. */
static int check(const pn_booking *b) {
    if (__atomic_load_n(&b->live, __ATOMIC_ACQUIRE) != 1) return PN_E_STATE;
    return plausible(b) ? 0 : PN_E_INVALID;
}

int pn_ledger_move(pn_booking *from, pn_booking *to, unsigned owner, uint64_t bytes) {
    int rc = check(from);
    if (rc < 0) return rc;
    if (from->mapped || from == to) return PN_E_STATE;
    if (bytes > from->reserved_bytes - from->committed_bytes) return PN_E_INVALID;
    uint32_t live = __atomic_load_n(&to->live, __ATOMIC_ACQUIRE);
    if (live) {
        rc = check(to);
        if (rc == 0 && to->mapped) rc = PN_E_STATE;
        if (rc < 0) return rc;
        if (to->place != from->place || to->owner != owner) return PN_E_INVALID;
    } else {
        if (owner >= PN_OWNER_N) return PN_E_INVALID;
        *to = (pn_booking){.place = from->place, .owner = owner, .live = 1};
    }
    struct account *cell = &cells[to->place][owner];
    from->reserved_bytes -= bytes;
    to->reserved_bytes += bytes; /* both were granted by one pool: the sum is far from wrapping */
    sub(&cells[from->place][from->owner].reserved, bytes);
    add(&cell->reserved, &cell->reserved_peak, bytes);
    return 0;
}

int pn_ledger_grow(pn_booking *b, uint64_t bytes, struct pn_detail *d) {
    int rc = check(b);
    if (rc == 0 && b->mapped) rc = PN_E_STATE;
    if (rc < 0) return pn__fail(d, rc, "growing a booking that is mapped or not live");
    uint64_t sum;
    if (pn__add_u64(b->reserved_bytes, bytes, &sum) || sum > PN_POOL_BYTES_MAX) {
        return refuse(-1, PN_DOMAIN_NONE, 0, 0, b->place, b->owner, bytes, d);
    }
    rc = take_from_pool(b->place, b->owner, bytes, d);
    if (rc < 0) return rc;
    struct account *cell = &cells[b->place][b->owner];
    add(&cell->reserved, &cell->reserved_peak, bytes);
    add(&places[b->place].reserved, &places[b->place].reserved_peak, bytes);
    b->reserved_bytes = sum;
    return 0;
}

int pn_ledger_mapped(pn_booking *b) {
    int rc = check(b);
    if (rc < 0) return rc;
    if (b->mapped) return PN_E_STATE;
    b->mapped = 1;
    atomic_fetch_add(&counters_of(b->place)->mapped_ever, b->reserved_bytes);
    return 0;
}

void pn__ledger_space(uint64_t bytes) {
    atomic_fetch_add(&pn__pools[PN_POOL_HOST].mapped_ever, bytes);
}

void pn__ledger_space_gone(uint64_t bytes) {
    atomic_fetch_add(&pn__pools[PN_POOL_HOST].unmapped_ever, bytes);
}

int pn_ledger_commit(pn_booking *b, uint64_t bytes) {
    int rc = check(b);
    if (rc < 0) return rc;
    if (bytes > b->reserved_bytes - b->committed_bytes) return PN_E_INVALID;
    b->committed_bytes += bytes;
    struct account *cell = &cells[b->place][b->owner];
    add(&cell->committed, &cell->committed_peak, bytes);
    add(&places[b->place].committed, &places[b->place].committed_peak, bytes);
    int pool = pool_of_place(b->place);
    if (pool >= 0) atomic_fetch_add(&pn__pools[pool].committed_ever, bytes);
    return 0;
}

static void uncommit(pn_booking *b, uint64_t bytes) {
    b->committed_bytes -= bytes;
    int pool = pool_of_place(b->place);
    if (pool >= 0) atomic_fetch_add(&pn__pools[pool].uncommitted_ever, bytes);
    sub(&cells[b->place][b->owner].committed, bytes);
    sub(&places[b->place].committed, bytes);
}

int pn_ledger_uncommit(pn_booking *b, uint64_t bytes) {
    int rc = check(b);
    if (rc < 0) return rc;
    if (bytes > b->committed_bytes) return PN_E_INVALID;
    uncommit(b, bytes);
    return 0;
}

/* Needs a checked booking. */
static void vacate(pn_booking *b) {
    uncommit(b, b->committed_bytes);
    if (b->mapped) atomic_fetch_add(&counters_of(b->place)->unmapped_ever, b->reserved_bytes);
    b->mapped = 0;
}

int pn_ledger_vacate(pn_booking *b) {
    int rc = check(b);
    if (rc < 0) return rc;
    vacate(b);
    return 0;
}

int pn_ledger_release(pn_booking *b) {
    /* Of two threads that release the same booking, one gets past here; the other has looked at
     * nothing else in it. */
    uint32_t live = 1;
    if (!__atomic_compare_exchange_n(&b->live, &live, 0, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        return PN_E_STATE;
    }
    if (!plausible(b)) {
        __atomic_store_n(&b->live, 1, __ATOMIC_RELEASE);
        return PN_E_INVALID;
    }
    vacate(b);
    /* Cells before the pool: what owners hold never exceeds what the pool has granted. */
    sub(&cells[b->place][b->owner].reserved, b->reserved_bytes);
    sub(&places[b->place].reserved, b->reserved_bytes);
    sub(&counters_of(b->place)->reserved, b->reserved_bytes);
    b->reserved_bytes = 0;
    return 0;
}

static void read_account(struct account *a, pn_ledger_row *row) {
    row->reserved_bytes = get(&a->reserved);
    row->committed_bytes = get(&a->committed);
    row->reserved_peak_bytes = get(&a->reserved_peak);
    row->committed_peak_bytes = get(&a->committed_peak);
}

void pn_ledger_read(pn_ledger_view *out) {
    for (unsigned place = 0; place < PN_PLACE_N; place++) {
        for (unsigned owner = 0; owner < PN_OWNER_N; owner++)
            read_account(&cells[place][owner], &out->cells[place][owner]);
        read_account(&places[place], &out->places[place]);
    }
    out->refusal_n = get(&refusal_n);
}
