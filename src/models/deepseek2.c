/* deepseek2 (V2, V3 and their kin): latent attention, mixtures of experts behind some dense layers.
 *
 * A token's keys and values are one vector: kv_lora_rank values (the latent, normed) and
 * rope.dimension_count more that carry the position, the same for all heads. Head h's key would be
 * K_h latent and its value V_h latent; instead of that K_h is applied to the query (K_hᵀ q) and V_h
 * to what attention makes of the latents, so attention runs in the latent space, over pages of one
 * row a token (arXiv:2405.04434, section 2.1.3). Files hold K_hᵀ and V_h apart (attn_k_b,
 * attn_v_b); old ones both in attn_kv_b, of which K_h is then read across. */
#include <math.h>

#include "models/model.h"

#define RANK_MAX (1u << 14)
#define LATENT_MAX 2048u /* values of a row in the cache: what attention's scratch is made for */

/* Yarn, as the files' reference engine has it: with the multiplier m of the file (a tenth of the
 * published mscale_all_dim) cosine and sine stay as they are, and the score is multiplied by
 * (1 + m ln f)^2. Without it cosine and sine are multiplied by yarn's own 1 + 0.1 ln f and the
 * score, of whose parts they reach only one, by the square of that. */
static int yarn(const struct pn_gguf *g, struct pn_hparams *h, struct pn_detail *d) {
    float multiplier = 0.0f;
    int rc = pn__hp_f32(g, "rope.scaling.yarn_log_multiplier", false, &multiplier, d);
    if (rc || h->rope.ext_factor == 0.0) return rc;
    double ln_factor = log(1.0 / h->rope.freq_scale);
    double own = 1.0 + 0.1 * ln_factor;
    double times = h->rope.attn_factor * own; /* of cosine and sine */
    if (multiplier != 0.0f) {
        times = h->rope.attn_factor;
        h->rope.attn_factor /= own;
    }
    double scale = times * (1.0 + (double)multiplier * ln_factor);
    h->attn_scale = (float)((double)h->attn_scale * scale * scale);
    return 0;
}

static int check_dims(const struct pn_hparams *h, uint32_t head_k, uint32_t head_v, uint32_t row,
                      struct pn_detail *d) {
    if (head_k <= h->rope.dim_n || head_v == 0) {
        return pn__fail(d, PN_E_FORMAT, "heads of %u keys, of which rope takes %u, and %u values",
                        head_k, h->rope.dim_n, head_v);
    }
    if (row > LATENT_MAX) {
        return pn__fail(d, PN_E_UNSUPPORTED,
                        "a latent row of %u values (kv_lora_rank and rope.dimension_count); up to "
                        "%u run",
                        row, LATENT_MAX);
    }
    return 0;
}

static int hparams(const struct pn_gguf *g, struct pn_hparams *h, struct pn_detail *d) {
    int rc = pn__hparams_decoder(g, false, h, d);
    if (rc) return rc;
    uint32_t head_k = h->k_dim;
    uint32_t head_v = h->v_dim;
    uint32_t written_k = h->k_dim;
    rc = pn__hp_u32(g, "attention.kv_lora_rank", true, RANK_MAX, &h->latent_dim, d);
    if (rc == 0) rc = pn__hp_u32(g, "attention.q_lora_rank", false, RANK_MAX, &h->q_rank, d);
    if (rc == 0) rc = pn__hp_u32(g, "attention.key_length_mla", false, 2048, &head_k, d);
    if (rc == 0) rc = pn__hp_u32(g, "attention.value_length_mla", false, 2048, &head_v, d);
    uint32_t row = h->latent_dim + h->rope.dim_n;
    if (rc == 0) rc = check_dims(h, head_k, head_v, row, d);
    if (rc) return rc;
    if (pn__hp_has(g, "attention.key_length_mla") && written_k != row) {
        return pn__fail(d, PN_E_FORMAT,
                        "attention.key_length is %u; kv_lora_rank %u and rope.dimension_count %u "
                        "make %u",
                        written_k, h->latent_dim, h->rope.dim_n, row);
    }
    if (pn__hp_has(g, "attention.temperature_scale")) {
        return pn__fail(d, PN_E_UNSUPPORTED,
                        "deepseek2.attention.temperature_scale: queries scaled by their position "
                        "don't run");
    }
    if (!pn__hp_has(g, "attention.scale")) h->attn_scale = 1.0f / sqrtf((float)head_k);
    h->nope_dim = head_k - h->rope.dim_n;
    h->head_v_dim = head_v;
    h->kv_head_n = 1;
    h->k_dim = row;
    h->v_dim = h->latent_dim;
    h->moe.router = pn__router_softmax(false);
    rc = pn__hparams_moe(g, NULL, h, d);
    return rc ? rc : yarn(g, h, d);
}

/* K_h and V_h one behind the other in attn_kv_b, head by head. */
static int bind_fused(const struct pn_hparams *h, uint32_t i, const struct pn_binder *b,
                      struct pn_layer *l, struct pn_detail *d) {
    struct pn_weight w = {0};
    uint32_t head_rows = h->nope_dim + h->head_v_dim;
    int rc = pn__bind_weight(b, i, "attn_kv_b.weight", h->latent_dim, h->head_n * head_rows, true,
                             d, &w);
    if (rc || w.row_n == 0) return rc;
    l->k_b.w = w;
    l->k_b.w.row_n = h->nope_dim;
    l->k_b.head_bytes = head_rows * w.row_bytes;
    l->v_b = l->k_b;
    l->v_b.w.row_n = h->head_v_dim;
    if (w.data) l->v_b.w.data = w.data + h->nope_dim * w.row_bytes;
    l->k_b_across = true;
    return 0;
}

/* One matrix a head, in a tensor of their own. */
static int bind_heads(const struct pn_binder *b, uint32_t i, const char *suffix, uint32_t col_n,
                      uint32_t row_n, uint32_t head_n, struct pn_detail *d,
                      struct pn_head_weights *out) {
    struct pn_expert_part part = {0};
    int rc = pn__bind_stack(b, i, suffix, col_n, row_n, head_n, false, d, &part);
    *out = (struct pn_head_weights){
        .w = part.w, .head_bytes = part.expert_bytes, .scales = part.scales};
    return rc;
}

static int bind_attention(struct pn_model *m, uint32_t i, const struct pn_binder *b,
                          struct pn_detail *d) {
    const struct pn_hparams *h = &m->h;
    struct pn_layer *l = &m->layers[i];
    uint32_t q_rows = h->head_n * (h->nope_dim + h->rope.dim_n);
    int rc = pn__bind_vector(b, i, "attn_norm.weight", h->embd, false, d, &l->attn_norm);
    if (rc == 0 && h->q_rank == 0) {
        rc = pn__bind_weight(b, i, "attn_q.weight", h->embd, q_rows, false, d, &l->q);
    }
    if (rc == 0 && h->q_rank != 0) {
        rc = pn__bind_weight(b, i, "attn_q_a.weight", h->embd, h->q_rank, false, d, &l->q_a);
        if (rc == 0) {
            rc = pn__bind_vector(b, i, "attn_q_a_norm.weight", h->q_rank, false, d, &l->q_a_norm);
        }
        if (rc == 0) {
            rc = pn__bind_weight(b, i, "attn_q_b.weight", h->q_rank, q_rows, false, d, &l->q);
        }
    }
    if (rc == 0) {
        rc = pn__bind_weight(b, i, "attn_kv_a_mqa.weight", h->embd, h->k_dim, false, d, &l->k);
    }
    if (rc == 0) {
        rc = pn__bind_vector(b, i, "attn_kv_a_norm.weight", h->latent_dim, false, d, &l->kv_a_norm);
    }
    if (rc == 0) rc = bind_fused(h, i, b, l, d);
    if (rc == 0 && !l->k_b_across) {
        rc = bind_heads(b, i, "attn_k_b.weight", h->nope_dim, h->latent_dim, h->head_n, d, &l->k_b);
        if (rc == 0) {
            rc = bind_heads(b, i, "attn_v_b.weight", h->latent_dim, h->head_v_dim, h->head_n, d,
                            &l->v_b);
        }
    }
    if (rc == 0) {
        rc = pn__bind_weight(b, i, "attn_output.weight", h->head_n * h->head_v_dim, h->embd, false,
                             d, &l->o);
    }
    return rc;
}

static void layout(const struct pn_hparams *h, uint32_t row_max, struct pn_arena *a,
                   struct pn_work *w) {
    w->x = pn__mat_take(a, row_max, h->embd);
    w->normed = pn__mat_take(a, row_max, h->embd);
    w->branch = pn__mat_take(a, row_max, h->embd);
    if (h->q_rank) w->q_low = pn__mat_take(a, row_max, h->q_rank);
    w->q = pn__mat_take(a, row_max, (uint64_t)h->head_n * (h->nope_dim + h->rope.dim_n));
    w->q_latent = pn__mat_take(a, row_max, (uint64_t)h->head_n * h->k_dim);
    w->k = pn__mat_take(a, row_max, h->k_dim);
    w->attn = pn__mat_take(a, row_max, (uint64_t)h->head_n * h->latent_dim);
    w->head_v = pn__mat_take(a, row_max, (uint64_t)h->head_n * h->head_v_dim);
    pn__layout_ffn(h, row_max, a, w);
    w->rope = pn__mat_take(a, row_max, h->rope.dim_n);
}

/* Queries, and the token's row of the cache, from `normed`. */
static void project(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                    const struct pn_work *w, uint32_t n) {
    const struct pn_hparams *h = &m->h;
    struct pn_mat q = pn__mat_rows(w->q, n);
    struct pn_mat q_low = pn__mat_rows(w->q_low, n);
    struct pn_mat row = pn__mat_rows(w->k, n);
    struct pn_matmul in[] = {
        {.w = &l->k, .out = row},
        {.w = h->q_rank ? &l->q_a : &l->q, .out = h->q_rank ? q_low : q},
    };
    pn__op_matmul(s, pn__mat_rows(w->normed, n), in, 2);
    if (h->q_rank) {
        pn__op_rms_norm(s, q_low, l->q_a_norm, h->eps, q_low);
        struct pn_matmul up = {.w = &l->q, .out = q};
        pn__op_matmul(s, q_low, &up, 1);
    }
    pn__op_rms_norm_heads(s, pn__mat_heads(row, 0, 1, h->latent_dim, h->latent_dim), l->kv_a_norm,
                          h->eps);
}

static void attention(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                      const struct pn_batch *b, const struct pn_work *w) {
    const struct pn_hparams *h = &m->h;
    uint32_t n = b->row_n;
    uint32_t rope_n = h->rope.dim_n;
    struct pn_mat branch = pn__mat_rows(w->branch, n);
    struct pn_mat mixed = pn__mat_rows(w->head_v, n);
    pn__op_rms_norm(s, w->x, l->attn_norm, h->eps, pn__mat_rows(w->normed, n));
    project(m, l, s, w, n);

    /* Head by head: what meets the latent, then what carries the position. */
    struct pn_mat q = pn__mat_rows(w->q, n);
    struct pn_mat latent = pn__mat_rows(w->q_latent, n);
    struct pn_mat table = pn__mat_rows(w->rope, n);
    struct pn_heads q_nope = pn__mat_heads(q, 0, h->head_n, h->nope_dim, h->nope_dim + rope_n);
    struct pn_heads q_rope = pn__mat_heads(q, h->nope_dim, h->head_n, rope_n, h->nope_dim + rope_n);
    struct pn_heads row = pn__mat_heads(pn__mat_rows(w->k, n), 0, 1, h->k_dim, h->k_dim);
    struct pn_heads row_rope =
        pn__mat_heads(pn__mat_rows(w->k, n), h->latent_dim, 1, rope_n, rope_n);
    pn__op_rope(s, &h->rope, table, q_rope);
    pn__op_rope(s, &h->rope, table, row_rope);
    struct pn_heads into = pn__mat_heads(latent, 0, h->head_n, h->latent_dim, h->k_dim);
    if (l->k_b_across) {
        pn__op_matmul_heads_t(s, q_nope, &l->k_b, into);
    } else {
        pn__op_matmul_heads(s, q_nope, &l->k_b, into);
    }
    pn__op_copy_heads(s, q_rope, pn__mat_heads(latent, h->latent_dim, h->head_n, rope_n, h->k_dim));

    struct pn_kv_shape shape = pn__model_kv_shape(h);
    struct pn_heads all = pn__mat_heads(latent, 0, h->head_n, h->k_dim, h->k_dim);
    struct pn_heads out =
        pn__mat_heads(pn__mat_rows(w->attn, n), 0, h->head_n, h->latent_dim, h->latent_dim);
    pn__op_kv_write(s, b, l->kind, l->kv_i, &shape, row, row);
    pn__op_attention(s, b, l->kind, l->kv_i, &shape, all, h->attn_scale, 0, NULL, out);
    pn__op_matmul_heads(s, out, &l->v_b,
                        pn__mat_heads(mixed, 0, h->head_n, h->head_v_dim, h->head_v_dim));
    struct pn_matmul o = {.w = &l->o, .out = branch};
    pn__op_matmul(s, mixed, &o, 1);
    pn__op_add(s, w->x, branch);
}

static int bind_layer(struct pn_model *m, uint32_t i, const struct pn_binder *b,
                      struct pn_detail *d) {
    struct pn_layer *l = &m->layers[i];
    int rc = bind_attention(m, i, b, d);
    if (rc == 0) rc = pn__bind_vector(b, i, "ffn_norm.weight", m->h.embd, false, d, &l->ffn_norm);
    if (rc == 0) rc = pn__bind_ffn(m, i, b, d);
    return rc;
}

static void layer(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                  const struct pn_batch *b, const struct pn_work *w) {
    attention(m, l, s, b, w);
    pn__layer_ffn(m, l, s, b, w);
}

const struct pn_family pn__family_deepseek2 = {
    .arch = "deepseek2",
    .takes_experts = true,
    .hparams = hparams,
    .bind_layer = bind_layer,
    .layout = layout,
    .layer = layer,
};
