/* The watch: samples the host, tells the ledger, derives the level, publishes the snapshot.
 *
 * Sampling reads files and holds no lock. Samples are numbered by the ledger's marks, taken before
 * the reading begins; one that was overtaken by a newer sample is dropped. Everything after it
 * (merging with the dies, levels, damping, publishing) happens under one writer lock that the poll
 * thread, poll_now and set_die share. Readers take no lock at all, see pn_publish.h. Nothing is
 * logged under the lock. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/mem/pn_decision.h"
#include "core/mem/pn_level.h"
#include "core/mem/pn_publish.h"
#include "core/mem/pn_watch.h"

#define NS_PER_MS 1000000u
#define FILL_RATE_MIN 1048576.0 /* bytes a second that are worth hurrying for */
#define FILL_SHARE 8            /* polls wanted in the time in which headroom is used up */

/* Sync: under `lock`. */
static struct {
    char root[PN_ROOT_BYTES];
    char group_psi[PN_GROUP_FILE_BYTES];
    uint64_t mark_seq; /* of the sample in use */
    bool seen[PN_SOURCE_N];
    enum pn_source_status last_status[PN_SOURCE_N];
    bool sampled;
    pn_host_sample sample;
    pn_mem_state state;
    struct pn_verdict verdict;
    struct pn_damper damper;
    struct pn_damper byte_damper;
    struct pn_stall host_stall;
    struct pn_stall group_stall;
    uint64_t fill_ns; /* of fill_headroom */
    uint64_t fill_headroom;
    double fill_rate; /* bytes a second */
    uint32_t interval_ms;
    uint64_t poll_n;
    uint64_t bad_die_n;
    uint64_t trigger_n;
    char trigger[128];
} w;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint32_t pn_memwatch_interval_ms(uint64_t headroom_bytes, double fill_bytes_per_s) {
    if (headroom_bytes == UINT64_MAX || !(fill_bytes_per_s > 0.0)) return PN_MEMWATCH_POLL_MS;
    double ms = (double)headroom_bytes / fill_bytes_per_s * 1000.0 / FILL_SHARE;
    if (ms >= PN_MEMWATCH_POLL_MS) return PN_MEMWATCH_POLL_MS;
    return ms <= PN_MEMWATCH_POLL_MS_MIN ? PN_MEMWATCH_POLL_MS_MIN : (uint32_t)ms;
}

/* ---- under the lock ---------------------------------------------------------------------- */

/* What the log has to say once the lock is released. */
struct news {
    pn_mem_level from;
    pn_mem_level to;
    uint64_t deficit_bytes;
    char why[256];
    struct {
        bool changed;
        enum pn_source_status now;
        char why[192];
    } sources[PN_SOURCE_N];
};

/* A source that was there and is gone has failed, for what it would say now is unknown. Ranges of
 * hot pages come and go. */
static void judge_sources(pn_host_sample *s, struct news *news) {
    for (int i = 0; i < PN_SOURCE_N; i++) {
        pn_source_state *source = &s->sources[i];
        if (source->status == PN_SOURCE_ABSENT && w.seen[i] && i != PN_SOURCE_HOT) {
            source->status = PN_SOURCE_FAILED;
            snprintf(source->why, sizeof source->why, "was there before and is gone");
        }
        if (source->status == PN_SOURCE_UP) w.seen[i] = true;
        news->sources[i].changed = !w.sampled || source->status != w.last_status[i];
        news->sources[i].now = source->status;
        memcpy(news->sources[i].why, source->why, sizeof source->why);
        w.last_status[i] = source->status;
    }
}

static void measure_stalls(const pn_host_sample *s, uint64_t now_ns) {
    double some = 0.0;
    double full = 0.0;
    double group_some = 0.0;
    double group_full = 0.0;
    if (s->sources[PN_SOURCE_PSI].status == PN_SOURCE_UP) {
        pn__stall_step(&w.host_stall, now_ns, s->host_psi_some_total_usec,
                       s->host_psi_full_total_usec, &some, &full);
    } else {
        w.host_stall.n = 0;
    }
    if (s->sources[PN_SOURCE_GROUP_PSI].status == PN_SOURCE_UP) {
        pn__stall_step(&w.group_stall, now_ns, s->group_psi_some_total_usec,
                       s->group_psi_full_total_usec, &group_some, &group_full);
    } else {
        w.group_stall.n = 0;
    }
    const double somes[] = {s->host_psi_some_avg10, s->group_psi_some_avg10, group_some};
    const double fulls[] = {s->host_psi_full_avg10, s->group_psi_full_avg10, group_full};
    for (size_t i = 0; i < 3; i++) {
        if (somes[i] > some) some = somes[i];
        if (fulls[i] > full) full = fulls[i];
    }
    w.state.psi_some_now = some;
    w.state.psi_full_now = full;
}

static void measure_fill(uint64_t headroom, uint64_t now_ns) {
    double rate = 0.0;
    if (w.fill_ns && now_ns > w.fill_ns && headroom != UINT64_MAX &&
        w.fill_headroom != UINT64_MAX) {
        rate =
            (double)pn__sub_floor_u64(w.fill_headroom, headroom) / pn__clock_s(w.fill_ns, now_ns);
    }
    /* A pause of the hog between two polls is no all-clear: the rate only halves. */
    w.fill_rate = rate > w.fill_rate / 2.0 ? rate : w.fill_rate / 2.0;
    if (w.fill_rate < FILL_RATE_MIN) w.fill_rate = 0.0;
    w.fill_ns = now_ns;
    w.fill_headroom = headroom;
    w.interval_ms = pn_memwatch_interval_ms(headroom, w.fill_rate);
}

/* Derives from the last sample and the dies, and publishes. */
static void derive_and_publish(uint64_t now_ns, struct news *news) {
    pn_mem_state *st = &w.state;
    unsigned domain;
    pn_domain_view view;
    pn__level_derive(&w.sample, st->psi_some_now, st->psi_full_now, st, &w.verdict);
    news->from = st->level;
    st->raw_level = w.verdict.raw;
    st->level = pn__damper_step(&w.damper, &w.verdict, now_ns);
    struct pn_verdict firm = w.verdict;
    firm.raw = firm.firm;
    st->byte_level = pn__damper_step(&w.byte_damper, &firm, now_ns);
    st->deficit_bytes = w.verdict.deficit_bytes;
    news->to = st->level;
    news->deficit_bytes = st->deficit_bytes;
    memcpy(news->why, w.verdict.why, sizeof news->why);
    st->headroom_bytes = pn_ledger_place_headroom(PN_PLACE_HOST, &domain);
    memset(st->headroom_domain, 0, sizeof st->headroom_domain);
    if (domain != PN_DOMAIN_NONE) {
        pn_ledger_domain(domain, &view);
        memcpy(st->headroom_domain, view.name, sizeof view.name);
    }
    st->seq++;
    pn__publish(st);
}

static void take_sample(const pn_host_sample *s, uint64_t sample_ns) {
    pn_mem_state *st = &w.state;
    unsigned domain;
    w.sample = *s;
    st->host_total_bytes = s->host_total_bytes;
    st->host_avail_bytes = s->host_avail_bytes;
    st->host_psi_some_avg10 = s->host_psi_some_avg10;
    st->host_psi_full_avg10 = s->host_psi_full_avg10;
    st->cgroup_current_bytes = s->cgroup_current_bytes;
    st->cgroup_high_bytes = s->cgroup_high_bytes;
    st->cgroup_max_bytes = s->cgroup_max_bytes;
    st->sample_ns = sample_ns;
    st->eff_avail_bytes = pn_host_eff_avail(s, &domain);
    memset(st->bind_domain, 0, sizeof st->bind_domain);
    if (domain == PN_DOMAIN_CGROUP && s->cgroup_limit_n) {
        snprintf(st->bind_domain, sizeof st->bind_domain, "cgroup:%.*s",
                 (int)(sizeof st->bind_domain - sizeof "cgroup:"), s->cgroup_path);
    } else if (domain != PN_DOMAIN_NONE) {
        snprintf(st->bind_domain, sizeof st->bind_domain, "%s", pn_mem_domain_name(domain));
    }
    for (int i = 0; i < PN_SOURCE_N; i++)
        st->sources[i] = s->sources[i].status;
    measure_stalls(s, sample_ns);
}

/* ---- outside of it ----------------------------------------------------------------------- */

/* Of meminfo, cgroup and rlimit the ledger says what became of them. */
static void tell(const struct news *news) {
    for (unsigned i = 0; i < PN_SOURCE_N; i++) {
        bool by_ledger = i == PN_SOURCE_MEMINFO || i == PN_SOURCE_CGROUP || i == PN_SOURCE_RLIMIT;
        if (!news->sources[i].changed || by_ledger) continue;
        if (news->sources[i].now == PN_SOURCE_FAILED) {
            pn__log(PN_LOG_WARN, "memory: %s can't be read (%s): at least TIGHT",
                    pn_mem_source_name(i), news->sources[i].why);
        } else if (i == PN_SOURCE_PSI && news->sources[i].now == PN_SOURCE_ABSENT) {
            pn__log(PN_LOG_INFO, "memory: PSI unavailable, using meminfo");
        }
    }
    if (news->from != news->to) {
        pn__decide((pn_decision){.kind = PN_DECISION_LEVEL,
                                 .a = (int)news->from,
                                 .b = (int)news->to,
                                 .c = news->deficit_bytes});
        pn__log(PN_LOG_INFO, "memory: level %s -> %s (%s)", pn_mem_level_name(news->from),
                pn_mem_level_name(news->to), news->why);
    }
}

void pn_memwatch_poll_now(void) {
    struct pn_probe probe;
    pn_host_sample sample;
    pn_ledger_mark mark;
    struct news news;
    char root[PN_ROOT_BYTES];
    pthread_mutex_lock(&lock);
    memcpy(root, w.root, sizeof root);
    pthread_mutex_unlock(&lock);

    probe.root = root;
    uint64_t sample_ns = pn__clock_ns();
    pn_ledger_mark_now(&mark);
    pn__host_sample(&probe, &sample);
    pn_ledger_apply(&sample, &mark);

    pthread_mutex_lock(&lock);
    bool newest = mark.seq > w.mark_seq;
    if (newest) {
        w.mark_seq = mark.seq;
        judge_sources(&sample, &news);
        w.sampled = true;
        w.poll_n++;
        memcpy(w.group_psi, probe.group_psi, sizeof w.group_psi);
        take_sample(&sample, sample_ns);
        derive_and_publish(sample_ns, &news);
        measure_fill(w.state.headroom_bytes, sample_ns);
    }
    pthread_mutex_unlock(&lock);
    if (!newest) return;
    pn_mem_wake();
    tell(&news);
}

void pn_memwatch_set_die(int die_id, uint64_t free_bytes, uint64_t budget_bytes,
                         uint64_t used_bytes) {
    struct news news = {0};
    bool known = die_id >= 0 && die_id < PN_DIE_MAX;
    if (known) {
        uint64_t kept = pn_mem_die_reserve();
        pn_ledger_set_domain(PN_DOMAIN_DIE + (unsigned)die_id, NULL,
                             budget_bytes ? free_bytes : UINT64_MAX, kept);
    }
    pthread_mutex_lock(&lock);
    if (known) {
        pn_mem_state *st = &w.state;
        if (st->n_dies <= die_id) st->n_dies = die_id + 1;
        st->per_die_free[die_id] = free_bytes;
        st->per_die_budget[die_id] = budget_bytes;
        st->per_die_used[die_id] = used_bytes;
        derive_and_publish(pn__clock_ns(), &news);
    } else {
        w.bad_die_n++;
    }
    pthread_mutex_unlock(&lock);
    if (!known) return;
    pn_mem_wake();
    tell(&news);
}

int pn_memwatch_read(pn_mem_state *out) {
    bool quiet = pn__published(out);
    if (!quiet) memset(out, 0, sizeof *out);
    /* Coarse: a tick is nothing beside PN_MEM_STALE_MS, and the exact clock would cost as much as
     * the copy. So a fresh sample may be later than `now`. */
    uint64_t now = pn__clock_coarse_ns();
    bool fresh = out->seq != 0 &&
                 pn__sub_floor_u64(now, out->sample_ns) <= (uint64_t)PN_MEM_STALE_MS * NS_PER_MS;
    if (!fresh) {
        out->stale = 1;
        if (out->raw_level < PN_MEM_LEVEL_TIGHT) out->raw_level = PN_MEM_LEVEL_TIGHT;
        if (out->level < PN_MEM_LEVEL_TIGHT) out->level = PN_MEM_LEVEL_TIGHT;
        if (out->byte_level < PN_MEM_LEVEL_TIGHT) out->byte_level = PN_MEM_LEVEL_TIGHT;
    }
    return quiet ? 0 : PN_E_BUSY;
}

int pn_memwatch_set_root(const char *root) {
    if (!root) root = "";
    if (strlen(root) >= PN_ROOT_BYTES) return PN_E_INVALID;
    if (pn_memwatch_running()) return PN_E_STATE;
    pthread_mutex_lock(&lock);
    uint64_t mark_seq = w.mark_seq; /* marks go on: what is being sampled now is of before */
    uint64_t bad_die_n = w.bad_die_n;
    memset(&w, 0, sizeof w);
    w.bad_die_n = bad_die_n;
    pn_ledger_mark mark;
    pn_ledger_mark_now(&mark);
    w.mark_seq = mark.seq > mark_seq ? mark.seq : mark_seq;
    memcpy(w.root, root, strlen(root));
    pn__publish(&w.state);
    pthread_mutex_unlock(&lock);
    return 0;
}

void pn_memwatch_info_read(pn_memwatch_info *out) {
    pthread_mutex_lock(&lock);
    memcpy(out->why, w.verdict.why, sizeof out->why);
    size_t len = strlen(out->why);
    if (w.state.level > w.state.raw_level) {
        snprintf(out->why + len, sizeof out->why - len, "%sheld at %s, now %s", len ? "; " : "",
                 pn_mem_level_name(w.state.level), pn_mem_level_name(w.state.raw_level));
    }
    out->sample = w.sample;
    out->interval_ms = w.interval_ms ? w.interval_ms : PN_MEMWATCH_POLL_MS;
    out->poll_n = w.poll_n;
    out->bad_die_n = w.bad_die_n;
    out->trigger_n = w.trigger_n;
    memcpy(out->trigger, w.trigger, sizeof out->trigger);
    pthread_mutex_unlock(&lock);
}

/* ---- for the thread ---------------------------------------------------------------------- */

uint32_t pn__watch_interval_ms(void) {
    pthread_mutex_lock(&lock);
    uint32_t ms = w.interval_ms;
    pthread_mutex_unlock(&lock);
    return ms ? ms : PN_MEMWATCH_POLL_MS;
}

bool pn__watch_psi_paths(char host[PN_ROOT_BYTES + PN_GROUP_FILE_BYTES],
                         char group[PN_ROOT_BYTES + PN_GROUP_FILE_BYTES]) {
    host[0] = group[0] = '\0';
    pthread_mutex_lock(&lock);
    if (w.sample.sources[PN_SOURCE_PSI].status == PN_SOURCE_UP) {
        snprintf(host, PN_ROOT_BYTES + PN_GROUP_FILE_BYTES, "%s/proc/pressure/memory", w.root);
    }
    if (w.sample.sources[PN_SOURCE_GROUP_PSI].status == PN_SOURCE_UP) {
        snprintf(group, PN_ROOT_BYTES + PN_GROUP_FILE_BYTES, "%s%s", w.root, w.group_psi);
    }
    bool real = w.root[0] == '\0';
    pthread_mutex_unlock(&lock);
    return real;
}

void pn__watch_note_trigger(const char *note) {
    pthread_mutex_lock(&lock);
    snprintf(w.trigger, sizeof w.trigger, "%s", note);
    pthread_mutex_unlock(&lock);
}

void pn__watch_count_trigger(void) {
    pthread_mutex_lock(&lock);
    w.trigger_n++;
    pthread_mutex_unlock(&lock);
}
