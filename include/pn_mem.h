/* libpnmem: what the machine's memory looks like, and who holds which byte of it.
 *
 * Usable by any engine. One instance a process: the state is process-wide by design, because the
 * memory is. The library starts no thread, installs no signal handler and reads no environment
 * variable unless a function below says so. All functions are safe from any thread unless said
 * otherwise. Sizes are bytes.
 */
#ifndef PN_MEM_H
#define PN_MEM_H

#include <stdbool.h>
#include <stddef.h>
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
    PN_SOURCE_GROUP_PSI = 4, /* our own v2 group's memory.pressure */
    PN_SOURCE_SELF = 5,      /* RssAnon and its like in /proc/self/status */
    PN_SOURCE_HOT = 6,       /* ABSENT while no range is registered */
};
#define PN_SOURCE_N 7

typedef struct pn_source_state {
    enum pn_source_status status;
    char why[192]; /* FAILED: the file and what was wrong with it; else "" */
} pn_source_state;

/* "meminfo" "psi" "cgroup" "rlimit" "group_psi" "self" "hot" */
const char *pn_mem_source_name(unsigned source);

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
    /* limit - (current - reclaimable that is not our own hot file pages), at least 0 */
    uint64_t avail_bytes;
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
    /* Each for itself, likewise: address space counts mapped files, data doesn't. */
    uint64_t rlimit_as_bytes;
    uint64_t rlimit_as_avail_bytes;
    uint64_t rlimit_data_bytes;
    uint64_t rlimit_data_avail_bytes;

    /* The same of our own group, where it has a memory.pressure (v2). */
    double group_psi_some_avg10;
    double group_psi_full_avg10;
    uint64_t group_psi_some_total_usec;
    uint64_t group_psi_full_total_usec;

    uint64_t rss_anon_bytes; /* RssAnon, RssShmem, RssFile and VmSwap of this process */
    uint64_t rss_shmem_bytes;
    uint64_t rss_file_bytes;
    uint64_t swap_bytes;

    /* Estimate of the resident bytes of the registered ranges, at most RssFile where that is known.
     * They count as available in what the kernel says, but taking them slows us down. */
    uint64_t hot_file_bytes;

    pn_source_state sources[PN_SOURCE_N];
} pn_host_sample;

/* Names a range of a mapped file whose pages we need again and again, such as weights read in
 * place. Its resident pages are estimated by mincore at every sample, at most 64 pages of it, and
 * not counted as available. Returns an id >= 0 for unregister, which must come before the range is
 * unmapped; PN_E_INVALID for a bad range, PN_E_NOFIT past PN_HOT_RANGE_MAX ranges. */
#define PN_HOT_RANGE_MAX 64
int pn_mem_hot_range_register(const void *addr, uint64_t bytes, struct pn_detail *d);
void pn_mem_hot_range_unregister(int id); /* an id that isn't registered is ignored */

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
    PN_PLACE_FILE = 1, /* page cache of mapped files: refused by none but RLIMIT_AS */
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
 * i's against die i. File pages go when the kernel needs memory, so they count against none of
 * them; but their address space counts against rlimit where that is an RLIMIT_AS. */
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
    uint64_t mapped_file_bytes;
} pn_ledger_mark;

void pn_ledger_mark_now(pn_ledger_mark *out);

/* Tells the ledger what a domain can still give (of rlimit: address space): `available_bytes`,
 * measured after `mark` was taken (NULL: this moment), of which `reserve_bytes` are kept free. A
 * domain that was never set, or set to UINT64_MAX, refuses nothing. `name` is what messages call
 * it, such as "cgroup:/box" (copied; NULL: the domain's kind). */
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

/* Law 1 looked at from outside: what is booked as committed at host, and what this process has by
 * what the kernel says. At idle they differ by at most max(2 %, 24 MiB): code, stacks and what is
 * too small to be booked. */
typedef struct pn_reconcile {
    uint64_t committed_bytes;
    uint64_t resident_bytes; /* RssAnon + RssShmem + VmSwap of the sample */
    uint64_t allowed_bytes;  /* how far they may be apart */
    bool known;              /* false: the sample couldn't say */
    bool within;
} pn_reconcile;
void pn_ledger_reconcile(const pn_host_sample *sample, pn_reconcile *out);

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

/* Moves `bytes` that are not committed from one live booking that isn't mapped to another at the
 * same place, or, where `to` is zeroed, into a new one for `owner`. The pool doesn't change, so
 * this can't be refused for want of memory. PN_E_INVALID, PN_E_STATE; then nothing changed. */
int pn_ledger_move(pn_booking *from, pn_booking *to, unsigned owner, uint64_t bytes);

/* Makes a booking that isn't mapped larger by `bytes`, or refuses like pn_ledger_reserve and leaves
 * it as it was. */
int pn_ledger_grow(pn_booking *booking, uint64_t bytes, struct pn_detail *d);

/* ---- levels and the published state ------------------------------------------------------- */

typedef enum {
    PN_MEM_LEVEL_OK = 0,       /* ample headroom */
    PN_MEM_LEVEL_WATCH = 1,    /* headroom shrinking */
    PN_MEM_LEVEL_TIGHT = 2,    /* reserve nearly reached, stalls, or something isn't known */
    PN_MEM_LEVEL_CRITICAL = 3, /* at the reserve, or standing still: shed */
} pn_mem_level;
#define PN_MEM_LEVEL_N 4

const char *pn_mem_level_name(unsigned level); /* "OK" "WATCH" "TIGHT" "CRITICAL" */

/* One snapshot, a plain value. */
typedef struct {
    uint64_t host_total_bytes;     /* MemTotal */
    uint64_t host_avail_bytes;     /* MemAvailable as read */
    double host_psi_some_avg10;    /* percent */
    double host_psi_full_avg10;    /* percent */
    uint64_t cgroup_current_bytes; /* 0: in no group */
    uint64_t cgroup_high_bytes;    /* 0: unset */
    uint64_t cgroup_max_bytes;     /* 0: unset */
    int n_dies;                    /* 1 + the highest die that was ever fed */
    uint64_t per_die_free[PN_DIE_MAX];
    uint64_t per_die_budget[PN_DIE_MAX]; /* total at boot - reserve; 0: no such die */
    uint64_t per_die_used[PN_DIE_MAX];   /* our own tally */
    pn_mem_level level;                  /* damped: drives the ladder and growth */
    uint64_t seq;                        /* of this snapshot; 0: none was taken yet */

    /* The least that any of host, groups and rlimit has available, our own hot file pages taken
     * off, reserves not; and which it is: "host", "cgroup:PATH", "rlimit" ("" : nothing known). */
    uint64_t eff_avail_bytes;
    char bind_domain[PN_DOMAIN_NAME_BYTES];
    pn_mem_level raw_level; /* what this sample alone says, undamped */
    uint64_t sample_ns;     /* monotonic time at which the host was sampled */
    enum pn_source_status sources[PN_SOURCE_N];
    uint32_t stale; /* set by the reader: older than PN_MEM_STALE_MS, levels at least TIGHT */

    /* Stalls of the last 10 s up to this very sample, the worse of the machine's and our group's:
     * avg10, or what the growth of total= says where that is more. */
    double psi_some_now;
    double psi_full_now;
    uint64_t headroom_bytes; /* what the ledger can still promise at place host; UINT64_MAX: all */
    char headroom_domain[PN_DOMAIN_NAME_BYTES]; /* whose headroom that is; "" : nobody's */
    uint64_t deficit_bytes; /* what would bring the worst domain out of its band; PSI: none */
    /* `level`, damped likewise, without what stalls alone raise: by bytes and by sources that can't
     * be read. What takes something away (slots, window) follows this one. */
    pn_mem_level byte_level;
} pn_mem_state;

/* Full stalls from this percentage on are CRITICAL and refuse requests. */
#define PN_PSI_FULL_REJECT_DEFAULT 15.0
#define PN_DIE_RESERVE_BYTES_DEFAULT (1ull << 30)

/* Replace defaults (PN_PSI_FULL_REJECT, PN_DIE_RESERVE_BYTES); negative or UINT64_MAX: the default.
 */
void pn_mem_set_psi_full_reject(double percent);
double pn_mem_psi_full_reject(void);
void pn_mem_set_die_reserve(uint64_t bytes);
uint64_t pn_mem_die_reserve(void);

/* What of a die's memory may be used: its total at boot - the die reserve, at least 0. */
uint64_t pn_mem_die_budget(uint64_t total_bytes);

/* ---- watch ------------------------------------------------------------------------------- */

#define PN_MEMWATCH_POLL_MS 250    /* between samples, while memory isn't filling */
#define PN_MEMWATCH_POLL_MS_MIN 20 /* while it fills fast */
#define PN_MEM_STALE_MS 750        /* a snapshot older than this is TIGHT at best */

/* Starts the poll thread (the only one of this library) after sampling once, so that the first read
 * has real figures. Idempotent. PN_E_NOMEM when the system refuses a thread or a descriptor: then
 * nothing is left behind. The thread blocks all signals. */
int pn_memwatch_start(void);
void pn_memwatch_stop(void); /* joins the thread; may be started again */
bool pn_memwatch_running(void);

/* Samples now, on the calling thread, tells the ledger, and returns when this or a newer sample is
 * published. Works with and without the thread. */
void pn_memwatch_poll_now(void);

/* Copies the newest snapshot; never waits and never delays a publisher. 0, or PN_E_BUSY when no
 * quiet copy was had in a bounded number of tries: `out` is then zero but for levels of TIGHT. The
 * same levels stand in a state that was never sampled (seq 0) or is stale. */
int pn_memwatch_read(pn_mem_state *out);

/* What a die has, after asking its driver. Merges, derives and publishes at once; the ledger's
 * domain of the die follows. A die outside 0..15 is ignored and counted (pn_memwatch_info). */
void pn_memwatch_set_die(int die_id, uint64_t free_bytes, uint64_t budget_bytes,
                         uint64_t used_bytes);

/* Another machine: a folder in front of /proc and /sys (copied; NULL or "" for the real one).
 * Forgets what was sampled before, dies and damping too. PN_E_STATE while the watch runs,
 * PN_E_INVALID for a path of 1024 bytes or more. */
int pn_memwatch_set_root(const char *root);

/* Milliseconds to the next poll: an eighth of the time in which `headroom_bytes` would be used up,
 * within 20..250. */
uint32_t pn_memwatch_interval_ms(uint64_t headroom_bytes, double fill_bytes_per_s);

typedef struct pn_memwatch_info {
    char why[256];         /* the level in words, with numbers */
    pn_host_sample sample; /* what was read last; a source that is gone in mid-run is FAILED */
    uint32_t interval_ms;  /* at present */
    uint64_t poll_n;
    uint64_t bad_die_n; /* calls of set_die that named no die */
    uint64_t trigger_n; /* times that a PSI trigger woke the thread */
    char trigger[128];  /* "armed: ...", or why there is none */
} pn_memwatch_info;

/* For people: takes a lock, unlike pn_memwatch_read. */
void pn_memwatch_info_read(pn_memwatch_info *out);

/* ---- waiting ----------------------------------------------------------------------------- */

/* One event count for the process: it rises with every published snapshot, every ticket that is
 * given back and every pn_mem_wake. Read it, look whether what you wait for is there, and if it
 * isn't, wait for the count to change: nothing that happens in between is missed. */
uint64_t pn_mem_wake_count(void);
void pn_mem_wake(void);
/* Returns the count: at once when it isn't `seen`, else when it changes or after `timeout_ms`. */
uint64_t pn_mem_wait(uint64_t seen, uint32_t timeout_ms);

/* ---- ladder ------------------------------------------------------------------------------ */

/* What the operator configured. 0: no limit. */
typedef struct pn_ladder_config {
    int max_slots;
    int prefill_window; /* longest prompt admitted, in tokens */
    bool kv_q4;
    bool kv_evict;
} pn_ladder_config;

/* Absolute values to apply, never more than configured. */
typedef struct {
    pn_mem_level level;
    int max_slots;      /* rung 2: TIGHT a half, CRITICAL 1 */
    bool force_kv_q4;   /* rung 4a: from WATCH, where the KV's format is still free */
    bool kv_evict;      /* rung 4b: from TIGHT */
    int prefill_window; /* rung 3: TIGHT a half, CRITICAL a quarter; at least 1, 0 stays 0 */
    bool degraded;      /* some configured value was reduced */
    const char *note;   /* static */
    bool shed_caches;   /* rung 1: from WATCH */
} pn_ladder_plan;

/* Pure. OK is the configuration itself; a higher level never gives more than a lower one. */
pn_ladder_plan pn_ladder_plan_for(pn_mem_level level, const pn_ladder_config *cfg);

/* For the state's damped level, or for OK while the ladder is disabled. */
pn_ladder_plan pn_ladder_plan_from_state(const pn_mem_state *state, const pn_ladder_config *cfg);

void pn_ladder_set_disabled(bool disabled); /* PN_LADDER_DISABLE */
bool pn_ladder_disabled(void);

/* Logs "[ladder] TIGHT -> prefill window clamped A -> B (...)" when the plan clamps a window of
 * `configured`: at each change and once a minute, with how often it stood in between. */
void pn_ladder_log_clamp(const pn_ladder_plan *plan, int configured);

/* ---- admission ---------------------------------------------------------------------------- */

typedef enum {
    PN_ADMIT_VERDICT_ADMIT = 0,
    PN_ADMIT_VERDICT_CAP = 1,   /* not as asked, but `fit_tokens` of the prompt would */
    PN_ADMIT_VERDICT_REJECT = 2 /* not at all at present */
} pn_admit_verdict;

/* Why not ADMIT. */
typedef enum {
    PN_ADMIT_CAUSE_NONE = 0,
    PN_ADMIT_CAUSE_STALL,   /* all tasks stand still: have and need are 1/1000 of a percent */
    PN_ADMIT_CAUSE_RESERVE, /* the host is inside its reserve: have and need are bytes */
    PN_ADMIT_CAUSE_WINDOW,  /* longer than the window: have and need are tokens */
    PN_ADMIT_CAUSE_BYTES,   /* `domain` hasn't the bytes */
    PN_ADMIT_CAUSE_INVALID  /* a prompt or die that can't be, or a sum beyond 64 bits */
} pn_admit_cause;

typedef struct pn_admit_result {
    pn_admit_verdict verdict;
    pn_admit_cause cause;
    int fit_tokens; /* ADMIT: the prompt; CAP: the longest prompt that fits; REJECT: 0 */
    uint64_t need_bytes;
    uint64_t have_bytes;
    char domain[PN_DOMAIN_NAME_BYTES]; /* whose bytes `have_bytes` are; "" for none */
} pn_admit_result;

/* The result in words with its numbers, cut to `cap`; returns `buf`. */
const char *pn_admit_reason(const pn_admit_result *r, char *buf, size_t cap);

/* The seed's shape, a Qwen3.5-MoE: bytes of KV a token in 4 bits and in fp32. */
#define PN_ADMIT_KV_BYTES_PER_TOKEN_Q4 5898
#define PN_ADMIT_KV_BYTES_PER_TOKEN_FP32 40960
#define PN_ADMIT_DIE_SCRATCH_BYTES (3ull << 29)                    /* 1.5 GiB */
#define PN_ADMIT_LOAD_SPIKE_BYTES_DEFAULT (24ull * (1 << 30) / 10) /* 2.4 GiB */
#define PN_ADMIT_NEW_TOKENS 512 /* charged for an answer without a limit, before extending */
#define PN_ADMIT_PAGE_TOKENS 64 /* a fit below this is none */

/* Replaces the spike (PN_LOAD_SPIKE_BYTES); UINT64_MAX: the default. */
void pn_admit_set_load_spike(uint64_t bytes);

/* Bytes of a prompt's activations at their peak, for the seed's shape: 4 * heads * N^2 with 16
 * heads at N = 512, 1024, ... 16384, straight lines between and beyond, and from 0 below. */
uint64_t pn_lut_activation_peak(int n_prompt);

/* What one request takes of a loaded model. KV comes in kinds of pages: all layers that keep the
 * whole sequence are one kind, those with a window another. */
#define PN_ADMIT_KV_KINDS 4
#define PN_ADMIT_ANCHOR_MAX 8
typedef struct pn_admit_cost {
    struct {
        uint64_t page_bytes;
        uint32_t page_tokens; /* 0: no such kind */
        uint32_t page_max;    /* a window's most pages; 0: no limit */
        /* Where they aren't 0, a window's pages are counted exactly: a token sees `window` tokens
         * back, itself included, prompts are computed in steps of `step_tokens` (the same for all
         * kinds), answers token by token, and pages that no later token sees go back before each
         * step. What is charged is the most that all kinds together hold at once. */
        uint32_t window;
        uint32_t step_tokens;
        /* Not 0: every page but a sequence's first has a second form of so many bytes from its
         * first row on, and loses the form of page_bytes when a step begins in a later page;
         * step_tokens is needed then. */
        uint64_t narrow_bytes;
    } kv[PN_ADMIT_KV_KINDS];
    uint64_t state_bytes; /* recurrent state and the like, whatever the length */
    /* Scratch by prompt length: straight lines between anchors in rising order, the first line from
     * (0, 0), the last one extended; one anchor of 0 tokens: the same for every length. */
    struct {
        uint32_t tokens;
        uint64_t bytes;
    } scratch[PN_ADMIT_ANCHOR_MAX];
    uint32_t scratch_n;
} pn_admit_cost;

/* The parts of what `n_prompt` + `n_new` tokens take. PN_E_INVALID for negative counts, a cost that
 * makes no sense or sums beyond 64 bits. */
typedef struct pn_admit_bytes {
    uint64_t kv;
    uint64_t state;
    uint64_t scratch;
    uint64_t all;
} pn_admit_bytes;
int pn_admit_cost_bytes(const pn_admit_cost *cost, int n_prompt, int n_new, pn_admit_bytes *out);

/* Would a prompt run to its end? Pure. In this order: full stalls of the reject percentage refuse;
 * `gpu_resident` costs the host nothing, is refused inside the reserve and capped above the window;
 * else KV and activations must fit what the state says the host (and cgroup, rlimit, promises) and
 * the die have, and the longest prompt that does is found. max_window 0: none; die_id -1: none. */
void pn_admit_request(int n_prompt, bool kv_q4, bool gpu_resident, int die_id, int max_window,
                      const pn_mem_state *state, pn_admit_result *out);

/* The general form of its host path: any model's cost, `n_new` tokens of answer included. */
void pn_admit_request_cost(const pn_admit_cost *cost, int n_prompt, int n_new, int die_id,
                           int max_window, const pn_mem_state *state, pn_admit_result *out);

/* Before weights go to a die: all three together within its free bytes less the die reserve. */
void pn_admit_model_load(uint64_t weights_bytes, uint64_t kv_bytes, uint64_t activation_bytes,
                         int die_id, const pn_mem_state *state, pn_admit_result *out);

/* One die of several: its slices and PN_ADMIT_DIE_SCRATCH_BYTES within its free bytes. */
void pn_admit_model_load_die(uint64_t weights_bytes, uint64_t kv_bytes, int die_id,
                             const pn_mem_state *state, pn_admit_result *out);

/* Before weights are copied to a die: the burst that this takes of the host. */
void pn_admit_load_spike(const pn_mem_state *state, pn_admit_result *out);

/* ---- tickets ------------------------------------------------------------------------------ */

/* A request's promise: what it may still take is reserved in the ledger, under its owners; blocks
 * take their part over with pn_ledger_move. The caller owns the struct and keeps it where it is;
 * zeroed means none. Any thread may reserve; one thread, the driver, extends, moves and releases.
 */
typedef struct pn_admit_ticket {
    pn_booking kv;
    pn_booking state;
    pn_booking scratch;
    pn_booking way; /* KV of the oldest from n_tokens to its end; not the driver's to take from */
    pn_admit_cost cost;
    int n_prompt;
    int n_tokens;    /* prompt and answer that are paid for */
    int end_tokens;  /* where it must end at the latest, by what memory there was */
    int want_tokens; /* where it would end with memory enough */
    bool parked;     /* its last extension was refused; ask again later */
    bool whole_way;  /* reserved up to end_tokens, so extending it takes nothing more */
    uint64_t order;  /* admitted when: the oldest live ticket has the lowest; 0: none */
    struct pn_admit_ticket *next;
} pn_admit_ticket;

/* What is asked for. */
typedef struct pn_admit_ask {
    int n_prompt;   /* tokens up to the answer, those that are held already included */
    int n_new;      /* most tokens of answer; -1: unknown, PN_ADMIT_NEW_TOKENS are booked and
                       extended page by page */
    int n_ctx;      /* bounds prompt and answer together; 0: no bound, n_new known */
    int max_window; /* longest prompt, without what is held; 0: none */
    int n_held;     /* tokens of the prompt that lie in the cache from before, */
    uint64_t held_kv_bytes; /* in so many bytes, booked and not to be booked again */
    uint64_t held_state_bytes;
} pn_admit_ask;

/* Decides and books in one: either the whole of prompt and answer is reserved, or nothing. Bytes
 * come from the ledger, stalls from the newest snapshot where the watch runs. 0: booked, and the
 * result says ADMIT. PN_E_CONTEXT: CAP by the window or n_ctx. PN_E_NOFIT: would not fit now (CAP
 * when something shorter would). PN_E_INVALID. `d` gets the reason. */
int pn_admit_reserve_for(const pn_admit_cost *cost, const pn_admit_ask *ask, pn_admit_ticket *out,
                         pn_admit_result *result, struct pn_detail *d);

/* The same for a sequence that holds nothing; `n_new` 0: unknown. */
int pn_admit_reserve(const pn_admit_cost *cost, int n_prompt, int n_new, int n_ctx, int max_window,
                     pn_admit_ticket *out, pn_admit_result *result, struct pn_detail *d);

/* Pays for one more page of answer (at most up to end_tokens). PN_E_NOFIT parks the ticket and
 * changes nothing else: asking again later may succeed. The oldest ticket's way to its end is
 * always reserved, so its extensions are never refused. An end that had come nearer for want of
 * memory moves on by a page if there is some now. PN_E_CONTEXT at the end. */
int pn_admit_extend(pn_admit_ticket *t, struct pn_detail *d);

/* Gives back what is left of it; the next oldest gets its way reserved, or is given an earlier end
 * where even that doesn't fit (its end_tokens says so). Takes NULL and zeroed tickets. Wakes those
 * who wait (pn_mem_wait). */
void pn_admit_release(pn_admit_ticket *t);

/* ---- shedders ----------------------------------------------------------------------------- */

/* A cache that can give memory back. `order`: asked in rising order; 0 from WATCH on, higher from
 * TIGHT on. `held` says what it holds, `shed` gives back about that many bytes; at least
 * `floor_bytes` stay. Both are called by who calls pn_shed, under no lock. Returns an id >= 0;
 * PN_E_NOFIT past PN_SHEDDER_MAX, PN_E_INVALID. */
#define PN_SHEDDER_MAX 16
#define PN_SHEDDER_NAME_BYTES 32
int pn_shed_register(const char *name, int order, uint64_t (*held)(void *user),
                     uint64_t floor_bytes, void (*shed)(void *user, uint64_t bytes), void *user);

/* PN_E_BUSY while a pn_shed runs, PN_E_INVALID for an id that isn't registered. */
int pn_shed_unregister(int id);

/* Rung 1: asks the shedders for `deficit_bytes`, as many as the level lets; at CRITICAL then all of
 * them down to their floors. Nothing happens without a deficit. What they held before and after is
 * compared: that is what is returned as freed. 0 also while another pn_shed runs. */
uint64_t pn_shed(pn_mem_level level, uint64_t deficit_bytes);

/* The same for a snapshot, by its byte level and deficit, once for each snapshot however many ask;
 * nothing while the ladder is disabled. */
uint64_t pn_shed_snapshot(const pn_mem_state *state);

/* ---- the last decisions ------------------------------------------------------------------- */

typedef enum {
    PN_DECISION_ADMIT = 0, /* a: prompt, b: answer, c: bytes booked */
    PN_DECISION_CAP,       /* a: prompt, b: fit, c: bytes needed, d: bytes had */
    PN_DECISION_REJECT,    /* the same */
    PN_DECISION_EXTEND,    /* a: tokens now, c: bytes */
    PN_DECISION_PARK,      /* a: tokens, c: bytes needed, d: bytes had */
    PN_DECISION_SHORTEN,   /* a: end before, b: end now */
    PN_DECISION_SHED,      /* c: asked, d: freed */
    PN_DECISION_LEVEL,     /* a: from, b: to, c: deficit */
} pn_decision_kind;

typedef struct pn_decision {
    uint64_t seq; /* 1 for the first since the start */
    uint64_t ns;
    pn_decision_kind kind;
    int a;
    int b;
    uint64_t c;
    uint64_t d;
    char name[PN_SHEDDER_NAME_BYTES]; /* a shedder's, or a domain's kind; "" */
} pn_decision;

#define PN_DECISION_N 256

/* Copies the newest decisions, at most `cap`, oldest first; returns how many. */
size_t pn_decisions_read(pn_decision *out, size_t cap);

/* One line for people, cut to `cap`; returns `buf`. */
const char *pn_decision_text(const pn_decision *e, char *buf, size_t cap);

#ifdef __cplusplus
}
#endif
#endif
