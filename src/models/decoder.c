/* The block that llama, qwen2, qwen3 and gemma3 share: attention and a gated feed-forward, each
 * behind a norm and added to the residual stream. What differs between them is which optional
 * tensors a layer has and what its hyperparameters say. */
#include "models/model.h"

int pn__bind_attention(struct pn_model *m, uint32_t layer_i, const struct pn_binder *b,
                       uint32_t q_rows, struct pn_detail *d) {
    const struct pn_hparams *h = &m->h;
    struct pn_layer *l = &m->layers[layer_i];
    uint32_t k_rows = h->kv_head_n * h->k_dim;
    uint32_t v_rows = h->kv_head_n * h->v_dim;
    int rc = pn__bind_vector(b, layer_i, "attn_norm.weight", h->embd, false, d, &l->attn_norm);
    if (rc == 0) {
        rc = pn__bind_weight(b, layer_i, "attn_q.weight", h->embd, q_rows, false, d, &l->q);
    }
    if (rc == 0) {
        rc = pn__bind_weight(b, layer_i, "attn_k.weight", h->embd, k_rows, false, d, &l->k);
    }
    if (rc == 0) {
        rc = pn__bind_weight(b, layer_i, "attn_v.weight", h->embd, v_rows, false, d, &l->v);
    }
    if (rc == 0) {
        rc = pn__bind_weight(b, layer_i, "attn_output.weight", h->head_n * h->v_dim, h->embd, false,
                             d, &l->o);
    }
    return rc;
}

int pn__bind_qkv_bias(struct pn_model *m, uint32_t layer_i, const struct pn_binder *b,
                      bool optional, struct pn_detail *d) {
    const struct pn_hparams *h = &m->h;
    struct pn_layer *l = &m->layers[layer_i];
    uint64_t q_n = (uint64_t)h->head_n * h->k_dim;
    uint64_t k_n = (uint64_t)h->kv_head_n * h->k_dim;
    uint64_t v_n = (uint64_t)h->kv_head_n * h->v_dim;
    int rc = pn__bind_vector(b, layer_i, "attn_q.bias", q_n, optional, d, &l->q_bias);
    if (rc == 0) rc = pn__bind_vector(b, layer_i, "attn_k.bias", k_n, optional, d, &l->k_bias);
    if (rc == 0) rc = pn__bind_vector(b, layer_i, "attn_v.bias", v_n, optional, d, &l->v_bias);
    return rc;
}

int pn__bind_ffn(struct pn_model *m, uint32_t layer_i, const struct pn_binder *b,
                 struct pn_detail *d) {
    const struct pn_hparams *h = &m->h;
    struct pn_layer *l = &m->layers[layer_i];
    if (pn__layer_expert_n(h, layer_i)) return pn__bind_moe(m, layer_i, b, d);
    uint32_t ff = pn__layer_u32(&h->ff, layer_i);
    if (ff == 0) return 0;
    int rc = pn__bind_weight(b, layer_i, "ffn_gate.weight", h->embd, ff, false, d, &l->gate);
    if (rc == 0) rc = pn__bind_weight(b, layer_i, "ffn_up.weight", h->embd, ff, false, d, &l->up);
    if (rc == 0) {
        rc = pn__bind_weight(b, layer_i, "ffn_down.weight", ff, h->embd, false, d, &l->down);
    }
    return rc;
}

void pn__layout_ffn(const struct pn_hparams *h, uint32_t row_max, struct pn_arena *a,
                    struct pn_work *w) {
    uint32_t ff = h->ff.value > h->moe.shared_ff ? h->ff.value : h->moe.shared_ff;
    w->ff_gate = pn__mat_take(a, row_max, ff);
    w->ff_up = pn__mat_take(a, row_max, ff);
    pn__layout_moe(h, row_max, a, w);
}

void pn__layout_decoder(const struct pn_hparams *h, uint32_t row_max, struct pn_arena *a,
                        struct pn_work *w) {
    w->x = pn__mat_take(a, row_max, h->embd);
    w->normed = pn__mat_take(a, row_max, h->embd);
    w->branch = pn__mat_take(a, row_max, h->embd);
    w->q = pn__mat_take(a, row_max, (uint64_t)h->head_n * h->k_dim * (h->q_gated ? 2 : 1));
    w->k = pn__mat_take(a, row_max, (uint64_t)h->kv_head_n * h->k_dim);
    w->v = pn__mat_take(a, row_max, (uint64_t)h->kv_head_n * h->v_dim);
    w->attn = pn__mat_take(a, row_max, (uint64_t)h->head_n * h->v_dim);
    pn__layout_ffn(h, row_max, a, w);
    w->rope = pn__mat_take(a, row_max, h->rope.dim_n);
    if (h->window != 0) w->rope_local = pn__mat_take(a, row_max, h->rope_local.dim_n);
}

/* Of q or k, where the layer has one: by head, or over all heads at once. */
static void norm_qk(const struct pn_hparams *h, const float *w, struct pn_step *s,
                    struct pn_mat all, struct pn_heads heads) {
    if (!w) return;
    if (h->qk_norm_whole)
        pn__op_rms_norm(s, all, w, h->eps, all);
    else
        pn__op_rms_norm_heads(s, heads, w, h->eps);
}

static void attention(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                      const struct pn_batch *b, const struct pn_work *w) {
    const struct pn_hparams *h = &m->h;
    uint32_t n = b->row_n;
    bool local = l->kind == PN_PAGE_WINDOW;
    struct pn_mat normed = pn__mat_rows(w->normed, n);
    struct pn_mat branch = pn__mat_rows(w->branch, n);
    struct pn_mat attn = pn__mat_rows(w->attn, n);

    pn__op_rms_norm(s, w->x, l->attn_norm, h->eps, normed);
    struct pn_matmul qkv[] = {
        {.w = &l->q, .bias = l->q_bias, .out = pn__mat_rows(w->q, n)},
        {.w = &l->k, .bias = l->k_bias, .out = pn__mat_rows(w->k, n)},
        {.w = &l->v, .bias = l->v_bias, .out = pn__mat_rows(w->v, n)},
    };
    pn__op_matmul(s, normed, qkv, 3);

    struct pn_heads q = pn__mat_heads(qkv[0].out, 0, h->head_n, h->k_dim, h->k_dim);
    struct pn_heads k = pn__mat_heads(qkv[1].out, 0, h->kv_head_n, h->k_dim, h->k_dim);
    struct pn_heads v = pn__mat_heads(qkv[2].out, 0, h->kv_head_n, h->v_dim, h->v_dim);
    norm_qk(h, l->q_norm, s, qkv[0].out, q);
    norm_qk(h, l->k_norm, s, qkv[1].out, k);
    const struct pn_rope *rope = local ? &h->rope_local : &h->rope;
    struct pn_mat table = pn__mat_rows(local ? w->rope_local : w->rope, n);
    pn__op_rope(s, rope, table, q);
    pn__op_rope(s, rope, table, k);
    if (h->q_scale != 1.0f) pn__op_scale(s, qkv[0].out, h->q_scale);

    struct pn_kv_shape shape = {.head_n = h->kv_head_n, .k_dim = h->k_dim, .v_dim = h->v_dim};
    pn__op_kv_write(s, b, l->kind, l->kv_i, &shape, k, v);
    pn__op_attention(s, b, l->kind, l->kv_i, &shape, q, h->attn_scale, local ? h->window : 0,
                     l->sinks, pn__mat_heads(attn, 0, h->head_n, h->v_dim, h->v_dim));

    struct pn_matmul o = {.w = &l->o, .bias = l->o_bias, .out = branch};
    pn__op_matmul(s, attn, &o, 1);
    if (l->attn_post_norm) pn__op_rms_norm(s, branch, l->attn_post_norm, h->eps, branch);
    pn__op_add(s, w->x, branch);
}

void pn__layer_ffn(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                   const struct pn_batch *b, const struct pn_work *w) {
    if (l->experts.expert_n) {
        pn__layer_moe(m, l, s, b, w);
        return;
    }
    if (l->gate.row_n == 0) return;
    const struct pn_hparams *h = &m->h;
    uint32_t n = b->row_n;
    struct pn_mat normed = pn__mat_rows(w->normed, n);
    struct pn_mat branch = pn__mat_rows(w->branch, n);

    pn__op_rms_norm(s, w->x, l->ffn_norm, h->eps, normed);
    struct pn_matmul in[] = {
        {.w = &l->gate, .out = pn__mat_cols(pn__mat_rows(w->ff_gate, n), l->gate.row_n)},
        {.w = &l->up, .out = pn__mat_cols(pn__mat_rows(w->ff_up, n), l->up.row_n)},
    };
    pn__op_matmul(s, normed, in, 2);
    pn__op_glu(s, h->ffn_act, in[0].out, in[1].out, in[0].out);
    struct pn_matmul down = {.w = &l->down, .out = branch};
    pn__op_matmul(s, in[0].out, &down, 1);
    if (l->ffn_post_norm) pn__op_rms_norm(s, branch, l->ffn_post_norm, h->eps, branch);
    pn__op_add(s, w->x, branch);
}

void pn__layer_decoder(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                       const struct pn_batch *b, const struct pn_work *w) {
    attention(m, l, s, b, w);
    pn__layer_ffn(m, l, s, b, w);
}
