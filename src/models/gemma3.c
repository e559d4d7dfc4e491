/* gemma3: five window layers to one full layer, unless the file says otherwise; norms after
 * attention and feed-forward as well; scaled embeddings, GELU. Window layers have a rope of their
 * own, never scaled. */
#include <math.h>

#include "models/model.h"

#define FULL_EVERY_DEFAULT 6
#define LOCAL_FREQ_BASE 10000.0f
/* The 27B model, known by its depth, scales attention by the embedding's share of a head. */
#define LAYER_N_27B 62

static int hparams(const struct pn_gguf *g, struct pn_hparams *h, struct pn_detail *d) {
    int rc = pn__hparams_decoder(g, true, h, d);
    float softcap = 0.0f;
    float local_base = LOCAL_FREQ_BASE;
    if (rc == 0) {
        rc = pn__hp_u32(g, "attention.sliding_window", true, 1u << 24, &h->window, d);
    }
    h->window_period = FULL_EVERY_DEFAULT;
    if (rc == 0) {
        rc = pn__hp_u32(g, "attention.sliding_window_pattern", false, 4096, &h->window_period, d);
    }
    if (rc == 0) rc = pn__hp_f32(g, "final_logit_softcapping", false, &softcap, d);
    if (rc == 0) rc = pn__hp_f32(g, "rope.freq_base_swa", false, &local_base, d);
    if (rc) return rc;
    if (softcap != 0.0f) {
        return pn__fail(d, PN_E_UNSUPPORTED, "gemma3.final_logit_softcapping is %g; only 0 runs",
                        (double)softcap);
    }
    if (local_base <= 0.0f) {
        return pn__fail(d, PN_E_FORMAT, "gemma3.rope.freq_base_swa is %g", (double)local_base);
    }
    if (h->window_period == 0) {
        return pn__fail(
            d, PN_E_UNSUPPORTED,
            "gemma3.attention.sliding_window_pattern is 0; only one full layer in every "
            "so many runs");
    }
    h->embd_scale = sqrtf((float)h->embd);
    h->ffn_act = PN_ACT_FN_GELU_HALF;
    /* q is scaled, not q.k: where the scale is no power of two the bits differ. */
    h->q_scale = h->attn_scale;
    uint32_t share = h->embd / h->head_n;
    if (h->layer_n == LAYER_N_27B) h->q_scale = 1.0f / sqrtf((float)share);
    h->attn_scale = 1.0f;
    h->rope_local = h->rope;
    h->rope_local.freq_base = (double)local_base;
    h->rope_local.freq_scale = 1.0;
    h->rope_local.ext_factor = 0.0;
    h->rope_local.attn_factor = 1.0;
    return 0;
}

static int bind_layer(struct pn_model *m, uint32_t i, const struct pn_binder *b,
                      struct pn_detail *d) {
    const struct pn_hparams *h = &m->h;
    struct pn_layer *l = &m->layers[i];
    int rc = pn__bind_attention(m, i, b, h->head_n * h->k_dim, d);
    if (rc == 0) rc = pn__bind_vector(b, i, "attn_q_norm.weight", h->k_dim, false, d, &l->q_norm);
    if (rc == 0) rc = pn__bind_vector(b, i, "attn_k_norm.weight", h->k_dim, false, d, &l->k_norm);
    if (rc == 0) {
        rc = pn__bind_vector(b, i, "post_attention_norm.weight", h->embd, false, d,
                             &l->attn_post_norm);
    }
    if (rc == 0) rc = pn__bind_vector(b, i, "ffn_norm.weight", h->embd, false, d, &l->ffn_norm);
    if (rc == 0) {
        rc = pn__bind_vector(b, i, "post_ffw_norm.weight", h->embd, false, d, &l->ffn_post_norm);
    }
    if (rc == 0) rc = pn__bind_ffn(m, i, b, d);
    return rc;
}

const struct pn_family pn__family_gemma3 = {
    .arch = "gemma3",
    .kv_q4_kl = 0.0002,
    .hparams = hparams,
    .bind_layer = bind_layer,
    .layout = pn__layout_decoder,
    .layer = pn__layer_decoder,
};
