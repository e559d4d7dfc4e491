#include "core/mem/pn_block.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/io.h"
#include "core/mem/pn_ledger.h"

#define HUGE_BYTES (2ull << 20)

uint64_t pn__system_page(void) {
    long n = sysconf(_SC_PAGESIZE);
    return n > 0 ? (uint64_t)n : 4096;
}

uint64_t pn__self_huge_bytes(void) {
    static const char key[] = "AnonHugePages:";
    char text[2048];
    if (pn__io_read_text("/proc/self/smaps_rollup", text, sizeof text) <= 0) return 0;
    const char *line = strstr(text, key);
    return line ? strtoull(line + sizeof key - 1, NULL, 10) << 10 : 0;
}

/* Maps `bytes` at a multiple of `align`; NULL with errno set on failure. */
static uint8_t *map_aligned(uint64_t bytes, uint64_t align) {
    uint64_t slack = align > pn__system_page() ? align : 0;
    uint64_t all;
    if (pn__alloc_should_fail() || pn__add_u64(bytes, slack, &all) || all > PTRDIFF_MAX) {
        errno = ENOMEM;
        return NULL;
    }
    uint8_t *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (!slack) return p;
    uint64_t head = (align - (uintptr_t)p % align) % align;
    if (head) munmap(p, head);
    if (slack > head) munmap(p + head + bytes, slack - head);
    return p + head;
}

static void limit_text(char out[32], int failed, const struct rlimit *r) {
    if (failed || r->rlim_cur == RLIM_INFINITY) {
        snprintf(out, 32, "unlimited");
    } else {
        snprintf(out, 32, "%llu", (unsigned long long)r->rlim_cur);
    }
}

static int refused(unsigned owner, uint64_t bytes, const char *what, int err, struct pn_detail *d) {
    char as[32];
    char data[32];
    struct rlimit r;
    limit_text(as, getrlimit(RLIMIT_AS, &r), &r);
    limit_text(data, getrlimit(RLIMIT_DATA, &r), &r);
    return pn__fail(
        d, PN_E_NOMEM, "%s: the system refused to %s %llu bytes (%s; RLIMIT_AS %s, RLIMIT_DATA %s)",
        pn_mem_owner_name(owner), what, (unsigned long long)bytes, strerror(err), as, data);
}

int pn__block_new(unsigned owner, uint64_t bytes, unsigned flags, struct pn_detail *d,
                  struct pn_block *out) {
    struct pn_block b = {0};
    memset(out, 0, sizeof *out);
    if (bytes == 0) return 0;
    if (pn__align_u64(bytes, pn__system_page(), &b.bytes)) b.bytes = UINT64_MAX;
    int rc = pn_ledger_reserve(PN_PLACE_HOST, owner, b.bytes, &b.booking, d);
    if (rc < 0) return rc;
    bool huge = (flags & PN_BLOCK_HUGE) && b.bytes >= HUGE_BYTES;
    b.data = map_aligned(b.bytes, huge ? HUGE_BYTES : pn__system_page());
    if (!b.data) {
        rc = refused(owner, b.bytes, "map", errno, d);
        goto fail;
    }
    rc = pn_ledger_mapped(&b.booking);
    if (rc < 0) goto fail;
    b.huge = huge && madvise(b.data, b.bytes, MADV_HUGEPAGE) == 0;
    if (flags & PN_BLOCK_COMMIT) {
        rc = pn__block_commit(&b, 0, b.bytes);
        if (rc < 0) {
            refused(owner, b.bytes, "touch", ENOMEM, d);
            goto fail;
        }
    }
    *out = b;
    return 0;
fail:
    pn__block_free(&b);
    return rc;
}

static bool in_range(const struct pn_block *b, uint64_t off, uint64_t bytes) {
    uint64_t end;
    if (pn__add_u64(off, bytes, &end) || end > b->bytes) return false;
    return off % pn__system_page() == 0 && bytes % pn__system_page() == 0;
}

/* Faults in every page of a range without changing what is in it. */
static int touch(uint8_t *p, uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
    while (madvise(p, bytes, MADV_POPULATE_WRITE) != 0) {
        if (errno == EINVAL) goto by_hand; /* before Linux 5.14 */
        if (errno == EINTR || errno == EAGAIN) continue;
        return PN_E_NOMEM;
    }
    return 0;
by_hand:
#endif
    for (uint64_t i = 0, step = pn__system_page(); i < bytes; i += step)
        __atomic_fetch_or(&p[i], 0, __ATOMIC_RELAXED);
    return 0;
}

int pn__space_commit(struct pn_block *b, uint64_t off, uint64_t bytes, pn_booking *payer) {
    if (!in_range(b, off, bytes)) return PN_E_INVALID;
    if (bytes == 0) return 0;
    if (bytes > payer->reserved_bytes - payer->committed_bytes) return PN_E_INVALID;
    int rc = touch(b->data + off, bytes);
    if (rc == 0) rc = pn_ledger_commit(payer, bytes);
    if (rc < 0) madvise(b->data + off, bytes, MADV_DONTNEED);
    return rc;
}

int pn__space_uncommit(struct pn_block *b, uint64_t off, uint64_t bytes, pn_booking *payer) {
    if (!in_range(b, off, bytes)) return PN_E_INVALID;
    if (bytes == 0) return 0;
    int rc = pn_ledger_uncommit(payer, bytes);
    if (rc < 0) return rc;
    if (madvise(b->data + off, bytes, MADV_DONTNEED) == 0) return 0;
    rc = pn_ledger_commit(payer, bytes);
    return rc < 0 ? rc : PN_E_NOMEM;
}

int pn__block_commit(struct pn_block *b, uint64_t off, uint64_t bytes) {
    return pn__space_commit(b, off, bytes, &b->booking);
}

int pn__block_uncommit(struct pn_block *b, uint64_t off, uint64_t bytes) {
    return pn__space_uncommit(b, off, bytes, &b->booking);
}

int pn__space_new(unsigned owner, uint64_t bytes, struct pn_detail *d, struct pn_block *out) {
    struct pn_block b = {0};
    memset(out, 0, sizeof *out);
    if (bytes == 0) return 0;
    if (pn__align_u64(bytes, pn__system_page(), &b.bytes)) b.bytes = UINT64_MAX;
    b.data = map_aligned(b.bytes, pn__system_page());
    if (!b.data) return refused(owner, b.bytes, "map", errno, d);
    pn__ledger_space(b.bytes);
    *out = b;
    return 0;
}

void pn__block_free(struct pn_block *b) {
    if (!b) return;
    if (b->booking.live) {
        /* Can't fail on a live booking: b is the only one who has it. */
        (void)pn_ledger_vacate(&b->booking);
        if (b->data) munmap(b->data, b->bytes);
        (void)pn_ledger_release(&b->booking);
    } else if (b->data) {
        pn__ledger_space_gone(b->bytes);
        munmap(b->data, b->bytes);
    }
    memset(b, 0, sizeof *b);
}
