/* The convolution, sixteen channels at a time, and the gated delta rule, four rows of the state at
 * a time: channels and rows know nothing of each other, so each may go through all tokens before
 * the next ones do. */
#include "ops/cpu/math.h"
#include "ops/cpu/wide_math.h"

/* ---- convolution ---- */

#define CHANNELS 64 /* four lines of a row at a time */
#define TAPS 8      /* a longer kernel is turned tap by tap as it is used */

/* Inputs of the sequence's row `at`; rows before the first come from the state. */
static float *conv_row(const struct pn_conv *v, int64_t at) {
    if (at >= 0) return (float *)(uintptr_t)(v->x + (uint64_t)at * v->x_stride);
    return v->state + (uint64_t)(at + v->kernel_n - 1) * v->col_n;
}

/* Weight j of n channels from c on. */
INLINE void turn_tap(const struct pn_conv *v, uint32_t c, uint32_t n, uint32_t j, float *out) {
    for (uint32_t i = 0; i < n; i++)
        out[i] = v->w[(uint64_t)(c + i) * v->kernel_n + j];
}

/* Channels c … c + n - 1, n <= 16, of one row. */
INLINE struct w16 conv_one(const struct pn_conv *v, int64_t t, uint32_t c, uint32_t n,
                           const float *taps) {
    struct w16 y = w16_set(0);
    float late[16] = {0};
    for (uint32_t j = 0; j < v->kernel_n; j++) {
        const float *in = conv_row(v, t - ((int64_t)v->kernel_n - 1) + j) + c;
        const float *tap = taps + j * CHANNELS;
        if (j >= TAPS) {
            turn_tap(v, c, n, j, late);
            tap = late;
        }
        y = w16_fma(w16_load(tap), n == 16 ? w16_load(in) : w16_load_n(in, n), y);
    }
    return y;
}

static void conv_channels(const struct pn_conv *v, uint32_t lo, uint32_t hi) {
    float taps[TAPS * CHANNELS] = {0};
    for (uint32_t j = 0; j < v->kernel_n && j < TAPS; j++)
        turn_tap(v, lo, hi - lo, j, taps + j * CHANNELS);
    for (int64_t t = 0; t < v->row_n; t++) {
        float *out = v->out + (uint64_t)t * v->out_stride;
        uint32_t c = lo;
        for (; c + 16 <= hi; c += 16)
            w16_store(out + c, w16_silu(conv_one(v, t, c, 16, taps + (c - lo))));
        if (c < hi)
            w16_store_n(out + c, w16_silu(conv_one(v, t, c, hi - c, taps + (c - lo))), hi - c);
    }
}

static void conv_silu(const struct pn_conv *v, uint32_t lo, uint32_t hi) {
    for (uint32_t c = lo; c < hi; c += CHANNELS)
        conv_channels(v, c, hi - c < CHANNELS ? hi : c + CHANNELS);
    /* Ascending: a row of the state is read before it is overwritten. */
    for (int64_t i = 0; i < (int64_t)v->kernel_n - 1; i++)
        memcpy(v->state + (uint64_t)i * v->col_n + lo,
               conv_row(v, v->row_n - ((int64_t)v->kernel_n - 1) + i) + lo,
               (hi - lo) * sizeof(float));
}

/* ---- delta rule ---- */

#define STATE_ROWS 4
#define TOKENS 64 /* that a group of rows takes before the next one does: q and k stay near */

/* STATE_ROWS rows of the state, k_dim apart, through one token: S *= decay, then their dots with k.
 */
INLINE f4 decayed_dots(float *s, uint32_t k_dim, struct w16 decay, const float *k) {
    struct w16 sum[STATE_ROWS];
    for (uint32_t r = 0; r < STATE_ROWS; r++)
        sum[r] = w16_set(0);
    uint32_t j = 0;
    for (; j + 16 <= k_dim; j += 16) {
        struct w16 key = w16_load(k + j);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < STATE_ROWS; r++) {
            struct w16 x = w16_mul(w16_load(s + (uint64_t)r * k_dim + j), decay);
            w16_store(s + (uint64_t)r * k_dim + j, x);
            sum[r] = w16_fma(x, key, sum[r]);
        }
    }
    if (j < k_dim) {
        uint32_t n = k_dim - j;
        struct w16 key = w16_load_n(k + j, n);
        for (uint32_t r = 0; r < STATE_ROWS; r++) {
            float *at = s + (uint64_t)r * k_dim + j;
            w16_store_n(at, w16_mul(w16_load_n(at, n), decay), n);
            sum[r] = w16_fma(w16_load_n(at, n), key, sum[r]); /* zeros behind, not 0 x infinity */
        }
    }
    return w16_sum4(sum);
}

/* S += u k, then its dots with q. */
INLINE f4 moved_dots(float *s, uint32_t k_dim, const float u[STATE_ROWS], const float *k,
                     const float *q) {
    struct w16 sum[STATE_ROWS];
    for (uint32_t r = 0; r < STATE_ROWS; r++)
        sum[r] = w16_set(0);
    uint32_t j = 0;
    for (; j + 16 <= k_dim; j += 16) {
        struct w16 key = w16_load(k + j), query = w16_load(q + j);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < STATE_ROWS; r++) {
            float *at = s + (uint64_t)r * k_dim + j;
            struct w16 x = w16_fma(w16_set(u[r]), key, w16_load(at));
            w16_store(at, x);
            sum[r] = w16_fma(x, query, sum[r]);
        }
    }
    if (j < k_dim) {
        uint32_t n = k_dim - j;
        struct w16 key = w16_load_n(k + j, n), query = w16_load_n(q + j, n);
        for (uint32_t r = 0; r < STATE_ROWS; r++) {
            float *at = s + (uint64_t)r * k_dim + j;
            w16_store_n(at, w16_fma(w16_set(u[r]), key, w16_load_n(at, n)), n);
            sum[r] = w16_fma(w16_load_n(at, n), query, sum[r]);
        }
    }
    return w16_sum4(sum);
}

/* State rows i … i + STATE_ROWS - 1 through tokens [from, to). */
static void delta_rows(const struct pn_delta *a, uint32_t i, uint64_t from, uint64_t to,
                       const float *decays) {
    float *s = a->state + (uint64_t)i * a->k_dim;
    for (uint64_t t = from; t < to; t++) {
        const float *k = a->k + t * a->k_stride;
        f4 dots = decayed_dots(s, a->k_dim, w16_set(decays[t - from]), k);
        f4 off = f4_sub(f4_load(a->v + t * a->v_stride + i), dots);
        float u[STATE_ROWS];
        f4_store(u, f4_mul(f4_set(a->beta[t * a->beta_stride]), off));
        f4_store(a->out + t * a->out_stride + i,
                 moved_dots(s, a->k_dim, u, k, a->q + t * a->q_stride));
    }
}

/* One row, where fewer than STATE_ROWS are left. */
static void delta_row(const struct pn_delta *a, uint32_t i, uint64_t from, uint64_t to,
                      const float *decays) {
    float *s = a->state + (uint64_t)i * a->k_dim;
    for (uint64_t t = from; t < to; t++) {
        const float *k = a->k + t * a->k_stride;
        for (uint32_t j = 0; j < a->k_dim; j++)
            s[j] *= decays[t - from];
        float off = a->v[t * a->v_stride + i] - w16_dot(s, k, a->k_dim);
        float u = a->beta[t * a->beta_stride] * off;
        for (uint32_t j = 0; j < a->k_dim; j++)
            s[j] = fmaf(u, k[j], s[j]);
        a->out[t * a->out_stride + i] = w16_dot(s, a->q + t * a->q_stride, a->k_dim);
    }
}

static void delta_net(const struct pn_delta *a, uint32_t lo, uint32_t hi) {
    for (uint64_t from = 0; from < a->row_n; from += TOKENS) {
        uint64_t to = from + TOKENS < a->row_n ? from + TOKENS : a->row_n;
        float decays[TOKENS];
        for (uint64_t t = from; t < to; t++)
            decays[t - from] = pn__exp(a->g[t * a->g_stride]);
        uint32_t i = lo;
        for (; i + STATE_ROWS <= hi; i += STATE_ROWS)
            delta_rows(a, i, from, to, decays);
        for (; i < hi; i++)
            delta_row(a, i, from, to, decays);
    }
}

void PN_K(init_wide_recurrent)(struct pn_kernels *k) {
    k->conv_silu = conv_silu;
    k->delta_net = delta_net;
}
