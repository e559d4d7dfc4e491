/* qwen3: a decoder that normalises each head of q and k before rope. */
#include "models/model.h"

static int hparams(const struct pn_gguf *g, struct pn_hparams *h, struct pn_detail *d) {
    return pn__hparams_decoder(g, true, h, d);
}

int pn__bind_qwen3(struct pn_model *m, uint32_t i, const struct pn_binder *b, struct pn_detail *d) {
    const struct pn_hparams *h = &m->h;
    struct pn_layer *l = &m->layers[i];
    int rc = pn__bind_attention(m, i, b, h->head_n * h->k_dim, d);
    if (rc == 0) rc = pn__bind_vector(b, i, "attn_q_norm.weight", h->k_dim, false, d, &l->q_norm);
    if (rc == 0) rc = pn__bind_vector(b, i, "attn_k_norm.weight", h->k_dim, false, d, &l->k_norm);
    if (rc == 0) rc = pn__bind_vector(b, i, "ffn_norm.weight", h->embd, false, d, &l->ffn_norm);
    if (rc == 0) rc = pn__bind_ffn(m, i, b, d);
    return rc;
}

const struct pn_family pn__family_qwen3 = {
    .arch = "qwen3",
    .kv_q4_kl = 0.00008,
    .hparams = hparams,
    .bind_layer = pn__bind_qwen3,
    .layout = pn__layout_decoder,
    .layer = pn__layer_decoder,
};
