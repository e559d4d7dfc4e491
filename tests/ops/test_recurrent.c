/* Convolution and delta rule: against double with running error bounds, the same bits whatever the
 * cuts, neighbours, threads and levels, and the state that they leave. */
#include "ops/ops_test.h"

#define T_MAX 40
#define STATE_OFF 128 /* this layer's part; what is before and behind stays */

/* ---- convolution ---- */

#define CH 83
#define KERNEL 4

struct conv_case {
    float x[T_MAX * CH];
    float w[CH * KERNEL];
    float start[(KERNEL - 1) * CH];
    uint32_t chunk;
};

/* Output rows, then the state. */
static void run_conv(struct backend *b, void *user, float *out) {
    struct conv_case *c = user;
    uint8_t *state = malloc(STATE_OFF + sizeof c->start + 64);
    memset(state, 0x5a, STATE_OFF + sizeof c->start + 64);
    memcpy(state + STATE_OFF, c->start, sizeof c->start);
    for (uint32_t at = 0; at < T_MAX; at += c->chunk) {
        uint32_t n = T_MAX - at < c->chunk ? T_MAX - at : c->chunk;
        struct pn_seq seq = {.row_n = n, .pos = at, .state = state};
        struct pn_batch batch = {.seqs = &seq, .seq_n = 1, .row_n = n};
        pn__op_conv_silu(&b->step, &batch, STATE_OFF, mat(c->x + at * CH, n, CH), c->w, KERNEL,
                         mat(out + at * CH, n, CH));
    }
    memcpy(out + T_MAX * CH, state + STATE_OFF, sizeof c->start);
    for (int i = 0; i < STATE_OFF; i++)
        assert_int_equal(state[i], 0x5a);
    for (int i = 0; i < 64; i++)
        assert_int_equal(state[STATE_OFF + sizeof c->start + i], 0x5a);
    free(state);
}

static void test_conv(void **state) {
    (void)state;
    enum { OUT = T_MAX * CH + (KERNEL - 1) * CH };
    struct conv_case c = {.chunk = T_MAX};
    struct rng r = {11};
    rng_fill(&r, c.x, PN_ARRAY_N(c.x), 3);
    rng_fill(&r, c.w, PN_ARRAY_N(c.w), 1);
    rng_fill(&r, c.start, PN_ARRAY_N(c.start), 3);
    float *got = reference_run(run_conv, &c, OUT);
    for (int t = 0; t < T_MAX; t++) {
        for (int ch = 0; ch < CH; ch++) {
            double y = 0, size = 0;
            for (int j = 0; j < KERNEL; j++) {
                int at = t - (KERNEL - 1) + j;
                double in = at < 0 ? c.start[(at + KERNEL - 1) * CH + ch] : c.x[at * CH + ch];
                y += c.w[ch * KERNEL + j] * in;
                size += fabs(c.w[ch * KERNEL + j] * in);
            }
            double want = y / (1 + exp(-y));
            /* silu's slope is at most 1.1. */
            ASSERT_NEAR(got[t * CH + ch], want, 1.1 * KERNEL * U * size + 1.1 * U * fabs(want));
        }
    }
    assert_memory_equal(got + T_MAX * CH, c.x + (T_MAX - KERNEL + 1) * CH, sizeof c.start);
    static const uint32_t chunks[] = {T_MAX, 1, 2, 3, 7};
    for (size_t i = 0; i < PN_ARRAY_N(chunks); i++) {
        c.chunk = chunks[i];
        same_everywhere(run_conv, &c, got, OUT);
    }
    guarded_free(got);
}

/* ---- delta rule ---- */

struct delta_case {
    uint32_t k_heads;
    uint32_t v_heads;
    uint32_t k_dim;
    uint32_t v_dim;
    uint32_t chunk;
    float *q;
    float *k;
    float *v;
    float *g;
    float *beta;
    float *start; /* [v_heads, v_dim, k_dim] */
};

static uint64_t state_n(const struct delta_case *c) {
    return (uint64_t)c->v_heads * c->v_dim * c->k_dim;
}

static uint64_t out_n(const struct delta_case *c) {
    return (uint64_t)T_MAX * c->v_heads * c->v_dim;
}

static void delta_init(struct delta_case *c, uint64_t seed) {
    struct rng r = {seed};
    uint64_t k_n = (uint64_t)T_MAX * c->k_heads * c->k_dim;
    c->q = malloc(k_n * 4);
    c->k = malloc(k_n * 4);
    c->v = malloc(out_n(c) * 4);
    c->g = malloc(T_MAX * c->v_heads * 4);
    c->beta = malloc(T_MAX * c->v_heads * 4);
    c->start = malloc(state_n(c) * 4);
    float unit = 1.7f / sqrtf((float)c->k_dim); /* keys of length about 1 */
    rng_fill(&r, c->q, k_n, unit);
    rng_fill(&r, c->k, k_n, unit);
    rng_fill(&r, c->v, out_n(c), 2);
    rng_fill(&r, c->start, state_n(c), 0.5f);
    for (uint32_t i = 0; i < T_MAX * c->v_heads; i++) {
        c->g[i] = -fabsf(rng_float(&r)) * 2;
        c->beta[i] = fabsf(rng_float(&r));
    }
}

static void delta_free(struct delta_case *c) {
    free(c->q);
    free(c->k);
    free(c->v);
    free(c->g);
    free(c->beta);
    free(c->start);
}

static void run_delta(struct backend *b, void *user, float *out) {
    struct delta_case *c = user;
    uint8_t *state = malloc(STATE_OFF + state_n(c) * 4 + 64);
    memset(state, 0x5a, STATE_OFF + state_n(c) * 4 + 64);
    memcpy(state + STATE_OFF, c->start, state_n(c) * 4);
    for (uint32_t at = 0; at < T_MAX; at += c->chunk) {
        uint32_t n = T_MAX - at < c->chunk ? T_MAX - at : c->chunk;
        struct pn_seq seq = {.row_n = n, .pos = at, .state = state};
        struct pn_batch batch = {.seqs = &seq, .seq_n = 1, .row_n = n};
        uint64_t k_at = (uint64_t)at * c->k_heads * c->k_dim;
        uint64_t v_at = (uint64_t)at * c->v_heads * c->v_dim;
        pn__op_delta_net(&b->step, &batch, STATE_OFF, heads(c->q + k_at, n, c->k_heads, c->k_dim),
                         heads(c->k + k_at, n, c->k_heads, c->k_dim),
                         heads(c->v + v_at, n, c->v_heads, c->v_dim),
                         mat(c->g + at * c->v_heads, n, c->v_heads),
                         mat(c->beta + at * c->v_heads, n, c->v_heads),
                         heads(out + v_at, n, c->v_heads, c->v_dim));
    }
    memcpy(out + out_n(c), state + STATE_OFF, state_n(c) * 4);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(state[STATE_OFF - 1 - i], 0x5a);
        assert_int_equal(state[STATE_OFF + state_n(c) * 4 + i], 0x5a);
    }
    free(state);
}

/* One state row of one head in double beside a bound of the float state's error, carried along. */
static void check_state_row(const struct delta_case *c, uint32_t h, uint32_t i, const float *got) {
    double s[128], e[128]; /* value, error bound */
    uint32_t kh = h % c->k_heads;
    for (uint32_t j = 0; j < c->k_dim; j++) {
        s[j] = c->start[((uint64_t)h * c->v_dim + i) * c->k_dim + j];
        e[j] = 0;
    }
    double dot_n = c->k_dim / 16.0 + 1 + 4;
    for (uint32_t t = 0; t < T_MAX; t++) {
        const float *k = c->k + ((uint64_t)t * c->k_heads + kh) * c->k_dim;
        const float *q = c->q + ((uint64_t)t * c->k_heads + kh) * c->k_dim;
        uint64_t at = ((uint64_t)t * c->v_heads + h) * c->v_dim + i;
        double decay = exp(c->g[t * c->v_heads + h]), beta = c->beta[t * c->v_heads + h];
        double sk = 0, sk_err = 0, sq = 0, sq_err = 0;
        for (uint32_t j = 0; j < c->k_dim; j++) {
            s[j] *= decay;
            e[j] = e[j] * decay + 2.1 * U * fabs(s[j]);
            sk += s[j] * k[j];
            sk_err += (e[j] + dot_n * U * (fabs(s[j]) + e[j])) * fabs(k[j]);
        }
        double u = beta * (c->v[at] - sk);
        double u_err = beta * (sk_err + U * (fabs(c->v[at]) + fabs(sk) + sk_err)) + 2 * U * fabs(u);
        for (uint32_t j = 0; j < c->k_dim; j++) {
            s[j] += u * k[j];
            e[j] += u_err * fabs(k[j]);
            e[j] += U * (fabs(s[j]) + e[j]);
            sq += s[j] * q[j];
            sq_err += (e[j] + dot_n * U * (fabs(s[j]) + e[j])) * fabs(q[j]);
        }
        ASSERT_NEAR(got[at], sq, sq_err);
    }
    const float *left = got + out_n(c) + ((uint64_t)h * c->v_dim + i) * c->k_dim;
    for (uint32_t j = 0; j < c->k_dim; j++)
        ASSERT_NEAR(left[j], s[j], e[j]);
}

static void test_delta(void **state) {
    (void)state;
    static const uint32_t shapes[][4] = {
        {1, 1, 16, 16}, {2, 4, 24, 40}, {2, 2, 128, 8}, {1, 3, 7, 5}};
    static const uint32_t chunks[] = {T_MAX, 1, 7};
    for (size_t i = 0; i < PN_ARRAY_N(shapes); i++) {
        struct delta_case c = {.k_heads = shapes[i][0],
                               .v_heads = shapes[i][1],
                               .k_dim = shapes[i][2],
                               .v_dim = shapes[i][3],
                               .chunk = T_MAX};
        delta_init(&c, 50 + i);
        uint64_t n = out_n(&c) + state_n(&c);
        float *got = reference_run(run_delta, &c, n);
        for (uint32_t h = 0; h < c.v_heads; h++)
            for (uint32_t v = 0; v < c.v_dim; v++)
                check_state_row(&c, h, v, got);
        for (size_t k = 0; k < PN_ARRAY_N(chunks); k++) {
            c.chunk = chunks[k];
            same_everywhere(run_delta, &c, got, n);
        }
        guarded_free(got);
        delta_free(&c);
    }
}

/* Two sequences in one batch, each with its own state, as if alone. */
static void test_beside_another(void **state) {
    (void)state;
    struct delta_case c = {.k_heads = 1, .v_heads = 2, .k_dim = 24, .v_dim = 24, .chunk = T_MAX};
    delta_init(&c, 99);
    uint64_t n = out_n(&c) + state_n(&c);
    float *alone = reference_run(run_delta, &c, n);
    float *out = guarded_new(out_n(&c));
    float *states[2];
    struct pn_seq seqs[2];
    struct backend b;
    backend_open(&b, PN_ISA_REF, 3);
    for (int i = 0; i < 2; i++) {
        states[i] = malloc(state_n(&c) * 4);
        memcpy(states[i], c.start, state_n(&c) * 4);
        seqs[i] = (struct pn_seq){.row_n = i ? 15 : 25, .state = (uint8_t *)states[i]};
        seqs[i].row_i = i ? 25 : 0;
    }
    /* The second sequence reads rows 25 … 39 as its own first ones. */
    struct pn_batch batch = {.seqs = seqs, .seq_n = 2, .row_n = T_MAX};
    pn__op_delta_net(&b.step, &batch, 0, heads(c.q, T_MAX, 1, 24), heads(c.k, T_MAX, 1, 24),
                     heads(c.v, T_MAX, 2, 24), mat(c.g, T_MAX, 2), mat(c.beta, T_MAX, 2),
                     heads(out, T_MAX, 2, 24));
    assert_true(same_bits(out, alone, 25 * 2 * 24));
    assert_false(memcmp(out + 25 * 48, alone + 25 * 48, 15 * 48 * 4) == 0);
    backend_close(&b);
    guarded_check(out, out_n(&c));
    free(states[0]);
    free(states[1]);
    guarded_free(out);
    guarded_free(alone);
    delta_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_delta),
        cmocka_unit_test(test_beside_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
