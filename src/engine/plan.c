/* What loading a model takes, exactly: every part is sized by the same functions that later carve
 * it up, so the plan and what is reserved can't differ. And what fits: the longest context and the
 * most slots for which the parts stay within the headroom of the tightest domain. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/log.h"
#include "core/mem/pn_account.h"
#include "engine/engine_internal.h"

/* UINT64_MAX, which no domain grants, when it wraps. */
static uint64_t page_up(uint64_t bytes) {
    uint64_t up;
    return pn__align_u64(bytes, pn__system_page(), &up) ? UINT64_MAX : up;
}

/* Tensors of blocks that the model doesn't run (multi-token prediction) are named as unused; of old
 * converters' inverse frequencies nothing is lost. Anything else without a use is refused. */
static int check_unused(struct model_file *f, struct pn_detail *d) {
    for (uint64_t i = 0; i < pn__gguf_tensor_n(f->g); i++) {
        if (f->places[i] != PLACE_UNUSED) continue;
        const struct pn_gguf_tensor *t = pn__gguf_tensor(f->g, i);
        unsigned block;
        char rest[2];
        size_t len = strlen(t->name);
        if (sscanf(t->name, "blk.%u.%1s", &block, rest) == 2 && block >= f->h.layer_n &&
            block < f->h.layer_n + f->h.unused_layer_n) {
            f->unused_bytes += t->bytes;
            continue;
        }
        if (len > 13 && strcmp(t->name + len - 13, "attn_rot_embd") == 0) continue;
        return pn__fail(d, PN_E_UNSUPPORTED, "tensor '%s' has no place in architecture '%s'",
                        t->name, f->family->arch);
    }
    f->unused_blocks = f->h.unused_layer_n;
    return 0;
}

static void count_experts(struct model_file *f, const struct pn_model *m) {
    for (uint32_t i = 0; i < f->h.layer_n; i++) {
        const struct pn_experts *e = &m->layers[i].experts;
        const struct pn_weight *parts[] = {&e->gate.w, &e->up.w, &e->down.w};
        for (size_t k = 0; k < PN_ARRAY_N(parts) && e->expert_n; k++) {
            f->expert_acts |= 1u << pn__type_info(parts[k]->type)->act;
            f->expert_bytes += e->expert_n * parts[k]->row_n * parts[k]->row_bytes;
        }
    }
}

static int count_tensors(struct model_file *f, struct pn_detail *d) {
    uint64_t tensor_n = pn__gguf_tensor_n(f->g);
    f->places = pn__calloc(tensor_n, sizeof *f->places);
    struct pn_layer *layers = pn__calloc(f->h.layer_n, sizeof *layers);
    if (!f->places || !layers) {
        pn__free(layers);
        return pn__fail(d, PN_E_NOMEM, "tables of %llu tensors", (unsigned long long)tensor_n);
    }
    for (uint64_t i = 0; i < tensor_n; i++) {
        f->places[i] = PLACE_UNUSED;
    }
    struct bind_state s = {.f = f, .counting = true};
    pn__arena_init(&s.floats, NULL, 0);
    struct pn_binder binder;
    pn__binder_init(&binder, &s);
    struct pn_model m = {.layers = layers};
    int rc = pn__model_bind(&m, f->family, &f->h, &binder, d);
    if (rc == 0) count_experts(f, &m);
    pn__free(layers);
    f->vector_bytes = s.floats.used_bytes;
    return rc ? rc : check_unused(f, d);
}

/* What a caller's code may have wrong, before a size is computed from it. */
static int check_options(const struct pn_engine_options *o, struct pn_detail *d) {
    if (!o->model_path) return pn__fail(d, PN_E_INVALID, "no model path");
    if (o->slots > SLOTS_MAX) {
        return pn__fail(d, PN_E_INVALID, "%u slots; at most %u", o->slots, SLOTS_MAX);
    }
    if (o->threads > PN_THREAD_MAX) {
        return pn__fail(d, PN_E_INVALID, "%u threads; at most %u", o->threads, PN_THREAD_MAX);
    }
    if ((unsigned)o->kv > PN_KV_CHOICE_AUTO || (unsigned)o->weights > PN_WEIGHTS_COPY ||
        (unsigned)o->isa > PN_ISA_CHOICE_NEON || (unsigned)o->pin > PN_PIN_OFF) {
        return pn__fail(d, PN_E_INVALID,
                        "no KV format %u, way of holding weights %u, ISA %u or pinning %u",
                        (unsigned)o->kv, (unsigned)o->weights, (unsigned)o->isa, (unsigned)o->pin);
    }
    return 0;
}

int pn__model_file_open(const struct pn_engine_options *o, struct pn_detail *d,
                        struct model_file *out) {
    pn__account_allocations();
    memset(out, 0, sizeof *out);
    int rc = check_options(o, d);
    if (rc) return rc;
    rc = pn__gguf_open(o->model_path, d, &out->g);
    if (rc) return rc;
    rc = pn__gguf_check_model(out->g, d);
    if (rc) {
        pn__model_file_close(out);
        return rc;
    }
    rc = pn__family_find(out->g, d, &out->family);
    if (rc == 0) rc = pn__model_hparams(out->g, out->family, &out->h, d);
    if (rc == 0) rc = count_tensors(out, d);
    if (rc) {
        (void)pn__fail_in(d, rc, pn__gguf_path(out->g));
        pn__model_file_close(out);
    }
    return rc;
}

void pn__model_file_close(struct model_file *f) {
    pn__gguf_close(f->g);
    pn__free(f->places);
    memset(f, 0, sizeof *f);
}

void pn__step_layout(const struct model_file *f, const struct engine_shape *shape,
                     struct pn_arena *a, struct step_buffers *b) {
    pn__model_layout(f->family, &f->h, shape->row_max, shape->out_max, a, &b->work);
    b->ids = pn__arena_take(a, shape->row_max, sizeof *b->ids);
    b->positions = pn__arena_take(a, shape->row_max, sizeof *b->positions);
    b->out_rows = pn__arena_take(a, shape->out_max, sizeof *b->out_rows);
    b->seqs = pn__arena_take(a, shape->kv.slot_n, sizeof *b->seqs);
    b->logits = pn__arena_take(a, f->h.vocab, sizeof *b->logits);
    b->candidates = pn__arena_take(a, f->h.vocab, sizeof *b->candidates);
}

static enum pn_isa isa_limit(enum pn_isa_choice choice) {
    switch (choice) {
    case PN_ISA_CHOICE_REF:
        return PN_ISA_REF;
    case PN_ISA_CHOICE_AVX2:
        return PN_ISA_AVX2;
    case PN_ISA_CHOICE_AVX512:
        return PN_ISA_AVX512;
    case PN_ISA_CHOICE_AMX:
        return PN_ISA_AMX;
    case PN_ISA_CHOICE_AUTO:
    case PN_ISA_CHOICE_NEON:
        break;
    }
    return PN_ISA_NEON;
}

static enum pn_kv_format wide_format(enum pn_kv_choice choice) {
    switch (choice) {
    case PN_KV_CHOICE_F32:
        return PN_KV_F32;
    case PN_KV_CHOICE_Q8_0:
        return PN_KV_Q8_0;
    case PN_KV_CHOICE_F16:
    case PN_KV_CHOICE_Q4:
    case PN_KV_CHOICE_AUTO:
        break;
    }
    return PN_KV_F16;
}

/* What the ladder says about the format of a cache that is allocated now. */
static bool q4_is_due(void) {
    pn_mem_state state;
    pn_ladder_config none = {0};
    if (!pn_memwatch_running()) return false;
    (void)pn_memwatch_read(&state);
    return !pn_ladder_disabled() && pn_ladder_plan_for(state.byte_level, &none).force_kv_q4;
}

static int shape_init(const struct model_file *f, const struct pn_engine_options *o, uint32_t ctx,
                      uint32_t slots, const struct pn_plan *p, struct engine_shape *s,
                      struct pn_detail *d) {
    memset(s, 0, sizeof *s);
    s->chunk = o->chunk ? o->chunk : CHUNK_DEFAULT;
    /* No more than all sessions can hold. */
    if (s->chunk > (uint64_t)ctx * slots) s->chunk = ctx * slots;
    s->row_max = s->chunk + slots;
    s->out_max = o->out_rows > slots ? o->out_rows : slots;
    if (s->out_max > s->row_max) s->out_max = s->row_max;
    enum pn_isa limit = isa_limit(o->isa);
    s->cpu = (struct pn_cpu_config){
        .thread_n = pn__cpu_resolve_threads(o->threads),
        .isa = pn__isa_best(limit),
        .row_max = s->row_max,
        .col_max = pn__model_col_max(&f->h),
        .dim_max = pn__model_dim_max(&f->h),
        .head_col_max = pn__model_head_col_max(&f->h),
    };
    s->cpu.pin = o->pin == PN_PIN_ON ||
                 (o->pin == PN_PIN_AUTO && s->cpu.thread_n == pn__cpu_resolve_threads(0));
    if (f->h.moe.expert_n.value) {
        s->cpu.expert_max = f->h.moe.expert_n.value;
        s->cpu.top_k_max = f->h.moe.used_n.value;
        s->cpu.expert_ff_max = f->h.moe.ff.value;
        s->cpu.expert_acts = f->expert_acts;
    }
    if (o->isa != PN_ISA_CHOICE_AUTO && s->cpu.isa != limit) {
        return pn__fail(d, PN_E_UNSUPPORTED, "no %s kernels here: the best level is %s",
                        pn__isa_name(limit), pn__isa_name(s->cpu.isa));
    }
    s->kv = (struct pn_kv_spec){.ctx = ctx,
                                .slot_n = slots,
                                .chunk = s->chunk < ctx ? s->chunk : ctx,
                                .state_bytes = pn__model_state_bytes(&f->h),
                                .either = p->kv_per_session};
    bool q4 = p->kv == PN_KV_CHOICE_Q4 || p->kv_per_session;
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        uint32_t window = kind == PN_PAGE_WINDOW ? f->h.window : 0;
        s->kv.kinds[kind] = (struct pn_page_spec){
            .layer_n = pn__model_kind_n(&f->h, (enum pn_page_kind)kind),
            .window = window,
            .shape = pn__model_kv_shape(&f->h),
            .format = wide_format(p->kv),
            .narrow = q4 && kind != PN_PAGE_LATENT && pn__kv_can_narrow(window),
        };
    }
    return 0;
}

static void set_part(struct pn_plan *p, enum part_i i, const char *name, enum pn_mem_owner owner,
                     uint64_t bytes) {
    p->parts[i] =
        (struct pn_plan_part){.name = name, .owner = owner, .place = PN_PLACE_HOST, .bytes = bytes};
}

static void set_pages(struct pn_plan *p, const struct pn_kv_spec *kv) {
    static const char *const names[PN_PLAN_PAGES_N] = {"full", "window", "latent"};
    _Static_assert(PN_PLAN_PAGES_N == PN_PAGE_KIND_N, "the header's number of kinds");
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        const struct pn_page_spec *spec = &kv->kinds[kind];
        const struct pn_kv_shape *shape = &spec->shape;
        uint64_t head = pn__kv_row_bytes(spec->format, shape->k_dim);
        uint64_t narrow = pn__kv_row_bytes(PN_KV_Q4, shape->k_dim) +
                          pn__kv_row_bytes(PN_KV_Q4, shape->v_dim); /* of V in K there is none */
        if (!shape->v_in_k) head += pn__kv_row_bytes(spec->format, shape->v_dim);
        p->pages[kind] = (struct pn_plan_pages){
            .kind = names[kind],
            .layer_n = spec->layer_n,
            .window = spec->window,
            .token_bytes = spec->layer_n * shape->head_n * head,
            .page_bytes = pn__page_bytes(spec, PN_PAGE_WIDE),
            .page_n = pn__page_form_max(kv, (enum pn_page_kind)kind, PN_PAGE_WIDE)};
        if (!spec->narrow) continue;
        p->pages[kind].narrow_token_bytes = spec->layer_n * shape->head_n * narrow;
        p->pages[kind].narrow_page_bytes = pn__page_bytes(spec, PN_PAGE_NARROW);
        p->pages[kind].narrow_page_n =
            pn__page_form_max(kv, (enum pn_page_kind)kind, PN_PAGE_NARROW);
    }
}

/* What a limit on address space leaves, in which mapped files count too. */
static uint64_t address_space(void) {
    return pn_ledger_place_headroom(PN_PLACE_FILE, NULL);
}

/* Sizes of all parts for one context, slot count and way of holding the weights. */
static int size_parts(const struct model_file *f, const struct pn_engine_options *o, uint32_t ctx,
                      uint32_t slots, enum pn_weights_choice weights, struct pn_plan *p,
                      struct engine_shape *s, struct pn_detail *d) {
    int rc = shape_init(f, o, ctx, slots, p, s, d);
    if (rc) return rc;
    uint64_t kv_bytes;
    uint64_t state_bytes;
    struct pn_arena count;
    struct step_buffers b;
    pn__arena_init(&count, NULL, 0);
    pn__step_layout(f, s, &count, &b);
    if (!pn__kv_bytes(&s->kv, &kv_bytes, &state_bytes) || count.overflow) {
        return pn__fail(d, PN_E_NOFIT, "%u slots of %u tokens: sizes wrap", slots, ctx);
    }
    bool map = weights == PN_WEIGHTS_MAP;
    set_part(p, PART_WEIGHTS, "weights", PN_OWNER_WEIGHTS,
             map ? f->weight_bytes : page_up(f->copy_bytes));
    if (map) p->parts[PART_WEIGHTS].place = PN_PLACE_FILE;
    set_part(p, PART_VECTORS, "vectors", PN_OWNER_WEIGHTS, page_up(f->vector_bytes));
    set_part(p, PART_KV, "kv", PN_OWNER_KV, kv_bytes);
    set_part(p, PART_STATE, "state", PN_OWNER_STATE, state_bytes);
    set_part(p, PART_WORK, "work", PN_OWNER_SCRATCH, page_up(count.used_bytes));
    set_part(p, PART_BACKEND, "backend", PN_OWNER_SCRATCH, page_up(pn__cpu_scratch_bytes(&s->cpu)));
    set_pages(p, &s->kv);
    p->ctx = ctx;
    p->slots = slots;
    p->weights = weights;
    p->total_bytes = 0;
    p->host_bytes = 0;
    for (int i = 0; i < PN_PLAN_PART_N; i++) {
        if (pn__add_u64(p->total_bytes, p->parts[i].bytes, &p->total_bytes)) {
            return pn__fail(d, PN_E_NOFIT, "%u slots of %u tokens: sizes wrap", slots, ctx);
        }
        if (p->parts[i].place != PN_PLACE_FILE) p->host_bytes += p->parts[i].bytes;
    }
    p->fits = p->host_bytes <= p->headroom_bytes && p->total_bytes <= address_space();
    return 0;
}

static bool fits(const struct model_file *f, const struct pn_engine_options *o, uint32_t ctx,
                 uint32_t slots, enum pn_weights_choice weights, const struct pn_plan *p) {
    struct pn_plan try = *p;
    struct engine_shape s;
    return size_parts(f, o, ctx, slots, weights, &try, &s, NULL) == 0 && try.fits;
}

/* The longest context up to `most` that fits; whole pages unless it is `most` itself; 0: none. */
static uint32_t ctx_fit(const struct model_file *f, const struct pn_engine_options *o,
                        uint32_t most, uint32_t slots, enum pn_weights_choice weights,
                        const struct pn_plan *p) {
    if (fits(f, o, most, slots, weights, p)) return most;
    uint32_t low = 0;                          /* pages that fit */
    uint32_t high = most / PN_PAGE_TOKENS + 1; /* pages that don't */
    while (low + 1 < high) {
        uint32_t mid = low + (high - low) / 2;
        if (mid * PN_PAGE_TOKENS <= most && fits(f, o, mid * PN_PAGE_TOKENS, slots, weights, p)) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return low * PN_PAGE_TOKENS;
}

/* The most slots of `ctx` tokens that fit; 0: none. */
static uint32_t slots_fit(const struct model_file *f, const struct pn_engine_options *o,
                          uint32_t ctx, enum pn_weights_choice weights, const struct pn_plan *p) {
    uint32_t low = 0;              /* fit */
    uint32_t high = SLOTS_MAX + 1; /* don't */
    while (low + 1 < high) {
        uint32_t mid = low + (high - low) / 2;
        if (fits(f, o, ctx, mid, weights, p)) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return low;
}

#define MIB(bytes) ((unsigned long long)(((bytes) + (1u << 20) - 1) >> 20))

/* auto: a copy (huge pages, immune to eviction and to changes of the file) when everything with it
 * fits at the wanted context; else the map. */
static enum pn_weights_choice choose_weights(const struct model_file *f,
                                             const struct pn_engine_options *o, uint32_t ctx,
                                             uint32_t slots, struct pn_plan *p) {
    if (o->weights != PN_WEIGHTS_AUTO) {
        snprintf(p->weights_why, sizeof p->weights_why, "asked for");
        return o->weights;
    }
    if (fits(f, o, ctx, slots, PN_WEIGHTS_COPY, p)) {
        snprintf(p->weights_why, sizeof p->weights_why,
                 "a copy of %llu MiB fits beside the rest at %u tokens", MIB(f->copy_bytes), ctx);
        return PN_WEIGHTS_COPY;
    }
    snprintf(p->weights_why, sizeof p->weights_why,
             "a copy of %llu MiB doesn't fit beside the rest into %llu MiB", MIB(f->copy_bytes),
             MIB(p->headroom_bytes));
    return PN_WEIGHTS_MAP;
}

static int check_ctx(const struct model_file *f, const struct pn_engine_options *o,
                     struct pn_detail *d) {
    if (o->ctx <= f->h.ctx_train) return 0;
    return pn__fail(d, PN_E_CONTEXT,
                    "a context of %u tokens; the model was trained for %u (%s.context_length)",
                    o->ctx, f->h.ctx_train, f->family->arch);
}

int pn__plan_make(const struct model_file *f, const struct pn_engine_options *o, struct pn_plan *p,
                  struct engine_shape *shape, struct pn_detail *d) {
    memset(p, 0, sizeof *p);
    int rc = check_ctx(f, o, d);
    if (rc) return rc;
    unsigned domain;
    pn_ledger_sample(o->root);
    p->headroom_bytes = pn_ledger_place_headroom(PN_PLACE_HOST, &domain);
    pn_domain_view view = {.name = "no domain"};
    if (domain != PN_DOMAIN_NONE) pn_ledger_domain(domain, &view);
    memcpy(p->domain, view.name, sizeof p->domain);
    p->file_weights_bytes = f->weight_bytes;
    p->expert_bytes = f->expert_bytes;
    p->unused_blocks = f->unused_blocks;
    p->unused_bytes = f->unused_bytes;
    p->ctx_train = f->h.ctx_train;

    p->kv = pn__kv_choose(o->kv, f->family, q4_is_due(), p->kv_why);
    if (p->kv == PN_KV_CHOICE_Q4 && f->h.latent_dim != 0) {
        snprintf(p->kv_why, sizeof p->kv_why,
                 "asked for, but latent rows have no four-bit form and stay in f16");
    }
    p->kv_per_session = o->kv == PN_KV_CHOICE_AUTO && pn__kv_q4_safe(f->family);
    if (p->kv == PN_KV_CHOICE_Q4 && !pn__kv_q4_safe(f->family)) {
        pn__log(PN_LOG_WARN, "KV in q4, %s", p->kv_why);
    }

    uint32_t slots = o->slots ? o->slots : 1;
    uint32_t most = o->ctx ? o->ctx : f->h.ctx_train;
    enum pn_weights_choice weights = choose_weights(f, o, most, slots, p);
    p->ctx_fit = ctx_fit(f, o, f->h.ctx_train, slots, weights, p);
    uint32_t ctx = o->ctx ? o->ctx : p->ctx_fit;
    if (ctx == 0) ctx = most < PN_PAGE_TOKENS ? most : PN_PAGE_TOKENS;
    if (o->slots == 0) {
        while (slots < SLOTS_DEFAULT && fits(f, o, ctx, slots + 1, weights, p)) {
            slots++;
        }
        p->ctx_fit = ctx_fit(f, o, f->h.ctx_train, slots, weights, p);
    }
    rc = size_parts(f, o, ctx, slots, weights, p, shape, d);
    if (rc) return rc;
    p->slots_fit = slots_fit(f, o, ctx, weights, p);
    if (p->fits) return 0;
    uint64_t need = p->host_bytes;
    if (need <= p->headroom_bytes) { /* so it is the map that is too much */
        need = p->total_bytes;
        p->headroom_bytes = address_space();
        snprintf(p->domain, sizeof p->domain, "%s", pn_mem_domain_name(PN_DOMAIN_RLIMIT));
    }
    p->lacking_bytes = need - p->headroom_bytes;
    return pn__fail(
        d, PN_E_NOFIT,
        "would not fit: the model with %u slot%s of %u tokens takes %llu MiB, %s has %llu "
        "MiB to give; %s%u tokens",
        slots, slots == 1 ? "" : "s", ctx, MIB(need), p->domain, MIB(p->headroom_bytes),
        p->ctx_fit ? "the longest context that fits is " : "nothing fits, not even ",
        p->ctx_fit ? p->ctx_fit : ctx);
}

int pn_engine_plan(const struct pn_engine_options *options, struct pn_detail *d,
                   struct pn_plan *out) {
    struct model_file f;
    struct engine_shape shape;
    memset(out, 0, sizeof *out);
    int rc = pn__model_file_open(options, d, &f);
    if (rc) return rc;
    rc = pn__plan_make(&f, options, out, &shape, d);
    pn__model_file_close(&f);
    return rc;
}
