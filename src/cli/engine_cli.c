#include "cli/engine_cli.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

/* Progress appears after this long, so that what is quick stays quiet. */
#define PROGRESS_AFTER_S 1.0
#define PROGRESS_EVERY_S 0.2

void pn__progress(struct pn_progress *p, const char *what, uint64_t done, uint64_t total,
                  const char *unit) {
    if (!pn__err_is_terminal()) return;
    uint64_t now = pn__clock_ns();
    if (p->start_ns == 0) p->start_ns = now;
    bool end = done >= total;
    if (!end && pn__clock_s(p->start_ns, now) >= PROGRESS_AFTER_S &&
        (!p->shown || pn__clock_s(p->last_ns, now) >= PROGRESS_EVERY_S)) {
        fprintf(stderr, "\r\033[K%s %3.0f %% of %llu %s", what,
                100.0 * (double)done / (double)total, (unsigned long long)total, unit);
        p->last_ns = now;
        p->shown = true;
    }
    if (end) pn__progress_end(p);
}

void pn__progress_end(struct pn_progress *p) {
    if (p->shown) fputs("\r\033[K", stderr);
    *p = (struct pn_progress){0};
}

static void show_loading(void *user, uint64_t done, uint64_t total) {
    /* Sync: one load at a time in this program, on the main thread. */
    static struct pn_progress loading;
    (void)user;
    pn__progress(&loading, "loading", done >> 20, total >> 20, "MiB");
}

void pn__cli_options(const struct pn_settings *s, struct pn_engine_options *o) {
    *o = (struct pn_engine_options){
        .model_path = s->positional[0],
        .ctx = (uint32_t)pn__set_int(s, PN_SET_CTX),
        .slots = 1,
        .chunk = (uint32_t)pn__set_int(s, PN_SET_CHUNK),
        .threads = (uint32_t)pn__set_int(s, PN_SET_THREADS),
        .kv = (enum pn_kv_choice)pn__set_int(s, PN_SET_KV),
        .weights = (enum pn_weights_choice)pn__set_int(s, PN_SET_WEIGHTS),
        .isa = (enum pn_isa_choice)pn__set_int(s, PN_SET_ISA),
        .pin = (enum pn_pin_choice)pn__set_int(s, PN_SET_PIN),
        .prefill_window = (uint32_t)pn__set_int(s, PN_SET_WINDOW),
        .root = pn__set_text(s, PN_SET_ROOT),
        .watch = true,
        .progress = show_loading,
    };
}

int pn__cli_vocab(const struct pn_settings *s, struct pn_detail *d, struct pn_vocab **out) {
    struct pn_gguf *g;
    int rc = pn__gguf_open(s->positional[0], d, &g);
    if (rc) return rc;
    rc = pn__vocab_load(g, pn__set_text(s, PN_SET_PRE), d, out);
    pn__gguf_close(g);
    return rc;
}

int pn__cli_drive(pn_engine *e, struct pn_detail *d) {
    bool more = true;
    while (more) {
        int rc = pn_engine_turn(e, &more, d);
        if (rc) return rc;
    }
    return 0;
}

int pn__cli_done(const struct pn_done *done, struct pn_detail *d) {
    if (done->stop != PN_STOP_ERROR) return 0;
    *d = done->detail;
    return done->error;
}

const char *pn__stop_name(enum pn_stop stop) {
    static const char *const names[] = {"length", "context", "end", "cancelled", "error", "memory"};
    return names[stop];
}

double pn__rate(uint64_t n, double seconds) {
    return seconds > 0.0 ? (double)n / seconds : 0.0;
}

json_t *pn__stats_json(const struct pn_engine_stats *t) {
    /* Every matrix read once a step: as many passes as steps. */
    double passes = t->matmul_n ? (double)t->step_n * (double)t->sweep_n / (double)t->matmul_n : 0;
    return json_pack("{s:I, s:f, s:i, s:i, s:I}", "steps", (json_int_t)t->step_n, "weight_passes",
                     passes, "batch_max", (int)t->batch_max, "threads_used", (int)t->thread_n,
                     "weight_bytes", (json_int_t)t->weight_bytes);
}

int pn__print_json(json_t *j, struct pn_detail *d) {
    char *text = j ? json_dumps(j, JSON_REAL_PRECISION(9)) : NULL;
    json_decref(j);
    if (!text) return pn__fail(d, PN_E_NOMEM, "writing JSON");
    puts(text);
    free(text);
    return pn__out_check(d);
}
