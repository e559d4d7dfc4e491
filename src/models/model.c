/* What all families share: the table of them, binding, layout, and the frame of a forward pass. */
#include "models/model.h"

#include <stdio.h>
#include <string.h>

static const struct pn_family *const families[] = {
    &pn__family_llama,  &pn__family_qwen2,     &pn__family_qwen3,    &pn__family_gemma3,
    &pn__family_qwen35, &pn__family_olmoe,     &pn__family_qwen3moe, &pn__family_qwen35moe,
    &pn__family_gptoss, &pn__family_deepseek2,
};

int pn__family_find(const struct pn_gguf *g, struct pn_detail *d, const struct pn_family **out) {
    struct pn_str arch;
    int rc = pn__gguf_get_str(g, "general.architecture", &arch, d);
    if (rc < 0) return rc;
    if (rc == 0) return pn__fail(d, PN_E_FORMAT, "key 'general.architecture' is missing");
    char known[256];
    size_t len = 0;
    for (size_t i = 0; i < PN_ARRAY_N(families); i++) {
        const char *name = families[i]->arch;
        if (arch.len == strlen(name) && memcmp(arch.data, name, arch.len) == 0) {
            *out = families[i];
            return 0;
        }
        len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i ? ", " : "", name);
    }
    return pn__fail(d, PN_E_UNSUPPORTED, "architecture '%.*s'; this build runs: %s",
                    (int)(arch.len < 64 ? arch.len : 64), arch.data, known);
}

int pn__model_hparams(const struct pn_gguf *g, const struct pn_family *f, struct pn_hparams *h,
                      struct pn_detail *d) {
    memset(h, 0, sizeof *h);
    int rc = f->hparams(g, h, d);
    if (rc) return rc;
    if (h->moe.expert_n.value != 0 && !f->takes_experts) {
        return pn__fail(d, PN_E_UNSUPPORTED, "a mixture of %u experts; '%s' runs dense only",
                        h->moe.expert_n.value, f->arch);
    }
    const struct pn_gguf_tensor *t = pn__gguf_find(g, "token_embd.weight");
    if (!t) return pn__fail(d, PN_E_FORMAT, "tensor 'token_embd.weight' is missing");
    if (t->dims[1] == 0 || t->dims[1] > (1u << 24)) {
        return pn__fail(d, PN_E_FORMAT, "tensor 'token_embd.weight' has %llu rows",
                        (unsigned long long)t->dims[1]);
    }
    h->vocab = (uint32_t)t->dims[1];
    return 0;
}

bool pn__layer_recurrent(const struct pn_hparams *h, uint32_t layer_i) {
    return h->conv_kernel != 0 && (layer_i + 1) % h->full_period != 0;
}

enum pn_page_kind pn__layer_kind(const struct pn_hparams *h, uint32_t layer_i) {
    if (h->latent_dim) return PN_PAGE_LATENT;
    bool full = h->window == 0 || (layer_i + 1) % h->window_period == 0;
    return full ? PN_PAGE_FULL : PN_PAGE_WINDOW;
}

uint32_t pn__model_kind_n(const struct pn_hparams *h, enum pn_page_kind kind) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->layer_n; i++) {
        n += !pn__layer_recurrent(h, i) && pn__layer_kind(h, i) == kind;
    }
    return n;
}

static uint64_t lin_channels(const struct pn_hparams *h) {
    return (2 * (uint64_t)h->lin_k_head_n + h->lin_v_head_n) * h->lin_dim;
}

/* Of one recurrent layer: the convolution's last inputs, then a matrix a value head. */
static uint64_t layer_state_bytes(const struct pn_hparams *h) {
    uint64_t conv = (h->conv_kernel - 1) * lin_channels(h);
    uint64_t delta = (uint64_t)h->lin_v_head_n * h->lin_dim * h->lin_dim;
    return (conv + delta) * sizeof(float);
}

uint64_t pn__model_state_bytes(const struct pn_hparams *h) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < h->layer_n; i++) {
        n += pn__layer_recurrent(h, i);
    }
    return n ? n * layer_state_bytes(h) : 0;
}

static uint32_t max_u32(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

struct pn_kv_shape pn__model_kv_shape(const struct pn_hparams *h) {
    return (struct pn_kv_shape){
        .head_n = h->kv_head_n, .k_dim = h->k_dim, .v_dim = h->v_dim, .v_in_k = h->latent_dim != 0};
}

uint32_t pn__model_col_max(const struct pn_hparams *h) {
    uint32_t out_dim = h->latent_dim ? h->head_v_dim : h->v_dim;
    uint32_t n = max_u32(max_u32(h->embd, h->ff.value), h->head_n * out_dim);
    if (h->moe.expert_n.value) n = max_u32(n, max_u32(h->moe.ff.value, h->moe.shared_ff));
    n = max_u32(max_u32(n, h->q_rank), pn__model_head_col_max(h));
    return max_u32(n, h->lin_v_head_n * h->lin_dim);
}

uint32_t pn__model_head_col_max(const struct pn_hparams *h) {
    return max_u32(h->nope_dim, h->latent_dim);
}

uint32_t pn__model_dim_max(const struct pn_hparams *h) {
    return max_u32(max_u32(h->k_dim, h->v_dim), h->lin_dim);
}

static void name_of(uint32_t layer_i, const char *suffix, char name[64]) {
    snprintf(name, 64, "blk.%u.%s", layer_i, suffix);
}

int pn__bind_weight(const struct pn_binder *b, uint32_t layer_i, const char *suffix, uint32_t col_n,
                    uint32_t row_n, bool optional, struct pn_detail *d, struct pn_weight *out) {
    char name[64];
    name_of(layer_i, suffix, name);
    return b->weight(b->user, name, col_n, row_n, optional, d, out);
}

int pn__bind_stack(const struct pn_binder *b, uint32_t layer_i, const char *suffix, uint32_t col_n,
                   uint32_t row_n, uint32_t n, bool optional, struct pn_detail *d,
                   struct pn_expert_part *out) {
    char name[64];
    name_of(layer_i, suffix, name);
    return b->stack(b->user, name, col_n, row_n, n, optional, d, out);
}

int pn__bind_vector(const struct pn_binder *b, uint32_t layer_i, const char *suffix, uint64_t n,
                    bool optional, struct pn_detail *d, const float **out) {
    char name[64];
    name_of(layer_i, suffix, name);
    return b->vector(b->user, name, n, optional, d, out);
}

int pn__model_bind(struct pn_model *m, const struct pn_family *f, const struct pn_hparams *h,
                   const struct pn_binder *b, struct pn_detail *d) {
    m->family = f;
    m->h = *h;
    int rc = b->weight(b->user, "token_embd.weight", h->embd, h->vocab, false, d, &m->token_embd);
    if (rc == 0) rc = b->vector(b->user, "output_norm.weight", h->embd, false, d, &m->output_norm);
    if (rc == 0) rc = b->weight(b->user, "output.weight", h->embd, h->vocab, true, d, &m->output);
    if (rc == 0) {
        rc = b->vector(b->user, "rope_freqs.weight", h->rope.dim_n / 2, true, d, &m->rope_factors);
    }
    if (rc) return rc;
    if (m->output.row_n == 0) m->output = m->token_embd;
    m->h.rope.factors = m->rope_factors;
    uint32_t kv_i[PN_PAGE_KIND_N] = {0};
    uint64_t state_off = 0;
    for (uint32_t i = 0; i < h->layer_n; i++) {
        struct pn_layer *l = &m->layers[i];
        l->recurrent = pn__layer_recurrent(h, i);
        if (l->recurrent) {
            l->state_off = state_off;
            state_off += layer_state_bytes(h);
        } else {
            l->kind = pn__layer_kind(h, i);
            l->kv_i = kv_i[l->kind]++;
        }
        rc = f->bind_layer(m, i, b, d);
        if (rc) return rc;
    }
    return 0;
}

struct pn_mat pn__mat_take(struct pn_arena *a, uint32_t row_n, uint64_t col_n) {
    /* Rows start on cache lines. */
    uint64_t stride = (col_n + 15) & ~(uint64_t)15;
    float *data = pn__arena_take(a, (uint64_t)row_n * stride, sizeof(float));
    return (struct pn_mat){
        .data = data, .row_n = row_n, .col_n = (uint32_t)col_n, .stride = stride};
}

void pn__model_layout(const struct pn_family *f, const struct pn_hparams *h, uint32_t row_max,
                      uint32_t out_max, struct pn_arena *a, struct pn_work *w) {
    memset(w, 0, sizeof *w);
    f->layout(h, row_max, a, w);
    w->out_x = pn__mat_take(a, out_max, h->embd);
    w->logits = pn__mat_take(a, out_max, h->vocab);
}

void pn__model_forward(const struct pn_model *m, struct pn_step *s, const struct pn_batch *b,
                       const struct pn_work *full) {
    struct pn_work w = *full;
    w.x.row_n = b->row_n;
    const struct pn_hparams *h = &m->h;
    pn__op_embed(s, &m->token_embd, b->ids, b->row_n, h->embd_scale, w.x);
    if (w.rope.data) pn__op_rope_table(s, &h->rope, b->positions, pn__mat_rows(w.rope, b->row_n));
    if (w.rope_local.data) {
        pn__op_rope_table(s, &h->rope_local, b->positions, pn__mat_rows(w.rope_local, b->row_n));
    }
    w.route.row_n = b->row_n;
    w.route.weights.row_n = b->row_n;
    if (w.route.ids) pn__op_route_clear(s, &w.route);
    for (uint32_t i = 0; i < h->layer_n; i++) {
        m->family->layer(m, &m->layers[i], s, b, &w);
    }
    if (b->out_n == 0) return;
    struct pn_mat out_x = pn__mat_rows(w.out_x, b->out_n);
    pn__op_take_rows(s, w.x, b->out_rows, b->out_n, out_x);
    pn__op_rms_norm(s, out_x, m->output_norm, h->eps, out_x);
    struct pn_matmul part = {.w = &m->output, .out = pn__mat_rows(w.logits, b->out_n)};
    pn__op_matmul(s, out_x, &part, 1);
}
