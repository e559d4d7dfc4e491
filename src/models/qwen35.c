/* qwen35 and qwen35moe: three gated delta-net layers to one layer of gated attention.
 *
 * A recurrent layer projects q, k and v at once, runs them through a short causal convolution,
 * normalises q and k to unit length and applies the gated delta rule (arXiv:2412.06464); its output
 * is normalised by head and gated by silu(z). An attention layer's q projection yields, head by
 * head, the query and a gate; the gate's sigmoid multiplies the attention's output. Rope is
 * partial. Its sections address image positions; for text they all carry the same position. */
#include <math.h>

#include "models/model.h"

#define FULL_EVERY_DEFAULT 4

static uint32_t channels(const struct pn_hparams *h) {
    return (2 * h->lin_k_head_n + h->lin_v_head_n) * h->lin_dim;
}

static int check_linear(const struct pn_hparams *h, uint32_t inner, struct pn_detail *d) {
    if (h->conv_kernel < 2 || h->conv_kernel > 16) {
        return pn__fail(d, PN_E_UNSUPPORTED, "ssm.conv_kernel is %u; 2 to 16 run", h->conv_kernel);
    }
    if (h->lin_v_head_n % h->lin_k_head_n != 0) {
        return pn__fail(d, PN_E_FORMAT, "%u value heads can't share %u key heads", h->lin_v_head_n,
                        h->lin_k_head_n);
    }
    if ((uint64_t)h->lin_v_head_n * h->lin_dim != inner) {
        return pn__fail(d, PN_E_FORMAT, "ssm.inner_size is %u, but %u heads of %u make %llu", inner,
                        h->lin_v_head_n, h->lin_dim,
                        (unsigned long long)h->lin_v_head_n * h->lin_dim);
    }
    return 0;
}

int pn__hparams_qwen35(const struct pn_gguf *g, struct pn_hparams *h, struct pn_detail *d) {
    uint32_t inner = 0;
    h->full_period = FULL_EVERY_DEFAULT;
    int rc = pn__hparams_decoder(g, true, h, d);
    if (rc == 0) rc = pn__hp_u32(g, "full_attention_interval", false, 4096, &h->full_period, d);
    if (rc == 0) rc = pn__hp_u32(g, "ssm.conv_kernel", true, 1024, &h->conv_kernel, d);
    if (rc == 0) rc = pn__hp_u32(g, "ssm.state_size", true, 2048, &h->lin_dim, d);
    if (rc == 0) rc = pn__hp_u32(g, "ssm.group_count", true, 4096, &h->lin_k_head_n, d);
    if (rc == 0) rc = pn__hp_u32(g, "ssm.time_step_rank", true, 4096, &h->lin_v_head_n, d);
    if (rc == 0) rc = pn__hp_u32(g, "ssm.inner_size", true, 1u << 22, &inner, d);
    if (rc) return rc;
    if (pn__hp_has(g, "attention.recurrent_layers")) {
        return pn__fail(d, PN_E_UNSUPPORTED,
                        "attention.recurrent_layers: a list of recurrent layers; only a "
                        "regular interval runs");
    }
    if (h->full_period == 0) {
        return pn__fail(d, PN_E_FORMAT, "full_attention_interval is 0");
    }
    if (h->k_dim != h->v_dim) {
        return pn__fail(d, PN_E_UNSUPPORTED, "qwen35 heads of %u keys and %u values", h->k_dim,
                        h->v_dim);
    }
    h->q_gated = true;
    return check_linear(h, inner, d);
}

static int bind_linear(struct pn_model *m, uint32_t i, const struct pn_binder *b,
                       struct pn_detail *d) {
    const struct pn_hparams *h = &m->h;
    struct pn_layer *l = &m->layers[i];
    uint32_t inner = h->lin_v_head_n * h->lin_dim;
    uint32_t v_n = h->lin_v_head_n;
    int rc = pn__bind_vector(b, i, "attn_norm.weight", h->embd, false, d, &l->attn_norm);
    if (rc == 0) {
        rc = pn__bind_weight(b, i, "attn_qkv.weight", h->embd, channels(h), false, d, &l->lin_qkv);
    }
    if (rc == 0) {
        rc = pn__bind_weight(b, i, "attn_gate.weight", h->embd, inner, false, d, &l->lin_z);
    }
    if (rc == 0) {
        rc = pn__bind_weight(b, i, "ssm_beta.weight", h->embd, v_n, false, d, &l->lin_beta);
    }
    if (rc == 0) {
        rc = pn__bind_weight(b, i, "ssm_alpha.weight", h->embd, v_n, false, d, &l->lin_alpha);
    }
    if (rc == 0) {
        rc = pn__bind_weight(b, i, "ssm_out.weight", inner, h->embd, false, d, &l->lin_out);
    }
    if (rc == 0) {
        rc = pn__bind_vector(b, i, "ssm_conv1d.weight", (uint64_t)channels(h) * h->conv_kernel,
                             false, d, &l->conv);
    }
    if (rc == 0) rc = pn__bind_vector(b, i, "ssm_dt.bias", v_n, false, d, &l->lin_dt);
    if (rc == 0) rc = pn__bind_vector(b, i, "ssm_a", v_n, false, d, &l->lin_a);
    if (rc == 0) rc = pn__bind_vector(b, i, "ssm_norm.weight", h->lin_dim, false, d, &l->lin_norm);
    return rc;
}

int pn__bind_qwen35(struct pn_model *m, uint32_t i, const struct pn_binder *b,
                    struct pn_detail *d) {
    const struct pn_hparams *h = &m->h;
    struct pn_layer *l = &m->layers[i];
    int rc;
    if (l->recurrent) {
        rc = bind_linear(m, i, b, d);
    } else {
        rc = pn__bind_attention(m, i, b, 2 * h->head_n * h->k_dim, d);
        if (rc == 0) {
            rc = pn__bind_vector(b, i, "attn_q_norm.weight", h->k_dim, false, d, &l->q_norm);
        }
        if (rc == 0) {
            rc = pn__bind_vector(b, i, "attn_k_norm.weight", h->k_dim, false, d, &l->k_norm);
        }
    }
    if (rc == 0) {
        rc = pn__bind_vector(b, i, "post_attention_norm.weight", h->embd, false, d, &l->ffn_norm);
    }
    if (rc == 0) rc = pn__bind_ffn(m, i, b, d);
    return rc;
}

void pn__layout_qwen35(const struct pn_hparams *h, uint32_t row_max, struct pn_arena *a,
                       struct pn_work *w) {
    uint64_t inner = (uint64_t)h->lin_v_head_n * h->lin_dim;
    pn__layout_decoder(h, row_max, a, w);
    w->lin_in = pn__mat_take(a, row_max, channels(h));
    w->lin_mix = pn__mat_take(a, row_max, channels(h));
    w->lin_z = pn__mat_take(a, row_max, inner);
    w->lin_out = pn__mat_take(a, row_max, inner);
    w->lin_beta = pn__mat_take(a, row_max, h->lin_v_head_n);
    w->lin_g = pn__mat_take(a, row_max, h->lin_v_head_n);
}

static void attention(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                      const struct pn_batch *b, const struct pn_work *w) {
    const struct pn_hparams *h = &m->h;
    uint32_t n = b->row_n;
    struct pn_mat normed = pn__mat_rows(w->normed, n);
    struct pn_mat branch = pn__mat_rows(w->branch, n);
    struct pn_mat attn = pn__mat_rows(w->attn, n);
    struct pn_mat table = pn__mat_rows(w->rope, n);

    pn__op_rms_norm(s, w->x, l->attn_norm, h->eps, normed);
    struct pn_matmul qkv[] = {
        {.w = &l->q, .out = pn__mat_rows(w->q, n)},
        {.w = &l->k, .out = pn__mat_rows(w->k, n)},
        {.w = &l->v, .out = pn__mat_rows(w->v, n)},
    };
    pn__op_matmul(s, normed, qkv, 3);

    /* Head by head: k_dim queries, then k_dim gates. */
    uint64_t pair = 2 * (uint64_t)h->k_dim;
    struct pn_heads q = pn__mat_heads(qkv[0].out, 0, h->head_n, h->k_dim, pair);
    struct pn_heads gate = pn__mat_heads(qkv[0].out, h->k_dim, h->head_n, h->k_dim, pair);
    struct pn_heads k = pn__mat_heads(qkv[1].out, 0, h->kv_head_n, h->k_dim, h->k_dim);
    struct pn_heads v = pn__mat_heads(qkv[2].out, 0, h->kv_head_n, h->v_dim, h->v_dim);
    struct pn_heads out = pn__mat_heads(attn, 0, h->head_n, h->v_dim, h->v_dim);
    pn__op_rms_norm_heads(s, q, l->q_norm, h->eps);
    pn__op_rms_norm_heads(s, k, l->k_norm, h->eps);
    pn__op_rope(s, &h->rope, table, q);
    pn__op_rope(s, &h->rope, table, k);

    struct pn_kv_shape shape = {.head_n = h->kv_head_n, .k_dim = h->k_dim, .v_dim = h->v_dim};
    pn__op_kv_write(s, b, l->kind, l->kv_i, &shape, k, v);
    pn__op_attention(s, b, l->kind, l->kv_i, &shape, q, h->attn_scale, 0, NULL, out);
    pn__op_sigmoid_gate(s, out, gate);
    struct pn_matmul o = {.w = &l->o, .out = branch};
    pn__op_matmul(s, attn, &o, 1);
    pn__op_add(s, w->x, branch);
}

static void linear(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                   const struct pn_batch *b, const struct pn_work *w) {
    const struct pn_hparams *h = &m->h;
    uint32_t n = b->row_n;
    uint32_t dim = h->lin_dim;
    struct pn_mat normed = pn__mat_rows(w->normed, n);
    struct pn_mat branch = pn__mat_rows(w->branch, n);
    struct pn_mat mix = pn__mat_rows(w->lin_mix, n);
    struct pn_mat out = pn__mat_rows(w->lin_out, n);

    pn__op_rms_norm(s, w->x, l->attn_norm, h->eps, normed);
    struct pn_matmul in[] = {
        {.w = &l->lin_qkv, .out = pn__mat_rows(w->lin_in, n)},
        {.w = &l->lin_z, .out = pn__mat_rows(w->lin_z, n)},
        {.w = &l->lin_beta, .out = pn__mat_rows(w->lin_beta, n)},
        {.w = &l->lin_alpha, .out = pn__mat_rows(w->lin_g, n)},
    };
    pn__op_matmul(s, normed, in, 4);
    pn__op_delta_gates(s, in[3].out, in[2].out, l->lin_a, l->lin_dt);
    pn__op_conv_silu(s, b, l->state_off, in[0].out, l->conv, h->conv_kernel, mix);

    uint64_t key_cols = (uint64_t)h->lin_k_head_n * dim;
    struct pn_heads q = pn__mat_heads(mix, 0, h->lin_k_head_n, dim, dim);
    struct pn_heads k = pn__mat_heads(mix, key_cols, h->lin_k_head_n, dim, dim);
    struct pn_heads v = pn__mat_heads(mix, 2 * key_cols, h->lin_v_head_n, dim, dim);
    struct pn_heads y = pn__mat_heads(out, 0, h->lin_v_head_n, dim, dim);
    struct pn_heads z = pn__mat_heads(in[1].out, 0, h->lin_v_head_n, dim, dim);
    pn__op_l2_norm_heads(s, q, h->eps, 1.0f / sqrtf((float)dim));
    pn__op_l2_norm_heads(s, k, h->eps, 1.0f);
    uint64_t conv_bytes = (uint64_t)(h->conv_kernel - 1) * channels(h) * sizeof(float);
    pn__op_delta_net(s, b, l->state_off + conv_bytes, q, k, v, in[3].out, in[2].out, y);
    pn__op_rms_norm_heads(s, y, l->lin_norm, h->eps);
    pn__op_silu_gate(s, y, z);

    struct pn_matmul o = {.w = &l->lin_out, .out = branch};
    pn__op_matmul(s, out, &o, 1);
    pn__op_add(s, w->x, branch);
}

void pn__layer_qwen35(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                      const struct pn_batch *b, const struct pn_work *w) {
    if (l->recurrent) {
        linear(m, l, s, b, w);
    } else {
        attention(m, l, s, b, w);
    }
    pn__layer_ffn(m, l, s, b, w);
}

const struct pn_family pn__family_qwen35 = {
    .arch = "qwen35",
    .kv_q4_kl = 0.00001,
    .hparams = pn__hparams_qwen35,
    .bind_layer = pn__bind_qwen35,
    .layout = pn__layout_qwen35,
    .layer = pn__layer_qwen35,
};

static int hparams_moe(const struct pn_gguf *g, struct pn_hparams *h, struct pn_detail *d) {
    int rc = pn__hparams_qwen35(g, h, d);
    h->moe.router = pn__router_softmax(true);
    return rc ? rc : pn__hparams_moe(g, NULL, h, d);
}

/* The same blocks with a mixture of experts and a gated shared expert. */
const struct pn_family pn__family_qwen35moe = {
    .arch = "qwen35moe",
    .kv_q4_kl = 0.00007,
    .takes_experts = true,
    .hparams = hparams_moe,
    .bind_layer = pn__bind_qwen35,
    .layout = pn__layout_qwen35,
    .layer = pn__layer_qwen35,
};
