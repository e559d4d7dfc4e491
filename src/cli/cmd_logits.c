/* `pannier logits MODEL --tokens 1,2,3 [--greedy N] [--beside K] --out FILE`: float32 rows, one for
 * each prompt position, then one after each greedy token; the greedy ids as JSON on stdout. The
 * file appears whole or not at all. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/engine_cli.h"

#define PATH_BYTES 4096

struct logits_run {
    FILE *f;
    int write_errno;
    uint64_t row_n;
    int32_t *greedy; /* [greedy_n + 1]: one more is chosen than is shown */
    uint32_t greedy_i;
    struct pn_done done;
};

static void on_logits(void *user, uint32_t position, const float *logits, uint32_t n) {
    struct logits_run *run = user;
    (void)position;
    if (run->write_errno) return;
    errno = 0;
    if (fwrite(logits, sizeof *logits, n, run->f) != n) run->write_errno = errno ? errno : EIO;
    run->row_n++;
}

static bool on_token(void *user, int32_t token) {
    struct logits_run *run = user;
    run->greedy[run->greedy_i++] = token;
    return true;
}

static void on_done(void *user, const struct pn_done *done) {
    struct logits_run *run = user;
    run->done = *done;
}

/* "1,2,3" to ids. */
static int parse_ids(const char *text, struct pn_ids *out, struct pn_detail *d) {
    size_t commas = 0;
    for (const char *p = text; *p; p++) {
        commas += *p == ',';
    }
    out->cap = commas + 1;
    out->ids = pn__calloc(out->cap, sizeof *out->ids);
    if (!out->ids) return pn__fail(d, PN_E_NOMEM, "%zu token ids", out->cap);
    const char *p = text;
    for (;;) {
        char *end;
        errno = 0;
        long id = strtol(p, &end, 10);
        if (end == p || errno || id < 0 || id > INT32_MAX || (*end && *end != ',')) {
            return pn__fail(d, PN_E_USAGE,
                            "--tokens: '%.20s' at character %zu is no token id (ids are separated "
                            "by commas, such as 1,2,3)",
                            p, (size_t)(p - text));
        }
        out->ids[out->n++] = (int32_t)id;
        if (!*end) return 0;
        p = end + 1;
    }
}

/* The neighbours: the same tokens turned round by i + 1 places, one shorter each, so that they end
 * at other steps. They too go on for a while. */
static int submit_neighbour(pn_engine *e, const struct pn_ids *ids, uint32_t i, uint32_t greedy_n,
                            struct pn_detail *d) {
    pn_session *s;
    int rc = pn_session_new(e, d, &s);
    if (rc) return rc;
    size_t n = ids->n > i + 1 ? ids->n - (i + 1) : 1;
    int32_t *turned = pn__calloc(n, sizeof *turned);
    if (!turned) return pn__fail(d, PN_E_NOMEM, "%zu token ids", n);
    for (size_t k = 0; k < n; k++) {
        turned[k] = ids->ids[(k + i + 1) % ids->n];
    }
    struct pn_request r = {.tokens = turned, .token_n = (uint32_t)n, .max_new = greedy_n};
    rc = pn_session_submit(s, &r, d);
    pn__free(turned);
    return rc;
}

static int compute(pn_engine *e, const struct pn_settings *s, const struct pn_ids *ids,
                   struct logits_run *run, struct pn_detail *d) {
    uint32_t greedy_n = (uint32_t)pn__set_int(s, PN_SET_GREEDY);
    pn_session *session;
    int rc = pn_session_new(e, d, &session);
    if (rc) return rc;
    struct pn_request r = {.tokens = ids->ids,
                           .token_n = (uint32_t)ids->n,
                           .max_new = greedy_n ? greedy_n + 1 : 0,
                           .all_logits = true,
                           .on_logits = on_logits,
                           .on_token = on_token,
                           .on_done = on_done,
                           .user = run};
    rc = pn_session_submit(session, &r, d);
    for (uint32_t i = 0; rc == 0 && i < (uint32_t)pn__set_int(s, PN_SET_BESIDE); i++) {
        rc = submit_neighbour(e, ids, i, greedy_n, d);
    }
    if (rc == 0) rc = pn__cli_drive(e, d);
    if (rc == 0) rc = pn__cli_done(&run->done, d);
    return rc;
}

static int report(pn_engine *e, const struct pn_settings *s, const struct pn_ids *ids,
                  const struct logits_run *run, struct pn_detail *d) {
    json_t *greedy = json_array();
    for (uint32_t i = 0; i < (uint32_t)pn__set_int(s, PN_SET_GREEDY); i++) {
        json_array_append_new(greedy, json_integer(run->greedy[i]));
    }
    if (!pn__set_flag(s, PN_SET_JSON)) return pn__print_json(greedy, d);
    struct pn_engine_stats stats;
    pn_engine_stats(e, &stats);
    json_t *j = json_pack("{s:o, s:i, s:I, s:i, s:s}", "greedy", greedy, "prompt_tokens",
                          (int)ids->n, "rows", (json_int_t)run->row_n, "vocab",
                          (int)pn_engine_vocab_n(e), "isa", pn_engine_isa(e));
    if (j) json_object_update_new(j, pn__stats_json(&stats));
    return pn__print_json(j, d);
}

/* Opens what the rows are written to: `path`.part, renamed at the end, where `path` is a file or is
 * to become one; `path` itself where it is a device or a pipe. */
static int open_out(const char *path, char part[PATH_BYTES], struct logits_run *run,
                    struct pn_detail *d) {
    struct stat st;
    bool direct = stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
    int n = snprintf(part, PATH_BYTES, direct ? "%s" : "%s.part", path);
    if (n < 0 || n >= PATH_BYTES) {
        return pn__fail(d, PN_E_USAGE, "--out: a path of %zu characters", strlen(path));
    }
    run->f = fopen(part, "wb");
    if (!run->f) return pn__fail(d, PN_E_IO, "--out %s: %s", path, strerror(errno));
    return 0;
}

static int to_file(pn_engine *e, const struct pn_settings *s, const struct pn_ids *ids,
                   const char *path, struct logits_run *run, struct pn_detail *d) {
    char part[PATH_BYTES];
    int rc = open_out(path, part, run, d);
    if (rc) return rc;
    bool direct = strcmp(part, path) == 0;
    rc = compute(e, s, ids, run, d);
    errno = 0;
    if (fclose(run->f) != 0 && !run->write_errno) run->write_errno = errno ? errno : EIO;
    if (rc == 0 && run->write_errno) {
        rc = pn__fail(d, PN_E_IO, "--out %s: %s", path, strerror(run->write_errno));
    }
    if (rc == 0 && !direct && rename(part, path) != 0) {
        rc = pn__fail(d, PN_E_IO, "--out %s: %s", path, strerror(errno));
    }
    if (rc && !direct) unlink(part);
    return rc;
}

static int with_ids(const struct pn_settings *s, const struct pn_ids *ids, struct pn_detail *d) {
    struct pn_engine_options o;
    pn__cli_options(s, &o);
    if (!pn__set_given(s, PN_SET_KV)) o.kv = PN_KV_CHOICE_F32;
    uint64_t need = ids->n + (uint64_t)pn__set_int(s, PN_SET_GREEDY);
    if (o.ctx == 0) o.ctx = need > UINT32_MAX ? UINT32_MAX : (uint32_t)need;
    if (need > o.ctx) {
        return pn__fail(d, PN_E_CONTEXT, "%zu tokens and %lld more don't fit a context of %u",
                        ids->n, (long long)pn__set_int(s, PN_SET_GREEDY), o.ctx);
    }
    o.slots = 1 + (uint32_t)pn__set_int(s, PN_SET_BESIDE);
    o.out_rows = o.chunk + o.slots;
    pn_engine *e = NULL;
    struct logits_run run = {0};
    int rc = pn_engine_open(&o, d, &e);
    if (rc) return rc;
    run.greedy = pn__calloc((size_t)pn__set_int(s, PN_SET_GREEDY) + 1, sizeof *run.greedy);
    rc = run.greedy ? to_file(e, s, ids, pn__set_text(s, PN_SET_OUT), &run, d)
                    : pn__fail(d, PN_E_NOMEM, "greedy ids");
    if (rc == 0) rc = report(e, s, ids, &run, d);
    pn__free(run.greedy);
    pn_engine_free(e);
    return rc;
}

int pn__cmd_logits(const struct pn_settings *s, struct pn_detail *d) {
    const char *text = pn__set_text(s, PN_SET_TOKENS);
    if (!text) return pn__fail(d, PN_E_USAGE, "--tokens is missing, such as --tokens 1,2,3");
    if (!pn__set_text(s, PN_SET_OUT)) {
        return pn__fail(d, PN_E_USAGE, "--out is missing: the file that gets the rows");
    }
    struct pn_ids ids = {0};
    int rc = parse_ids(text, &ids, d);
    if (rc == 0) rc = with_ids(s, &ids, d);
    pn__ids_free(&ids);
    return rc;
}
