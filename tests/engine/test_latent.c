/* Latent attention against the same model in double, written as the paper has it: keys and values
 * of every head are made from the latent, nothing is absorbed, no cache. Files with the pair of
 * tensors apart and fused, queries through a low rank and straight, yarn with and without the
 * multiplier; then the same bits in any chunks, and files that don't add up. */
#include <math.h>

#include "engine/drive.h"
#include "engine/golden.h"
#include "engine/tiny.h"
#include "gguf/gguf_writer.h"

#define T_N 70
#define LAYERS 3
#define EMBD 32
#define FF 48
#define HEADS 3
#define NOPE 16
#define ROPE 8
#define LATENT 24
#define V_DIM 12
#define Q_RANK 20
#define VOCAB 40
#define CTX 128
#define EPS 1e-5
#define FACTOR 4.0
#define ORIG_CTX 32

#define HEAD_ROWS (NOPE + V_DIM) /* of one head in the fused tensor */
#define TOLERANCE 2e-5           /* of a row's largest logit */

static char path[128];

struct variant {
    bool fused;
    bool plain_q;
    bool yarn;
    float multiplier; /* 0: no such key */
};

static void values(uint32_t layer_i, const char *suffix, float *out, uint64_t n) {
    static const struct tiny seed = {.seed = 11};
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", layer_i, suffix);
    tiny_values(&seed, name, out, n);
}

static void values_of(const char *name, float *out, uint64_t n) {
    static const struct tiny seed = {.seed = 11};
    tiny_values(&seed, name, out, n);
}

/* ---- the file ---- */

static void put(struct pn_gguf_writer *w, uint32_t layer_i, const char *suffix, uint64_t col_n,
                uint64_t row_n) {
    float *x = malloc(col_n * row_n * sizeof *x);
    char name[64];
    uint64_t dims[2] = {col_n, row_n};
    assert_non_null(x);
    snprintf(name, sizeof name, "blk.%u.%s", layer_i, suffix);
    values_of(name, x, col_n * row_n);
    pn__gguf_w_tensor(w, name, PN_TYPE_F32, row_n == 1 ? 1 : 2, dims, x);
    free(x);
}

static void put_top(struct pn_gguf_writer *w, const char *name, uint64_t col_n, uint64_t row_n) {
    float *x = malloc(col_n * row_n * sizeof *x);
    uint64_t dims[2] = {col_n, row_n};
    assert_non_null(x);
    values_of(name, x, col_n * row_n);
    pn__gguf_w_tensor(w, name, PN_TYPE_F32, row_n == 1 ? 1 : 2, dims, x);
    free(x);
}

/* The fused tensor, or its two halves apart: keys turned, values as they are. */
static void put_kv_b(struct pn_gguf_writer *w, uint32_t layer_i, bool fused) {
    float kv[HEADS][HEAD_ROWS][LATENT];
    float k[HEADS][LATENT][NOPE];
    float v[HEADS][V_DIM][LATENT];
    char name[64];
    values(layer_i, "attn_kv_b.weight", &kv[0][0][0], sizeof kv / sizeof(float));
    if (fused) {
        snprintf(name, sizeof name, "blk.%u.attn_kv_b.weight", layer_i);
        pn__gguf_w_tensor(w, name, PN_TYPE_F32, 2, (uint64_t[]){LATENT, HEADS * HEAD_ROWS}, kv);
        return;
    }
    for (uint32_t h = 0; h < HEADS; h++) {
        for (uint32_t c = 0; c < LATENT; c++) {
            for (uint32_t i = 0; i < NOPE; i++)
                k[h][c][i] = kv[h][i][c];
        }
        memcpy(v[h], kv[h][NOPE], sizeof v[h]);
    }
    snprintf(name, sizeof name, "blk.%u.attn_k_b.weight", layer_i);
    pn__gguf_w_tensor(w, name, PN_TYPE_F32, 3, (uint64_t[]){NOPE, LATENT, HEADS}, k);
    snprintf(name, sizeof name, "blk.%u.attn_v_b.weight", layer_i);
    pn__gguf_w_tensor(w, name, PN_TYPE_F32, 3, (uint64_t[]){LATENT, V_DIM, HEADS}, v);
}

/* Old files give the heads' own sizes as key and value length, new ones those of the cache. */
static void put_keys(struct pn_gguf_writer *w, const struct variant *v) {
    pn__gguf_w_str(w, "general.architecture", "deepseek2");
    pn__gguf_w_u32(w, "deepseek2.block_count", LAYERS);
    pn__gguf_w_u32(w, "deepseek2.leading_dense_block_count", LAYERS);
    pn__gguf_w_u32(w, "deepseek2.context_length", CTX);
    pn__gguf_w_u32(w, "deepseek2.embedding_length", EMBD);
    pn__gguf_w_u32(w, "deepseek2.feed_forward_length", FF);
    pn__gguf_w_u32(w, "deepseek2.attention.head_count", HEADS);
    pn__gguf_w_u32(w, "deepseek2.attention.head_count_kv", v->fused ? HEADS : 1);
    pn__gguf_w_f32(w, "deepseek2.attention.layer_norm_rms_epsilon", (float)EPS);
    pn__gguf_w_u32(w, "deepseek2.attention.kv_lora_rank", LATENT);
    if (!v->plain_q) pn__gguf_w_u32(w, "deepseek2.attention.q_lora_rank", Q_RANK);
    pn__gguf_w_u32(w, "deepseek2.rope.dimension_count", ROPE);
    if (v->fused) {
        pn__gguf_w_u32(w, "deepseek2.attention.key_length", NOPE + ROPE);
        pn__gguf_w_u32(w, "deepseek2.attention.value_length", V_DIM);
    } else {
        pn__gguf_w_u32(w, "deepseek2.attention.key_length", LATENT + ROPE);
        pn__gguf_w_u32(w, "deepseek2.attention.value_length", LATENT);
        pn__gguf_w_u32(w, "deepseek2.attention.key_length_mla", NOPE + ROPE);
        pn__gguf_w_u32(w, "deepseek2.attention.value_length_mla", V_DIM);
    }
    if (!v->yarn) return;
    pn__gguf_w_str(w, "deepseek2.rope.scaling.type", "yarn");
    pn__gguf_w_f32(w, "deepseek2.rope.scaling.factor", (float)FACTOR);
    pn__gguf_w_u32(w, "deepseek2.rope.scaling.original_context_length", ORIG_CTX);
    if (v->multiplier != 0.0f) {
        pn__gguf_w_f32(w, "deepseek2.rope.scaling.yarn_log_multiplier", v->multiplier);
    }
}

static void put_blocks(struct pn_gguf_writer *w, const struct variant *v) {
    for (uint32_t i = 0; i < LAYERS; i++) {
        put(w, i, "attn_norm.weight", EMBD, 1);
        if (v->plain_q) {
            put(w, i, "attn_q.weight", EMBD, HEADS * (NOPE + ROPE));
        } else {
            put(w, i, "attn_q_a.weight", EMBD, Q_RANK);
            put(w, i, "attn_q_a_norm.weight", Q_RANK, 1);
            put(w, i, "attn_q_b.weight", Q_RANK, HEADS * (NOPE + ROPE));
        }
        put(w, i, "attn_kv_a_mqa.weight", EMBD, LATENT + ROPE);
        put(w, i, "attn_kv_a_norm.weight", LATENT, 1);
        put_kv_b(w, i, v->fused);
        put(w, i, "attn_output.weight", HEADS * V_DIM, EMBD);
        put(w, i, "ffn_norm.weight", EMBD, 1);
        put(w, i, "ffn_gate.weight", EMBD, FF);
        put(w, i, "ffn_up.weight", EMBD, FF);
        put(w, i, "ffn_down.weight", FF, EMBD);
    }
}

/* `extra`, if not NULL, is one more key with a number. */
static void write_model(const struct variant *v, const char *extra, uint32_t number) {
    struct pn_detail d = {{0}};
    struct pn_gguf_writer *w;
    PN_ASSERT_OK(pn__gguf_writer_new(&w, &d), &d);
    put_keys(w, v);
    if (extra) pn__gguf_w_u32(w, extra, number);
    put_top(w, "token_embd.weight", EMBD, VOCAB);
    put_top(w, "output_norm.weight", EMBD, 1);
    put_top(w, "output.weight", EMBD, VOCAB);
    put_blocks(w, v);
    int rc = pn__gguf_w_file(w, path, &d);
    pn__gguf_writer_free(w);
    PN_ASSERT_OK(rc, &d);
}

/* ---- the model in double ---- */

struct toy {
    const struct variant *v;
    double x[T_N][EMBD];
    double q[T_N][HEADS][NOPE + ROPE];
    double k[T_N][HEADS][NOPE + ROPE];
    double val[T_N][HEADS][V_DIM];
    double logits[T_N][VOCAB];
};

static void apply(uint32_t layer_i, const char *suffix, uint32_t col_n, uint32_t row_n,
                  const double *x, double *out) {
    float *w = malloc((size_t)col_n * row_n * sizeof *w);
    assert_non_null(w);
    values(layer_i, suffix, w, (uint64_t)col_n * row_n);
    for (uint32_t r = 0; r < row_n; r++) {
        out[r] = 0.0;
        for (uint32_t c = 0; c < col_n; c++)
            out[r] += (double)w[r * col_n + c] * x[c];
    }
    free(w);
}

static void normalise(const float *w, uint32_t n, double *x) {
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++)
        x[i] = x[i] / sqrt(sum / n + EPS) * (double)w[i];
}

static void norm(uint32_t layer_i, const char *suffix, uint32_t n, double *x) {
    float w[EMBD];
    values(layer_i, suffix, w, n);
    normalise(w, n, x);
}

/* Yarn's angle of pair i at position 1: kept where the pair turns often in the original context. */
static double angle(const struct variant *v, uint32_t i) {
    double freq = pow(10000.0, -2.0 * i / ROPE);
    if (!v->yarn) return freq;
    double turns[2] = {32.0, 1.0};
    double at[2];
    for (int k = 0; k < 2; k++) {
        at[k] = ROPE * log(ORIG_CTX / (turns[k] * 2 * 3.14159265358979323846)) / (2 * log(10000.0));
    }
    double low = fmax(0.0, floor(at[0]));
    double high = fmin(ROPE - 1, ceil(at[1]));
    double ramp = fmin(1.0, fmax(0.0, (i - low) / fmax(0.001, high - low)));
    return freq * ((1.0 - ramp) + ramp / FACTOR);
}

/* Of cosine and sine. */
static double magnitude(const struct variant *v) {
    return v->yarn && v->multiplier == 0.0f ? 1.0 + 0.1 * log(FACTOR) : 1.0;
}

static double score_scale(const struct variant *v) {
    double m = magnitude(v) * (v->yarn ? 1.0 + (double)v->multiplier * log(FACTOR) : 1.0);
    return m * m / sqrt(NOPE + ROPE);
}

/* Neighbours make a pair. */
static void rotate(const struct variant *v, double *x, uint32_t pos) {
    for (uint32_t i = 0; i < ROPE / 2; i++) {
        double c = cos(pos * angle(v, i)) * magnitude(v);
        double s = sin(pos * angle(v, i)) * magnitude(v);
        double a = x[2 * i];
        double b = x[2 * i + 1];
        x[2 * i] = a * c - b * s;
        x[2 * i + 1] = a * s + b * c;
    }
}

static void project(struct toy *t, uint32_t l, uint32_t pos) {
    double in[EMBD];
    double low[Q_RANK];
    double row[LATENT + ROPE];
    double kv[HEADS][HEAD_ROWS];
    memcpy(in, t->x[pos], sizeof in);
    norm(l, "attn_norm.weight", EMBD, in);
    if (t->v->plain_q) {
        apply(l, "attn_q.weight", EMBD, HEADS * (NOPE + ROPE), in, t->q[pos][0]);
    } else {
        apply(l, "attn_q_a.weight", EMBD, Q_RANK, in, low);
        norm(l, "attn_q_a_norm.weight", Q_RANK, low);
        apply(l, "attn_q_b.weight", Q_RANK, HEADS * (NOPE + ROPE), low, t->q[pos][0]);
    }
    apply(l, "attn_kv_a_mqa.weight", EMBD, LATENT + ROPE, in, row);
    norm(l, "attn_kv_a_norm.weight", LATENT, row);
    rotate(t->v, row + LATENT, pos);
    apply(l, "attn_kv_b.weight", LATENT, HEADS * HEAD_ROWS, row, kv[0]);
    for (uint32_t h = 0; h < HEADS; h++) {
        rotate(t->v, t->q[pos][h] + NOPE, pos);
        memcpy(t->k[pos][h], kv[h], NOPE * sizeof(double));
        memcpy(t->k[pos][h] + NOPE, row + LATENT, ROPE * sizeof(double));
        memcpy(t->val[pos][h], kv[h] + NOPE, V_DIM * sizeof(double));
    }
}

static void attend(const struct toy *t, uint32_t pos, double out[HEADS][V_DIM]) {
    for (uint32_t h = 0; h < HEADS; h++) {
        double sum = 0.0;
        memset(out[h], 0, sizeof out[h]);
        for (uint32_t s = 0; s <= pos; s++) {
            double dot = 0.0;
            for (uint32_t c = 0; c < NOPE + ROPE; c++)
                dot += t->q[pos][h][c] * t->k[s][h][c];
            double p = exp(dot * score_scale(t->v));
            sum += p;
            for (uint32_t c = 0; c < V_DIM; c++)
                out[h][c] += p * t->val[s][h][c];
        }
        for (uint32_t c = 0; c < V_DIM; c++)
            out[h][c] /= sum;
    }
}

static void feed_forward(struct toy *t, uint32_t l, uint32_t pos) {
    double in[EMBD];
    double gate[FF];
    double up[FF];
    memcpy(in, t->x[pos], sizeof in);
    norm(l, "ffn_norm.weight", EMBD, in);
    apply(l, "ffn_gate.weight", EMBD, FF, in, gate);
    apply(l, "ffn_up.weight", EMBD, FF, in, up);
    for (uint32_t c = 0; c < FF; c++)
        gate[c] = gate[c] / (1.0 + exp(-gate[c])) * up[c];
    apply(l, "ffn_down.weight", FF, EMBD, gate, in);
    for (uint32_t c = 0; c < EMBD; c++)
        t->x[pos][c] += in[c];
}

static void toy_forward(struct toy *t, const struct variant *v, const struct ids *ids) {
    float embd[VOCAB][EMBD];
    float out[VOCAB][EMBD];
    float last[EMBD];
    values_of("token_embd.weight", embd[0], VOCAB * EMBD);
    values_of("output.weight", out[0], VOCAB * EMBD);
    values_of("output_norm.weight", last, EMBD);
    t->v = v;
    for (uint32_t i = 0; i < T_N; i++) {
        for (uint32_t c = 0; c < EMBD; c++)
            t->x[i][c] = (double)embd[ids->ids[i]][c];
    }
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t i = 0; i < T_N; i++)
            project(t, l, i);
        for (uint32_t i = 0; i < T_N; i++) {
            double heads[HEADS][V_DIM];
            double o[EMBD];
            attend(t, i, heads);
            apply(l, "attn_output.weight", HEADS * V_DIM, EMBD, heads[0], o);
            for (uint32_t c = 0; c < EMBD; c++)
                t->x[i][c] += o[c];
            feed_forward(t, l, i);
        }
    }
    for (uint32_t i = 0; i < T_N; i++) {
        normalise(last, EMBD, t->x[i]);
        for (uint32_t r = 0; r < VOCAB; r++) {
            t->logits[i][r] = 0.0;
            for (uint32_t c = 0; c < EMBD; c++)
                t->logits[i][r] += (double)out[r][c] * t->x[i][c];
        }
    }
}

/* ---- tests ---- */

static double off_by(const struct toy *t, const float *rows) {
    double worst = 0.0;
    for (uint32_t i = 0; i < T_N; i++) {
        worst = fmax(worst, row_off(t->logits[i], rows + i * VOCAB, VOCAB));
    }
    return worst;
}

static const struct variant variants[] = {
    {.fused = false},
    {.fused = true},
    {.plain_q = true},
    {.fused = true, .plain_q = true, .yarn = true, .multiplier = 0.1f},
    {.yarn = true, .multiplier = 0.0707f},
    {.yarn = true},
};

static void in_double(void **state) {
    (void)state;
    static struct toy toy;
    struct ids ids = make_ids(VOCAB, T_N, 1);
    for (size_t i = 0; i < PN_ARRAY_N(variants); i++) {
        struct run_options o = {.threads = 2, .chunk = 512, .kv = PN_KV_CHOICE_F32};
        struct run_result r;
        write_model(&variants[i], NULL, 0);
        run_model(path, &ids, NULL, &o, &r);
        toy_forward(&toy, &variants[i], &ids);
        double off = off_by(&toy, r.rows);
        print_message("variant %zu: off by %.2e\n", i, off);
        assert_true(off < TOLERANCE);
        /* What the comparison would say of another variant's attention. */
        struct variant wrong = variants[i];
        wrong.yarn = !wrong.yarn;
        toy_forward(&toy, &wrong, &ids);
        assert_true(off_by(&toy, r.rows) > 50 * TOLERANCE);
        run_free(&r);
    }
    free(ids.ids);
}

static void same_bits(void **state) {
    (void)state;
    static const uint32_t chunks[] = {1, 7, 64};
    struct ids ids = make_ids(VOCAB, T_N, 2);
    for (size_t i = 0; i < 2 * PN_ARRAY_N(variants); i++) {
        enum pn_kv_choice kv = i % 2 ? PN_KV_CHOICE_Q8_0 : PN_KV_CHOICE_F16;
        struct run_options o = {.threads = 1, .chunk = 512, .kv = kv, .isa = PN_ISA_CHOICE_REF};
        struct run_result first;
        write_model(&variants[i / 2], NULL, 0);
        run_model(path, &ids, NULL, &o, &first);
        for (size_t c = 0; c < PN_ARRAY_N(chunks); c++) {
            struct run_result other;
            struct run_options cut = {.threads = 3, .chunk = chunks[c], .kv = kv, .beside = 1};
            run_model(path, &ids, NULL, &cut, &other);
            assert_memory_equal(first.rows, other.rows, (size_t)T_N * VOCAB * sizeof(float));
            run_free(&other);
        }
        run_free(&first);
    }
    free(ids.ids);
}

/* One row of LATENT + ROPE values a token and layer, for all heads, and nothing else. */
static void stored_once(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    struct pn_plan p;
    struct pn_engine_options o = {
        .model_path = path, .ctx = CTX, .slots = 1, .threads = 1, .kv = PN_KV_CHOICE_F32};
    write_model(&variants[0], NULL, 0);
    PN_ASSERT_OK(pn_engine_plan(&o, &d, &p), &d);
    uint64_t page = (uint64_t)LAYERS * 64 * (LATENT + ROPE) * sizeof(float);
    uint64_t whole = (page + 4095) / 4096 * 4096;
    assert_int_equal(p.parts[2].bytes, CTX / 64 * whole);
}

/* Asked for, four bits change nothing here, and the plan says so. */
static void no_four_bits(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    struct pn_plan half;
    struct pn_plan four;
    struct pn_engine_options o = {
        .model_path = path, .slots = 1, .threads = 1, .kv = PN_KV_CHOICE_F16};
    write_model(&variants[0], NULL, 0);
    PN_ASSERT_OK(pn_engine_plan(&o, &d, &half), &d);
    o.kv = PN_KV_CHOICE_Q4;
    PN_ASSERT_OK(pn_engine_plan(&o, &d, &four), &d);
    assert_int_equal(four.total_bytes, half.total_bytes);
    assert_non_null(strstr(four.kv_why, "latent rows"));
}

static void refused(const char *key, uint32_t number, int code) {
    struct pn_detail d = {{0}};
    struct pn_engine_options o = {.model_path = path, .threads = 1};
    pn_engine *e;
    write_model(&variants[1], key, number);
    assert_int_equal(pn_engine_open(&o, &d, &e), code);
    print_message("%s\n", d.text);
}

static void what_does_not_add_up(void **state) {
    (void)state;
    /* A new file whose cache row isn't latent and rope together. */
    refused("deepseek2.attention.key_length_mla", NOPE + ROPE, PN_E_FORMAT);
    refused("deepseek2.attention.temperature_scale", 1, PN_E_UNSUPPORTED);
    refused("deepseek2.attention.value_length_mla", 0, PN_E_FORMAT);
}

static int setup(void **state) {
    tiny_tree_setup(state);
    snprintf(path, sizeof path, "%s/deepseek2.gguf", tiny_tree.root);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_double),
        cmocka_unit_test(same_bits),
        cmocka_unit_test(stored_once),
        cmocka_unit_test(no_four_bits),
        cmocka_unit_test(what_does_not_add_up),
    };
    return cmocka_run_group_tests(tests, setup, tiny_tree_teardown);
}
