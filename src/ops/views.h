/* What operations work on: plain views of weights, activations and KV pages, and the few choices
 * that kernels know. Apart from ops.h because every kernel file is compiled anew when this changes.
 *
 * Views don't own memory. Addresses are the backend's; the CPU's are host pointers. Shapes are
 * written [rows, columns], strides count floats.
 */
#ifndef PN_OPS_VIEWS_H
#define PN_OPS_VIEWS_H

#include <stdbool.h>
#include <stdint.h>

#include "quant/quant.h"

/* Activations: [row_n, col_n] floats. */
struct pn_mat {
    float *data;
    uint32_t row_n;
    uint32_t col_n;
    uint64_t stride; /* between rows */
};

/* Activations seen as heads: [row_n, head_n, dim]. */
struct pn_heads {
    float *data;
    uint32_t row_n;
    uint32_t head_n;
    uint32_t dim;
    uint64_t row_stride;
    uint64_t head_stride;
};

/* A weight matrix [row_n, col_n] in a file's own block layout: out = W x. */
struct pn_weight {
    const uint8_t *data;
    uint64_t row_bytes;
    uint32_t row_n; /* outputs */
    uint32_t col_n; /* inputs, a multiple of the type's block */
    enum pn_type type;
    float scale; /* the whole matrix times this (NVFP4's companion tensor); 1 elsewhere. Applied
                    once to the finished row dot, before the bias. */
};

#define PN_PAGE_TOKENS 64 /* tokens a KV page holds */
#define PN_GROUP_PAGES 16 /* pages a group of attention's fixed order holds */

enum pn_kv_format { PN_KV_F32 = 0, PN_KV_F16 = 1, PN_KV_Q8_0 = 2, PN_KV_Q4 = 3 };
#define PN_KV_FORMAT_N 4

/* What the layers of one kind store a token. */
struct pn_kv_shape {
    uint32_t head_n; /* KV heads */
    uint32_t k_dim;
    uint32_t v_dim;
    bool v_in_k; /* V is the first v_dim (<= k_dim) values of K, as stored: there is no row of V */
};

/* Which page table a layer uses: keys and values of everything, or of a window only; or, of
 * everything, the one compressed row from which keys and values of all heads come (latent). */
enum pn_page_kind { PN_PAGE_FULL = 0, PN_PAGE_WINDOW = 1, PN_PAGE_LATENT = 2 };
#define PN_PAGE_KIND_N 3

/* Bytes of one head's vector. F32: 4 dim; F16: 2 dim; Q8_0 and Q4: blocks of 32 (the last one
 * short): all the f16 scales, then all the codes. Q8_0: int8, 2 * ceil(dim / 32) + dim; Q4: four
 * bits, 2 * ceil(dim / 32) + ceil(dim / 2), element 2j in the low half of byte j. A Q4 vector is
 * stored rotated (KERNELS). */
uint64_t pn__kv_row_bytes(enum pn_kv_format f, uint32_t dim);

/* Bytes of one layer's part of a page: K [head_n][PN_PAGE_TOKENS][k row], then V alike unless it is
 * in K, each rounded up to 64. Layer i of a page starts at i times this. */
uint64_t pn__kv_layer_bytes(enum pn_kv_format f, const struct pn_kv_shape *shape);
/* Where V starts in a layer's part; V in K has no part. */
uint64_t pn__kv_v_offset(enum pn_kv_format f, const struct pn_kv_shape *shape);

/* A page: data of all layers of its kind, in its own format. */
struct pn_page_view {
    uint8_t *data;
    enum pn_kv_format format;
};

/* pages[i] holds positions [(first + i) * PN_PAGE_TOKENS, …). Lower ones are gone (window).
 *
 * A page may exist in two forms, wide in `pages` and narrow in `narrow`; data NULL: that form isn't
 * there. Rows are written to each form that is. Which one a token reads is decided by its own page
 * and the page's number alone, see pn__page_narrow. */
struct pn_page_table {
    const struct pn_page_view *pages;
    uint32_t first;
    uint32_t n;
    const struct pn_page_view *narrow; /* [n]; NULL: no page has a narrow form */
};

/* The newest pages that a token reads in their wide form, its own included. With one, a page's
 * first token needs no wide page but the sequence's first, so a sequence whose later pages are
 * dropped can be taken up again at any page's start. */
#define PN_KV_WIDE_PAGES 1

/* Whether a token in page `reader` reads page `page` in its narrow form, where there are such: not
 * the first, on which attention leans, and not the newest. */
static inline bool pn__page_narrow(uint32_t page, uint32_t reader) {
    return page > 0 && page + PN_KV_WIDE_PAGES <= reader;
}

/* What gate and up of a feed-forward network become: act(gate) * up. */
enum pn_act {
    PN_ACT_FN_SILU,
    PN_ACT_FN_GELU_TANH,
    /* GELU as the reference engine tabulates it, with half-precision input and output: 0 up to -10,
     * x itself from 10 on. Models of many layers show the difference (gemma3 of 62: 0.9 % of a
     * row's largest logit), so the goldens hold only with it. */
    PN_ACT_FN_GELU_HALF,
    /* g = min(gate, 7), u = up within -7 and 7: g * sigmoid(1.702 g) * (u + 1) (gpt-oss). */
    PN_ACT_FN_SWIGLU_CLAMPED,
};
#define PN_ACT_FN_N 4

/* ---- routers ---- */

enum pn_gating {
    PN_GATING_SOFTMAX = 1,      /* p = softmax over all experts */
    PN_GATING_SIGMOID = 2,      /* p = sigmoid of each */
    PN_GATING_TOPK_SOFTMAX = 3, /* p = the logit itself; softmax over the chosen ones (gpt-oss) */
};

/* How a row's experts are chosen: the top_k with the highest p + select_bias, lowest index first
 * among equals, in that order. An expert's weight is its p (without the bias), then divided by the
 * sum of the chosen ones' if `normalise`, then times `scale`. */
struct pn_router {
    enum pn_gating gating;
    uint32_t expert_n;
    uint32_t top_k;
    const float *select_bias; /* [expert_n], or NULL: none */
    /* Groups of expert_n / group_n neighbours; only experts of the group_used_n best groups are
     * taken, a group being as good as the sum of its two highest p + select_bias. 0 or 1: no
     * groups. */
    uint32_t group_n;
    uint32_t group_used_n;
    bool normalise;
    float norm_min; /* the sum counts as at least this much */
    float scale;    /* 1: none */
};
#define PN_TOP_K_MAX 64u    /* experts a row may use */
#define PN_EXPERT_MAX 4096u /* experts of a layer */
#define PN_EXPERT_GROUP_MAX 256u

#endif
