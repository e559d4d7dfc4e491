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

enum pn_mem_source {
    PN_SOURCE_MEMINFO = 0,
    PN_SOURCE_PSI = 1,
    PN_SOURCE_CGROUP = 2, /* FAILED when any group on the path could not be read */
    PN_SOURCE_RLIMIT = 3,
};
#define PN_SOURCE_N 4

typedef struct pn_source_state {
    enum pn_source_status status;
    char why[192]; /* FAILED: the file and what was wrong with it; else "" */
} pn_source_state;

const char *pn_mem_source_name(unsigned source); /* "meminfo" "psi" "cgroup" "rlimit" */

/* A domain's or a group's name with its terminator. Longer paths keep their end: "...tail". */
#define PN_DOMAIN_NAME_BYTES 128

/* One control group on our path, ours or an ancestor, that has a limit. Everything we use counts in
 * each of them. */
typedef struct pn_cgroup_limit {
    char path[PN_DOMAIN_NAME_BYTES];
    uint64_t current_bytes;     /* used, page cache included */
    uint64_t reclaimable_bytes; /* clean file pages, which the kernel drops when it must */
    uint64_t high_bytes;        /* v2 memory.high; 0 = unset */
    uint64_t max_bytes;         /* v2 memory.max, v1 limit_in_bytes; 0 = unset */
    uint64_t limit_bytes;       /* the smaller of what is set (v1: or an unseen ancestor's limit) */
    uint64_t avail_bytes;       /* limit - (current - reclaimable), at least 0 */
} pn_cgroup_limit;

/* Of more limited groups on one path, those with the least available are kept. */
#define PN_CGROUP_LIMIT_MAX 16

typedef struct pn_host_sample {
    uint64_t host_total_bytes;         /* MemTotal */
    uint64_t host_avail_bytes;         /* MemAvailable as read */
    double host_psi_some_avg10;        /* percent of the last 10 s in which some task stalled */
    double host_psi_full_avg10;        /* the same for all tasks at once */
    uint64_t host_psi_some_total_usec; /* stalled time since boot; 0 where it isn't printed */
    uint64_t host_psi_full_total_usec;

    /* The limited group with the least available, v1 or v2. Where no group on our path has a
     * limit: our own group's use and path, the limits 0. All 0 when we are in no group. */
    uint64_t cgroup_current_bytes;
    uint64_t cgroup_high_bytes;  /* 0 = unset */
    uint64_t cgroup_max_bytes;   /* 0 = unset */
    uint64_t cgroup_avail_bytes; /* meaningful when cgroup_limit_n != 0 */
    char cgroup_path[PN_DOMAIN_NAME_BYTES];
    pn_cgroup_limit
        cgroup_limits[PN_CGROUP_LIMIT_MAX]; /* ours first, then upwards, while they fit */
    uint32_t cgroup_limit_n;

    /* RLIMIT_AS or RLIMIT_DATA, whichever leaves less. */
    uint64_t rlimit_bytes;       /* 0 = unlimited */
    uint64_t rlimit_avail_bytes; /* what is left of it; meaningful when rlimit_bytes != 0 */

    pn_source_state sources[PN_SOURCE_N];
} pn_host_sample;

/* Samples every source once, in well under a millisecond. `root` is put in front of /proc and /sys
 * paths (NULL or "" for the real machine; a test gives a folder). Never fails as a whole: a source
 * that could not be read says so in its status and leaves its figures 0. ENOENT and EOPNOTSUPP mean
 * ABSENT, but for /proc/meminfo: every Linux has that one, so its absence is a failure. */
void pn_host_signals_sample(const char *root, pn_host_sample *out);

/* The least that any domain of the sample has available, reserves not taken off, and which one that
 * is (NULL: not wanted). An absent source doesn't count, a failed one counts as 0: nothing is known
 * to be free. PN_DOMAIN_NONE and UINT64_MAX where no source is there. */
uint64_t pn_host_eff_avail(const pn_host_sample *sample, unsigned *domain);

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

/* What can refuse a reservation: host and pinned memory count against host, cgroup and rlimit, die
 * i's against die i, file pages against none. */
enum pn_mem_domain {
    PN_DOMAIN_HOST = 0,
    PN_DOMAIN_CGROUP = 1, /* the group on our path that leaves least; all of them count alike */
    PN_DOMAIN_RLIMIT = 2,
    PN_DOMAIN_DIE = 3, /* PN_DOMAIN_DIE + i is die i */
};
#define PN_DOMAIN_N (PN_DOMAIN_DIE + PN_DIE_MAX)
#define PN_DOMAIN_NONE PN_DOMAIN_N

const char *pn_mem_domain_name(unsigned domain); /* its kind: "host" "cgroup" "rlimit" "die 0" … */

/* One reservation. The caller owns the struct, passes it back unchanged and uses it from one
 * thread at a time; zeroed means "none". */
typedef struct pn_booking {
    uint64_t reserved_bytes;  /* all of it, touched or not */
    uint64_t committed_bytes; /* the touched part */
    uint32_t place;
    uint32_t owner;
    uint32_t live;   /* 1 between reserve and release */
    uint32_t mapped; /* 1 while its address space exists, see pn_ledger_mapped */
} pn_booking;

/* How far the ledger's books had got before a measurement began. Take one, measure, then hand both
 * in: what was touched or given back meanwhile is then never counted as free twice. */
typedef struct pn_ledger_mark {
    uint64_t seq; /* marks are numbered; figures older than those in use are ignored */
    uint64_t committed_bytes[1 + PN_DIE_MAX]; /* of the host, then of each die */
    uint64_t mapped_bytes;                    /* of the host */
} pn_ledger_mark;

void pn_ledger_mark_now(pn_ledger_mark *out);

/* Tells the ledger what a domain can still give: `available_bytes`, measured after `mark` was taken
 * (NULL: this moment), of which `reserve_bytes` are kept free. A domain that was never set, or set
 * to UINT64_MAX, refuses nothing. `name` is what messages call it, such as "cgroup:/box" (copied;
 * NULL: the domain's kind). */
void pn_ledger_set_domain_at(unsigned domain, const char *name, uint64_t available_bytes,
                             uint64_t reserve_bytes, const pn_ledger_mark *mark);
void pn_ledger_set_domain(unsigned domain, const char *name, uint64_t available_bytes,
                          uint64_t reserve_bytes);

/* Replaces the default reserves: the host's (PN_HOST_RESERVE_BYTES) and that of each cgroup and
 * rlimit (PN_CGROUP_RESERVE_BYTES). UINT64_MAX: the default. Counts from the next sample on. */
void pn_ledger_set_reserves(uint64_t host_bytes, uint64_t cgroup_bytes);

/* What is kept free: of the host max(1 GiB, 15 % of its total), of a cgroup or rlimit
 * max(64 MiB, limit / 16), or what pn_ledger_set_reserves said. */
uint64_t pn_mem_host_reserve(uint64_t total_bytes);
uint64_t pn_mem_limit_reserve(uint64_t limit_bytes);

/* Sets the host, cgroup and rlimit domains from a sample that was begun after `mark`. A failed
 * source, or one that was there before and is gone, keeps the figures it last had or, without any,
 * grants nothing. Changes of a source's status are logged. */
void pn_ledger_apply(const pn_host_sample *sample, const pn_ledger_mark *mark);

/* Mark, pn_host_signals_sample and apply in one. Called at load and by whoever polls. */
void pn_ledger_sample(const char *root);

/* Bytes that the domain can still promise: available - reserve - promised but untouched, at least
 * 0. UINT64_MAX for a domain that refuses nothing. */
uint64_t pn_ledger_headroom(unsigned domain);

/* The smallest headroom of the domains that `place` counts against, and which domain that is
 * (PN_DOMAIN_NONE when none of them is set; NULL: not wanted). */
uint64_t pn_ledger_place_headroom(unsigned place, unsigned *domain);

typedef struct pn_domain_view {
    char name[PN_DOMAIN_NAME_BYTES];
    uint32_t set;             /* 0: refuses nothing, the figures are 0 */
    uint64_t available_bytes; /* as last measured */
    uint64_t reserve_bytes;
    uint64_t headroom_bytes; /* now */
} pn_domain_view;

void pn_ledger_domain(unsigned domain, pn_domain_view *out);

/* Books `bytes` for `owner` at `place`, or refuses: PN_E_NOFIT with the domain that lacked how many
 * bytes and the owner that holds most. On refusal `out` is zeroed and nothing changed. Lock-free.
 */
int pn_ledger_reserve(unsigned place, unsigned owner, uint64_t bytes, pn_booking *out,
                      struct pn_detail *d);

/* Says that the booking's address space exists now. Where RLIMIT_AS or RLIMIT_DATA is set, a
 * booking that never says so counts twice against it: in the figures of the system and in ours. */
int pn_ledger_mapped(pn_booking *booking);

/* Says that `bytes` more of the booking are touched memory now; call it after touching.
 * PN_E_INVALID when that is more than was reserved, PN_E_STATE when the booking isn't live. */
int pn_ledger_commit(pn_booking *booking, uint64_t bytes);

/* The reverse: `bytes` of it are about to go back to the system but stay promised; call it before
 * giving them back. */
int pn_ledger_uncommit(pn_booking *booking, uint64_t bytes);

/* Uncommits all of it and takes back pn_ledger_mapped: call it before unmapping. */
int pn_ledger_vacate(pn_booking *booking);

/* Ends the booking (and vacates it, if that wasn't done): call it after unmapping. PN_E_STATE, and
 * no change, when it is not live: a double release is caught. */
int pn_ledger_release(pn_booking *booking);

typedef struct pn_ledger_row {
    uint64_t reserved_bytes;
    uint64_t committed_bytes;
    uint64_t reserved_peak_bytes; /* high-water marks since the start */
    uint64_t committed_peak_bytes;
} pn_ledger_row;

typedef struct pn_ledger_view {
    pn_ledger_row cells[PN_PLACE_N][PN_OWNER_N];
    pn_ledger_row places[PN_PLACE_N]; /* all owners together */
    uint64_t refusal_n;               /* reservations refused since the start */
} pn_ledger_view;

/* Copies the ledger; each figure is exact, the whole is a moment's blur under load. */
void pn_ledger_read(pn_ledger_view *out);

#ifdef __cplusplus
}
#endif
#endif
