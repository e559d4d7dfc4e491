/* A piece's booking isn't kept anywhere: it is always one of whole bytes at host under scratch, so
 * it is made anew for each call. Fresh pages of a large table are zero and not there until they are
 * written; they are counted as touched all the same, for tables are filled at once. */
#include "core/mem/pn_account.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/err.h"
#include "base/log.h"
#include "core/mem/pn_ledger.h"
#include "pn_mem.h"

/* None of the ledger's calls below can fail on a booking that is as its state says. */
static pn_booking of(uint64_t bytes, bool taken) {
    return (pn_booking){.reserved_bytes = bytes,
                        .committed_bytes = taken ? bytes : 0,
                        .place = PN_PLACE_HOST,
                        .owner = PN_OWNER_SCRATCH,
                        .live = 1,
                        .mapped = taken};
}

static _Atomic uint64_t debt; /* Sync: relaxed; it orders nothing */

static bool borrow(uint64_t bytes) {
    uint64_t owed = atomic_load_explicit(&debt, memory_order_relaxed);
    do {
        if (bytes > PN_ACCOUNT_DEBT_BYTES - owed) return false;
    } while (!atomic_compare_exchange_weak_explicit(&debt, &owed, owed + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

/* Whatever piece goes, its bytes pay the debt first: the ledger's headroom is the same. */
static void repay(uint64_t bytes) {
    uint64_t owed = atomic_load_explicit(&debt, memory_order_relaxed);
    while (owed &&
           !atomic_compare_exchange_weak_explicit(&debt, &owed, pn__sub_floor_u64(owed, bytes),
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

static int reserve(uint64_t bytes) {
    struct pn_detail d;
    pn_booking b;
    int rc = pn_ledger_reserve(PN_PLACE_HOST, PN_OWNER_SCRATCH, bytes, &b, &d);
    if (rc == PN_E_NOFIT && borrow(bytes)) {
        pn__ledger_overbook(PN_OWNER_SCRATCH, bytes);
        return 0;
    }
    if (rc < 0) pn__log(PN_LOG_WARN, "a table is refused: %s", d.text);
    return rc;
}

static void commit(uint64_t bytes) {
    pn_booking b = of(bytes, false);
    (void)pn_ledger_mapped(&b);
    (void)pn_ledger_commit(&b, bytes);
}

static void vacate(uint64_t bytes) {
    pn_booking b = of(bytes, true);
    (void)pn_ledger_vacate(&b);
}

static void release(uint64_t bytes) {
    pn_booking b = of(bytes, false);
    (void)pn_ledger_release(&b);
    repay(bytes);
}

void pn__account_allocations(void) {
    static const struct pn_alloc_hooks hooks = {
        .reserve = reserve, .commit = commit, .vacate = vacate, .release = release};
    pn__alloc_set_hooks(&hooks);
}
