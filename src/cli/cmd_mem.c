/* `pannier mem [--json] [--watch] [--root DIR]`: the machine's memory as the memory layer sees it:
 * the snapshot, why it has its level, where the figures come from, what each domain can give and
 * what is booked. With --watch, every new snapshot; on a terminal in place. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/engine_cli.h"
#include "core/mem/pn_account.h"

static const char *const status_names[] = {"absent", "failed", "up"};

/* How often --watch looks for a new snapshot; the shortest poll interval. */
#define LOOK_NS 20000000

void pn__cli_memory(const struct pn_settings *s) {
    uint64_t host = UINT64_MAX;
    uint64_t group = UINT64_MAX;
    if (pn__set_given(s, PN_SET_HOST_RESERVE)) host = (uint64_t)pn__set_int(s, PN_SET_HOST_RESERVE);
    if (pn__set_given(s, PN_SET_CGROUP_RESERVE)) {
        group = (uint64_t)pn__set_int(s, PN_SET_CGROUP_RESERVE);
    }
    pn__account_allocations();
    pn_ledger_set_reserves(host, group);
    pn_mem_set_psi_full_reject(pn__set_float(s, PN_SET_PSI_FULL_REJECT));
    pn_mem_set_die_reserve((uint64_t)pn__set_int(s, PN_SET_DIE_RESERVE));
    if (pn__set_given(s, PN_SET_LOAD_SPIKE)) {
        pn_admit_set_load_spike((uint64_t)pn__set_int(s, PN_SET_LOAD_SPIKE));
    }
    pn_ladder_set_disabled(pn__set_flag(s, PN_SET_LADDER_DISABLE));
}

/* ---- JSON -------------------------------------------------------------------------------- */

/* UINT64_MAX means "no limit", which is null. */
static json_t *bytes(uint64_t v) {
    return v == UINT64_MAX ? json_null() : json_integer((json_int_t)v);
}

static json_t *bytes_array(const uint64_t *v, int n) {
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(a, bytes(v[i]));
    return a;
}

static json_t *sources_json(const pn_memwatch_info *info) {
    json_t *all = json_object();
    for (unsigned i = 0; i < PN_SOURCE_N; i++) {
        const pn_source_state *source = &info->sample.sources[i];
        json_object_set_new(
            all, pn_mem_source_name(i),
            json_pack("{s:s, s:s}", "status", status_names[source->status], "why", source->why));
    }
    return all;
}

static json_t *domains_json(void) {
    json_t *all = json_array();
    for (unsigned i = 0; i < PN_DOMAIN_N; i++) {
        pn_domain_view v;
        pn_ledger_domain(i, &v);
        if (!v.set) continue;
        json_array_append_new(
            all, json_pack("{s:s, s:s, s:o, s:o, s:o}", "kind", pn_mem_domain_name(i), "name",
                           v.name, "available_bytes", bytes(v.available_bytes), "reserve_bytes",
                           bytes(v.reserve_bytes), "headroom_bytes", bytes(v.headroom_bytes)));
    }
    return all;
}

static json_t *ledger_json(void) {
    pn_ledger_view v;
    json_t *all = json_object();
    pn_ledger_read(&v);
    for (unsigned owner = 0; owner < PN_OWNER_N; owner++) {
        uint64_t reserved = 0;
        uint64_t committed = 0;
        for (unsigned place = 0; place < PN_PLACE_N; place++) {
            reserved += v.cells[place][owner].reserved_bytes;
            committed += v.cells[place][owner].committed_bytes;
        }
        json_object_set_new(all, pn_mem_owner_name(owner),
                            json_pack("{s:o, s:o}", "reserved_bytes", bytes(reserved),
                                      "committed_bytes", bytes(committed)));
    }
    return all;
}

/* The ledger beside what the kernel says of this process. */
static json_t *reconcile_json(const pn_memwatch_info *info) {
    pn_reconcile r;
    pn_ledger_reconcile(&info->sample, &r);
    return json_pack("{s:o, s:o, s:o, s:b}", "committed_bytes", bytes(r.committed_bytes),
                     "resident_bytes", bytes(r.resident_bytes), "allowed_bytes",
                     bytes(r.allowed_bytes), "within", (int)r.within);
}

static int print_json(const pn_mem_state *s, const pn_memwatch_info *info, struct pn_detail *d) {
    json_t *j =
        json_pack("{s:o, s:o, s:f, s:f, s:o, s:o, s:o, s:i, s:o, s:o, s:o, s:s, s:I}",
                  "host_total_bytes", bytes(s->host_total_bytes), "host_avail_bytes",
                  bytes(s->host_avail_bytes), "host_psi_some_avg10", s->host_psi_some_avg10,
                  "host_psi_full_avg10", s->host_psi_full_avg10, "cgroup_current_bytes",
                  bytes(s->cgroup_current_bytes), "cgroup_high_bytes", bytes(s->cgroup_high_bytes),
                  "cgroup_max_bytes", bytes(s->cgroup_max_bytes), "n_dies", s->n_dies,
                  "per_die_free", bytes_array(s->per_die_free, s->n_dies), "per_die_budget",
                  bytes_array(s->per_die_budget, s->n_dies), "per_die_used",
                  bytes_array(s->per_die_used, s->n_dies), "level", pn_mem_level_name(s->level),
                  "seq", (json_int_t)s->seq);
    json_t *more = json_pack(
        "{s:o, s:s, s:s, s:I, s:b, s:f, s:f, s:o, s:s, s:o, s:s, s:o, s:s, s:o, s:o, s:o}",
        "eff_avail_bytes", bytes(s->eff_avail_bytes), "bind_domain", s->bind_domain, "raw_level",
        pn_mem_level_name(s->raw_level), "sample_ns", (json_int_t)s->sample_ns, "stale",
        (int)s->stale, "psi_some_now", s->psi_some_now, "psi_full_now", s->psi_full_now,
        "headroom_bytes", bytes(s->headroom_bytes), "headroom_domain", s->headroom_domain,
        "deficit_bytes", bytes(s->deficit_bytes), "byte_level", pn_mem_level_name(s->byte_level),
        "reconcile", reconcile_json(info), "why", info->why, "sources", sources_json(info),
        "domains", domains_json(), "ledger", ledger_json());
    if (!j || !more || json_object_update(j, more) != 0) {
        json_decref(j);
        j = NULL;
    }
    json_decref(more);
    return pn__print_json(j, d);
}

/* ---- text -------------------------------------------------------------------------------- */

static double mib(uint64_t v) {
    return (double)v / (1 << 20);
}

static void print_domains(void) {
    printf("\n%-32s %14s %14s %14s\n", "domain", "available MiB", "kept free MiB", "headroom MiB");
    for (unsigned i = 0; i < PN_DOMAIN_N; i++) {
        pn_domain_view v;
        pn_ledger_domain(i, &v);
        if (!v.set) continue;
        printf("%-32s %14.1f %14.1f %14.1f\n", v.name, mib(v.available_bytes), mib(v.reserve_bytes),
               mib(v.headroom_bytes));
    }
}

static void print_text(const pn_mem_state *s, const pn_memwatch_info *info) {
    printf("level      %s%s%s%s\n", pn_mem_level_name(s->level),
           s->level != s->raw_level ? " (now " : "",
           s->level != s->raw_level ? pn_mem_level_name(s->raw_level) : "",
           s->level != s->raw_level ? ")" : "");
    printf("why        %s\n", info->why);
    printf("available  %.1f MiB (%s)\n", mib(s->eff_avail_bytes), s->bind_domain);
    if (s->deficit_bytes) printf("deficit    %.1f MiB\n", mib(s->deficit_bytes));
    printf("host       %.1f MiB, %.1f available\n", mib(s->host_total_bytes),
           mib(s->host_avail_bytes));
    printf("stalls     some %.2f %%, full %.2f %% of the last 10 s\n", s->psi_some_now,
           s->psi_full_now);
    if (info->sample.hot_file_bytes) {
        printf("hot files  %.1f MiB\n", mib(info->sample.hot_file_bytes));
    }
    for (int i = 0; i < s->n_dies; i++) {
        printf("die %-2d     %.1f MiB free of %.1f, ours %.1f\n", i, mib(s->per_die_free[i]),
               mib(s->per_die_budget[i]), mib(s->per_die_used[i]));
    }
    print_domains();
    printf("\n%-12s %s\n", "source", "status");
    for (unsigned i = 0; i < PN_SOURCE_N; i++) {
        const pn_source_state *source = &info->sample.sources[i];
        printf("%-12s %s%s%s\n", pn_mem_source_name(i), status_names[source->status],
               source->why[0] ? ": " : "", source->why);
    }
}

/* ---- the command ------------------------------------------------------------------------- */

static int show(const pn_mem_state *s, bool json, struct pn_detail *d) {
    pn_memwatch_info info;
    pn_memwatch_info_read(&info);
    if (json) return print_json(s, &info, d);
    print_text(s, &info);
    return pn__out_check(d);
}

/* Ends by a signal, or when nobody reads any more. */
static int watch(bool json, struct pn_detail *d) {
    uint64_t shown = 0;
    bool terminal = !json && isatty(STDOUT_FILENO) == 1;
    int rc = pn_memwatch_start();
    if (rc < 0) return pn__fail(d, rc, "starting the memory watch");
    while (rc == 0) {
        pn_mem_state s;
        const struct timespec nap = {.tv_nsec = LOOK_NS};
        if (pn_memwatch_read(&s) == 0 && s.seq != shown) {
            if (terminal) fputs("\033[H\033[J", stdout);
            if (!terminal && !json && shown) putchar('\n');
            shown = s.seq;
            rc = show(&s, json, d);
        }
        nanosleep(&nap, NULL);
    }
    pn_memwatch_stop();
    return rc;
}

int pn__cmd_mem(const struct pn_settings *s, struct pn_detail *d) {
    pn_mem_state state;
    struct stat st;
    const char *root = pn__set_text(s, PN_SET_ROOT);
    bool json = pn__set_flag(s, PN_SET_JSON);
    if (!root) root = "";
    if (root[0] && (stat(root, &st) != 0 || !S_ISDIR(st.st_mode))) {
        return pn__fail(d, PN_E_NOTFOUND, "--root: '%.200s' is not a folder", root);
    }
    int rc = pn_memwatch_set_root(root);
    if (rc < 0) return pn__fail(d, rc, "--root: a path of %zu bytes is too long", strlen(root));
    if (pn__set_flag(s, PN_SET_WATCH)) return watch(json, d);
    pn_memwatch_poll_now();
    rc = pn_memwatch_read(&state);
    if (rc < 0) return pn__fail(d, rc, "reading the snapshot");
    return show(&state, json, d);
}
