/* Operations on plain views, issued into a step.
 *
 * models/ writes a forward pass once over these; a backend carries them out. The CPU executes each
 * operation at once; a die will enqueue it. Nothing here allocates, reads a file or knows a model.
 * Values reach the host only through pn__step_fetch.
 *
 * Law 3, the reason for most of what follows: an output row is a function of its own inputs alone.
 * It may not depend on how many rows the batch has, on who else is in it, on the number of threads
 * or on how a prompt was cut into chunks. Orders of addition are those of docs/KERNELS.md.
 *
 * Views: views.h. Inputs and outputs must not overlap unless said.
 */
#ifndef PN_OPS_H
#define PN_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "ops/views.h"

/* ---- batch ------------------------------------------------------------------------------ */

/* The rows of one sequence in a step: rows [row_i, row_i + row_n) of the batch stand at positions
 * pos, pos + 1, … Its pages cover every position up to the last one. */
struct pn_seq {
    uint32_t row_i;
    uint32_t row_n;
    uint32_t pos;
    struct pn_page_table tables[PN_PAGE_KIND_N];
    uint8_t *state; /* its recurrent state entry; NULL when the model has none */
};

struct pn_batch {
    const struct pn_seq *seqs;
    uint32_t seq_n;
    uint32_t row_n;
    const int32_t *ids;        /* [row_n], each below the vocabulary */
    const uint32_t *positions; /* [row_n] */
    const uint32_t *out_rows;  /* [out_n] rows whose logits are wanted, ascending */
    uint32_t out_n;
};

/* ---- backend and step ------------------------------------------------------------------- */

struct pn_cpu; /* thread pool, kernel table, scratch */

enum pn_isa {
    PN_ISA_REF = 0,
    PN_ISA_AVX2 = 1,
    PN_ISA_AVX512 = 2,
    PN_ISA_AMX = 3, /* AVX-512, and int8 tiles for many rows */
    PN_ISA_NEON = 4
};
const char *pn__isa_name(enum pn_isa isa);
/* The highest level that this CPU and this build have, at most `limit` (PN_ISA_REF always is). */
enum pn_isa pn__isa_best(enum pn_isa limit);

struct pn_cpu_config {
    uint32_t thread_n;     /* 0: one for each CPU in the affinity mask */
    enum pn_isa isa;       /* must be available, see pn__isa_best */
    uint32_t row_max;      /* most rows of a batch */
    uint32_t col_max;      /* longest row of a matmul's input */
    uint32_t dim_max;      /* longest head */
    uint32_t head_col_max; /* longest input of a head's own matrix; 0: there are none */
    bool pin;              /* bind each worker thread to a CPU, where the system allows it */

    /* Mixtures of experts; all 0: none. */
    uint32_t expert_max;    /* most experts of a layer */
    uint32_t top_k_max;     /* most experts that a row uses */
    uint32_t expert_ff_max; /* widest of them */
    uint32_t expert_acts;   /* bit 1 << enum pn_act_kind for each kind of their weights */
};

/* What thread_n 0 stands for now; it changes with the affinity mask, so a caller that plans memory
 * resolves it once. */
uint32_t pn__cpu_resolve_threads(uint32_t thread_n);
#define PN_THREAD_MAX 256

/* Bytes of scratch that a backend with this shape uses, and making one on memory of that size
 * (aligned to 64, owned by the caller, must outlive it). PN_E_NOMEM, PN_E_UNSUPPORTED (isa),
 * PN_E_INVALID. */
uint64_t pn__cpu_scratch_bytes(const struct pn_cpu_config *config);
int pn__cpu_new(const struct pn_cpu_config *config, void *scratch, struct pn_detail *d,
                struct pn_cpu **out) PN_MUST_CHECK;
void pn__cpu_free(struct pn_cpu *cpu);
uint32_t pn__cpu_thread_n(const struct pn_cpu *cpu);
/* Worker threads (those beside the caller's) that are bound to a CPU. */
uint32_t pn__cpu_pinned_n(const struct pn_cpu *cpu);
enum pn_isa pn__cpu_isa(const struct pn_cpu *cpu);

/* Runs fn(user, thread_i, thread_n) on every thread of the pool, the caller being thread 0, and
 * returns when all have. For work outside a step (loading, copying). */
void pn__cpu_run(struct pn_cpu *cpu, void (*fn)(void *user, uint32_t thread_i, uint32_t thread_n),
                 void *user);

struct pn_step_stats {
    uint64_t matmul_n;     /* weight matrices applied */
    uint64_t sweep_n;      /* times one was read from its first row to its last */
    uint64_t weight_bytes; /* bytes of weights those sweeps read */
    uint32_t row_max;      /* widest matmul: rows that shared a sweep */
    uint32_t thread_n;     /* most threads that really took part in one operation */
};

/* One forward pass in the making. At most one step of a backend is open. */
struct pn_step {
    struct pn_cpu *cpu;
    struct pn_step_stats stats;
};
void pn__step_begin(struct pn_step *s, struct pn_cpu *cpu);
void pn__step_end(struct pn_step *s);

/* Copies row `row_i` of `m` (col_n floats) to host memory, after all that was issued before. */
void pn__step_fetch(struct pn_step *s, struct pn_mat m, uint32_t row_i, float *dst);

/* What sampling asks of a row of logits on the host; `cpu` NULL: the reference computes it, the
 * same bits. The index of the first greatest one; -1 when one is NaN or +inf, or all are -inf. And
 * the sum of exp((x - max) * by). */
int64_t pn__logits_best(const struct pn_cpu *cpu, const float *x, uint32_t n);
double pn__logits_sum_exp(const struct pn_cpu *cpu, const float *x, uint32_t n, float max,
                          double by);

/* ---- operations -------------------------------------------------------------------------- */

/* out[r] = scale * dequantised row ids[r] of table. out is [row_n, table.col_n]. */
void pn__op_embed(struct pn_step *s, const struct pn_weight *table, const int32_t *ids,
                  uint32_t row_n, float scale, struct pn_mat out);

/* out[i] = x[rows[i]] for i < n. */
void pn__op_take_rows(struct pn_step *s, struct pn_mat x, const uint32_t *rows, uint32_t n,
                      struct pn_mat out);

/* out = x / sqrt(mean(x^2) + eps) * w, w [col_n]. out may be x. */
void pn__op_rms_norm(struct pn_step *s, struct pn_mat x, const float *w, float eps,
                     struct pn_mat out);
/* The same for each head, in place; w [dim]. */
void pn__op_rms_norm_heads(struct pn_step *s, struct pn_heads x, const float *w, float eps);
/* x / max(sqrt(sum x^2), eps) for each head, in place, then times `scale`. */
void pn__op_l2_norm_heads(struct pn_step *s, struct pn_heads x, float eps, float scale);

/* Several matrices applied to the same rows, x prepared once for each activation kind:
 * out = W x (+ bias [row_n], NULL: none). x.col_n == W.col_n, out [x.row_n, W.row_n]. */
struct pn_matmul {
    const struct pn_weight *w;
    const float *bias;
    struct pn_mat out;
};
#define PN_MATMUL_MAX 8
void pn__op_matmul(struct pn_step *s, struct pn_mat x, const struct pn_matmul *parts, uint32_t n);

/* A matrix for each head, all of one type and shape: head h's starts h * head_bytes behind head
 * 0's.
 */
struct pn_head_weights {
    struct pn_weight w; /* head 0's */
    uint64_t head_bytes;
    const float *scales; /* [head_n] in place of w.scale, or NULL */
};
/* out[r, h] = W_h x[r, h]; x.dim == w.col_n, out.dim == w.row_n. */
void pn__op_matmul_heads(struct pn_step *s, struct pn_heads x, const struct pn_head_weights *w,
                         struct pn_heads out);
/* The transposed: out[r, h] = x[r, h] W_h; x.dim == w.row_n, out.dim == w.col_n. x and the weights
 * as floats: out_c = fma(x_i, W_ic, out_c), i ascending from 0, then times w.scale. */
void pn__op_matmul_heads_t(struct pn_step *s, struct pn_heads x, const struct pn_head_weights *w,
                           struct pn_heads out);

/* out = x, of the same shape. */
void pn__op_copy_heads(struct pn_step *s, struct pn_heads x, struct pn_heads out);

/* x += y. */
void pn__op_add(struct pn_step *s, struct pn_mat x, struct pn_mat y);
/* x *= f. */
void pn__op_scale(struct pn_step *s, struct pn_mat x, float f);

/* out = act(gate) * up, elementwise; out may be either. */
void pn__op_glu(struct pn_step *s, enum pn_act act, struct pn_mat gate, struct pn_mat up,
                struct pn_mat out);
/* x *= sigmoid(gate), by head; same shapes. */
void pn__op_sigmoid_gate(struct pn_step *s, struct pn_heads x, struct pn_heads gate);
/* x *= silu(z), by head; same shapes. */
void pn__op_silu_gate(struct pn_step *s, struct pn_heads x, struct pn_heads z);
/* x[r] *= sigmoid(gate[r, 0]): one gate a row. */
void pn__op_sigmoid_gate_rows(struct pn_step *s, struct pn_mat x, struct pn_mat gate);

/* Rotary position embedding. The table holds cos and sin of every (row, pair), made in double and
 * rounded once: table [row_n, dim_n] as cos, sin, cos, sin, … (dim_n / 2 pairs a row). */
struct pn_rope {
    uint32_t dim_n; /* rotated values of a head, even; the rest pass through */
    bool neox;      /* pairs (i, i + dim_n/2); else (2i, 2i + 1) */
    double freq_base;
    double freq_scale;    /* positions times this (1/factor for linear scaling and yarn) */
    const float *factors; /* [dim_n/2] frequency divisors, or NULL */
    /* yarn (ext_factor 0: off): paper arXiv:2309.00071 */
    double ext_factor;
    double attn_factor; /* cos and sin times this, before yarn's own magnitude term */
    double beta_fast;
    double beta_slow;
    uint32_t orig_ctx;
};
void pn__op_rope_table(struct pn_step *s, const struct pn_rope *rope, const uint32_t *positions,
                       struct pn_mat table);
void pn__op_rope(struct pn_step *s, const struct pn_rope *rope, struct pn_mat table,
                 struct pn_heads x);

/* Stores K and V rows of the batch in its sequences' pages (layer `layer_i` of `kind`), each in the
 * format of its page and in both forms where a page has two. k [rows, head_n, k_dim], v [rows,
 * head_n, v_dim]; V in K: v is not read, and no page is Q4. */
void pn__op_kv_write(struct pn_step *s, const struct pn_batch *b, enum pn_page_kind kind,
                     uint32_t layer_i, const struct pn_kv_shape *shape, struct pn_heads k,
                     struct pn_heads v);

/* Causal attention over the pages (the batch's own rows were written before): out[r, h] = softmax
 * over positions t <= pos(r) of scale * q[r, h] . k[t], applied to v. Query head h reads KV head
 * h / (q.head_n / shape.head_n). window > 0: only t > pos(r) - window. K and V are read as stored.
 * sinks [q.head_n], NULL: none: a score a head that takes its share of the softmax and has no
 * value. Order: groups of PN_GROUP_PAGES pages by absolute position, merged ascending, the sink
 * last. */
void pn__op_attention(struct pn_step *s, const struct pn_batch *b, enum pn_page_kind kind,
                      uint32_t layer_i, const struct pn_kv_shape *shape, struct pn_heads q,
                      float scale, uint32_t window, const float *sinks, struct pn_heads out);

/* ---- mixtures of experts: ops_moe.c ---- */

/* Which experts each row uses, in router order, and with which weights. */
struct pn_route {
    int32_t *ids;          /* [row_n, top_k]; -1 in every place of a row that has a fault */
    struct pn_mat weights; /* [row_n, top_k]; NaN there */
    uint32_t *faults; /* [row_n] 0, or 1 + `tag` of the first router that got something else than
                         finite numbers for the row */
    uint32_t row_n;
    uint32_t top_k;
};

/* faults = 0, at the start of a step. */
void pn__op_route_clear(struct pn_step *s, const struct pn_route *route);
/* Fills ids and weights from `logits` [row_n, expert_n], which are spent. A row with a logit, or a
 * weight, that isn't finite gets a fault; it stays a row of the step (its experts' sum is NaN), so
 * that its neighbours don't change. */
void pn__op_route(struct pn_step *s, const struct pn_router *router, struct pn_mat logits,
                  uint32_t tag, const struct pn_route *route);
/* Copies one row's ids [top_k] or its fault to the host, after all that was issued before. */
void pn__step_fetch_experts(struct pn_step *s, const struct pn_route *route, uint32_t row_i,
                            int32_t *ids);
uint32_t pn__step_fetch_fault(struct pn_step *s, const struct pn_route *route, uint32_t row_i);

/* One matrix of every expert of a layer. In a file that stacks them, expert e's bytes start at
 * w.data + e * expert_bytes; a file that fuses gate and up is two such views of one tensor. */
struct pn_expert_part {
    struct pn_weight w; /* expert 0's; type and shape are those of all */
    uint64_t expert_bytes;
    const float *scales;  /* [expert_n] in place of w.scale, or NULL */
    const float *bias;    /* expert 0's [w.row_n], or NULL */
    uint64_t bias_stride; /* floats from one expert's to the next */
};

/* Where one expert's matrices lie while a store moves experts about. */
struct pn_expert_view {
    const uint8_t *gate;
    const uint8_t *up;
    const uint8_t *down;
};

struct pn_experts {
    uint32_t expert_n;
    enum pn_act act;
    struct pn_expert_part gate; /* [ff, embd] */
    struct pn_expert_part up;   /* [ff, embd] */
    struct pn_expert_part down; /* [embd, ff] */
    /* [expert_n], or NULL: all in place. Those that a step's rows use are filled in, and stay,
     * while the operation runs. */
    const struct pn_expert_view *views;
};

/* out[r] = sum over the row's experts, in router order, of weight * down(act(gate x[r]) * up x[r]):
 * out = fma(weight, y, out) from 0. Each expert that any row uses is read once, however many rows
 * use it. out must not be x. */
void pn__op_experts(struct pn_step *s, struct pn_mat x, const struct pn_experts *e,
                    const struct pn_route *route, struct pn_mat out);

/* ---- recurrent layers: token by token, in order ----
 * A sequence's state entry holds floats; `state_off` is the byte offset of this layer's part. */

/* Causal convolution over time of each channel, then SiLU: out[t, c] = silu(sum_j w[c, j] *
 * in[t - (kernel_n - 1) + j, c]) with earlier inputs from the state [kernel_n - 1, col_n], oldest
 * first, which is moved on. w [col_n, kernel_n] floats. x [rows, col_n]; out must not be x. */
void pn__op_conv_silu(struct pn_step *s, const struct pn_batch *b, uint64_t state_off,
                      struct pn_mat x, const float *w, uint32_t kernel_n, struct pn_mat out);

/* Gates of the delta rule, in place: beta = sigmoid(beta); g = a[h] * softplus(g + dt[h]).
 * g, beta [rows, head_n]; a (negative), dt [head_n]. */
void pn__op_delta_gates(struct pn_step *s, struct pn_mat g, struct pn_mat beta, const float *a,
                        const float *dt);

/* The gated delta rule (arXiv:2412.06464). For each value head h with key head h % k.head_n (as the
 * files order them), state S [v_dim][k_dim] of floats a head:
 *     S *= exp(g);  u = beta * (v - S k);  S += u k^T;  out = S q
 * q, k [rows, k_head_n, k_dim] (q already scaled), v, out [rows, v_head_n, v_dim]. */
void pn__op_delta_net(struct pn_step *s, const struct pn_batch *b, uint64_t state_off,
                      struct pn_heads q, struct pn_heads k, struct pn_heads v, struct pn_mat g,
                      struct pn_mat beta, struct pn_heads out);

#endif
