/* The limited control groups on our path, v1 and v2.
 *
 * /proc/self/cgroup names our group. Every byte that we use counts in it and in all its ancestors,
 * so each of them with a limit can refuse us: the walk goes from our group up to the root of the
 * mount and keeps them all. A folder without the memory controller's files (ENOENT) is passed over:
 * the true root of v2 has none, a v2 group may have the controller off, and in a container without
 * a cgroup namespace our path names folders that are not mounted, while the mount's own root is our
 * group.
 *
 * Available in a group = limit - (current - reclaimable), where reclaimable is the clean part of
 * the file LRU: inactive_file + active_file - dirty - writeback, less our own hot file pages.
 * Memory of tmpfs and locked pages are on other lists and so never counted as reclaimable. v1
 * charges children to their parents (hierarchical), so there the total_ figures are the ones that
 * belong to usage_in_bytes. v1's memory.stat also gives the tightest limit of all ancestors, which
 * may lie above what we can see: then our own use stands in for that group's, the most that can be
 * known. */
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "core/mem/pn_probe.h"

/* v1 has no word for "no limit": it prints LONG_MAX rounded down to a page, whose size differs
 * (4 to 64 KiB), and older kernels LONG_MAX or ULONG_MAX itself. */
#define V1_UNLIMITED 0x7fffffffffff0000ull

#define GROUP_PATH_BYTES 3072
_Static_assert(GROUP_PATH_BYTES + 128 <= PN_GROUP_FILE_BYTES, "mount, path and name fit");

struct walk {
    struct pn_probe *p;
    pn_host_sample *out;
    const char *mount; /* under the root, such as "/sys/fs/cgroup/memory" */
    bool v1;
    bool own_seen;                 /* a group with memory files was met: the first is our own */
    char path[GROUP_PATH_BYTES];   /* of the group at hand; "" is the mount's root */
    uint64_t hierarchical_bytes;   /* v1: our own group's hierarchical limit */
    uint64_t tightest_bytes;       /* of the limits seen */
    struct pn_cgroup_limit v1_own; /* figures for a limit that lies above what we can see */
};

static enum pn_source_status read_file(struct walk *w, const char *name) {
    char path[PN_GROUP_FILE_BYTES];
    snprintf(path, sizeof path, "%s%s/%s", w->mount, w->path, name);
    return pn__probe_read(w->p, path);
}

static enum pn_source_status bad(struct walk *w, const char *name, const char *what) {
    return pn__probe_fail(w->p, "%s%.120s/%s: %s", w->mount, w->path, name, what);
}

/* A file of one number that must be there, because its neighbour was. */
static enum pn_source_status read_number(struct walk *w, const char *name, uint64_t *out) {
    enum pn_source_status s = read_file(w, name);
    if (s == PN_SOURCE_ABSENT) return bad(w, name, "not there");
    if (s == PN_SOURCE_UP && (!pn__probe_scalar(w->p->text, out) || *out > PN_PROBE_BYTES_MAX)) {
        return bad(w, name, "not a number of bytes");
    }
    return s;
}

/* A limit: 0 where there is none. */
static enum pn_source_status read_limit(struct walk *w, const char *name, uint64_t *out,
                                        bool *is_set) {
    enum pn_source_status s = read_file(w, name);
    *out = 0;
    *is_set = false;
    if (s != PN_SOURCE_UP) return s;
    uint64_t v;
    if (!pn__probe_scalar(w->p->text, &v)) return bad(w, name, "neither a number nor 'max'");
    if (v >= V1_UNLIMITED) return s;
    *out = v;
    *is_set = true;
    return s;
}

static enum pn_source_status read_stat(struct walk *w, struct pn_cgroup_limit *g) {
    static const char *const keys[2][4] = {
        {"inactive_file", "active_file", "file_dirty", "file_writeback"},
        {"total_inactive_file", "total_active_file", "total_dirty", "total_writeback"},
    };
    uint64_t v[4];
    enum pn_source_status s = read_file(w, "memory.stat");
    if (s == PN_SOURCE_ABSENT) return bad(w, "memory.stat", "not there");
    if (s != PN_SOURCE_UP) return s;
    for (int i = 0; i < 4; i++) {
        const char *key = keys[w->v1][i];
        if (pn__probe_stat(w->p->text, key, &v[i])) continue;
        return pn__probe_fail(w->p, "%s%.120s/memory.stat: no valid %s", w->mount, w->path, key);
    }
    /* Each is at most PN_PROBE_BYTES_MAX, 2^60: the sums can't wrap. */
    g->reclaimable_bytes = pn__sub_floor_u64(v[0] + v[1], v[2] + v[3]);
    return s;
}

static void name_group(char out[PN_DOMAIN_NAME_BYTES], const char *path) {
    size_t len = strlen(path);
    size_t room = PN_DOMAIN_NAME_BYTES - sizeof "cgroup:";
    if (len == 0) path = "/";
    if (len <= room) {
        snprintf(out, PN_DOMAIN_NAME_BYTES, "%s", path);
    } else {
        snprintf(out, PN_DOMAIN_NAME_BYTES, "...%s", path + len - (room - 3));
    }
}

/* Adds a limited group; when the table is full it takes the place of the one with most left. */
static void keep(struct walk *w, struct pn_cgroup_limit *g, uint64_t limit) {
    pn_host_sample *out = w->out;
    g->limit_bytes = limit;
    /* All of our hot pages may be charged to another group; then this errs on the safe side. */
    uint64_t free_to_drop = pn__sub_floor_u64(g->reclaimable_bytes, out->hot_file_bytes);
    g->avail_bytes = pn__sub_floor_u64(limit, pn__sub_floor_u64(g->current_bytes, free_to_drop));
    if (out->cgroup_limit_n < PN_CGROUP_LIMIT_MAX) {
        out->cgroup_limits[out->cgroup_limit_n++] = *g;
        return;
    }
    struct pn_cgroup_limit *most = &out->cgroup_limits[0];
    for (uint32_t i = 1; i < out->cgroup_limit_n; i++) {
        if (out->cgroup_limits[i].avail_bytes > most->avail_bytes) most = &out->cgroup_limits[i];
    }
    if (g->avail_bytes < most->avail_bytes) *most = *g;
}

static enum pn_source_status v2_group(struct walk *w) {
    struct pn_cgroup_limit g = {0};
    bool max_set;
    bool high_set;
    enum pn_source_status s = read_limit(w, "memory.max", &g.max_bytes, &max_set);
    if (s != PN_SOURCE_UP) return s;
    if (read_limit(w, "memory.high", &g.high_bytes, &high_set) == PN_SOURCE_FAILED) {
        return PN_SOURCE_FAILED;
    }
    name_group(g.path, w->path);
    bool limited = max_set || high_set;
    if (!limited && w->own_seen) return s;
    s = read_number(w, "memory.current", &g.current_bytes);
    if (s != PN_SOURCE_UP) return s;
    if (!w->own_seen) {
        w->own_seen = true;
        w->out->cgroup_current_bytes = g.current_bytes;
        memcpy(w->out->cgroup_path, g.path, sizeof g.path);
        snprintf(w->p->group_psi, sizeof w->p->group_psi, "%s%s/memory.pressure", w->mount,
                 w->path);
    }
    if (!limited) return s;
    s = read_stat(w, &g);
    if (s != PN_SOURCE_UP) return s;
    uint64_t max = max_set ? g.max_bytes : UINT64_MAX;
    keep(w, &g, high_set ? pn__min_u64(max, g.high_bytes) : max);
    return s;
}

static enum pn_source_status v1_group(struct walk *w) {
    struct pn_cgroup_limit g = {0};
    bool limited;
    enum pn_source_status s = read_limit(w, "memory.limit_in_bytes", &g.max_bytes, &limited);
    if (s != PN_SOURCE_UP) return s;
    if (!limited && w->own_seen) return s;
    name_group(g.path, w->path);
    s = read_number(w, "memory.usage_in_bytes", &g.current_bytes);
    if (s != PN_SOURCE_UP) return s;
    s = read_stat(w, &g);
    if (s != PN_SOURCE_UP) return s;
    if (!w->own_seen) {
        const char *line = pn__probe_line(w->p->text, "hierarchical_memory_limit ");
        if (!line || !pn__probe_u64(&line, &w->hierarchical_bytes)) {
            return bad(w, "memory.stat", "no valid hierarchical_memory_limit");
        }
        w->own_seen = true;
        w->v1_own = g;
        w->v1_own.max_bytes = w->hierarchical_bytes;
        w->out->cgroup_current_bytes = g.current_bytes;
        memcpy(w->out->cgroup_path, g.path, sizeof g.path);
    }
    if (!limited) return s;
    w->tightest_bytes = pn__min_u64(w->tightest_bytes, g.max_bytes);
    keep(w, &g, g.max_bytes);
    return s;
}

/* From the group in w->path up to the mount's root: FAILED if any failed, UP if any was there. */
static enum pn_source_status walk_up(struct walk *w) {
    enum pn_source_status all = PN_SOURCE_ABSENT;
    for (;;) {
        enum pn_source_status s = w->v1 ? v1_group(w) : v2_group(w);
        if (s == PN_SOURCE_FAILED) all = s;
        if (s == PN_SOURCE_UP && all == PN_SOURCE_ABSENT) all = s;
        char *slash = strrchr(w->path, '/');
        if (!slash) break;
        *slash = '\0';
    }
    if (w->v1 && w->own_seen && w->hierarchical_bytes < V1_UNLIMITED &&
        w->hierarchical_bytes < w->tightest_bytes) {
        keep(w, &w->v1_own, w->hierarchical_bytes);
    }
    return all;
}

static bool has_word(const char *list, size_t len, const char *word) {
    size_t n = strlen(word);
    while (len) {
        const char *comma = memchr(list, ',', len);
        size_t here = comma ? (size_t)(comma - list) : len;
        if (here == n && memcmp(list, word, n) == 0) return true;
        if (!comma) return false;
        list += here + 1;
        len -= here + 1;
    }
    return false;
}

/* True when a component of the path is "..": our group lies outside the namespace's root, so none
 * of the folders that we can see are its ancestors for certain. */
static bool leaves_root(const char *path) {
    for (const char *s = path; (s = strstr(s, "/..")) != NULL; s += 3) {
        if (s[3] == '/' || s[3] == '\0') return true;
    }
    return false;
}

/* Finds our group's path in /proc/self/cgroup ("ID:CONTROLLERS:PATH" a line): the v1 memory
 * controller's where there is one, for then v2 doesn't have it; else v2's, the line "0::". */
static enum pn_source_status find_group(struct walk *w) {
    enum pn_source_status s = pn__probe_read(w->p, "/proc/self/cgroup");
    if (s != PN_SOURCE_UP) return s;
    const char *found = NULL;
    for (const char *line = w->p->text; *line;) {
        const char *c = line;
        uint64_t id;
        const char *list_end = NULL;
        if (pn__probe_u64(&c, &id) && *c == ':') list_end = strchr(c + 1, ':');
        const char *end = line + strcspn(line, "\n");
        if (!list_end || list_end > end || list_end[1] != '/') {
            return pn__probe_fail(w->p, "/proc/self/cgroup: malformed line '%.60s'", line);
        }
        size_t list_len = (size_t)(list_end - c - 1);
        if (has_word(c + 1, list_len, "memory")) {
            w->v1 = true;
            found = list_end + 1;
        } else if (id == 0 && list_len == 0 && !w->v1) {
            found = list_end + 1;
        }
        line = *end ? end + 1 : end;
    }
    if (!found) return PN_SOURCE_ABSENT;
    size_t len = strcspn(found, "\n");
    if (len >= sizeof w->path) {
        return pn__probe_fail(w->p, "/proc/self/cgroup: path of %zu bytes is too long", len);
    }
    memcpy(w->path, found, len);
    w->path[len] = '\0';
    while (len && w->path[len - 1] == '/')
        w->path[--len] = '\0';
    if (leaves_root(w->path)) {
        return pn__probe_fail(w->p, "/proc/self/cgroup: '%.120s' is outside of what can be seen",
                              w->path);
    }
    return s;
}

/* The sample's own figures: those of the group with the least left. */
static void pick_least(pn_host_sample *out) {
    const struct pn_cgroup_limit *least = NULL;
    for (uint32_t i = 0; i < out->cgroup_limit_n; i++) {
        const struct pn_cgroup_limit *g = &out->cgroup_limits[i];
        if (!least || g->avail_bytes < least->avail_bytes) least = g;
    }
    if (!least) return;
    out->cgroup_current_bytes = least->current_bytes;
    out->cgroup_high_bytes = least->high_bytes;
    out->cgroup_max_bytes = least->max_bytes;
    out->cgroup_avail_bytes = least->avail_bytes;
    memcpy(out->cgroup_path, least->path, sizeof least->path);
}

enum pn_source_status pn__cgroup_sample(struct pn_probe *p, pn_host_sample *out) {
    struct walk w = {.p = p, .out = out, .tightest_bytes = UINT64_MAX};
    enum pn_source_status s = find_group(&w);
    if (s != PN_SOURCE_UP) return s;
    char path[GROUP_PATH_BYTES];
    memcpy(path, w.path, sizeof path);
    w.mount = w.v1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
    s = walk_up(&w);
    if (s == PN_SOURCE_ABSENT && !w.v1) {
        /* Where v1 and v2 are mounted side by side, v2 has a folder of its own. */
        memcpy(w.path, path, sizeof path);
        w.mount = "/sys/fs/cgroup/unified";
        s = walk_up(&w);
    }
    pick_least(out);
    return s;
}
