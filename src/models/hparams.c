/* Hyperparameters: the keys that every decoder shares, and rope with its scalings. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/model.h"

/* Bounds on what a file may claim: far above any model, low enough that products fit 64 bits. */
#define LAYER_MAX 4096u
#define WIDTH_MAX (1u << 20)
#define HEAD_MAX 4096u
#define HEAD_DIM_MAX 2048u
#define CTX_MAX (1u << 24)

static int key_of(const struct pn_gguf *g, const char *suffix, char key[256], struct pn_detail *d) {
    struct pn_str arch;
    int rc = pn__gguf_get_str(g, "general.architecture", &arch, d);
    if (rc < 0) return rc;
    if (rc == 0) return pn__fail(d, PN_E_FORMAT, "key 'general.architecture' is missing");
    snprintf(key, 256, "%.*s.%s", (int)(arch.len < 64 ? arch.len : 64), arch.data, suffix);
    return 0;
}

int pn__hp_u32(const struct pn_gguf *g, const char *suffix, bool need, uint32_t max, uint32_t *out,
               struct pn_detail *d) {
    char key[256];
    int rc = key_of(g, suffix, key, d);
    if (rc) return rc;
    uint32_t value;
    rc = pn__gguf_get_u32(g, key, &value, d);
    if (rc < 0) return rc;
    if (rc == 0) {
        return need ? pn__fail(d, PN_E_FORMAT, "key '%s' is missing", key) : 0;
    }
    if (value > max) {
        return pn__fail(d, PN_E_FORMAT, "key '%s' is %u, more than %u", key, value, max);
    }
    if (need && value == 0) return pn__fail(d, PN_E_FORMAT, "key '%s' is 0", key);
    *out = value;
    return 0;
}

/* A list has a number for every block of the file, those that don't run included. */
static int read_list(const char *key, const struct pn_gguf_arr *list, uint32_t max,
                     const struct pn_hparams *h, struct pn_layer_u32 *out, struct pn_detail *d) {
    uint32_t block_n = h->layer_n + h->unused_layer_n;
    bool whole =
        list->type <= PN_GGUF_I32 || list->type == PN_GGUF_U64 || list->type == PN_GGUF_I64;
    if (!whole || list->n != block_n) {
        return pn__fail(d, PN_E_FORMAT,
                        "key '%s' is a list of %llu %s; %u whole numbers, one a block, are right",
                        key, (unsigned long long)list->n, pn__gguf_type_name(list->type), block_n);
    }
    *out = (struct pn_layer_u32){.list = *list};
    for (uint64_t i = 0; i < list->n; i++) {
        int64_t value = pn__gguf_arr_i64(list, i);
        if (value < 0 || value > max) {
            return pn__fail(d, PN_E_FORMAT, "key '%s' is %lld for block %llu; 0 to %u are right",
                            key, (long long)value, (unsigned long long)i, max);
        }
        if (i < h->layer_n && value > out->value) out->value = (uint32_t)value;
    }
    return 0;
}

int pn__hp_layers(const struct pn_gguf *g, const char *suffix, bool need, uint32_t max,
                  const struct pn_hparams *h, struct pn_layer_u32 *out, struct pn_detail *d) {
    char key[256];
    struct pn_gguf_arr list;
    int rc = key_of(g, suffix, key, d);
    if (rc) return rc;
    int64_t i = pn__gguf_kv_index(g, key);
    if (i < 0 || pn__gguf_kv_type(g, (uint64_t)i) != PN_GGUF_ARRAY) {
        out->list.n = 0;
        return pn__hp_u32(g, suffix, need, max, &out->value, d);
    }
    rc = pn__gguf_get_arr(g, key, &list, d);
    return rc < 0 ? rc : read_list(key, &list, max, h, out, d);
}

int pn__hp_bool(const struct pn_gguf *g, const char *suffix, bool *out, struct pn_detail *d) {
    char key[256];
    int rc = key_of(g, suffix, key, d);
    if (rc) return rc;
    rc = pn__gguf_get_bool(g, key, out, d);
    return rc < 0 ? rc : 0;
}

int pn__hp_f32(const struct pn_gguf *g, const char *suffix, bool need, float *out,
               struct pn_detail *d) {
    char key[256];
    int rc = key_of(g, suffix, key, d);
    if (rc) return rc;
    float value;
    rc = pn__gguf_get_f32(g, key, &value, d);
    if (rc < 0) return rc;
    if (rc == 0) {
        return need ? pn__fail(d, PN_E_FORMAT, "key '%s' is missing", key) : 0;
    }
    if (!isfinite(value)) return pn__fail(d, PN_E_FORMAT, "key '%s' is not a finite number", key);
    *out = value;
    return 0;
}

bool pn__hp_has(const struct pn_gguf *g, const char *suffix) {
    char key[256];
    return key_of(g, suffix, key, NULL) == 0 && pn__gguf_kv_index(g, key) >= 0;
}

static bool str_is(struct pn_str s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static int read_yarn(const struct pn_gguf *g, uint32_t ctx_train, struct pn_rope *rope,
                     struct pn_detail *d) {
    uint32_t orig = ctx_train;
    float ext = 1.0f;
    float attn = 1.0f;
    float fast = 32.0f;
    float slow = 1.0f;
    int rc = pn__hp_u32(g, "rope.scaling.original_context_length", false, CTX_MAX, &orig, d);
    if (rc == 0) rc = pn__hp_f32(g, "rope.scaling.yarn_ext_factor", false, &ext, d);
    if (rc == 0) rc = pn__hp_f32(g, "rope.scaling.yarn_attn_factor", false, &attn, d);
    if (rc == 0) rc = pn__hp_f32(g, "rope.scaling.attn_factor", false, &attn, d);
    if (rc == 0) rc = pn__hp_f32(g, "rope.scaling.yarn_beta_fast", false, &fast, d);
    if (rc == 0) rc = pn__hp_f32(g, "rope.scaling.yarn_beta_slow", false, &slow, d);
    if (rc) return rc;
    if (orig == 0 || fast <= 0 || slow <= 0 || attn <= 0) {
        return pn__fail(d, PN_E_FORMAT,
                        "yarn scaling with original context %u, betas %g and %g, attention factor "
                        "%g: all must be above 0",
                        orig, (double)fast, (double)slow, (double)attn);
    }
    rope->ext_factor = (double)ext;
    rope->attn_factor = (double)attn;
    rope->beta_fast = (double)fast;
    rope->beta_slow = (double)slow;
    rope->orig_ctx = orig;
    return 0;
}

/* rope.scaling.*: none, linear, yarn. An unknown type is refused: run unscaled, a model goes wrong
 * without saying so. */
static int read_rope_scaling(const struct pn_gguf *g, uint32_t ctx_train, struct pn_rope *rope,
                             struct pn_detail *d) {
    char key[256];
    int rc = key_of(g, "rope.scaling.type", key, d);
    if (rc) return rc;
    struct pn_str type = {.data = "", .len = 0};
    rc = pn__gguf_get_str(g, key, &type, d);
    if (rc < 0) return rc;
    float factor = 0.0f;
    rc = pn__hp_f32(g, "rope.scaling.factor", false, &factor, d);
    if (rc == 0 && factor == 0.0f) rc = pn__hp_f32(g, "rope.scale_linear", false, &factor, d);
    if (rc) return rc;
    bool yarn = str_is(type, "yarn");
    bool none = str_is(type, "none");
    if (!yarn && !none && !str_is(type, "linear") && type.len != 0) {
        return pn__fail(d, PN_E_UNSUPPORTED,
                        "key '%s' is '%.*s'; this build knows: none, linear, yarn", key,
                        (int)(type.len < 64 ? type.len : 64), type.data);
    }
    if (factor == 0.0f && type.len != 0 && !none) {
        return pn__fail(d, PN_E_FORMAT, "key '%s' is '%.*s', but rope.scaling.factor is missing",
                        key, (int)type.len, type.data);
    }
    if (factor < 0.0f) {
        return pn__fail(d, PN_E_FORMAT, "rope scaling factor %g is negative", (double)factor);
    }
    if (factor != 0.0f && !none) rope->freq_scale = 1.0 / (double)factor;
    return yarn ? read_yarn(g, ctx_train, rope, d) : 0;
}

static int read_rope(const struct pn_gguf *g, bool neox, struct pn_hparams *h,
                     struct pn_detail *d) {
    float base = 10000.0f;
    uint32_t dim_n = h->k_dim;
    int rc = pn__hp_f32(g, "rope.freq_base", false, &base, d);
    if (rc == 0) rc = pn__hp_u32(g, "rope.dimension_count", false, HEAD_DIM_MAX, &dim_n, d);
    if (rc) return rc;
    if (base <= 0.0f) return pn__fail(d, PN_E_FORMAT, "rope.freq_base is %g", (double)base);
    if (dim_n == 0 || dim_n % 2 != 0 || dim_n > h->k_dim) {
        return pn__fail(d, PN_E_FORMAT,
                        "rope.dimension_count is %u; it must be even and at most the key length %u",
                        dim_n, h->k_dim);
    }
    h->rope = (struct pn_rope){.dim_n = dim_n,
                               .neox = neox,
                               .freq_base = (double)base,
                               .freq_scale = 1.0,
                               .attn_factor = 1.0,
                               .beta_fast = 32.0,
                               .beta_slow = 1.0,
                               .orig_ctx = h->ctx_train};
    return read_rope_scaling(g, h->ctx_train, &h->rope, d);
}

static int read_layers(const struct pn_gguf *g, struct pn_hparams *h, struct pn_detail *d) {
    uint32_t block_n = 0;
    uint32_t nextn = 0;
    int rc = pn__hp_u32(g, "block_count", true, LAYER_MAX, &block_n, d);
    if (rc == 0) rc = pn__hp_u32(g, "nextn_predict_layers", false, LAYER_MAX, &nextn, d);
    if (rc) return rc;
    if (nextn >= block_n) {
        return pn__fail(d, PN_E_FORMAT, "nextn_predict_layers is %u of %u blocks", nextn, block_n);
    }
    h->layer_n = block_n - nextn;
    h->unused_layer_n = nextn;
    return 0;
}

int pn__hparams_decoder(const struct pn_gguf *g, bool neox, struct pn_hparams *h,
                        struct pn_detail *d) {
    struct pn_layer_u32 *expert_n = &h->moe.expert_n;
    int rc = read_layers(g, h, d);
    if (rc == 0) rc = pn__hp_layers(g, "expert_count", false, PN_EXPERT_MAX, h, expert_n, d);
    if (rc == 0) rc = pn__hp_u32(g, "context_length", true, CTX_MAX, &h->ctx_train, d);
    if (rc == 0) rc = pn__hp_u32(g, "embedding_length", true, WIDTH_MAX, &h->embd, d);
    /* Where all blocks have experts, the dense width is of no use and may be absent or 0. */
    bool dense = expert_n->value == 0;
    if (rc == 0) rc = pn__hp_layers(g, "feed_forward_length", dense, WIDTH_MAX, h, &h->ff, d);
    if (rc == 0) rc = pn__hp_u32(g, "attention.head_count", true, HEAD_MAX, &h->head_n, d);
    if (rc) return rc;
    h->kv_head_n = h->head_n;
    h->k_dim = h->embd / h->head_n;
    h->v_dim = h->k_dim;
    rc = pn__hp_u32(g, "attention.head_count_kv", false, HEAD_MAX, &h->kv_head_n, d);
    if (rc == 0) rc = pn__hp_u32(g, "attention.key_length", false, HEAD_DIM_MAX, &h->k_dim, d);
    if (rc == 0) rc = pn__hp_u32(g, "attention.value_length", false, HEAD_DIM_MAX, &h->v_dim, d);
    if (rc == 0) rc = pn__hp_f32(g, "attention.layer_norm_rms_epsilon", true, &h->eps, d);
    if (rc) return rc;
    if (h->kv_head_n == 0 || h->head_n % h->kv_head_n != 0) {
        return pn__fail(d, PN_E_FORMAT, "%u heads can't share %u KV heads", h->head_n,
                        h->kv_head_n);
    }
    if (h->k_dim == 0 || h->v_dim == 0 || h->k_dim % 2 != 0 || h->k_dim > HEAD_DIM_MAX ||
        h->v_dim > HEAD_DIM_MAX) {
        return pn__fail(d, PN_E_FORMAT, "heads of %u keys and %u values", h->k_dim, h->v_dim);
    }
    if (h->eps < 0.0f) {
        return pn__fail(d, PN_E_FORMAT, "attention.layer_norm_rms_epsilon is %g", (double)h->eps);
    }
    h->embd_scale = 1.0f;
    h->q_scale = 1.0f;
    h->ffn_act = PN_ACT_FN_SILU;
    float scale = 0.0f;
    rc = pn__hp_f32(g, "attention.scale", false, &scale, d);
    if (rc) return rc;
    h->attn_scale = scale != 0.0f ? scale : 1.0f / sqrtf((float)h->k_dim);
    return read_rope(g, neox, h, d);
}
