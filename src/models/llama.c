/* llama: the plain decoder, or with experts in place of the feed-forward (Mixtral). Biases are
 * optional; rope pairs neighbours. */
#include "models/model.h"

static int hparams(const struct pn_gguf *g, struct pn_hparams *h, struct pn_detail *d) {
    int rc = pn__hparams_decoder(g, false, h, d);
    h->moe.router = pn__router_softmax(true);
    return rc ? rc : pn__hparams_moe(g, "feed_forward_length", h, d);
}

static int bind_layer(struct pn_model *m, uint32_t i, const struct pn_binder *b,
                      struct pn_detail *d) {
    const struct pn_hparams *h = &m->h;
    struct pn_layer *l = &m->layers[i];
    int rc = pn__bind_attention(m, i, b, h->head_n * h->k_dim, d);
    if (rc == 0) rc = pn__bind_qkv_bias(m, i, b, true, d);
    if (rc == 0) rc = pn__bind_vector(b, i, "attn_output.bias", h->embd, true, d, &l->o_bias);
    if (rc == 0) rc = pn__bind_vector(b, i, "ffn_norm.weight", h->embd, false, d, &l->ffn_norm);
    if (rc == 0) rc = pn__bind_ffn(m, i, b, d);
    return rc;
}

const struct pn_family pn__family_llama = {
    .arch = "llama",
    .kv_q4_kl = 0.0156,
    .takes_experts = true,
    .hparams = hparams,
    .bind_layer = bind_layer,
    .layout = pn__layout_decoder,
    .layer = pn__layer_decoder,
};
