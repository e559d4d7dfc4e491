#include "ops/vec_kernels.h"

void vec_new(struct vec *v) {
    for (int i = 0; i < 4; i++)
        fence_new(&v->fences[i], VEC_N_MAX * sizeof(float));
}

void vec_free(struct vec *v) {
    for (int i = 0; i < 4; i++)
        fence_free(&v->fences[i]);
}

static float any_finite(struct rng *r) {
    uint32_t bits = rng_u32(r);
    float f;
    if ((bits & 0x7f800000u) == 0x7f800000u) bits ^= 0x40000000u;
    memcpy(&f, &bits, sizeof f);
    return f;
}

void fill(struct rng *r, float *x, uint32_t n, enum values values) {
    for (uint32_t i = 0; i < n; i++) {
        float f = rng_float(r);
        switch (values) {
        case ZEROS:
            x[i] = copysignf(0, f);
            break;
        case SUBNORMAL:
            x[i] = f * 0x1p-130f;
            break;
        case HUGE_ONES:
            x[i] = f * 0x1p127f;
            break;
        case NEARLY_NOTHING:
            x[i] = f * 0x1p-99f;
            break;
        case EQUAL:
            x[i] = copysignf(0.75f, f);
            break;
        case WIDE:
            x[i] = any_finite(r);
            break;
        default:
            x[i] = f * (i % 3 == 0 ? 40 : 2);
        }
    }
    if (values == WITH_NAN) x[rng_below(r, n)] = NAN;
    if (values == WITH_INF) x[rng_below(r, n)] = rng_u32(r) & 1 ? INFINITY : -INFINITY;
}

void vec_fill(struct vec *v, struct rng *r, uint32_t n, enum values values) {
    float *at[4];
    for (int i = 0; i < 4; i++) {
        at[i] = fence_end(&v->fences[i], n * sizeof(float));
        fill(r, at[i], n, i == 0 || rng_u32(r) % 4 == 0 ? values : PLAIN);
    }
    v->x = at[0];
    v->y = at[1];
    v->w = at[2];
    v->w2 = at[3];
    v->f = rng_float(r) * 3;
    v->eps = 1e-6f;
    v->n = n;
}

static void run_add(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->add(out, v->y, v->n);
}

static void run_scale(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->scale(out, v->f, v->n);
}

static void run_glu_silu(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->glu[PN_ACT_FN_SILU](v->x, v->y, out, v->n);
}

static void run_glu_silu_over_gate(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->glu[PN_ACT_FN_SILU](out, v->y, out, v->n);
}

static void run_glu_silu_over_up(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->y, v->n * sizeof *out);
    k->glu[PN_ACT_FN_SILU](v->x, out, out, v->n);
}

static void run_glu_gelu(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->glu[PN_ACT_FN_GELU_TANH](v->x, v->y, out, v->n);
}

static void run_glu_gelu_half(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->glu[PN_ACT_FN_GELU_HALF](v->x, v->y, out, v->n);
}

static void run_sigmoid_gate(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->sigmoid_gate(out, v->y, v->n);
}

static void run_silu_gate(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->silu_gate(out, v->y, v->n);
}

static void run_delta_gates(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    memcpy(out + v->n, v->y, v->n * sizeof *out);
    k->delta_gates(out, out + v->n, v->w, v->w2, v->n);
}

static void run_rms_norm(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->rms_norm(v->x, v->w, v->eps, out, v->n);
}

static void run_rms_norm_in_place(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->rms_norm(out, v->w, v->eps, out, v->n);
}

static void run_l2_norm(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->l2_norm(out, v->eps, v->f, v->n);
}

static void run_rope(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->rope(out, v->y + v->n % 2, v->n & ~1u, false);
}

static void run_rope_neox(const struct pn_kernels *k, const struct vec *v, float *out) {
    memcpy(out, v->x, v->n * sizeof *out);
    k->rope(out, v->y + v->n % 2, v->n & ~1u, true);
}

static void run_kv_f32(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->kv_store[PN_KV_F32](v->x, (uint8_t *)out, v->n);
}

static void run_kv_f16(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->kv_store[PN_KV_F16](v->x, (uint8_t *)out, v->n);
}

static void run_kv_q8_0(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->kv_store[PN_KV_Q8_0](v->x, (uint8_t *)out, v->n);
}

static void run_kv_q4(const struct pn_kernels *k, const struct vec *v, float *out) {
    k->kv_store[PN_KV_Q4](v->x, (uint8_t *)out, v->n);
}

/* A row of n / block blocks, as the second of three that share a tile: codes, sums, scales. */
static void prepare(const struct pn_kernels *k, const struct vec *v, float *out,
                    enum pn_act_kind kind, uint32_t block_n) {
    uint32_t col_n = v->n / block_n * block_n;
    int8_t *q = (int8_t *)out;
    struct pn_acts a = {.x = v->x + (v->n - col_n),
                        .x_stride = 0,
                        .row_n = 3,
                        .col_n = col_n,
                        .tile = 3,
                        .q = q,
                        .sums = (int16_t *)(void *)(q + 3 * col_n),
                        .d = (float *)(void *)(q + 3 * col_n + 3 * col_n / PN_ACT_SUM_LEN * 2)};
    k->prepare[kind](&a, 1, 2);
}

static void run_prepare_q32(const struct pn_kernels *k, const struct vec *v, float *out) {
    prepare(k, v, out, PN_ACT_Q32, 32);
}

static void run_prepare_q256(const struct pn_kernels *k, const struct vec *v, float *out) {
    prepare(k, v, out, PN_ACT_Q256, 256);
}

/* Two halves of a number that is no float. */
static void put_u64(float *out, uint64_t bits) {
    float f[2] = {(float)(bits >> 40), (float)(bits & 0xffffff)};
    memcpy(out, f, sizeof f);
}

static void run_best(const struct pn_kernels *k, const struct vec *v, float *out) {
    put_u64(out, (uint64_t)k->best(v->x, v->n));
}

static void run_sum_exp(const struct pn_kernels *k, const struct vec *v, float *out) {
    double sum = k->sum_exp(v->x, v->n, 40.0f, 0.7);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    put_u64(out, isnan(sum) ? 0 : bits ^ bits << 24);
}

const struct vec_kernel vec_kernels[] = {
    {"add", run_add, false, 2048},
    {"scale", run_scale, false, 2048},
    {"glu_silu", run_glu_silu, false, 2048},
    {"glu_silu_over_gate", run_glu_silu_over_gate, false, 0},
    {"glu_silu_over_up", run_glu_silu_over_up, false, 0},
    {"glu_gelu", run_glu_gelu, false, 2048},
    {"glu_gelu_half", run_glu_gelu_half, false, 2048},
    {"sigmoid_gate", run_sigmoid_gate, false, 256},
    {"silu_gate", run_silu_gate, false, 256},
    {"delta_gates", run_delta_gates, false, 32},
    {"best", run_best, false, 4096},
    {"sum_exp", run_sum_exp, false, 4096},
    {"rms_norm", run_rms_norm, false, 2048},
    {"rms_norm_in_place", run_rms_norm_in_place, false, 128},
    {"l2_norm", run_l2_norm, false, 128},
    {"rope", run_rope, false, 128},
    {"rope_neox", run_rope_neox, false, 128},
    {"kv_f32", run_kv_f32, true, 128},
    {"kv_f16", run_kv_f16, true, 128},
    {"kv_q8_0", run_kv_q8_0, true, 128},
    {"kv_q4", run_kv_q4, true, 128},
    {"prepare_q32", run_prepare_q32, true, 4096},
    {"prepare_q256", run_prepare_q256, true, 4096},
};
const size_t vec_kernel_n = PN_ARRAY_N(vec_kernels);
