/* Opening and closing an engine: the plan is carried out part by part, each reserved before it is
 * taken, and given back in the reverse order. */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/engine_internal.h"

static int take_memory(pn_engine *e, struct pn_detail *d) {
    const struct pn_plan_part *parts = e->plan.parts;
    bool copy = e->plan.weights == PN_WEIGHTS_COPY;
    int rc = copy ? pn__block_new(PN_OWNER_WEIGHTS, parts[PART_WEIGHTS].bytes, PN_BLOCK_HUGE, d,
                                  &e->weights)
                  : pn_ledger_reserve(PN_PLACE_FILE, PN_OWNER_WEIGHTS, parts[PART_WEIGHTS].bytes,
                                      &e->map_booking, d);
    if (rc == 0) {
        rc = pn__block_new(PN_OWNER_WEIGHTS, parts[PART_VECTORS].bytes, PN_BLOCK_COMMIT, d,
                           &e->vectors);
    }
    if (rc == 0) rc = pn__kv_new(&e->shape.kv, d, &e->kv);
    if (rc == 0) {
        rc = pn__block_new(PN_OWNER_SCRATCH, parts[PART_WORK].bytes, PN_BLOCK_COMMIT, d, &e->work);
    }
    if (rc == 0) {
        rc = pn__block_new(PN_OWNER_SCRATCH, parts[PART_BACKEND].bytes, PN_BLOCK_COMMIT, d,
                           &e->backend);
    }
    return rc;
}

static int bind(pn_engine *e, struct pn_detail *d) {
    struct bind_state s = {
        .f = &e->file, .copy = e->weights.data, .map = e->plan.weights == PN_WEIGHTS_MAP};
    struct pn_binder binder;
    pn__binder_init(&binder, &s);
    pn__arena_init(&s.floats, e->vectors.data, e->vectors.bytes);
    e->model.layers = pn__calloc(e->file.h.layer_n, sizeof *e->model.layers);
    if (!e->model.layers) return pn__fail(d, PN_E_NOMEM, "table of %u layers", e->file.h.layer_n);
    return pn__model_bind(&e->model, e->file.family, &e->file.h, &binder, d);
}

/* Touching our mapped weights doesn't make their memory free, though the kernel counts it so: each
 * shard's map is named to the memory layer. One that can't be is only counted wrongly. */
static int name_maps(pn_engine *e, struct pn_detail *d) {
    for (uint32_t i = 0; i < pn__gguf_shard_n(e->file.g) && e->hot_n < PN_HOT_RANGE_MAX; i++) {
        const uint8_t *map;
        struct pn_detail why;
        int rc = pn__gguf_map(e->file.g, i, d, &map);
        if (rc) return rc;
        int id = pn_mem_hot_range_register(map, pn__gguf_shard_bytes(e->file.g, i), &why);
        if (id < 0) {
            pn__log(PN_LOG_WARN, "mapped weights count as available memory: %s", why.text);
            continue;
        }
        e->hot_ids[e->hot_n++] = id;
    }
    return 0;
}

static int load(pn_engine *e, const struct pn_engine_options *o, struct pn_detail *d) {
    int rc = take_memory(e, d);
    for (int narrow = 0; narrow < 2; narrow++) {
        struct pn_kv_spec way = pn__kv_way(&e->shape.kv, narrow);
        pn__kv_cost(&way, &e->costs[narrow]);
    }
    e->window =
        o->prefill_window && o->prefill_window < e->plan.ctx ? o->prefill_window : e->plan.ctx;
    if (rc == 0) rc = pn__cpu_new(&e->shape.cpu, e->backend.data, d, &e->cpu);
    if (rc == 0 && e->plan.weights == PN_WEIGHTS_COPY) {
        rc = pn__load_copy(&e->file, e->cpu, &e->weights, o, d);
    }
    if (rc == 0) rc = bind(e, d);
    if (rc == 0 && e->plan.weights == PN_WEIGHTS_MAP) {
        rc = name_maps(e, d);
        if (rc == 0) rc = pn_ledger_mapped(&e->map_booking);
    }
    /* A file rewritten while it was read would leave a mixture of two models. */
    if (rc == 0) rc = pn__gguf_check_unchanged(e->file.g, d);
    if (rc) return rc;
    struct pn_arena a;
    pn__arena_init(&a, e->work.data, e->work.bytes);
    pn__step_layout(&e->file, &e->shape, &a, &e->b);
    if (a.overflow) return pn__fail(d, PN_E_STATE, "step buffers outgrew their block");
    e->sessions = pn__calloc(e->plan.slots, sizeof *e->sessions);
    if (!e->sessions) return pn__fail(d, PN_E_NOMEM, "table of %u sessions", e->plan.slots);
    for (uint32_t i = 0; i < e->plan.slots; i++) {
        e->sessions[i].engine = e;
        e->sessions[i].slot_i = i;
        e->sessions[i].kv = e->plan.kv;
    }
    if (pthread_mutex_init(&e->lock, NULL) != 0) return pn__fail(d, PN_E_NOMEM, "queue lock");
    e->lock_made = true;
    return 0;
}

/* The watch looks at the machine that the plan looks at. */
static int start_watch(const struct pn_engine_options *o, struct pn_detail *d) {
    if (!o->watch || pn_memwatch_running()) return 0;
    int rc = o->root ? pn_memwatch_set_root(o->root) : 0;
    if (rc == 0) rc = pn_memwatch_start();
    return rc ? pn__fail(d, rc, "starting the memory watch") : 0;
}

static int keep_root(pn_engine *e, const char *root, struct pn_detail *d) {
    if (!root) return 0;
    size_t bytes = strlen(root) + 1;
    e->root = pn__calloc(bytes, 1);
    if (!e->root) return pn__fail(d, PN_E_NOMEM, "a path of %zu bytes", bytes);
    memcpy(e->root, root, bytes);
    return 0;
}

int pn_engine_open(const struct pn_engine_options *options, struct pn_detail *d, pn_engine **out) {
    *out = NULL;
    pn_engine *e = pn__calloc(1, sizeof *e);
    if (!e) return pn__fail(d, PN_E_NOMEM, "engine");
    int rc = keep_root(e, options->root, d);
    if (rc == 0) rc = start_watch(options, d);
    if (rc == 0) rc = pn__model_file_open(options, d, &e->file);
    if (rc == 0) rc = pn__plan_make(&e->file, options, &e->plan, &e->shape, d);
    if (rc == 0) rc = load(e, options, d);
    if (rc) {
        pn_engine_free(e);
        return rc;
    }
    pn__log(PN_LOG_INFO, "loaded %s: slots %u, context %u, weights by %s (%s), %s on %u threads",
            options->model_path, e->plan.slots, e->plan.ctx,
            e->plan.weights == PN_WEIGHTS_COPY ? "copy" : "map", e->plan.weights_why,
            pn_engine_isa(e), pn_engine_thread_n(e));
    if (e->plan.unused_blocks) {
        pn__log(PN_LOG_INFO, "%u multi-token-prediction blocks are not run (%llu bytes not loaded)",
                e->plan.unused_blocks, (unsigned long long)e->plan.unused_bytes);
    }
    *out = e;
    return 0;
}

void pn_engine_free(pn_engine *e) {
    if (!e) return;
    for (uint32_t i = 0; e->sessions && i < e->plan.slots; i++) {
        pn__free(e->sessions[i].request);
        pn_admit_release(&e->sessions[i].ticket);
    }
    struct command c;
    while (e->lock_made && pn__queue_pop(e, true, &c)) {
        pn__free(c.request);
    }
    pn__free(e->sessions);
    pn__cpu_free(e->cpu);
    pn__kv_free(e->kv);
    pn__free(e->model.layers);
    pn__block_free(&e->backend);
    pn__block_free(&e->work);
    pn__block_free(&e->vectors);
    pn__block_free(&e->weights);
    if (e->map_booking.live) (void)pn_ledger_vacate(&e->map_booking);
    for (uint32_t i = 0; i < e->hot_n; i++) {
        pn_mem_hot_range_unregister(e->hot_ids[i]);
    }
    pn__model_file_close(&e->file);
    if (e->map_booking.live) (void)pn_ledger_release(&e->map_booking);
    if (e->lock_made) pthread_mutex_destroy(&e->lock);
    pn__free(e->root);
    pn__free(e);
}

const struct pn_plan *pn_engine_plan_used(const pn_engine *e) {
    return &e->plan;
}

uint32_t pn_engine_vocab_n(const pn_engine *e) {
    return e->file.h.vocab;
}

uint32_t pn_engine_expert_n(const pn_engine *e) {
    return e->file.h.moe.expert_n.value;
}

uint32_t pn_engine_thread_n(const pn_engine *e) {
    return pn__cpu_thread_n(e->cpu);
}

uint32_t pn_engine_pinned_n(const pn_engine *e) {
    return pn__cpu_pinned_n(e->cpu);
}

const char *pn_engine_isa(const pn_engine *e) {
    return pn__isa_name(pn__cpu_isa(e->cpu));
}

void pn_engine_stats(const pn_engine *e, struct pn_engine_stats *out) {
    *out = e->stats;
}

void pn_engine_stats_reset(pn_engine *e) {
    e->stats = (struct pn_engine_stats){0};
}

const char *pn_version(void) {
    return PN_VERSION;
}
