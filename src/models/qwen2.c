/* qwen2: a decoder whose q, k and v have biases; rope pairs halves. */
#include "models/model.h"

static int hparams(const struct pn_gguf *g, struct pn_hparams *h, struct pn_detail *d) {
    return pn__hparams_decoder(g, true, h, d);
}

static int bind_layer(struct pn_model *m, uint32_t i, const struct pn_binder *b,
                      struct pn_detail *d) {
    const struct pn_hparams *h = &m->h;
    struct pn_layer *l = &m->layers[i];
    int rc = pn__bind_attention(m, i, b, h->head_n * h->k_dim, d);
    if (rc == 0) rc = pn__bind_qkv_bias(m, i, b, false, d);
    if (rc == 0) rc = pn__bind_vector(b, i, "ffn_norm.weight", h->embd, false, d, &l->ffn_norm);
    if (rc == 0) rc = pn__bind_ffn(m, i, b, d);
    return rc;
}

const struct pn_family pn__family_qwen2 = {
    .arch = "qwen2",
    .kv_q4_kl = 0.261, /* with a K bias of norm 600, as published models have */
    .hparams = hparams,
    .bind_layer = bind_layer,
    .layout = pn__layout_decoder,
    .layer = pn__layer_decoder,
};
