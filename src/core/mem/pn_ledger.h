/* What the two halves of the ledger share: pn_ledger.c (bookings) promises bytes out of pools,
 * pn_domain.c (measurements) says up to where. The protocol is described in pn_ledger.c; the
 * ledger's own interface is public, see pn_mem.h. */
#ifndef PN_CORE_MEM_LEDGER_H
#define PN_CORE_MEM_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pn_mem.h"

#define PN_POOL_HOST 0
#define PN_POOL_N (1 + PN_DIE_MAX)

/* The most that a pool may ever promise, so that sums of a few such figures stay in 64 bits. */
#define PN_POOL_BYTES_MAX (1ull << 60)

/* Sync: atomics, any thread. The counters with _ever are sequentially consistent, because their
 * order against system calls and each other is the protocol; the rest are relaxed: each stands for
 * itself. */
struct pn_pool {
    _Atomic uint64_t reserved;
    _Atomic uint64_t committed_ever;
    _Atomic uint64_t uncommitted_ever;
    _Atomic uint64_t mapped_ever;
    _Atomic uint64_t unmapped_ever;
};

extern struct pn_pool pn__pools[PN_POOL_N];

/* Place file: no memory that runs out, but address space, which RLIMIT_AS counts together with the
 * host pool's. */
extern struct pn_pool pn__file_space;

/* The base of a domain that refuses nothing; no computed base reaches it. */
#define PN_BASE_UNSET INT64_MAX

/* The least base of a pool's domains and whose it is; PN_BASE_UNSET and PN_DOMAIN_NONE when none is
 * set. */
int64_t pn__domain_least(int pool, unsigned *domain);

/* What a pool that has promised `reserved` may still promise; UINT64_MAX for an unset base. */
uint64_t pn__room_under(int64_t base, uint64_t reserved);

/* Books `bytes` at host for `owner` whether they fit or not, out of what is kept free: for a caller
 * who bounds what he takes so. Headroom is 0 until they are made up for. */
void pn__ledger_overbook(unsigned owner, uint64_t bytes);

/* Address space of the host that is there before anybody has reserved what will lie in it, as a
 * pool's is: a rlimit counts it in what the system says is used, so it is counted as mapped too and
 * doesn't count twice when it is reserved. After mmap, and before munmap. Until then others may be
 * promised its share of a rlimit; the system refuses them where they map. */
void pn__ledger_space(uint64_t bytes);
void pn__ledger_space_gone(uint64_t bytes);

/* What the host pool may grow to under RLIMIT_AS, file space as it is now taken off;
 * PN_BASE_UNSET without one. */
int64_t pn__address_base(void);

/* pn_ledger_set_domain_at for rlimit from both of its limits; UINT64_MAX: that one isn't there. The
 * one that leaves less is what messages show. */
void pn__ledger_set_rlimits(uint64_t as_available, uint64_t as_reserve, uint64_t data_available,
                            uint64_t data_reserve, const pn_ledger_mark *mark);

/* False while the domain refuses nothing. */
bool pn__ledger_is_set(unsigned domain);

#endif
