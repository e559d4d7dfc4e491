/* olmoe: a mixture of experts in every block whose weights are the softmax's own, not normalised;
 * q and k are normalised over all heads at once. */
#include "models/model.h"

static int hparams(const struct pn_gguf *g, struct pn_hparams *h, struct pn_detail *d) {
    int rc = pn__hparams_decoder(g, true, h, d);
    h->moe.router = pn__router_softmax(false);
    h->qk_norm_whole = true;
    return rc ? rc : pn__hparams_moe(g, "feed_forward_length", h, d);
}

static int bind_layer(struct pn_model *m, uint32_t i, const struct pn_binder *b,
                      struct pn_detail *d) {
    const struct pn_hparams *h = &m->h;
    struct pn_layer *l = &m->layers[i];
    uint32_t q_n = h->head_n * h->k_dim;
    uint32_t k_n = h->kv_head_n * h->k_dim;
    int rc = pn__bind_attention(m, i, b, q_n, d);
    if (rc == 0) rc = pn__bind_vector(b, i, "attn_q_norm.weight", q_n, false, d, &l->q_norm);
    if (rc == 0) rc = pn__bind_vector(b, i, "attn_k_norm.weight", k_n, false, d, &l->k_norm);
    if (rc == 0) rc = pn__bind_vector(b, i, "ffn_norm.weight", h->embd, false, d, &l->ffn_norm);
    if (rc == 0) rc = pn__bind_ffn(m, i, b, d);
    return rc;
}

const struct pn_family pn__family_olmoe = {
    .arch = "olmoe",
    .kv_q4_kl = 0.0004,
    .takes_experts = true,
    .hparams = hparams,
    .bind_layer = bind_layer,
    .layout = pn__layout_decoder,
    .layer = pn__layer_decoder,
};
