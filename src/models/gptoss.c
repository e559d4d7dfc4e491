/* gpt-oss: every other layer looks back over a window only, beginning with the first; each query
 * head has a sink, a score that takes part in its softmax and has no value; all projections have
 * biases; a mixture of experts with a clamped gate in every block, whose weights are the softmax of
 * the chosen ones' scores. */
#include "models/model.h"

#define FULL_EVERY_DEFAULT 2

static int hparams(const struct pn_gguf *g, struct pn_hparams *h, struct pn_detail *d) {
    int rc = pn__hparams_decoder(g, true, h, d);
    if (rc) return rc;
    float local_base = (float)h->rope.freq_base;
    h->window_period = FULL_EVERY_DEFAULT;
    rc = pn__hp_u32(g, "attention.sliding_window", true, 1u << 24, &h->window, d);
    if (rc == 0) {
        rc = pn__hp_u32(g, "attention.sliding_window_pattern", false, 4096, &h->window_period, d);
    }
    if (rc == 0) rc = pn__hp_f32(g, "rope.freq_base_swa", false, &local_base, d);
    if (rc) return rc;
    if (h->window_period == 0 || local_base <= 0.0f) {
        return pn__fail(d, PN_E_FORMAT, "a full layer in every %u, window layers' rope base %g",
                        h->window_period, (double)local_base);
    }
    h->rope_local = h->rope;
    h->rope_local.freq_base = (double)local_base;
    h->ffn_act = PN_ACT_FN_SWIGLU_CLAMPED;
    h->moe.router = pn__router_softmax(false);
    h->moe.router.gating = PN_GATING_TOPK_SOFTMAX;
    return pn__hparams_moe(g, NULL, h, d);
}

static int bind_layer(struct pn_model *m, uint32_t i, const struct pn_binder *b,
                      struct pn_detail *d) {
    const struct pn_hparams *h = &m->h;
    struct pn_layer *l = &m->layers[i];
    int rc = pn__bind_attention(m, i, b, h->head_n * h->k_dim, d);
    if (rc == 0) rc = pn__bind_qkv_bias(m, i, b, false, d);
    if (rc == 0) rc = pn__bind_vector(b, i, "attn_output.bias", h->embd, false, d, &l->o_bias);
    if (rc == 0) rc = pn__bind_vector(b, i, "attn_sinks.weight", h->head_n, false, d, &l->sinks);
    if (rc == 0) {
        rc = pn__bind_vector(b, i, "post_attention_norm.weight", h->embd, false, d, &l->ffn_norm);
    }
    if (rc == 0) rc = pn__bind_ffn(m, i, b, d);
    return rc;
}

const struct pn_family pn__family_gptoss = {
    .arch = "gpt-oss",
    .takes_experts = true,
    .hparams = hparams,
    .bind_layer = bind_layer,
    .layout = pn__layout_decoder,
    .layer = pn__layer_decoder,
};
