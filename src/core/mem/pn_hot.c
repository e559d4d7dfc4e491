/* How much of our mapped weights is in memory.
 *
 * The kernel counts clean file pages as available: it can drop them. Those of weights that are read
 * in place are needed again within one token, so dropping them frees nothing that stays free. They
 * are estimated and taken off.
 *
 * A range is cut into up to STRATUM_MAX equal strata; one page drawn at random stands for each.
 * Registering looks at all of them, each sample later at a few, in turn. With 256 pages the
 * standard error is at most 3 % of the range, and a full turn takes four samples. Where we may not
 * write the file, mincore calls every page resident; RssFile, the file pages that are in our own
 * page tables, bounds the estimate there. */
#include "core/mem/pn_hot.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/err.h"
#include "core/mem/pn_block.h"

#define STRATUM_MAX 256
#define LOOK_MAX 64 /* pages looked at in one sample, all ranges together */

struct hot_range {
    uintptr_t start; /* page-aligned; 0: free */
    uint64_t bytes;
    uint64_t page_n;
    uint32_t stratum_n;
    uint32_t next; /* the stratum to look at next */
    uint32_t resident_n;
    bool resident[STRATUM_MAX];
};

/* Sync: all under hot_lock, which a sample holds over its mincore calls: a range that was
 * unregistered is not looked at any more when unregister returns. */
static struct hot_range ranges[PN_HOT_RANGE_MAX];
static uint32_t next_range;
static uint64_t lcg_state = 1;
static pthread_mutex_t hot_lock = PTHREAD_MUTEX_INITIALIZER;

/* Constants of MMIX. */
static uint64_t draw(uint64_t below) {
    lcg_state = lcg_state * 6364136223846793005ull + 1442695040888963407ull;
    return (lcg_state >> 16) % below;
}

/* First page of a stratum: page_n * i / stratum_n, without the product. */
static uint64_t stratum_page(const struct hot_range *r, uint32_t i) {
    uint64_t whole = r->page_n / r->stratum_n;
    uint64_t rest = r->page_n % r->stratum_n;
    return whole * i + rest * i / r->stratum_n;
}

/* Looks at one page of the next stratum; 0 or an errno. */
static int look(struct hot_range *r) {
    uint64_t from = stratum_page(r, r->next);
    uint64_t to = stratum_page(r, r->next + 1);
    uint64_t page = from + draw(to - from);
    unsigned char in_core = 0;
    void *at = (void *)(r->start + page * pn__system_page()); /* NOLINT: an address we were given */
    if (mincore(at, pn__system_page(), &in_core) != 0) return errno;
    bool now = in_core & 1;
    r->resident_n += (uint32_t)now - (uint32_t)r->resident[r->next];
    r->resident[r->next] = now;
    r->next = (r->next + 1) % r->stratum_n;
    return 0;
}

int pn_mem_hot_range_register(const void *addr, uint64_t bytes, struct pn_detail *d) {
    uint64_t page = pn__system_page();
    uint64_t end;
    if (!addr || bytes == 0 || pn__add_u64((uintptr_t)addr, bytes, &end) ||
        pn__align_u64(end, page, &end)) {
        return pn__fail(d, PN_E_INVALID, "hot range of %llu bytes at %p", (unsigned long long)bytes,
                        addr);
    }
    struct hot_range r = {.start = (uintptr_t)addr & ~(uintptr_t)(page - 1)};
    r.bytes = end - r.start;
    r.page_n = r.bytes / page;
    r.stratum_n = (uint32_t)pn__min_u64(r.page_n, STRATUM_MAX);
    int rc = PN_E_NOFIT;
    int err = 0;
    pthread_mutex_lock(&hot_lock);
    for (int i = 0; i < PN_HOT_RANGE_MAX && rc == PN_E_NOFIT; i++) {
        if (ranges[i].start) continue;
        for (uint32_t k = 0; k < r.stratum_n && !err; k++)
            err = look(&r);
        rc = err ? PN_E_INVALID : i;
        if (rc >= 0) ranges[i] = r;
    }
    pthread_mutex_unlock(&hot_lock);
    if (err) {
        return pn__fail(d, rc, "hot range of %llu bytes at %p: %s", (unsigned long long)bytes, addr,
                        strerror(err));
    }
    if (rc < 0) return pn__fail(d, rc, "more than %d hot ranges", PN_HOT_RANGE_MAX);
    return rc;
}

void pn_mem_hot_range_unregister(int id) {
    if (id < 0 || id >= PN_HOT_RANGE_MAX) return;
    pthread_mutex_lock(&hot_lock);
    ranges[id] = (struct hot_range){0};
    pthread_mutex_unlock(&hot_lock);
}

/* The next range in use after next_range, or NULL. */
static struct hot_range *turn(void) {
    for (uint32_t i = 0; i < PN_HOT_RANGE_MAX; i++) {
        next_range = (next_range + 1) % PN_HOT_RANGE_MAX;
        if (ranges[next_range].start) return &ranges[next_range];
    }
    return NULL;
}

enum pn_source_status pn__hot_sample(struct pn_probe *p, pn_host_sample *out) {
    uint64_t sum = 0;
    int err = 0;
    enum pn_source_status s = PN_SOURCE_ABSENT;
    pthread_mutex_lock(&hot_lock);
    for (int i = 0; i < LOOK_MAX && !err; i++) {
        struct hot_range *r = turn();
        if (!r) break;
        s = PN_SOURCE_UP;
        err = look(r);
    }
    for (int i = 0; i < PN_HOT_RANGE_MAX; i++) {
        const struct hot_range *r = &ranges[i];
        if (r->start) sum += r->bytes / r->stratum_n * r->resident_n;
    }
    pthread_mutex_unlock(&hot_lock);
    if (err) return pn__probe_fail(p, "mincore of a registered range: %s", strerror(err));
    if (out->sources[PN_SOURCE_SELF].status == PN_SOURCE_UP) {
        sum = pn__min_u64(sum, out->rss_file_bytes);
    }
    out->hot_file_bytes = sum;
    return s;
}
