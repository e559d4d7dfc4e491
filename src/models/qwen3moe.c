/* qwen3moe: qwen3 with a mixture of experts in every block; the weights of the chosen are
 * normalised. */
#include "models/model.h"

static int hparams(const struct pn_gguf *g, struct pn_hparams *h, struct pn_detail *d) {
    int rc = pn__hparams_decoder(g, true, h, d);
    h->moe.router = pn__router_softmax(true);
    return rc ? rc : pn__hparams_moe(g, NULL, h, d);
}

const struct pn_family pn__family_qwen3moe = {
    .arch = "qwen3moe",
    .kv_q4_kl = 0.00066,
    .takes_experts = true,
    .hparams = hparams,
    .bind_layer = pn__bind_qwen3,
    .layout = pn__layout_decoder,
    .layer = pn__layer_decoder,
};
