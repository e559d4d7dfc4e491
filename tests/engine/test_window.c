/* A toy with sliding windows against the same model in double, written without pages, chunks or
 * caches: every position's logits are computed anew from all tokens before it. Lengths around the
 * window and around pages, prompts cut in all ways. */
#include <math.h>

#include "engine/drive.h"
#include "engine/golden.h"
#include "engine/tiny.h"

#define T_MAX 150
#define EMBD 32
#define FF 48
#define HEADS 4
#define KV_HEADS 2
#define DIM 8
#define VOCAB 40
#define EPS 1e-5

/* The engine rounds to half precision in GELU, as the family's reference does: 2^-11 of a value,
 * some of it through seven layers. */
#define TOLERANCE 4e-3

struct toy {
    uint32_t window;
    uint32_t period; /* every so many layers one sees everything */
    uint32_t n;
    double x[T_MAX][EMBD];
    double q[T_MAX][HEADS * DIM];
    double k[T_MAX][KV_HEADS * DIM];
    double v[T_MAX][KV_HEADS * DIM];
    double logits[T_MAX][VOCAB];
};

static void weights(uint32_t layer_i, const char *suffix, float *out, uint64_t n) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", layer_i, suffix);
    tiny_values(&tiny_gemma3, name, out, n);
}

static void apply(const float *w, uint32_t col_n, uint32_t row_n, const double *x, double *out) {
    for (uint32_t r = 0; r < row_n; r++) {
        out[r] = 0.0;
        for (uint32_t c = 0; c < col_n; c++) {
            out[r] += (double)w[r * col_n + c] * x[c];
        }
    }
}

static void normalise(const float *w, uint32_t n, const double *x, double *out) {
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    double scale = 1.0 / sqrt(sum / n + EPS);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = x[i] * scale * (double)w[i];
    }
}

/* Pairs (i, i + DIM / 2); base 10000 in window layers and full ones alike here. */
static void rotate(double *head, uint32_t pos) {
    for (uint32_t i = 0; i < DIM / 2; i++) {
        double angle = pos / pow(10000.0, 2.0 * i / DIM);
        double a = head[i];
        double b = head[i + DIM / 2];
        head[i] = a * cos(angle) - b * sin(angle);
        head[i + DIM / 2] = a * sin(angle) + b * cos(angle);
    }
}

static void project(struct toy *t, uint32_t layer_i) {
    float wq[HEADS * DIM * EMBD];
    float wk[KV_HEADS * DIM * EMBD];
    float wv[KV_HEADS * DIM * EMBD];
    float norm[EMBD];
    float q_norm[DIM];
    float k_norm[DIM];
    weights(layer_i, "attn_q.weight", wq, PN_ARRAY_N(wq));
    weights(layer_i, "attn_k.weight", wk, PN_ARRAY_N(wk));
    weights(layer_i, "attn_v.weight", wv, PN_ARRAY_N(wv));
    weights(layer_i, "attn_norm.weight", norm, EMBD);
    weights(layer_i, "attn_q_norm.weight", q_norm, DIM);
    weights(layer_i, "attn_k_norm.weight", k_norm, DIM);
    for (uint32_t i = 0; i < t->n; i++) {
        double in[EMBD];
        normalise(norm, EMBD, t->x[i], in);
        apply(wq, EMBD, HEADS * DIM, in, t->q[i]);
        apply(wk, EMBD, KV_HEADS * DIM, in, t->k[i]);
        apply(wv, EMBD, KV_HEADS * DIM, in, t->v[i]);
        for (uint32_t h = 0; h < HEADS; h++) {
            normalise(q_norm, DIM, t->q[i] + h * DIM, t->q[i] + h * DIM);
            rotate(t->q[i] + h * DIM, i);
        }
        for (uint32_t h = 0; h < KV_HEADS; h++) {
            normalise(k_norm, DIM, t->k[i] + h * DIM, t->k[i] + h * DIM);
            rotate(t->k[i] + h * DIM, i);
        }
    }
}

/* Position i sees the `window` newest up to itself; 0: all. */
static void attend(const struct toy *t, uint32_t i, uint32_t window, double *out) {
    uint32_t from = window && i + 1 > window ? i + 1 - window : 0;
    for (uint32_t h = 0; h < HEADS; h++) {
        uint32_t kv = h / (HEADS / KV_HEADS) * DIM;
        double sum = 0.0;
        memset(out + h * DIM, 0, DIM * sizeof *out);
        for (uint32_t s = from; s <= i; s++) {
            double dot = 0.0;
            for (uint32_t c = 0; c < DIM; c++) {
                dot += t->q[i][h * DIM + c] * t->k[s][kv + c];
            }
            double p = exp(dot / sqrt(DIM));
            sum += p;
            for (uint32_t c = 0; c < DIM; c++) {
                out[h * DIM + c] += p * t->v[s][kv + c];
            }
        }
        for (uint32_t c = 0; c < DIM; c++) {
            out[h * DIM + c] /= sum;
        }
    }
}

static void attention(struct toy *t, uint32_t layer_i) {
    float wo[EMBD * HEADS * DIM];
    float post[EMBD];
    project(t, layer_i);
    weights(layer_i, "attn_output.weight", wo, PN_ARRAY_N(wo));
    weights(layer_i, "post_attention_norm.weight", post, EMBD);
    for (uint32_t i = 0; i < t->n; i++) {
        double heads[HEADS * DIM];
        double out[EMBD];
        attend(t, i, (layer_i + 1) % t->period ? t->window : 0, heads);
        apply(wo, HEADS * DIM, EMBD, heads, out);
        normalise(post, EMBD, out, out);
        for (uint32_t c = 0; c < EMBD; c++) {
            t->x[i][c] += out[c];
        }
    }
}

static double gelu(double x) {
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static void feed_forward(struct toy *t, uint32_t layer_i) {
    float gate[FF * EMBD];
    float up[FF * EMBD];
    float down[EMBD * FF];
    float norm[EMBD];
    float post[EMBD];
    weights(layer_i, "ffn_gate.weight", gate, PN_ARRAY_N(gate));
    weights(layer_i, "ffn_up.weight", up, PN_ARRAY_N(up));
    weights(layer_i, "ffn_down.weight", down, PN_ARRAY_N(down));
    weights(layer_i, "ffn_norm.weight", norm, EMBD);
    weights(layer_i, "post_ffw_norm.weight", post, EMBD);
    for (uint32_t i = 0; i < t->n; i++) {
        double in[EMBD];
        double a[FF];
        double b[FF];
        normalise(norm, EMBD, t->x[i], in);
        apply(gate, EMBD, FF, in, a);
        apply(up, EMBD, FF, in, b);
        for (uint32_t c = 0; c < FF; c++) {
            a[c] = gelu(a[c]) * b[c];
        }
        apply(down, FF, EMBD, a, in);
        normalise(post, EMBD, in, in);
        for (uint32_t c = 0; c < EMBD; c++) {
            t->x[i][c] += in[c];
        }
    }
}

static void toy_forward(struct toy *t, const struct ids *ids, uint32_t window) {
    float embd[VOCAB * EMBD];
    float out[VOCAB * EMBD];
    float norm[EMBD];
    tiny_values(&tiny_gemma3, "token_embd.weight", embd, PN_ARRAY_N(embd));
    tiny_values(&tiny_gemma3, "output.weight", out, PN_ARRAY_N(out));
    tiny_values(&tiny_gemma3, "output_norm.weight", norm, EMBD);
    t->window = window;
    t->n = (uint32_t)ids->n;
    for (uint32_t i = 0; i < t->n; i++) {
        for (uint32_t c = 0; c < EMBD; c++) {
            t->x[i][c] = (double)embd[ids->ids[i] * EMBD + (int32_t)c] * sqrt(EMBD);
        }
    }
    for (uint32_t l = 0; l < tiny_gemma3.layer_n; l++) {
        attention(t, l);
        feed_forward(t, l);
    }
    for (uint32_t i = 0; i < t->n; i++) {
        double last[EMBD];
        normalise(norm, EMBD, t->x[i], last);
        apply(out, EMBD, VOCAB, last, t->logits[i]);
    }
}

/* Largest difference of a row, as a share of the row's largest logit; the worst of rows from … */
static double off_by(const struct toy *t, const float *rows, uint32_t from) {
    double worst = 0.0;
    for (uint32_t i = from; i < t->n; i++) {
        worst = fmax(worst, row_off(t->logits[i], rows + i * VOCAB, VOCAB));
    }
    return worst;
}

static void check_period(uint32_t period, bool in_file) {
    static const uint32_t lengths[] = {7, 8, 9, 16, 17, 64, 65, 73, T_MAX};
    static const uint32_t chunks[] = {3, 8, 64, 1};
    static struct toy toy;
    char path[128];
    struct tiny t = tiny_gemma3;
    assert_int_equal(t.window, 8);
    t.pattern = in_file ? period : 0;
    snprintf(path, sizeof path, "%s/gemma3.gguf", tiny_tree.root);
    tiny_write(&t, NULL, path);
    toy.period = period;
    for (size_t i = 0; i < PN_ARRAY_N(lengths); i++) {
        struct ids ids = make_ids(VOCAB, lengths[i], i);
        struct run_result first;
        struct run_options o = {.threads = 1, .chunk = 512, .kv = PN_KV_CHOICE_F32};
        run_model(path, &ids, NULL, &o, &first);
        toy_forward(&toy, &ids, 8);
        double off = off_by(&toy, first.rows, 0);
        print_message("period %u, %u tokens: off by %.2e\n", period, lengths[i], off);
        assert_true(off < TOLERANCE);
        for (size_t c = 0; c < PN_ARRAY_N(chunks); c++) {
            struct run_result other;
            o.chunk = chunks[c];
            run_model(path, &ids, NULL, &o, &other);
            assert_memory_equal(first.rows, other.rows, ids.n * VOCAB * sizeof(float));
            run_free(&other);
        }
        /* The comparison tells a window that is a token off, where there is one to miss. */
        for (uint32_t wrong = 7; wrong <= 9 && ids.n >= 9; wrong += 2) {
            toy_forward(&toy, &ids, wrong);
            assert_true(off_by(&toy, first.rows, 7) > 5 * TOLERANCE);
        }
        run_free(&first);
        free(ids.ids);
    }
}

static void five_to_one(void **state) {
    (void)state;
    check_period(6, false);
}

static void alternating(void **state) {
    (void)state;
    check_period(2, true);
}

static void no_window_at_all(void **state) {
    (void)state;
    static struct toy toy;
    char path[128];
    struct tiny t = tiny_gemma3;
    struct ids ids = make_ids(VOCAB, 70, 3);
    struct run_options o = {.threads = 1, .chunk = 16, .kv = PN_KV_CHOICE_F32};
    struct run_result r;
    t.pattern = 1;
    snprintf(path, sizeof path, "%s/gemma3.gguf", tiny_tree.root);
    tiny_write(&t, NULL, path);
    run_model(path, &ids, NULL, &o, &r);
    toy.period = 1;
    toy_forward(&toy, &ids, 8);
    assert_true(off_by(&toy, r.rows, 0) < TOLERANCE);
    run_free(&r);
    free(ids.ids);
}

static void no_full_layer_is_refused(void **state) {
    (void)state;
    char path[128];
    struct pn_detail d = {{0}};
    struct pn_engine_options o = {.model_path = path};
    struct tiny_edit edit = {.key = "gemma3.attention.sliding_window_pattern", .u32 = 0};
    pn_engine *e;
    snprintf(path, sizeof path, "%s/gemma3.gguf", tiny_tree.root);
    tiny_write(&tiny_gemma3, &edit, path);
    assert_int_equal(pn_engine_open(&o, &d, &e), PN_E_UNSUPPORTED);
    assert_non_null(strstr(d.text, edit.key));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_to_one),
        cmocka_unit_test(alternating),
        cmocka_unit_test(no_window_at_all),
        cmocka_unit_test(no_full_layer_is_refused),
    };
    return cmocka_run_group_tests(tests, tiny_tree_setup, tiny_tree_teardown);
}
