/* Layers with a mixture of experts in place of the feed-forward: keys, tensors, and the step. What
 * families differ in is how the router weighs (struct pn_router) and which optional parts there
 * are: a shared expert that every token uses, its gate, biases, a bias of the choice. */
#include "models/model.h"

uint32_t pn__layer_expert_n(const struct pn_hparams *h, uint32_t layer_i) {
    return layer_i < h->moe.dense_lead_n ? 0 : pn__layer_u32(&h->moe.expert_n, layer_i);
}

/* ---- keys ---- */

#define FF_MAX (1u << 20)

/* The smallest normal half: what the reference engine holds a sum of weights to. */
#define WEIGHT_SUM_MIN 0x1p-14f

struct pn_router pn__router_softmax(bool normalise) {
    return (struct pn_router){.gating = PN_GATING_SOFTMAX,
                              .normalise = normalise,
                              .norm_min = WEIGHT_SUM_MIN,
                              .scale = 1.0f};
}

static int check_layer(const struct pn_hparams *h, uint32_t i, struct pn_detail *d) {
    const struct pn_moe_hparams *m = &h->moe;
    uint32_t expert_n = pn__layer_expert_n(h, i);
    uint32_t used_n = pn__layer_u32(&m->used_n, i);
    if (expert_n == 0) return 0;
    if (used_n == 0 || used_n > expert_n || used_n > PN_TOP_K_MAX) {
        return pn__fail(d, PN_E_FORMAT, "block %u uses %u of %u experts; 1 to %u run", i, used_n,
                        expert_n, expert_n < PN_TOP_K_MAX ? expert_n : PN_TOP_K_MAX);
    }
    if (pn__layer_u32(&m->ff, i) == 0) {
        return pn__fail(d, PN_E_FORMAT, "block %u has %u experts of width 0", i, expert_n);
    }
    uint32_t group_n = m->router.group_n;
    if (group_n <= 1) return 0;
    uint32_t group_used_n = m->router.group_used_n;
    if (group_n > PN_EXPERT_GROUP_MAX || expert_n % group_n != 0 || group_used_n == 0 ||
        group_used_n > group_n || expert_n / group_n * group_used_n < used_n) {
        return pn__fail(d, PN_E_FORMAT,
                        "block %u: %u of %u experts can't come from %u of %u groups", i, used_n,
                        expert_n, group_used_n, group_n);
    }
    return 0;
}

static int read_router(const struct pn_gguf *g, struct pn_router *r, struct pn_detail *d) {
    uint32_t gating = r->gating;
    float scale = 0.0f;
    int rc = pn__hp_u32(g, "expert_gating_func", false, UINT32_MAX, &gating, d);
    if (rc == 0) rc = pn__hp_f32(g, "expert_weights_scale", false, &scale, d);
    if (rc == 0) rc = pn__hp_bool(g, "expert_weights_norm", &r->normalise, d);
    if (rc == 0) rc = pn__hp_u32(g, "expert_group_count", false, UINT32_MAX, &r->group_n, d);
    if (rc == 0) {
        rc = pn__hp_u32(g, "expert_group_used_count", false, UINT32_MAX, &r->group_used_n, d);
    }
    if (rc) return rc;
    if (gating != 0) { /* 0: not said */
        if (gating > PN_GATING_TOPK_SOFTMAX) {
            return pn__fail(d, PN_E_UNSUPPORTED,
                            "expert_gating_func is %u; this build knows 1 (softmax), 2 (sigmoid), "
                            "3 (softmax of the chosen)",
                            gating);
        }
        r->gating = (enum pn_gating)gating;
    }
    if (scale != 0.0f) r->scale = scale;
    return 0;
}

int pn__hparams_moe(const struct pn_gguf *g, const char *ff_suffix, struct pn_hparams *h,
                    struct pn_detail *d) {
    struct pn_moe_hparams *m = &h->moe;
    if (m->expert_n.value == 0) return 0;
    uint32_t shared_n = 0;
    bool own = pn__hp_has(g, "expert_feed_forward_length") || !ff_suffix;
    const char *ff = own ? "expert_feed_forward_length" : ff_suffix;
    int rc = pn__hp_layers(g, "expert_used_count", true, PN_EXPERT_MAX, h, &m->used_n, d);
    if (rc == 0) rc = pn__hp_layers(g, ff, true, FF_MAX, h, &m->ff, d);
    if (rc == 0) {
        rc = pn__hp_u32(g, "leading_dense_block_count", false, h->layer_n, &m->dense_lead_n, d);
    }
    if (rc == 0) rc = pn__hp_u32(g, "expert_shared_count", false, 1024, &shared_n, d);
    if (rc) return rc;
    uint64_t shared_ff = (uint64_t)shared_n * m->ff.value;
    m->shared_ff = shared_ff < FF_MAX ? (uint32_t)shared_ff : FF_MAX;
    rc = pn__hp_u32(g, "expert_shared_feed_forward_length", false, FF_MAX, &m->shared_ff, d);
    if (rc == 0) rc = read_router(g, &m->router, d);
    bool dense = false;
    for (uint32_t i = 0; rc == 0 && i < h->layer_n; i++) {
        rc = check_layer(h, i, d);
        dense = dense || pn__layer_expert_n(h, i) == 0;
    }
    /* The dense width of a model without dense blocks sizes nothing. */
    if (!dense) h->ff = (struct pn_layer_u32){0};
    return rc;
}

/* ---- tensors ---- */

/* Biases of all experts, [expert_n, row_n]. */
static int bind_bias(const struct pn_binder *b, uint32_t i, const char *suffix, uint32_t expert_n,
                     struct pn_expert_part *p, struct pn_detail *d) {
    p->bias_stride = p->w.row_n;
    return pn__bind_vector(b, i, suffix, (uint64_t)expert_n * p->w.row_n, true, d, &p->bias);
}

/* Gate and up in one tensor, an expert's gate rows first: two views of it. */
static int split_fused(const struct pn_binder *b, uint32_t i, struct pn_experts *e,
                       struct pn_detail *d) {
    struct pn_expert_part *gate = &e->gate;
    struct pn_expert_part *up = &e->up;
    int rc = bind_bias(b, i, "ffn_gate_up_exps.bias", e->expert_n, gate, d);
    gate->w.row_n /= 2;
    *up = *gate;
    if (gate->w.data) up->w.data += gate->w.row_n * gate->w.row_bytes;
    if (gate->bias) up->bias += gate->w.row_n;
    return rc;
}

static int bind_experts(const struct pn_binder *b, uint32_t i, uint32_t embd, uint32_t ff,
                        struct pn_experts *e, struct pn_detail *d) {
    uint32_t n = e->expert_n;
    int rc = pn__bind_stack(b, i, "ffn_gate_up_exps.weight", embd, 2 * ff, n, true, d, &e->gate);
    if (rc) return rc;
    if (e->gate.w.row_n) {
        rc = split_fused(b, i, e, d);
    } else {
        rc = pn__bind_stack(b, i, "ffn_gate_exps.weight", embd, ff, n, false, d, &e->gate);
        if (rc == 0) {
            rc = pn__bind_stack(b, i, "ffn_up_exps.weight", embd, ff, n, false, d, &e->up);
        }
        if (rc == 0) rc = bind_bias(b, i, "ffn_gate_exps.bias", n, &e->gate, d);
        if (rc == 0) rc = bind_bias(b, i, "ffn_up_exps.bias", n, &e->up, d);
    }
    if (rc == 0) {
        rc = pn__bind_stack(b, i, "ffn_down_exps.weight", ff, embd, n, false, d, &e->down);
    }
    if (rc == 0) rc = bind_bias(b, i, "ffn_down_exps.bias", n, &e->down, d);
    return rc;
}

static int bind_shared(struct pn_model *m, uint32_t i, const struct pn_binder *b,
                       struct pn_detail *d) {
    struct pn_layer *l = &m->layers[i];
    uint32_t embd = m->h.embd;
    uint32_t ff = m->h.moe.shared_ff;
    if (ff == 0) return 0;
    int rc = pn__bind_weight(b, i, "ffn_gate_shexp.weight", embd, ff, false, d, &l->shared_gate);
    if (rc == 0) {
        rc = pn__bind_weight(b, i, "ffn_up_shexp.weight", embd, ff, false, d, &l->shared_up);
    }
    if (rc == 0) {
        rc = pn__bind_weight(b, i, "ffn_down_shexp.weight", ff, embd, false, d, &l->shared_down);
    }
    if (rc == 0) {
        rc = pn__bind_weight(b, i, "ffn_gate_inp_shexp.weight", embd, 1, true, d, &l->shared_in);
    }
    return rc;
}

int pn__bind_moe(struct pn_model *m, uint32_t i, const struct pn_binder *b, struct pn_detail *d) {
    const struct pn_moe_hparams *moe = &m->h.moe;
    struct pn_layer *l = &m->layers[i];
    uint32_t n = pn__layer_expert_n(&m->h, i);
    l->experts = (struct pn_experts){.expert_n = n, .act = m->h.ffn_act};
    l->router = moe->router;
    l->router.expert_n = n;
    l->router.top_k = pn__layer_u32(&moe->used_n, i);
    int rc = pn__bind_weight(b, i, "ffn_gate_inp.weight", m->h.embd, n, false, d, &l->router_in);
    if (rc == 0) rc = pn__bind_vector(b, i, "ffn_gate_inp.bias", n, true, d, &l->router_bias);
    if (rc == 0) {
        rc = pn__bind_vector(b, i, "exp_probs_b.bias", n, true, d, &l->router.select_bias);
    }
    if (rc == 0) rc = bind_experts(b, i, m->h.embd, pn__layer_u32(&moe->ff, i), &l->experts, d);
    if (rc == 0) rc = bind_shared(m, i, b, d);
    return rc;
}

/* ---- the step ---- */

void pn__layout_moe(const struct pn_hparams *h, uint32_t row_max, struct pn_arena *a,
                    struct pn_work *w) {
    uint32_t k = h->moe.used_n.value;
    if (h->moe.expert_n.value == 0) return;
    w->router = pn__mat_take(a, row_max, h->moe.expert_n.value);
    w->shared_in = pn__mat_take(a, row_max, 1);
    w->route = (struct pn_route){
        .ids = pn__arena_take(a, (uint64_t)row_max * k, sizeof *w->route.ids),
        .weights = pn__mat_take(a, row_max, k),
        .faults = pn__arena_take(a, row_max, sizeof *w->route.faults),
        .row_n = row_max,
        .top_k = k,
    };
}

/* The shared expert's part of the same rows; the matmuls of its inputs were done with the
 * router's. */
static void add_shared(const struct pn_layer *l, struct pn_step *s, enum pn_act act,
                       struct pn_mat gate, struct pn_mat up, struct pn_mat gate_in,
                       const struct pn_work *w) {
    struct pn_mat branch = pn__mat_rows(w->branch, gate.row_n);
    pn__op_glu(s, act, gate, up, gate);
    struct pn_matmul down = {.w = &l->shared_down, .out = branch};
    pn__op_matmul(s, gate, &down, 1);
    if (l->shared_in.row_n) pn__op_sigmoid_gate_rows(s, branch, gate_in);
    pn__op_add(s, w->x, branch);
}

void pn__layer_moe(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                   const struct pn_batch *b, const struct pn_work *w) {
    const struct pn_hparams *h = &m->h;
    uint32_t n = b->row_n;
    uint32_t layer_i = (uint32_t)(l - m->layers);
    struct pn_mat normed = pn__mat_rows(w->normed, n);
    struct pn_mat branch = pn__mat_rows(w->branch, n);
    struct pn_mat logits = pn__mat_cols(pn__mat_rows(w->router, n), l->router.expert_n);
    struct pn_mat gate = pn__mat_cols(pn__mat_rows(w->ff_gate, n), l->shared_gate.row_n);
    struct pn_mat up = pn__mat_cols(pn__mat_rows(w->ff_up, n), l->shared_up.row_n);
    struct pn_mat shared_in = pn__mat_rows(w->shared_in, n);

    pn__op_rms_norm(s, w->x, l->ffn_norm, h->eps, normed);
    struct pn_matmul in[4] = {{.w = &l->router_in, .bias = l->router_bias, .out = logits}};
    uint32_t in_n = 1;
    if (l->shared_gate.row_n) {
        in[in_n++] = (struct pn_matmul){.w = &l->shared_gate, .out = gate};
        in[in_n++] = (struct pn_matmul){.w = &l->shared_up, .out = up};
    }
    if (l->shared_in.row_n) in[in_n++] = (struct pn_matmul){.w = &l->shared_in, .out = shared_in};
    pn__op_matmul(s, normed, in, in_n);

    struct pn_route route = w->route;
    route.top_k = route.weights.col_n = l->router.top_k;
    pn__op_route(s, &l->router, logits, layer_i, &route);
    if (w->on_route) w->on_route(w->on_route_user, s, layer_i, &route);
    pn__op_experts(s, normed, &l->experts, &route, branch);
    if (l->ffn_post_norm) pn__op_rms_norm(s, branch, l->ffn_post_norm, h->eps, branch);
    pn__op_add(s, w->x, branch);
    if (l->shared_gate.row_n) add_shared(l, s, h->ffn_act, gate, up, shared_in, w);
}
