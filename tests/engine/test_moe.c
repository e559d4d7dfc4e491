/* Mixtures of experts as models: the ways in which files give them, numbers that go wrong, and what
 * is refused. Tiny llama models are written with one thing different each. */
#include <math.h>

#include "engine/drive.h"
#include "engine/golden.h"
#include "engine/tiny.h"
#include "gguf/gguf_writer.h"

#define LAYERS 3
#define EMBD 32
#define HEADS 4
#define VOCAB 40
#define PROMPT_N 12
#define FF_MAX 64

/* How a file says it, and what it holds. Expert e of every block has the values of the dense block
 * when `same`; else its own. */
struct spec {
    uint32_t expert_n[LAYERS]; /* 0: a dense block */
    uint32_t used_n[LAYERS];
    uint32_t ff[LAYERS]; /* of the block, or of its experts; 0: no feed-forward */
    uint32_t lead_n;
    bool lists; /* numbers by block */
    bool fused;
    bool same;
    int32_t favourite;   /* the router's choice for every token; -1: none */
    bool nan_router;     /* of block 1 */
    uint32_t nan_expert; /* 1 + the expert of block 2 whose down matrix has an infinity; 0: none */
    uint32_t gating;
    uint32_t group_n;
    uint32_t group_used_n;
    bool drop_used;
    uint32_t list_n;  /* length of the lists; 0: LAYERS */
    bool wrong_shape; /* one expert too few in block 1 */
    bool nan_token;   /* the embedding of token 0 */
};

static char path[160];
static struct tiny values = {.seed = 3};

static void put_tensor(struct pn_gguf_writer *w, const char *name, uint32_t dim_n, uint64_t a,
                       uint64_t b, uint64_t c, const float *data) {
    uint64_t dims[3] = {a, b, c};
    pn__gguf_w_tensor(w, name, PN_TYPE_F32, dim_n, dims, data);
}

static float *values_of(const char *name, uint64_t n) {
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    tiny_values(&values, name, x, n);
    return x;
}

static void put(struct pn_gguf_writer *w, const char *name, uint64_t col_n, uint64_t row_n) {
    float *x = values_of(name, col_n * (row_n ? row_n : 1));
    put_tensor(w, name, row_n ? 2 : 1, col_n, row_n, 0, x);
    free(x);
}

static void put_block(struct pn_gguf_writer *w, uint32_t i, const char *suffix, uint64_t col_n,
                      uint64_t row_n) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", i, suffix);
    put(w, name, col_n, row_n);
}

/* One expert's values: those of the dense tensor, or its own. */
static void expert_values(const struct spec *s, uint32_t block, const char *what, uint32_t e,
                          float *out, uint64_t n) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.ffn_%s.weight", block, what);
    if (!s->same) snprintf(name, sizeof name, "blk.%u.ffn_%s.%u", block, what, e);
    tiny_values(&values, name, out, n);
}

static void put_stack(struct pn_gguf_writer *w, const struct spec *s, uint32_t block,
                      const char *what, const char *const *parts, uint32_t part_n, uint64_t col_n,
                      uint64_t row_n) {
    char name[64];
    uint64_t n = col_n * row_n;
    uint32_t expert_n = s->expert_n[block] - (s->wrong_shape && block == 1 ? 1 : 0);
    float *all = malloc(expert_n * part_n * n * sizeof *all);
    assert_non_null(all);
    for (uint32_t e = 0; e < expert_n; e++)
        for (uint32_t k = 0; k < part_n; k++)
            expert_values(s, block, parts[k], e, all + (e * part_n + k) * n, n);
    if (s->nan_expert && block == 2 && strcmp(what, "down") == 0)
        all[(s->nan_expert - 1) * n] = INFINITY;
    snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.weight", block, what);
    put_tensor(w, name, 3, col_n, part_n * row_n, expert_n, all);
    free(all);
}

static void put_router(struct pn_gguf_writer *w, const struct spec *s, uint32_t block) {
    char name[64];
    uint32_t expert_n = s->expert_n[block];
    snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", block);
    float *x = values_of(name, (uint64_t)EMBD * expert_n);
    if (s->nan_router && block == 1) x[5] = NAN;
    put_tensor(w, name, 2, EMBD, expert_n, 0, x);
    free(x);
    if (s->favourite < 0) return;
    float *bias = calloc(expert_n, sizeof *bias);
    assert_non_null(bias);
    bias[s->favourite] = 1000;
    snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.bias", block);
    put_tensor(w, name, 1, expert_n, 0, 0, bias);
    free(bias);
}

static void put_ffn(struct pn_gguf_writer *w, const struct spec *s, uint32_t i) {
    static const char *const gate_up[] = {"gate", "up"};
    static const char *const down[] = {"down"};
    put_block(w, i, "ffn_norm.weight", EMBD, 0);
    if (s->expert_n[i] && i >= s->lead_n) {
        put_router(w, s, i);
        if (s->fused) {
            put_stack(w, s, i, "gate_up", gate_up, 2, EMBD, s->ff[i]);
        } else {
            put_stack(w, s, i, "gate", gate_up, 1, EMBD, s->ff[i]);
            put_stack(w, s, i, "up", gate_up + 1, 1, EMBD, s->ff[i]);
        }
        put_stack(w, s, i, "down", down, 1, s->ff[i], EMBD);
    } else if (s->ff[i]) {
        put_block(w, i, "ffn_gate.weight", EMBD, s->ff[i]);
        put_block(w, i, "ffn_up.weight", EMBD, s->ff[i]);
        put_block(w, i, "ffn_down.weight", s->ff[i], EMBD);
    }
}

static void put_number(struct pn_gguf_writer *w, const struct spec *s, const char *key,
                       const uint32_t *by_block) {
    uint32_t list[8] = {0};
    memcpy(list, by_block, LAYERS * sizeof *list);
    if (s->lists)
        pn__gguf_w_array(w, key, PN_GGUF_U32, list, s->list_n ? s->list_n : LAYERS);
    else
        pn__gguf_w_u32(w, key, by_block[LAYERS - 1]);
}

static void put_keys(struct pn_gguf_writer *w, const struct spec *s) {
    bool any = s->expert_n[0] || s->expert_n[1] || s->expert_n[2];
    pn__gguf_w_str(w, "general.architecture", "llama");
    pn__gguf_w_u32(w, "llama.block_count", LAYERS);
    pn__gguf_w_u32(w, "llama.context_length", 256);
    pn__gguf_w_u32(w, "llama.embedding_length", EMBD);
    put_number(w, s, "llama.feed_forward_length", s->ff);
    pn__gguf_w_u32(w, "llama.attention.head_count", HEADS);
    pn__gguf_w_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (any) put_number(w, s, "llama.expert_count", s->expert_n);
    if (any && !s->drop_used) put_number(w, s, "llama.expert_used_count", s->used_n);
    if (s->lead_n) pn__gguf_w_u32(w, "llama.leading_dense_block_count", s->lead_n);
    if (s->gating) pn__gguf_w_u32(w, "llama.expert_gating_func", s->gating);
    if (s->group_n) pn__gguf_w_u32(w, "llama.expert_group_count", s->group_n);
    if (s->group_n) pn__gguf_w_u32(w, "llama.expert_group_used_count", s->group_used_n);
}

static void write_model(const struct spec *s) {
    struct pn_detail d = {{0}};
    struct pn_gguf_writer *w;
    PN_ASSERT_OK(pn__gguf_writer_new(&w, &d), &d);
    put_keys(w, s);
    float *embd = values_of("token_embd.weight", EMBD * VOCAB);
    if (s->nan_token) embd[3] = NAN;
    put_tensor(w, "token_embd.weight", 2, EMBD, VOCAB, 0, embd);
    free(embd);
    put(w, "output_norm.weight", EMBD, 0);
    put(w, "output.weight", EMBD, VOCAB);
    for (uint32_t i = 0; i < LAYERS; i++) {
        put_block(w, i, "attn_norm.weight", EMBD, 0);
        put_block(w, i, "attn_q.weight", EMBD, EMBD);
        put_block(w, i, "attn_k.weight", EMBD, EMBD);
        put_block(w, i, "attn_v.weight", EMBD, EMBD);
        put_block(w, i, "attn_output.weight", EMBD, EMBD);
        put_ffn(w, s, i);
    }
    int rc = pn__gguf_w_file(w, path, &d);
    pn__gguf_writer_free(w);
    PN_ASSERT_OK(rc, &d);
}

static const int32_t prompt[PROMPT_N] = {1, 7, 33, 4, 5, 6, 39, 8, 9, 10, 11, 12};

static pn_engine *open_spec(const struct spec *s, uint32_t slots) {
    write_model(s);
    return open_engine(&(struct pn_engine_options){
        .model_path = path, .ctx = 64, .slots = slots, .threads = 2, .out_rows = 32});
}

static void rows_of(const struct spec *s, struct answer *a) {
    pn_engine *e = open_spec(s, 1);
    ask(e, new_session(e),
        (struct pn_request){.tokens = prompt, .token_n = PROMPT_N, .all_logits = true},
        PN_STOP_LENGTH, a);
    assert_int_equal(a->row_n, PROMPT_N);
    pn_engine_free(e);
}

static void expect_same(const struct spec *a, const struct spec *b) {
    struct answer x, y;
    rows_of(a, &x);
    rows_of(b, &y);
    assert_memory_equal(x.rows, y.rows, PROMPT_N * VOCAB * sizeof(float));
    answer_free(&x);
    answer_free(&y);
}

/* A mixture of one expert has the weight 1 exactly, so it is the dense model bit by bit: blocks of
 * different widths, of experts and dense, without a feed-forward, in every way of saying it. */
static void one_expert_is_dense(void **state) {
    (void)state;
    const struct spec dense = {.ff = {48, 24, 64}, .lists = true, .favourite = -1};
    struct spec s = dense;
    s.same = true;
    for (uint32_t which = 1; which < 1 << LAYERS; which++) {
        for (uint32_t i = 0; i < LAYERS; i++)
            s.expert_n[i] = s.used_n[i] = which >> i & 1;
        s.fused = which & 1;
        expect_same(&dense, &s);
    }
    struct spec lead = s;
    lead.lead_n = 2;
    expect_same(&dense, &lead);
    struct spec none = dense;
    none.ff[1] = 0;
    struct spec none_moe = s;
    none_moe.ff[1] = none_moe.expert_n[1] = 0;
    expect_same(&none, &none_moe);
}

static const struct spec plain = {
    .expert_n = {8, 8, 8}, .used_n = {3, 3, 3}, .ff = {32, 32, 32}, .favourite = -1};

static void fused_and_lists(void **state) {
    (void)state;
    struct spec s = plain;
    s.fused = true;
    expect_same(&plain, &s);
    s.lists = true;
    expect_same(&plain, &s);
    /* Different numbers in every block. */
    const struct spec apart = {.expert_n = {4, 300, 17},
                               .used_n = {1, 5, 17},
                               .ff = {16, 40, 64},
                               .lists = true,
                               .favourite = -1};
    struct spec apart_fused = apart;
    apart_fused.fused = true;
    expect_same(&apart, &apart_fused);
}

struct seen {
    struct answer a;
    uint32_t used[LAYERS]; /* experts named, by layer */
    int32_t first;         /* the favourite everywhere, or -2 */
    uint32_t rows;
};

static void on_experts(void *user, uint32_t position, uint32_t layer, const int32_t *experts,
                       uint32_t n) {
    struct seen *seen = user;
    assert_true(layer < LAYERS && position < PROMPT_N);
    seen->used[layer] = n;
    if (seen->rows++ == 0) seen->first = experts[0];
    if (experts[0] != seen->first) seen->first = -2;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(experts[i], experts[k]);
}

/* More experts than a byte counts, all alike: the answer is the dense one's but for the weights'
 * rounding, and the one that a bias favours, far up, comes first everywhere. */
static void many_experts(void **state) {
    (void)state;
    const struct spec dense = {.ff = {48, 48, 48}, .favourite = -1};
    struct spec s = {.expert_n = {384, 384, 384},
                     .used_n = {9, 9, 9},
                     .ff = {48, 48, 48},
                     .same = true,
                     .favourite = 380};
    struct answer want;
    struct seen got = {.first = -1};
    rows_of(&dense, &want);
    pn_engine *e = open_spec(&s, 1);
    struct pn_detail d = {{0}};
    struct pn_request r = {.tokens = prompt, .token_n = PROMPT_N, .all_logits = true};
    answer_init(&got.a, &r);
    r.user = &got;
    r.on_experts = on_experts;
    PN_ASSERT_OK(pn_session_submit(new_session(e), &r, &d), &d);
    drive(e);
    pn_engine_free(e);
    assert_int_equal(got.rows, PROMPT_N * LAYERS);
    assert_int_equal(got.first, 380);
    for (uint32_t i = 0; i < LAYERS; i++)
        assert_int_equal(got.used[i], 9);
    for (size_t i = 0; i < PROMPT_N * VOCAB; i++)
        assert_true(fabsf(got.a.rows[i] - want.rows[i]) < 1e-4f * (1 + fabsf(want.rows[i])));
    answer_free(&got.a);
    answer_free(&want);
}

/* The plan knows the experts' bytes, in one tensor or two, and blocks without them. */
static void plan_counts_experts(void **state) {
    (void)state;
    struct spec s = {.expert_n = {4, 0, 17},
                     .used_n = {1, 0, 17},
                     .ff = {16, 40, 64},
                     .lists = true,
                     .favourite = -1};
    uint64_t want = (4 * 16 + 17 * 64) * 3 * (uint64_t)EMBD * sizeof(float);
    for (int fused = 0; fused < 2; fused++) {
        struct pn_detail d = {{0}};
        struct pn_plan p;
        s.fused = fused;
        write_model(&s);
        struct pn_engine_options o = {.model_path = path, .threads = 1, .slots = 1};
        PN_ASSERT_OK(pn_engine_plan(&o, &d, &p), &d);
        assert_int_equal(p.expert_bytes, want);
    }
}

/* ---- numbers that go wrong ---- */

/* A router with a NaN in it: every request ends, with the block and the position, also one that
 * wants no logits; nothing was handed out. */
static void nan_in_router(void **state) {
    (void)state;
    struct spec s = plain;
    s.nan_router = true;
    pn_engine *e = open_spec(&s, 1);
    const struct pn_request ways[] = {
        {.tokens = prompt, .token_n = PROMPT_N, .max_new = 3},
        {.tokens = prompt, .token_n = PROMPT_N},
    };
    for (size_t i = 0; i < PN_ARRAY_N(ways); i++) {
        struct answer a;
        pn_session *session = new_session(e);
        ask(e, session, ways[i], PN_STOP_ERROR, &a);
        assert_int_equal(a.done.error, PN_E_NUMERIC);
        assert_non_null(strstr(a.done.detail.text, "router of block 1"));
        assert_non_null(strstr(a.done.detail.text, "position 0"));
        assert_int_equal(a.token_n + a.row_n, 0);
        pn_session_free(session);
    }
    pn_engine_free(e);
}

/* An expert whose output isn't finite ends whoever uses it; nobody else notices. */
static void infinite_expert(void **state) {
    (void)state;
    struct spec s = plain;
    s.favourite = 2;
    s.used_n[0] = s.used_n[1] = s.used_n[2] = 1;
    struct spec other = s;
    other.nan_expert = 1 + 3;
    expect_same(&s, &other);
    s.nan_expert = 1 + 2;
    struct answer a;
    pn_engine *e = open_spec(&s, 1);
    ask(e, new_session(e), (struct pn_request){.tokens = prompt, .token_n = 4, .max_new = 2},
        PN_STOP_ERROR, &a);
    assert_int_equal(a.done.error, PN_E_NUMERIC);
    assert_int_equal(a.token_n + a.row_n, 0);
    pn_engine_free(e);
}

/* Token 0 is not finite: the session that uses it ends, at that position, without logits; the one
 * beside it has the bits that it has alone. */
static void nan_beside_others(void **state) {
    (void)state;
    struct answer alone, beside, bad;
    struct pn_detail d = {{0}};
    struct spec s = plain;
    rows_of(&s, &alone);
    s.nan_token = true;
    pn_engine *e = open_spec(&s, 2);
    const int32_t with_0[5] = {3, 4, 0, 5, 6};
    struct pn_request b = {.tokens = with_0, .token_n = 5};
    answer_init(&bad, &b);
    PN_ASSERT_OK(pn_session_submit(new_session(e), &b, &d), &d);
    ask(e, new_session(e),
        (struct pn_request){.tokens = prompt, .token_n = PROMPT_N, .all_logits = true},
        PN_STOP_LENGTH, &beside);
    assert_int_equal(bad.done.stop, PN_STOP_ERROR);
    assert_int_equal(bad.done.error, PN_E_NUMERIC);
    assert_non_null(strstr(bad.done.detail.text, "router of block 0"));
    assert_non_null(strstr(bad.done.detail.text, "position 2"));
    assert_memory_equal(beside.rows, alone.rows, PROMPT_N * VOCAB * sizeof(float));
    answer_free(&alone);
    answer_free(&beside);
    answer_free(&bad);
    pn_engine_free(e);
}

/* ---- refused ---- */

static void expect_refused(const struct spec *s, int code, const char *words) {
    struct pn_detail d = {{0}};
    pn_engine *e;
    write_model(s);
    int rc = pn_engine_open(&(struct pn_engine_options){.model_path = path, .threads = 1}, &d, &e);
    if (!strstr(d.text, words)) fail_msg("'%s' doesn't say '%s'", d.text, words);
    assert_int_equal(rc, code);
    assert_null(e);
}

static void refusals(void **state) {
    (void)state;
    struct spec s = plain;
    s.drop_used = true;
    expect_refused(&s, PN_E_FORMAT, "llama.expert_used_count");
    s = plain;
    s.used_n[LAYERS - 1] = 9;
    expect_refused(&s, PN_E_FORMAT, "9 of 8 experts");
    s = plain;
    s.gating = 7;
    expect_refused(&s, PN_E_UNSUPPORTED, "expert_gating_func is 7");
    s = plain;
    s.group_n = 3;
    s.group_used_n = 1;
    expect_refused(&s, PN_E_FORMAT, "1 of 3 groups");
    s.group_n = 4;
    expect_refused(&s, PN_E_FORMAT, "1 of 4 groups"); /* of 2 experts: not 3 */
    s = plain;
    s.lists = true;
    s.list_n = 4;
    expect_refused(&s, PN_E_FORMAT, "one a block");
    s = plain;
    s.wrong_shape = true;
    expect_refused(&s, PN_E_FORMAT, "blk.1.ffn_gate_exps.weight");
}

static int setup(void **state) {
    tiny_tree_setup(state);
    snprintf(path, sizeof path, "%s/moe.gguf", tiny_tree.root);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_expert_is_dense), cmocka_unit_test(fused_and_lists),
        cmocka_unit_test(many_experts),        cmocka_unit_test(plan_counts_experts),
        cmocka_unit_test(nan_in_router),       cmocka_unit_test(infinite_expert),
        cmocka_unit_test(nan_beside_others),   cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, setup, tiny_tree_teardown);
}
