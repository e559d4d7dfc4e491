#include "cli/inspect_cache.h"

#include <inttypes.h>
#include <stdio.h>

#include "models/model.h"

static const char *const kinds[PN_PAGE_KIND_N] = {"full", "window", "latent"};

static bool hparams_of(const struct pn_gguf *g, struct pn_hparams *h) {
    const struct pn_family *family;
    return pn__family_find(g, NULL, &family) == 0 && pn__model_hparams(g, family, h, NULL) == 0;
}

/* Bytes of a token in all layers of a kind. */
static uint64_t token_bytes(const struct pn_hparams *h, uint32_t layer_n, enum pn_kv_format f) {
    struct pn_kv_shape shape = pn__model_kv_shape(h);
    uint64_t row = pn__kv_row_bytes(f, shape.k_dim);
    if (!shape.v_in_k) row += pn__kv_row_bytes(f, shape.v_dim);
    return layer_n * shape.head_n * row;
}

void pn__print_cache(const struct pn_gguf *g) {
    struct pn_hparams h;
    if (!hparams_of(g, &h)) return;
    for (int kind = 0; kind < PN_PAGE_KIND_N; kind++) {
        uint32_t n = pn__model_kind_n(&h, (enum pn_page_kind)kind);
        if (n == 0) continue;
        printf("%-14s %s: %" PRIu32 " layers, %" PRIu64 " bytes a token in f16", "cache",
               kinds[kind], n, token_bytes(&h, n, PN_KV_F16));
        if (kind == PN_PAGE_WINDOW) printf(", of the last %" PRIu32, h.window);
        putchar('\n');
    }
    uint64_t state = pn__model_state_bytes(&h);
    if (state) printf("%-14s %" PRIu64 " bytes a sequence\n", "state", state);
}

json_t *pn__cache_json(const struct pn_gguf *g) {
    struct pn_hparams h;
    if (!hparams_of(g, &h)) return json_null();
    json_t *list = json_array();
    for (int kind = 0; kind < PN_PAGE_KIND_N && list; kind++) {
        uint32_t n = pn__model_kind_n(&h, (enum pn_page_kind)kind);
        if (n == 0) continue;
        json_t *row =
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "kind", kinds[kind], "layers",
                      (json_int_t)n, "window", (json_int_t)(kind == PN_PAGE_WINDOW ? h.window : 0),
                      "f32_bytes_per_token", (json_int_t)token_bytes(&h, n, PN_KV_F32),
                      "f16_bytes_per_token", (json_int_t)token_bytes(&h, n, PN_KV_F16),
                      "q8_0_bytes_per_token", (json_int_t)token_bytes(&h, n, PN_KV_Q8_0));
        if (json_array_append_new(list, row) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}
