/* libpnmem: what the machine's memory looks like, and who holds which byte of it.
 *
 * Usable by any engine. One instance a process: the state is process-wide by design, because the
 * memory is. The library starts no thread, installs no signal handler and reads no environment
 * variable unless a function below says so. All functions are safe from any thread unless said
 * otherwise. Sizes are bytes.
 */
#ifndef PN_MEM_H
#define PN_MEM_H

#include <stdint.h>

#include "pn_err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- log -------------------------------------------------------------------------------- */

enum pn_log_level {
    PN_LOG_ERROR = 0,
    PN_LOG_WARN = 1,
    PN_LOG_INFO = 2,
    PN_LOG_DEBUG = 3,
};

/* `line` has no newline and is valid only during the call. */
typedef void (*pn_log_fn)(void *user, enum pn_log_level level, const char *line);

/* Sets the process's log callback and the most talkative level that reaches it. NULL silences the
 * log (the default). Call it before threads use the library. */
void pn_log_set(pn_log_fn fn, void *user, enum pn_log_level level);

/* ---- host signals ----------------------------------------------------------------------- */

/* What became of one source of figures. ABSENT: the platform or kernel doesn't have it. FAILED: it
 * exists and could not be read or parsed; what it would have said is unknown, which is not OK. */
enum pn_source_status {
    PN_SOURCE_ABSENT = 0,
    PN_SOURCE_FAILED = 1,
    PN_SOURCE_UP = 2,
};

#define PN_DOMAIN_NAME_BYTES 128

typedef struct pn_host_sample {
    uint64_t host_total_bytes; /* MemTotal */
    uint64_t host_avail_bytes; /* MemAvailable as read */
    double host_psi_some_avg10;
    double host_psi_full_avg10;

    /* The tightest finite cgroup limit on our path, v1 or v2; all 0 where there is none. */
    uint64_t cgroup_current_bytes;
    uint64_t cgroup_high_bytes;             /* 0 = unset */
    uint64_t cgroup_max_bytes;              /* 0 = unset */
    uint64_t cgroup_avail_bytes;            /* limit - (current - reclaimable file pages) */
    char cgroup_path[PN_DOMAIN_NAME_BYTES]; /* of the group that binds, "" where there is none */

    uint64_t rlimit_bytes;       /* RLIMIT_AS or RLIMIT_DATA, the tighter; 0 = unlimited */
    uint64_t rlimit_avail_bytes; /* what is left of it; meaningful when rlimit_bytes != 0 */

    enum pn_source_status meminfo_status;
    enum pn_source_status psi_status;
    enum pn_source_status cgroup_status;
    enum pn_source_status rlimit_status;
} pn_host_sample;

/* Samples every source once, about a millisecond. `root` is put in front of /proc and /sys paths
 * (NULL or "" for the real machine; a test gives a folder). Never fails as a whole: a source that
 * could not be read says so in its status and leaves its figures 0. */
void pn_host_signals_sample(const char *root, pn_host_sample *out);

/* ---- ledger ----------------------------------------------------------------------------- */

/* Where bytes lie. PN_PLACE_DIE + i is die i. */
enum pn_mem_place {
    PN_PLACE_HOST = 0,
    PN_PLACE_FILE = 1, /* page cache of mapped files: counted, refused by no domain */
    PN_PLACE_PINNED = 2,
    PN_PLACE_DIE = 3,
};
#define PN_DIE_MAX 16
#define PN_PLACE_N (PN_PLACE_DIE + PN_DIE_MAX)

/* What bytes are for. */
enum pn_mem_owner {
    PN_OWNER_WEIGHTS = 0,
    PN_OWNER_KV,
    PN_OWNER_STATE,
    PN_OWNER_EXPERTS,
    PN_OWNER_PREFIX,
    PN_OWNER_SCRATCH,
    PN_OWNER_IO,
    PN_OWNER_HTTP,
};
#define PN_OWNER_N 8

const char *pn_mem_place_name(unsigned place); /* "host" "file" "pinned" "die 0" … */
const char *pn_mem_owner_name(unsigned owner); /* "weights" "kv" … */

/* What can refuse a reservation. */
enum pn_mem_domain {
    PN_DOMAIN_HOST = 0,
    PN_DOMAIN_CGROUP = 1,
    PN_DOMAIN_RLIMIT = 2,
    PN_DOMAIN_DIE = 3,
};
#define PN_DOMAIN_N (PN_DOMAIN_DIE + PN_DIE_MAX)

/* One reservation. The caller owns the struct and passes it back unchanged; zeroed means "none". */
typedef struct pn_booking {
    uint64_t reserved_bytes;  /* all of it, touched or not */
    uint64_t committed_bytes; /* the touched part */
    uint32_t place;
    uint32_t owner;
    uint32_t live; /* 1 between reserve and release */
} pn_booking;

/* Tells the ledger what a domain can still give: `available_bytes` as measured now, of which
 * `reserve_bytes` are kept free. A domain that was never set refuses nothing. `name` (copied, cut
 * at PN_DOMAIN_NAME_BYTES) is what messages call it, such as "cgroup:/box". */
void pn_ledger_set_domain(unsigned domain, const char *name, uint64_t available_bytes,
                          uint64_t reserve_bytes);

/* Samples the machine (pn_host_signals_sample) and sets the host, cgroup and rlimit domains from
 * it, with the reserves of the memory layer: host max(1 GiB, 15 % of total), cgroup and rlimit
 * max(64 MiB, limit / 16). A failed source keeps the figures it last had, or, without any, grants
 * nothing. Called at load and by whoever polls. */
void pn_ledger_sample(const char *root);

/* Bytes that the domain can still promise: available - reserve - promised but untouched, at least
 * 0. UINT64_MAX for a domain that was never set. */
uint64_t pn_ledger_headroom(unsigned domain);

/* The smallest headroom of the domains that `place` counts against, and which domain that is. */
uint64_t pn_ledger_place_headroom(unsigned place, unsigned *domain);

/* Books `bytes` for `owner` at `place`, or refuses: PN_E_NOFIT with the domain that lacked how many
 * bytes and the owner that holds most. On refusal `out` is zeroed and nothing changed. Lock-free.
 */
int pn_ledger_reserve(unsigned place, unsigned owner, uint64_t bytes, pn_booking *out,
                      struct pn_detail *d);

/* Says that `bytes` more of the booking are touched memory now. PN_E_INVALID when that is more than
 * was reserved or the booking isn't live. */
int pn_ledger_commit(pn_booking *booking, uint64_t bytes);

/* The reverse: `bytes` of it went back to the system (madvise, unmap), still promised. */
int pn_ledger_uncommit(pn_booking *booking, uint64_t bytes);

/* Ends the booking. PN_E_STATE (and no change) when it is not live: a double release is caught. */
int pn_ledger_release(pn_booking *booking);

typedef struct pn_ledger_row {
    uint64_t reserved_bytes;
    uint64_t committed_bytes;
    uint64_t reserved_peak_bytes;
} pn_ledger_row;

typedef struct pn_ledger_view {
    pn_ledger_row cells[PN_PLACE_N][PN_OWNER_N];
    uint64_t refusal_n; /* reservations refused since the start */
} pn_ledger_view;

/* Copies the ledger; cells are each consistent, the whole is a moment's blur under load. */
void pn_ledger_read(pn_ledger_view *out);

#ifdef __cplusplus
}
#endif
#endif
