#include "cli/route_trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* What one layer's router chose for the prompt so far. */
struct layer {
    int32_t *experts; /* [expert_n] first used first */
    bool *seen;       /* [expert_n] */
    uint32_t n;
};

struct pn_route_trace {
    FILE *file;
    char *path;
    uint32_t expert_n; /* of a layer, at most */
    struct layer *layers;
    uint32_t layer_n; /* that showed up so far */
    uint32_t step;    /* 0: the prompt, not written yet */
    bool no_memory;
};

int pn__route_trace_open(const char *path, const pn_engine *engine, struct pn_detail *d,
                         struct pn_route_trace **out) {
    *out = NULL;
    uint32_t expert_n = pn_engine_expert_n(engine);
    if (expert_n == 0) {
        return pn__fail(d, PN_E_UNSUPPORTED, "--trace: the model has no experts to write down");
    }
    struct pn_route_trace *t = pn__calloc(1, sizeof *t);
    if (!t) return pn__fail(d, PN_E_NOMEM, "trace of experts");
    t->expert_n = expert_n;
    t->path = pn__calloc(strlen(path) + 1, 1);
    if (!t->path) {
        pn__free(t);
        return pn__fail(d, PN_E_NOMEM, "trace of experts");
    }
    memcpy(t->path, path, strlen(path) + 1);
    t->file = fopen(path, "w");
    if (!t->file) {
        int rc = pn__fail(d, PN_E_IO, "%s: %s", path, strerror(errno));
        pn__free(t->path);
        pn__free(t);
        return rc;
    }
    fprintf(t->file, "# step\tlayer\texperts (step 0 is the prompt: every expert that any prompt "
                     "token used, once, in first-use order)\n");
    *out = t;
    return 0;
}

static void put_line(FILE *f, uint32_t step, uint32_t layer, const int32_t *experts, uint32_t n) {
    fprintf(f, "%u\t%u\t", step, layer);
    for (uint32_t i = 0; i < n; i++)
        fprintf(f, "%s%d", i ? "," : "", experts[i]);
    fputc('\n', f);
}

static void end_prompt(struct pn_route_trace *t) {
    for (uint32_t i = 0; i < t->layer_n; i++) {
        struct layer *l = &t->layers[i];
        if (l->n) put_line(t->file, 0, i, l->experts, l->n);
        l->n = 0;
        if (l->seen) memset(l->seen, 0, t->expert_n * sizeof *l->seen);
    }
}

void pn__route_trace_begin(struct pn_route_trace *t) {
    if (t->step == 0) end_prompt(t);
    t->step = 0;
}

void pn__route_trace_token(struct pn_route_trace *t) {
    if (t->step++ == 0) end_prompt(t);
}

/* NULL: no memory. */
static struct layer *layer_of(struct pn_route_trace *t, uint32_t layer_i) {
    if (layer_i >= t->layer_n) {
        struct layer *bigger = pn__realloc_array(t->layers, layer_i + 1, sizeof *bigger);
        if (!bigger) return NULL;
        memset(bigger + t->layer_n, 0, (layer_i + 1 - t->layer_n) * sizeof *bigger);
        t->layers = bigger;
        t->layer_n = layer_i + 1;
    }
    struct layer *l = &t->layers[layer_i];
    if (!l->experts) l->experts = pn__calloc(t->expert_n, sizeof *l->experts);
    if (!l->seen) l->seen = pn__calloc(t->expert_n, sizeof *l->seen);
    return l->experts && l->seen ? l : NULL;
}

void pn__route_trace_add(struct pn_route_trace *t, uint32_t layer, const int32_t *experts,
                         uint32_t n) {
    if (t->step > 0) {
        put_line(t->file, t->step, layer, experts, n);
        return;
    }
    struct layer *l = layer_of(t, layer);
    if (!l) {
        t->no_memory = true;
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (l->seen[experts[i]]) continue;
        l->seen[experts[i]] = true;
        l->experts[l->n++] = experts[i];
    }
}

int pn__route_trace_close(struct pn_route_trace *t, struct pn_detail *d) {
    if (!t) return 0;
    if (t->step == 0) end_prompt(t);
    bool bad = ferror(t->file) != 0;
    bad = fclose(t->file) != 0 || bad;
    int rc = 0;
    if (bad) rc = pn__fail(d, PN_E_IO, "%s: not all of the trace could be written", t->path);
    if (t->no_memory) rc = pn__fail(d, PN_E_NOMEM, "trace of experts");
    for (uint32_t i = 0; i < t->layer_n; i++) {
        pn__free(t->layers[i].experts);
        pn__free(t->layers[i].seen);
    }
    pn__free(t->layers);
    pn__free(t->path);
    pn__free(t);
    return rc;
}
