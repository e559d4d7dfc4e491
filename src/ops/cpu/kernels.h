/* The table of kernels: what an operation does to a range of its items, at one instruction-set
 * level, in the orders of docs/KERNELS.md.
 *
 * The scalar reference (ref_*.c) is the definition: every level gives its bits. Until a level has
 * kernels of its own, its table is the same source compiled for that instruction set; PN_LEVEL
 * names the copy. Kernels allocate nothing and know no thread: ops/ splits the work and hands each
 * thread its scratch. Any split gives the same bits.
 *
 * "Lane order" below: 16 partial sums, element k goes to lane k mod 16 by fmaf, k ascending, a tail
 * counts as zeros; then lane j += lane j + s for s = 8, 4, 2, 1.
 */
#ifndef PN_OPS_CPU_KERNELS_H
#define PN_OPS_CPU_KERNELS_H

#include "ops/views.h"

#ifndef PN_LEVEL
#define PN_LEVEL ref
#endif
#define PN_LEVEL_PASTE(name, level) pn__##name##_##level
#define PN_LEVEL_NAME(name, level) PN_LEVEL_PASTE(name, level)
#define PN_K(name) PN_LEVEL_NAME(name, PN_LEVEL) /* pn__name_ref, pn__name_avx2 … */

#define PN_LANES 16

/* ---- matmul ---- */

/* Input rows that a kernel takes at once. Prepared rows are laid out in tiles of that many, or of
 * what a level's kernels for many rows take (`many_tile`), so that a walk along K reads them in one
 * stream. */
#define PN_TILE 4

/* The rows of a matmul's input, prepared for one kind of weights: q, d and sums for Q32 and Q256,
 * bf for BF16, x itself for F32. Memory: the scratch of the backend. What stands in the last tile
 * beyond row_n is undefined, but there. */
struct pn_acts {
    const float *x; /* [row_n, col_n], rows x_stride apart */
    uint64_t x_stride;
    uint32_t row_n;
    uint32_t col_n;
    uint32_t tile; /* pn__act_tile */
    int8_t *q;     /* [tiles][col_n / block][tile][block] codes; block is 32 or 256 */
    float *d;      /* [tiles][col_n / block][tile] scales; NaN: a value that is not finite */
    int16_t *sums; /* [tiles][col_n / block][tile][block / 16] sums of 16 codes */
    uint16_t *bf;  /* [row_n][col_n up to a multiple of 32, zeros behind]: bfloat16, subnormals
                      flushed; of each 32 the 16 odd elements, then the 16 even ones */
};
#define PN_ACT_SUM_LEN 16

/* Rows that the tile of row m has room for: the last one, where tiles are long, for no more than
 * come in whole PN_TILEs. Also from a block to the next in d, and in q and sums in units of one. */
static inline uint32_t pn__act_step(const struct pn_acts *a, uint32_t m) {
    uint32_t left_n = (a->row_n - m / a->tile * a->tile + PN_TILE - 1) / PN_TILE * PN_TILE;
    return left_n < a->tile ? left_n : a->tile;
}

/* Where block b (of block_n a row) of row m stands in d, and in q and sums in units of a block. */
static inline uint64_t pn__act_at(const struct pn_acts *a, uint64_t block_n, uint64_t b,
                                  uint32_t m) {
    return m / a->tile * block_n * a->tile + b * pn__act_step(a, m) + m % a->tile;
}
#define PN_ACT_KIND_N (PN_ACT_Q256 + 1)

/* One weight matrix applied to prepared rows. */
struct pn_mm {
    const struct pn_acts *acts;
    const struct pn_weight *w;
    const float *bias; /* [w.row_n] or NULL */
    /* Weights that this thread will read after its share of these: a hint for prefetching, at least
     * a share's first rows; NULL: not known. */
    const uint8_t *next;
    struct pn_mat out; /* [acts.row_n, w.row_n] */
};

/* Weight rows that a matmul kernel works on at once. */
#define PN_MM_ROWS 4
/* Kernels that take sixteen weight rows at once need as many. */
#define PN_NARROW_ROWS 16

/* A panel: up to this many groups of sixteen weight rows, of at most so many bytes a weight, small
 * enough in all for a core's second-level cache where the rows allow it. At least two groups fit.
 */
#define PN_PANEL_GROUPS 4
#define PN_PANEL_GROUP_BYTES(col_n) ((uint64_t)(col_n)*90 / 4)
#define PN_PANEL_CACHE_BYTES (640u << 10)
/* The same for AMX, whose processors have at least 2 MiB of that cache. */
#define PN_AMX_GROUP_BYTES(col_n) ((uint64_t)(col_n)*34)
#define PN_AMX_CACHE_BYTES (1u << 20)
#define PN_AMX_GROUPS 8

/* A thread's own scratch. */
struct pn_thread_scratch {
    float *sums;    /* [row_max][PN_MM_ROWS] row dots in the making */
    float *rows;    /* [PN_MM_ROWS][col_max up to a multiple of 32] weight rows as floats */
    uint8_t *panel; /* [panel_bytes] unpacked weights; NULL at levels that use none */
    uint64_t panel_bytes;
    struct pn_acts head_acts; /* [row_max, head_col_max] one head's rows, prepared: memory only */
    float *k_row;             /* [dim_max] one K or V vector as floats */
    float *scores;            /* [PN_ATT_QUERIES + 1][PN_GROUP_TOKENS] */
    float *group_v;           /* [PN_ATT_QUERIES][dim_max] a group's sum of p * v */
    float *merged_v;          /* [PN_ATT_QUERIES][dim_max] the same over all groups so far */
    float *turned_q;          /* [PN_ATT_QUERIES][dim_max] rotated, for Q4 pages */
    float *group_r; /* [PN_ATT_QUERIES][dim_max] group_v and merged_v of Q4 pages: rotated V */
    float *merged_r;
    float *expert_y; /* [expert_y_n] some output rows of the experts, before they are summed */
    uint64_t expert_y_n;
};

/* ---- attention ---- */

#define PN_GROUP_TOKENS (PN_GROUP_PAGES * PN_PAGE_TOKENS)
/* Query vectors that share one walk over K and V; parts of them, for each thread, that groups are
 * kept in where several threads share a walk. */
#define PN_ATT_QUERIES 64
#define PN_ATT_PARTS (2 * PN_ATT_QUERIES)

/* Some rows of one sequence and some of the query heads of one KV head. */
struct pn_att_tile {
    const struct pn_page_table *table;
    const struct pn_kv_shape *shape;
    struct pn_heads q;
    struct pn_heads out;
    uint32_t layer_i;
    uint32_t kv_head;
    uint32_t row_i; /* first row in q and out */
    uint32_t row_n;
    uint32_t pos;    /* of the first row */
    uint32_t head_i; /* first query head */
    uint32_t head_n; /* row_n * head_n <= PN_ATT_QUERIES */
    uint32_t window; /* 0: none */
    float scale;
    const float *sinks; /* [q.head_n] or NULL */
};

/* What a tile's queries have of one group, or of all groups so far. */
struct pn_att_part {
    float *v; /* [queries][v_dim] sums of p * v */
    float *r; /* the same of Q4 pages */
    float *max;
    float *sum;
};

/* A query's positions: lo … hi, both included; empty when lo > hi. */
struct pn_att_span {
    uint32_t lo;
    uint32_t hi;
};

static inline struct pn_att_span pn__att_span(const struct pn_att_tile *t, uint32_t query) {
    uint32_t pos = t->pos + query / t->head_n;
    uint32_t lo = t->window && pos >= t->window ? pos - t->window + 1 : 0;
    return (struct pn_att_span){lo, pos};
}

/* The form of page number `page` that the rows of a tile read. Where pages have two, a tile's rows
 * stand in one page. */
static inline const struct pn_page_view *pn__att_page(const struct pn_att_tile *t, uint32_t page) {
    const struct pn_page_table *table = t->table;
    if (table->narrow && pn__page_narrow(page, t->pos / PN_PAGE_TOKENS) &&
        table->narrow[page - table->first].data)
        return &table->narrow[page - table->first];
    return &table->pages[page - table->first];
}

/* Whether positions lo … hi, both included, have any in Q4 for the tile. */
static inline bool pn__att_any_q4(const struct pn_att_tile *t, uint32_t lo, uint32_t hi) {
    for (uint32_t p = lo / PN_PAGE_TOKENS; p <= hi / PN_PAGE_TOKENS; p++)
        if (pn__att_page(t, p)->format == PN_KV_Q4) return true;
    return false;
}

/* ---- recurrent layers ---- */

/* Channels of one sequence. x, out: its first row. */
struct pn_conv {
    const float *x;
    float *out;
    uint64_t x_stride;
    uint64_t out_stride;
    float *state;   /* [kernel_n - 1, col_n] */
    const float *w; /* [col_n, kernel_n] */
    uint32_t row_n;
    uint32_t col_n;
    uint32_t kernel_n;
};

/* One value head of one sequence. Pointers are to its vector in the sequence's first row. */
struct pn_delta {
    float *state;   /* [v_dim, k_dim] */
    const float *q; /* [k_dim], rows q_stride apart */
    const float *k;
    const float *v; /* [v_dim] */
    float *out;     /* [v_dim] */
    const float *g; /* one value a row: log of the decay */
    const float *beta;
    uint64_t q_stride;
    uint64_t k_stride;
    uint64_t v_stride;
    uint64_t out_stride;
    uint64_t g_stride;
    uint64_t beta_stride;
    uint32_t row_n;
    uint32_t k_dim;
    uint32_t v_dim;
};

/* ---- the table ---- */

struct pn_kernels {
    /* Prepares rows [lo, hi) of `acts`. NULL for F32, which is used as it is. */
    void (*prepare[PN_ACT_KIND_N])(const struct pn_acts *acts, uint32_t lo, uint32_t hi);

    /* Outputs [lo, hi) for all rows, by weight type: each weight row is read and unpacked once.
     *  F32, F16: lane order over k of w * x.
     *  BF16: 16 lanes; of each 32 elements lane j takes 2j + 1, then 2j; subnormal inputs count as
     *        zeros of their sign and so does a tiny sum after each fmaf (vdpbf16ps).
     *  Others: units ascending, as quant.h says.
     * Then times w.scale, then plus bias. NULL: no matmul type. */
    void (*matmul[PN_TYPE_N])(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                              const struct pn_thread_scratch *scratch);

    /* The same for matrices of fewer than PN_NARROW_ROWS rows, where a level has another way. */
    void (*matmul_narrow[PN_TYPE_N])(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                                     const struct pn_thread_scratch *scratch);

    /* The same for more than PN_TILE rows, where a level has another way; then for all types with
     * tiles, and many_tile is the most rows of one. */
    void (*matmul_many[PN_TYPE_N])(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                                   const struct pn_thread_scratch *scratch);
    uint32_t many_tile; /* 0: PN_TILE */

    /* One vector of n. r = 1 / sqrt(sum x^2 / n + eps), sum in lane order; out = (x * r) * w. */
    void (*rms_norm)(const float *x, const float *w, float eps, float *out, uint32_t n);
    /* r = 1 / max(sqrt(sum x^2), eps); x = (x * r) * scale. */
    void (*l2_norm)(float *x, float eps, float scale, uint32_t n);

    void (*add)(float *x, const float *y, uint32_t n);
    void (*scale)(float *x, float f, uint32_t n);
    /* By enum pn_act; out = act(gate) * up, the product rounded apart. out may be gate or up. */
    void (*glu[PN_ACT_FN_N])(const float *gate, const float *up, float *out, uint32_t n);
    void (*sigmoid_gate)(float *x, const float *gate, uint32_t n);
    /* x *= sigmoid(gate), one gate for all. */
    void (*sigmoid_scale)(float *x, float gate, uint32_t n);
    /* x = fmaf(f, y, x). */
    void (*add_scaled)(float *x, float f, const float *y, uint32_t n);
    void (*silu_gate)(float *x, const float *z, uint32_t n);
    /* beta = sigmoid(beta); g = a * softplus(g + dt). */
    void (*delta_gates)(float *g, float *beta, const float *a, const float *dt, uint32_t n);

    /* One row of a router: logits [expert_n] (spent) to ids and weights [top_k], as views.h says.
     * softmax: p = exp(x - max) / sum, the sum in lane order. The sum of the chosen weights that
     * they are divided by: in router order. False, with ids and weights undefined, when a logit,
     * p + bias or a weight isn't finite. */
    bool (*route)(const struct pn_router *r, float *logits, int32_t *ids, float *weights);

    /* Logits on the host. The first greatest one's index; -1 when one is NaN or +inf, or all are
     * -inf. And the sum of exp((x - max) * by) in double, element i in lane i mod 16, then the
     * tree of lane order. */
    int64_t (*best)(const float *x, uint32_t n);
    double (*sum_exp)(const float *x, uint32_t n, float max, double by);

    /* One head; table is cos, sin of dim_n / 2 pairs:
     * x0 = fmaf(x0, cos, -(x1 * sin)), x1 = fmaf(x0, sin, x1 * cos). */
    void (*rope)(float *x, const float *table, uint32_t dim_n, bool neox);

    /* One head's vector to its bytes in a page, by format. F16: to nearest even. Q8_0, for each 32
     * (the last block short): codes as an activation's (KERNELS), of which they take the scale
     * am / 127 rounded to a half. A block with a non-finite value gets a NaN scale; a scale past
     * the half's range becomes infinite, so that the block reads as no finite number. Q4: q4.h. */
    void (*kv_store[PN_KV_FORMAT_N])(const float *x, uint8_t *row, uint32_t dim);

    /* out = softmax(scale * q.k) v for each query of the tile, as views.h says.
     * s = (q.k in lane order) * scale. In each group of PN_GROUP_TOKENS positions that has any for
     * the query: m = max s, p = exp(s - m), l = sum p (lane t mod 16, tree), acc = fmaf(p, v, acc)
     * over t ascending. Merging, ascending: M' = max(M, m), a = exp(M - M'), b = exp(m - M'),
     * L = fmaf(l, b, L * a), A = fmaf(acc, b, A * a). A sink is merged last, as a group of its one
     * score with l = 1 and acc = 0: L = L * a + b, A = A * a. At the end out = A / L.
     * At positions in Q4 pages q is rotated for the score, and p * v goes to sums of its own, R
     * beside A. A row that has such positions takes A = A + R rotated back, before the sink. */
    void (*attention)(const struct pn_att_tile *tile, const struct pn_thread_scratch *scratch);

    /* The same in pieces, the same bits. One group's m, l and acc of all queries that have any
     * positions in it; what stands in the part of others is undefined. */
    void (*attention_group)(const struct pn_att_tile *tile, uint32_t group,
                            const struct pn_att_part *part,
                            const struct pn_thread_scratch *scratch);
    /* Merges group `group` into `all`, which holds the groups before it. */
    void (*attention_merge)(const struct pn_att_tile *tile, uint32_t group,
                            const struct pn_att_part *all, const struct pn_att_part *part,
                            const struct pn_thread_scratch *scratch);
    /* Merges the sink, and writes out. */
    void (*attention_end)(const struct pn_att_tile *tile, const struct pn_att_part *all,
                          const struct pn_thread_scratch *scratch);

    /* Channels [lo, hi): y = fmaf over j ascending, from 0; out = silu(y). Then the state moves. */
    void (*conv_silu)(const struct pn_conv *conv, uint32_t lo, uint32_t hi);

    /* State rows [lo, hi), token by token, by row v: S *= exp(g); u = beta * (v - S.k);
     * S = fmaf(u, k, S); out = S.q. Dots in lane order. */
    void (*delta_net)(const struct pn_delta *delta, uint32_t lo, uint32_t hi);
};

/* Rows of a tile of a matmul's prepared input. */
static inline uint32_t pn__act_tile(const struct pn_kernels *k, uint32_t row_n) {
    uint32_t most = row_n > PN_TILE && k->many_tile ? k->many_tile : PN_TILE;
    return row_n < most ? row_n : most;
}

/* What each ref_*.c puts into the table, and all of them. */
void PN_K(init_matmul)(struct pn_kernels *k);
void PN_K(init_attention)(struct pn_kernels *k);
void PN_K(init_norm)(struct pn_kernels *k);
void PN_K(init_act)(struct pn_kernels *k);
void PN_K(init_logits)(struct pn_kernels *k);
void PN_K(init_rope)(struct pn_kernels *k);
void PN_K(init_recurrent)(struct pn_kernels *k);
void PN_K(init_route)(struct pn_kernels *k);
void PN_K(init_kernels)(struct pn_kernels *k);

#endif
