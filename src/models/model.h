/* Models: one file a family, the forward pass written once over ops/.
 *
 * A family reads its hyperparameters from metadata, names the tensors it needs to a binder, lays
 * out its work buffers in an arena and issues a step. It never allocates, never reads a tensor's
 * bytes and knows neither threads nor instruction sets. The engine owns all memory.
 */
#ifndef PN_MODELS_MODEL_H
#define PN_MODELS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "gguf/gguf.h"
#include "ops/ops.h"

/* A number that files give for the whole model or layer by layer. */
struct pn_layer_u32 {
    uint32_t value;          /* of every layer without a list; the highest of a list */
    struct pn_gguf_arr list; /* n 0: none */
};
static inline uint32_t pn__layer_u32(const struct pn_layer_u32 *v, uint32_t layer_i) {
    return v->list.n ? (uint32_t)pn__gguf_arr_i64(&v->list, layer_i) : v->value;
}

/* Mixtures of experts; expert_n.value 0: none. */
struct pn_moe_hparams {
    struct pn_layer_u32 expert_n; /* 0 in a layer: a dense one */
    struct pn_layer_u32 used_n;   /* experts that a token uses */
    struct pn_layer_u32 ff;       /* of one expert */
    uint32_t dense_lead_n;        /* so many first layers are dense */
    uint32_t shared_ff;           /* of the shared expert; 0: none */
    struct pn_router router;      /* all but expert_n, top_k and the bias */
};

struct pn_hparams {
    uint32_t layer_n;        /* that run; blocks of the file beyond are `unused_layer_n` */
    uint32_t unused_layer_n; /* trailing multi-token-prediction blocks */
    uint32_t ctx_train;
    uint32_t embd;
    struct pn_layer_u32 ff; /* of dense layers; 0: a layer without a feed-forward */
    struct pn_moe_hparams moe;
    uint32_t vocab; /* rows of token_embd */
    uint32_t head_n;
    uint32_t kv_head_n;
    uint32_t k_dim;
    uint32_t v_dim;
    bool qk_norm_whole; /* q_norm and k_norm are as wide as all heads together */
    bool q_gated;       /* the q projection yields a gate of k_dim beside each query head */
    float eps;
    float attn_scale; /* of q.k */
    float q_scale;    /* of q before that; 1 */
    float embd_scale; /* of the token embedding; 1 */
    enum pn_act ffn_act;
    uint32_t window;           /* of window layers; 0: the model has none */
    uint32_t window_period;    /* every n-th layer is full, the others look back `window` */
    struct pn_rope rope;       /* of full layers */
    struct pn_rope rope_local; /* of window layers */

    /* gated delta-net layers (qwen35); conv_kernel 0: none */
    uint32_t full_period; /* every n-th layer is attention, the others recurrent */
    uint32_t conv_kernel;
    uint32_t lin_k_head_n;
    uint32_t lin_v_head_n;
    uint32_t lin_dim; /* of a key and of a value head */

    /* latent attention (deepseek2); latent_dim 0: none. kv_head_n is 1, k_dim a token's row in the
     * cache (the latent, then rope.dim_n values for the position), v_dim the latent. */
    uint32_t latent_dim;
    uint32_t q_rank;     /* queries through so many values; 0: straight */
    uint32_t nope_dim;   /* of a head's query, what meets the latent; rope.dim_n more follow */
    uint32_t head_v_dim; /* of a head's output */
};

/* Weights and vectors of one block; what a family doesn't use is zero. */
struct pn_layer {
    struct pn_weight q, k, v, o;
    struct pn_weight gate, up, down;
    const float *q_bias, *k_bias, *v_bias, *o_bias;
    const float *attn_norm, *ffn_norm;           /* [embd] */
    const float *attn_post_norm, *ffn_post_norm; /* [embd] */
    const float *q_norm, *k_norm;                /* [k_dim], or of all heads */
    const float *sinks;                          /* [head_n] scores without a value */

    struct pn_experts experts; /* expert_n 0: the layer is dense */
    struct pn_router router;
    struct pn_weight router_in; /* [expert_n, embd] */
    const float *router_bias;   /* [expert_n] */
    struct pn_weight shared_gate, shared_up, shared_down;
    struct pn_weight shared_in; /* [1, embd] its sigmoid scales the shared expert */

    struct pn_weight q_a;            /* latent attention: l.q is from q_rank then, l.k the row */
    struct pn_head_weights k_b, v_b; /* into the latent space and out of it */
    bool k_b_across;                 /* k_b is that of a fused file: to be applied transposed */
    const float *q_a_norm;           /* [q_rank] */
    const float *kv_a_norm;          /* [latent_dim] */

    struct pn_weight lin_qkv, lin_z, lin_beta, lin_alpha, lin_out;
    const float *conv;     /* [channels, conv_kernel] */
    const float *lin_dt;   /* [lin_v_head_n] */
    const float *lin_a;    /* [lin_v_head_n] */
    const float *lin_norm; /* [lin_dim] */

    bool recurrent;
    enum pn_page_kind kind; /* attention: which pages */
    uint32_t kv_i;          /* attention: its number among the layers of that kind */
    uint64_t state_off;     /* recurrent: byte offset in the sequence's state */
};

struct pn_model {
    const struct pn_family *family;
    struct pn_hparams h;
    struct pn_layer *layers; /* [h.layer_n], memory of the engine */
    struct pn_weight token_embd;
    struct pn_weight output; /* the token embedding itself where the file has none */
    const float *output_norm;
    const float *rope_factors; /* [rope.dim_n / 2] or NULL */
};

/* Finds tensors by name. `weight` and `vector` check the shape; `optional` ones that the file lacks
 * stay zeroed / NULL. A binder that only counts hands out no data. */
struct pn_binder {
    int (*weight)(void *user, const char *name, uint32_t col_n, uint32_t row_n, bool optional,
                  struct pn_detail *d, struct pn_weight *out);
    /* n matrices in one tensor, each [row_n, col_n]. */
    int (*stack)(void *user, const char *name, uint32_t col_n, uint32_t row_n, uint32_t n,
                 bool optional, struct pn_detail *d, struct pn_expert_part *out);
    /* An F32, F16 or BF16 tensor of n values in all, as floats. */
    int (*vector)(void *user, const char *name, uint64_t n, bool optional, struct pn_detail *d,
                  const float **out);
    void *user;
};

/* Activations of one step, carved from an arena for row_max rows and out_max logit rows. */
struct pn_work {
    struct pn_mat x;      /* [row_max, embd] the residual stream */
    struct pn_mat normed; /* [row_max, embd] */
    struct pn_mat branch; /* [row_max, embd] what a block adds */
    struct pn_mat q;      /* [row_max, heads of q; twice that where q carries a gate] */
    struct pn_mat k;
    struct pn_mat v;
    struct pn_mat attn;     /* [row_max, head_n * v_dim] */
    struct pn_mat q_low;    /* [row_max, q_rank] */
    struct pn_mat q_latent; /* [row_max, head_n * k_dim] */
    struct pn_mat head_v;   /* [row_max, head_n * head_v_dim] */
    struct pn_mat ff_gate;
    struct pn_mat ff_up;
    struct pn_mat router;    /* [row_max, experts] logits */
    struct pn_mat shared_in; /* [row_max, 1] the shared expert's gate */
    struct pn_route route;   /* of the layer under way */
    /* Told each layer's routing, before its experts run; NULL: nobody asks. */
    void (*on_route)(void *user, struct pn_step *s, uint32_t layer_i, const struct pn_route *route);
    void *on_route_user;
    struct pn_mat lin_in;  /* [row_max, channels] */
    struct pn_mat lin_mix; /* [row_max, channels] after the convolution */
    struct pn_mat lin_z;
    struct pn_mat lin_out;
    struct pn_mat lin_beta;
    struct pn_mat lin_g;
    struct pn_mat rope;       /* [row_max, rope.dim_n] */
    struct pn_mat rope_local; /* [row_max, rope_local.dim_n]; empty without window layers */
    struct pn_mat out_x;      /* [out_max, embd] */
    struct pn_mat logits;     /* [out_max, vocab] */
};

struct pn_family {
    const char *arch; /* general.architecture */
    bool takes_experts;
    /* Mean KL of KV in four bits against f16 at 1,000 tokens, the worst of the family's models that
     * were measured (docs/KERNELS.md); 0: not measured. */
    double kv_q4_kl;
    int (*hparams)(const struct pn_gguf *g, struct pn_hparams *h, struct pn_detail *d);
    int (*bind_layer)(struct pn_model *m, uint32_t layer_i, const struct pn_binder *b,
                      struct pn_detail *d);
    void (*layout)(const struct pn_hparams *h, uint32_t row_max, struct pn_arena *a,
                   struct pn_work *w);
    void (*layer)(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                  const struct pn_batch *b, const struct pn_work *w);
};

/* PN_E_UNSUPPORTED names the architecture and lists the known ones. */
int pn__family_find(const struct pn_gguf *g, struct pn_detail *d,
                    const struct pn_family **out) PN_MUST_CHECK;

/* Reads and checks hyperparameters. h.vocab comes from token_embd. */
int pn__model_hparams(const struct pn_gguf *g, const struct pn_family *f, struct pn_hparams *h,
                      struct pn_detail *d) PN_MUST_CHECK;

/* Binds every tensor the model runs; m->layers holds h.layer_n zeroed layers. Fills each layer's
 * kind, kv_i and state_off. */
int pn__model_bind(struct pn_model *m, const struct pn_family *f, const struct pn_hparams *h,
                   const struct pn_binder *b, struct pn_detail *d) PN_MUST_CHECK;

/* Whether layer i is recurrent, and its page kind otherwise. */
bool pn__layer_recurrent(const struct pn_hparams *h, uint32_t layer_i);
enum pn_page_kind pn__layer_kind(const struct pn_hparams *h, uint32_t layer_i);
/* Attention layers of a kind; bytes of recurrent state of one sequence. */
uint32_t pn__model_kind_n(const struct pn_hparams *h, enum pn_page_kind kind);
uint64_t pn__model_state_bytes(const struct pn_hparams *h);
/* What one layer stores of a token. */
struct pn_kv_shape pn__model_kv_shape(const struct pn_hparams *h);
/* Longest matmul input, longest head, and longest input of a head's own matrix, for the backend's
 * scratch. */
uint32_t pn__model_col_max(const struct pn_hparams *h);
uint32_t pn__model_dim_max(const struct pn_hparams *h);
uint32_t pn__model_head_col_max(const struct pn_hparams *h);
/* Experts of a layer; 0: it is dense. */
uint32_t pn__layer_expert_n(const struct pn_hparams *h, uint32_t layer_i);

void pn__model_layout(const struct pn_family *f, const struct pn_hparams *h, uint32_t row_max,
                      uint32_t out_max, struct pn_arena *a, struct pn_work *w);

/* Issues one step: b->out_n rows of logits appear in w->logits. */
void pn__model_forward(const struct pn_model *m, struct pn_step *s, const struct pn_batch *b,
                       const struct pn_work *w);

/* ---- shared by the families' files ---- */

struct pn_mat pn__mat_take(struct pn_arena *a, uint32_t row_n, uint64_t col_n);
static inline struct pn_mat pn__mat_rows(struct pn_mat m, uint32_t row_n) {
    m.row_n = row_n;
    return m;
}
/* The first columns. */
static inline struct pn_mat pn__mat_cols(struct pn_mat m, uint32_t col_n) {
    m.col_n = col_n;
    return m;
}
/* Columns [col, col + head_n * dim) seen as heads that lie `head_stride` apart. */
static inline struct pn_heads pn__mat_heads(struct pn_mat m, uint64_t col, uint32_t head_n,
                                            uint32_t dim, uint64_t head_stride) {
    return (struct pn_heads){.data = m.data ? m.data + col : NULL,
                             .row_n = m.row_n,
                             .head_n = head_n,
                             .dim = dim,
                             .row_stride = m.stride,
                             .head_stride = head_stride};
}

/* Keys ARCH.suffix. need: absence is PN_E_FORMAT naming the full key; else `out` keeps its value.
 */
int pn__hp_u32(const struct pn_gguf *g, const char *suffix, bool need, uint32_t max, uint32_t *out,
               struct pn_detail *d) PN_MUST_CHECK;
/* The same for a key that may be a list with a number for each block of the file. */
int pn__hp_layers(const struct pn_gguf *g, const char *suffix, bool need, uint32_t max,
                  const struct pn_hparams *h, struct pn_layer_u32 *out,
                  struct pn_detail *d) PN_MUST_CHECK;
int pn__hp_bool(const struct pn_gguf *g, const char *suffix, bool *out,
                struct pn_detail *d) PN_MUST_CHECK;
int pn__hp_f32(const struct pn_gguf *g, const char *suffix, bool need, float *out,
               struct pn_detail *d) PN_MUST_CHECK;
bool pn__hp_has(const struct pn_gguf *g, const char *suffix);

/* Sizes, heads, eps, context and rope of a decoder with attention in every block. `neox` is the
 * family's rope pairing. */
int pn__hparams_decoder(const struct pn_gguf *g, bool neox, struct pn_hparams *h,
                        struct pn_detail *d) PN_MUST_CHECK;

/* softmax over all experts; `normalise`: the chosen ones' weights sum to 1. */
struct pn_router pn__router_softmax(bool normalise);
/* The keys of a mixture, checked; after pn__hparams_decoder. h->moe.router holds the family's way
 * (gating, normalise, scale), which keys of the file overrule. `ff_suffix`: the key of an expert's
 * width where expert_feed_forward_length is absent; NULL: that one is needed. */
int pn__hparams_moe(const struct pn_gguf *g, const char *ff_suffix, struct pn_hparams *h,
                    struct pn_detail *d) PN_MUST_CHECK;

int pn__bind_weight(const struct pn_binder *b, uint32_t layer_i, const char *suffix, uint32_t col_n,
                    uint32_t row_n, bool optional, struct pn_detail *d,
                    struct pn_weight *out) PN_MUST_CHECK;
int pn__bind_stack(const struct pn_binder *b, uint32_t layer_i, const char *suffix, uint32_t col_n,
                   uint32_t row_n, uint32_t n, bool optional, struct pn_detail *d,
                   struct pn_expert_part *out) PN_MUST_CHECK;
int pn__bind_vector(const struct pn_binder *b, uint32_t layer_i, const char *suffix, uint64_t n,
                    bool optional, struct pn_detail *d, const float **out) PN_MUST_CHECK;

/* q, k, v, o, their norms and biases; gate, up, down. For blocks as llama's. */
int pn__bind_attention(struct pn_model *m, uint32_t layer_i, const struct pn_binder *b,
                       uint32_t q_rows, struct pn_detail *d) PN_MUST_CHECK;
/* The biases of q (head_n * k_dim), k and v. */
int pn__bind_qkv_bias(struct pn_model *m, uint32_t layer_i, const struct pn_binder *b,
                      bool optional, struct pn_detail *d) PN_MUST_CHECK;
/* Of a dense layer, or the layer's experts with their router. */
int pn__bind_ffn(struct pn_model *m, uint32_t layer_i, const struct pn_binder *b,
                 struct pn_detail *d) PN_MUST_CHECK;
int pn__bind_moe(struct pn_model *m, uint32_t layer_i, const struct pn_binder *b,
                 struct pn_detail *d) PN_MUST_CHECK;

/* qwen3's blocks, and qwen35's; qwen3moe and qwen35moe have the same but for the feed-forward. */
int pn__bind_qwen3(struct pn_model *m, uint32_t layer_i, const struct pn_binder *b,
                   struct pn_detail *d) PN_MUST_CHECK;
int pn__hparams_qwen35(const struct pn_gguf *g, struct pn_hparams *h,
                       struct pn_detail *d) PN_MUST_CHECK;
int pn__bind_qwen35(struct pn_model *m, uint32_t layer_i, const struct pn_binder *b,
                    struct pn_detail *d) PN_MUST_CHECK;
void pn__layout_qwen35(const struct pn_hparams *h, uint32_t row_max, struct pn_arena *a,
                       struct pn_work *w);
void pn__layer_qwen35(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                      const struct pn_batch *b, const struct pn_work *w);

/* Of any layer's feed-forward, dense or a mixture. */
void pn__layout_ffn(const struct pn_hparams *h, uint32_t row_max, struct pn_arena *a,
                    struct pn_work *w);
void pn__layout_decoder(const struct pn_hparams *h, uint32_t row_max, struct pn_arena *a,
                        struct pn_work *w);
/* The block of llama, qwen2, qwen3 and gemma3: attention and feed-forward, each behind a norm, with
 * the optional parts (biases, head norms, post norms) that the layer has. */
void pn__layer_decoder(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                       const struct pn_batch *b, const struct pn_work *w);
void pn__layout_moe(const struct pn_hparams *h, uint32_t row_max, struct pn_arena *a,
                    struct pn_work *w);
/* x += down(act(gate(normed)) * up(normed)), normed = x behind ffn_norm; or the experts' sum. */
void pn__layer_ffn(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                   const struct pn_batch *b, const struct pn_work *w);

/* x += the experts' weighted sum, and the shared expert, of normed rows. */
void pn__layer_moe(const struct pn_model *m, const struct pn_layer *l, struct pn_step *s,
                   const struct pn_batch *b, const struct pn_work *w);

extern const struct pn_family pn__family_llama;
extern const struct pn_family pn__family_qwen2;
extern const struct pn_family pn__family_qwen3;
extern const struct pn_family pn__family_gemma3;
extern const struct pn_family pn__family_qwen35;
extern const struct pn_family pn__family_qwen3moe;
extern const struct pn_family pn__family_olmoe;
extern const struct pn_family pn__family_qwen35moe;
extern const struct pn_family pn__family_gptoss;
extern const struct pn_family pn__family_deepseek2;

#endif
