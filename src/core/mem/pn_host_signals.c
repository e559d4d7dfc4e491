/* What Linux says about memory, read once, strictly.
 *
 * Each source ends in one of three states (law 6). ABSENT: the kernel doesn't have it; it is
 * dropped. UP: read, parsed and plausible. FAILED: it exists, but couldn't be read, or what it says
 * can't be true; its figures stay 0 and the sample says which file and why. Nothing here judges or
 * remembers: levels, damping and "it was there a moment ago" belong to those who poll.
 *
 * The process's own limits and sizes are read from /proc as well, not asked for by system call, so
 * that a folder of text files can stand for a whole machine. */
#include <string.h>

#include "base/checked.h"
#include "core/mem/pn_hot.h"
#include "core/mem/pn_macos.h"
#include "core/mem/pn_probe.h"
#include "pn_mem.h"

static enum pn_source_status sample_meminfo(struct pn_probe *p, pn_host_sample *out) {
    uint64_t total;
    uint64_t avail;
    enum pn_source_status s = pn__probe_read(p, "/proc/meminfo");
    if (s == PN_SOURCE_ABSENT) return pn__probe_fail(p, "/proc/meminfo: not there");
    if (s != PN_SOURCE_UP) return s;
    if (!pn__probe_kb(p->text, "MemTotal", &total) || total == 0) {
        return pn__probe_fail(p, "/proc/meminfo: no valid MemTotal");
    }
    if (!pn__probe_kb(p->text, "MemAvailable", &avail)) {
        return pn__probe_fail(p, "/proc/meminfo: no valid MemAvailable");
    }
    if (avail > total) {
        return pn__probe_fail(
            p, "/proc/meminfo: MemAvailable of %llu bytes is more than MemTotal of %llu",
            (unsigned long long)avail, (unsigned long long)total);
    }
    out->host_total_bytes = total;
    out->host_avail_bytes = avail;
    return s;
}

/* One line of a pressure file: "some avg10=0.12 avg60=... avg300=... total=123". Fields that are
 * not known are passed over; avg10 must be there. */
static bool parse_psi(const char *text, const char *kind, double *avg10, uint64_t *total_usec) {
    const char *s = pn__probe_line(text, kind);
    bool found = false;
    if (!s) return false;
    while (*s == ' ') {
        s++;
        if (pn__probe_word(&s, "avg10=")) {
            if (!pn__probe_decimal(&s, avg10) || *avg10 > 100.0) return false;
            found = true;
        } else if (pn__probe_word(&s, "total=")) {
            if (!pn__probe_u64(&s, total_usec)) return false;
        } else {
            s += strcspn(s, " \n");
        }
    }
    return found && (*s == '\n' || *s == '\0');
}

struct psi {
    double some;
    double full;
    uint64_t some_usec;
    uint64_t full_usec;
};

static enum pn_source_status read_psi(struct pn_probe *p, const char *path, struct psi *out) {
    struct psi v = {0};
    *out = v;
    enum pn_source_status s = pn__probe_read(p, path);
    if (s != PN_SOURCE_UP) return s;
    if (!parse_psi(p->text, "some", &v.some, &v.some_usec)) {
        return pn__probe_fail(p, "%.120s: no valid 'some' line", path);
    }
    if (!parse_psi(p->text, "full", &v.full, &v.full_usec)) {
        return pn__probe_fail(p, "%.120s: no valid 'full' line", path);
    }
    *out = v;
    return s;
}

static enum pn_source_status sample_psi(struct pn_probe *p, pn_host_sample *out) {
    struct psi v;
    enum pn_source_status s = read_psi(p, "/proc/pressure/memory", &v);
    out->host_psi_some_avg10 = v.some;
    out->host_psi_full_avg10 = v.full;
    out->host_psi_some_total_usec = v.some_usec;
    out->host_psi_full_total_usec = v.full_usec;
    return s;
}

static enum pn_source_status sample_group_psi(struct pn_probe *p, pn_host_sample *out) {
    struct psi v;
    char path[PN_GROUP_FILE_BYTES];
    if (!p->group_psi[0]) return PN_SOURCE_ABSENT;
    memcpy(path, p->group_psi, sizeof path);
    enum pn_source_status s = read_psi(p, path, &v);
    out->group_psi_some_avg10 = v.some;
    out->group_psi_full_avg10 = v.full;
    out->group_psi_some_total_usec = v.some_usec;
    out->group_psi_full_total_usec = v.full_usec;
    return s;
}

/* Kernels before 4.5, and some that imitate Linux, have other sizes but none of these lines: then
 * all are absent. */
static enum pn_source_status sample_self(struct pn_probe *p, pn_host_sample *out) {
    static const char *const keys[] = {"RssAnon", "RssShmem", "RssFile", "VmSwap"};
    uint64_t v[PN_ARRAY_N(keys)];
    enum pn_source_status s = pn__probe_read(p, "/proc/self/status");
    if (s != PN_SOURCE_UP) return s;
    bool others = pn__probe_line(p->text, "VmRSS:") || pn__probe_line(p->text, "VmSize:");
    if (others && !pn__probe_line(p->text, "RssAnon:")) return PN_SOURCE_ABSENT;
    for (size_t i = 0; i < PN_ARRAY_N(keys); i++) {
        if (pn__probe_kb(p->text, keys[i], &v[i])) continue;
        return pn__probe_fail(p, "/proc/self/status: no valid %s", keys[i]);
    }
    out->rss_anon_bytes = v[0];
    out->rss_shmem_bytes = v[1];
    out->rss_file_bytes = v[2];
    out->swap_bytes = v[3];
    return s;
}

/* A row of /proc/self/limits: name, soft limit, hard limit, unit. */
static bool parse_limit(const char *text, const char *name, uint64_t *out) {
    const char *s = pn__probe_line(text, name);
    if (!s) return false;
    s += strspn(s, " ");
    if (pn__probe_word(&s, "unlimited")) {
        *out = UINT64_MAX;
    } else if (!pn__probe_u64(&s, out)) {
        return false;
    }
    return *s == ' ';
}

/* A limit's own figures; and those of both, when it leaves less than the one already there. */
static void take_rlimit(pn_host_sample *out, uint64_t limit, uint64_t used, uint64_t *own,
                        uint64_t *own_avail) {
    if (limit == UINT64_MAX) return;
    *own = pn__max_u64(limit, 1); /* 0 says "unlimited" */
    *own_avail = pn__sub_floor_u64(limit, used);
    if (out->rlimit_bytes != 0 && *own_avail >= out->rlimit_avail_bytes) return;
    out->rlimit_bytes = *own;
    out->rlimit_avail_bytes = *own_avail;
}

static enum pn_source_status sample_rlimit(struct pn_probe *p, pn_host_sample *out) {
    uint64_t as;
    uint64_t data;
    uint64_t vm_size;
    uint64_t vm_data;
    enum pn_source_status s = pn__probe_read(p, "/proc/self/limits");
    if (s != PN_SOURCE_UP) return s;
    if (!parse_limit(p->text, "Max address space", &as)) {
        return pn__probe_fail(p, "/proc/self/limits: no valid 'Max address space'");
    }
    if (!parse_limit(p->text, "Max data size", &data)) {
        return pn__probe_fail(p, "/proc/self/limits: no valid 'Max data size'");
    }
    if (as == UINT64_MAX && data == UINT64_MAX) return s;
    s = pn__probe_read(p, "/proc/self/status");
    if (s == PN_SOURCE_ABSENT) return pn__probe_fail(p, "/proc/self/status: not there");
    if (s != PN_SOURCE_UP) return s;
    if (!pn__probe_kb(p->text, "VmSize", &vm_size) || !pn__probe_kb(p->text, "VmData", &vm_data)) {
        return pn__probe_fail(p, "/proc/self/status: no valid VmSize or VmData");
    }
    take_rlimit(out, as, vm_size, &out->rlimit_as_bytes, &out->rlimit_as_avail_bytes);
    take_rlimit(out, data, vm_data, &out->rlimit_data_bytes, &out->rlimit_data_avail_bytes);
    return s;
}

void pn__host_sample(struct pn_probe *p, pn_host_sample *out) {
    /* In this order: HOT looks at SELF, CGROUP at HOT, GROUP_PSI at what CGROUP found. */
    static const struct {
        enum pn_mem_source source;
        enum pn_source_status (*sample)(struct pn_probe *, pn_host_sample *);
    } steps[] = {
        {PN_SOURCE_MEMINFO, sample_meminfo},   {PN_SOURCE_PSI, sample_psi},
        {PN_SOURCE_SELF, sample_self},         {PN_SOURCE_HOT, pn__hot_sample},
        {PN_SOURCE_CGROUP, pn__cgroup_sample}, {PN_SOURCE_GROUP_PSI, sample_group_psi},
        {PN_SOURCE_RLIMIT, sample_rlimit},
    };
    _Static_assert(PN_ARRAY_N(steps) == PN_SOURCE_N, "each source is sampled once");
#ifdef __APPLE__
    if (!p->root[0]) { /* a folder stands for a Linux machine there too */
        pn__macos_sample(p, out);
        return;
    }
#endif
    p->group_psi[0] = '\0';
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < PN_ARRAY_N(steps); i++) {
        p->state = &out->sources[steps[i].source];
        p->state->status = steps[i].sample(p, out);
    }
}

void pn_host_signals_sample(const char *root, pn_host_sample *out) {
    struct pn_probe p;
    p.root = root ? root : "";
    pn__host_sample(&p, out);
}

const char *pn_mem_source_name(unsigned source) {
    static const char *const names[PN_SOURCE_N] = {"meminfo",   "psi",  "cgroup", "rlimit",
                                                   "group_psi", "self", "hot"};
    return source < PN_SOURCE_N ? names[source] : "?";
}

uint64_t pn_host_eff_avail(const pn_host_sample *sample, unsigned *domain) {
    const struct {
        unsigned domain;
        enum pn_mem_source source;
        uint64_t avail;
    } known[] = {
        {PN_DOMAIN_HOST, PN_SOURCE_MEMINFO,
         pn__sub_floor_u64(sample->host_avail_bytes, sample->hot_file_bytes)},
        {PN_DOMAIN_CGROUP, PN_SOURCE_CGROUP,
         sample->cgroup_limit_n ? sample->cgroup_avail_bytes : UINT64_MAX},
        {PN_DOMAIN_RLIMIT, PN_SOURCE_RLIMIT,
         sample->rlimit_bytes ? sample->rlimit_avail_bytes : UINT64_MAX},
    };
    uint64_t least = UINT64_MAX;
    unsigned which = PN_DOMAIN_NONE;
    for (size_t i = 0; i < PN_ARRAY_N(known); i++) {
        enum pn_source_status status = sample->sources[known[i].source].status;
        if (status == PN_SOURCE_ABSENT) continue;
        uint64_t here = status == PN_SOURCE_FAILED ? 0 : known[i].avail;
        if (here >= least) continue;
        least = here;
        which = known[i].domain;
    }
    if (domain) *domain = which;
    return least;
}
