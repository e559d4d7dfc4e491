#include "engine/tiny.h"

#include "gguf/gguf_writer.h"
#include "pn_mem.h"
#include "support/pn_test.h"

const struct tiny tiny_llama = {.arch = "llama",
                                .layer_n = 2,
                                .embd = 32,
                                .ff = 48,
                                .head_n = 4,
                                .kv_head_n = 2,
                                .head_dim = 8,
                                .vocab = 40,
                                .ctx = 256,
                                .seed = 1};
const struct tiny tiny_gemma3 = {.arch = "gemma3",
                                 .layer_n = 7,
                                 .embd = 32,
                                 .ff = 48,
                                 .head_n = 4,
                                 .kv_head_n = 2,
                                 .head_dim = 8,
                                 .vocab = 40,
                                 .ctx = 1024,
                                 .window = 8,
                                 .seed = 2};

struct making {
    const struct tiny *t;
    const struct tiny_edit *edit;
    struct pn_gguf_writer *w;
};

static bool is(const char *wanted, const char *name) {
    return wanted && strcmp(wanted, name) == 0;
}

/* True when the key is left out or was written with the edit's value. */
static bool edited(const struct making *m, const char *key) {
    const struct tiny_edit *e = m->edit;
    if (is(e->drop, key)) return true;
    if (!is(e->key, key)) return false;
    if (e->str) {
        pn__gguf_w_str(m->w, key, e->str);
    } else if (e->is_f32) {
        pn__gguf_w_f32(m->w, key, (float)e->f32);
    } else {
        pn__gguf_w_u32(m->w, key, e->u32);
    }
    return true;
}

static void put_u32(const struct making *m, const char *suffix, uint32_t value) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->t->arch, suffix);
    if (!edited(m, key)) pn__gguf_w_u32(m->w, key, value);
}

static void put_keys(const struct making *m) {
    const struct tiny *t = m->t;
    char key[96];
    if (!edited(m, "general.architecture")) {
        pn__gguf_w_str(m->w, "general.architecture", t->arch);
    }
    put_u32(m, "block_count", t->layer_n);
    put_u32(m, "context_length", t->ctx);
    put_u32(m, "embedding_length", t->embd);
    put_u32(m, "feed_forward_length", t->ff);
    put_u32(m, "attention.head_count", t->head_n);
    put_u32(m, "attention.head_count_kv", t->kv_head_n);
    put_u32(m, "attention.key_length", t->head_dim);
    put_u32(m, "attention.value_length", t->head_dim);
    if (t->window) put_u32(m, "attention.sliding_window", t->window);
    if (t->pattern) put_u32(m, "attention.sliding_window_pattern", t->pattern);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", t->arch);
    if (!edited(m, key)) pn__gguf_w_f32(m->w, key, 1e-5f);
    if (t->rope_type) {
        snprintf(key, sizeof key, "%s.rope.scaling.type", t->arch);
        pn__gguf_w_str(m->w, key, t->rope_type);
        snprintf(key, sizeof key, "%s.rope.scaling.factor", t->arch);
        pn__gguf_w_f32(m->w, key, t->rope_factor);
    }
    if (t->rope_ctx) put_u32(m, "rope.scaling.original_context_length", t->rope_ctx);
    /* Keys that aren't there otherwise. */
    static const char *const optional[] = {
        "llama.rope.scaling.type",
        "llama.rope.scaling.factor",
        "llama.rope.freq_base",
        "llama.rope.dimension_count",
        "llama.expert_count",
        "llama.nextn_predict_layers",
        "general.type",
        "gemma3.attention.sliding_window_pattern",
    };
    for (size_t i = 0; i < PN_ARRAY_N(optional); i++) {
        if (is(m->edit->key, optional[i])) (void)edited(m, optional[i]);
    }
}

void tiny_values(const struct tiny *t, const char *name, float *out, uint64_t n) {
    uint64_t x = t->seed;
    for (const char *c = name; *c; c++) {
        x = (x ^ (unsigned char)*c) * 0x100000001b3u;
    }
    bool norm = strstr(name, "norm") != NULL;
    for (uint64_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        double unit = (double)(x >> 40) / (double)(1 << 24) - 0.5;
        out[i] = (float)(norm ? 1.0 + 0.5 * unit : unit);
    }
}

static void put(const struct making *m, const char *name, uint64_t col_n, uint64_t row_n) {
    const struct tiny_edit *e = m->edit;
    if (is(e->drop, name)) return;
    if (is(e->reshaped, name)) {
        if (row_n) {
            row_n++;
        } else {
            col_n++;
        }
    }
    uint64_t n = col_n * (row_n ? row_n : 1);
    float *values = malloc(n * sizeof *values);
    assert_non_null(values);
    tiny_values(m->t, name, values, n);
    if (is(e->not_finite, name)) values[0] = __builtin_nanf("");
    uint64_t dims[2] = {col_n, row_n};
    pn__gguf_w_tensor(m->w, name, PN_TYPE_F32, row_n ? 2 : 1, dims, values);
    free(values);
}

static void put_block(const struct making *m, uint32_t i, const char *suffix, uint64_t col_n,
                      uint64_t row_n) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", i, suffix);
    put(m, name, col_n, row_n);
}

static void put_blocks(const struct making *m) {
    const struct tiny *t = m->t;
    bool gemma3 = strcmp(t->arch, "gemma3") == 0;
    uint64_t q = (uint64_t)t->head_n * t->head_dim;
    uint64_t kv = (uint64_t)t->kv_head_n * t->head_dim;
    for (uint32_t i = 0; i < t->layer_n; i++) {
        put_block(m, i, "attn_norm.weight", t->embd, 0);
        put_block(m, i, "attn_q.weight", t->embd, q);
        put_block(m, i, "attn_k.weight", t->embd, kv);
        put_block(m, i, "attn_v.weight", t->embd, kv);
        put_block(m, i, "attn_output.weight", q, t->embd);
        put_block(m, i, "ffn_norm.weight", t->embd, 0);
        put_block(m, i, "ffn_gate.weight", t->embd, t->ff);
        put_block(m, i, "ffn_up.weight", t->embd, t->ff);
        put_block(m, i, "ffn_down.weight", t->ff, t->embd);
        if (!gemma3) continue;
        put_block(m, i, "attn_q_norm.weight", t->head_dim, 0);
        put_block(m, i, "attn_k_norm.weight", t->head_dim, 0);
        put_block(m, i, "post_attention_norm.weight", t->embd, 0);
        put_block(m, i, "post_ffw_norm.weight", t->embd, 0);
    }
}

static void make(struct making *m) {
    const struct tiny *t = m->t;
    struct pn_detail d = {{0}};
    PN_ASSERT_OK(pn__gguf_writer_new(&m->w, &d), &d);
    put_keys(m);
    put(m, "token_embd.weight", t->embd, t->vocab);
    put(m, "output_norm.weight", t->embd, 0);
    put(m, "output.weight", t->embd, t->vocab);
    put_blocks(m);
    if (m->edit->extra) put(m, m->edit->extra, 4, 0);
}

static const struct tiny_edit no_edit;

void tiny_write(const struct tiny *t, const struct tiny_edit *edit, const char *path) {
    struct pn_detail d = {{0}};
    struct making m = {.t = t, .edit = edit ? edit : &no_edit};
    make(&m);
    int rc = pn__gguf_w_file(m.w, path, &d);
    pn__gguf_writer_free(m.w);
    PN_ASSERT_OK(rc, &d);
}

void tiny_write_split(const struct tiny *t, const char *prefix, uint32_t shard_n) {
    struct pn_detail d = {{0}};
    struct making m = {.t = t, .edit = &no_edit};
    make(&m);
    int rc = pn__gguf_w_split(m.w, prefix, shard_n, &d);
    pn__gguf_writer_free(m.w);
    PN_ASSERT_OK(rc, &d);
}

struct mem_tree tiny_tree;

int tiny_tree_setup(void **state) {
    (void)state;
    mem_tree_new(&tiny_tree);
    return 0;
}

int tiny_tree_teardown(void **state) {
    (void)state;
    mem_tree_free(&tiny_tree);
    return 0;
}

const char *tiny_path(const char *name) {
    static char paths[8][160];
    static size_t i;
    i = (i + 1) % PN_ARRAY_N(paths);
    snprintf(paths[i], sizeof paths[i], "%s/%s", tiny_tree.root, name);
    return paths[i];
}

int tiny_files_setup(void **state) {
    tiny_tree_setup(state);
    tiny_write(&tiny_llama, NULL, tiny_path("llama.gguf"));
    tiny_write_split(&tiny_llama, tiny_path("part"), 2);
    return 0;
}

void tiny_machine(uint64_t avail_bytes) {
    char text[160];
    assert_int_equal(avail_bytes % 1024, 0);
    snprintf(text, sizeof text, "MemTotal: %llu kB\nMemAvailable: %llu kB\n",
             (unsigned long long)(avail_bytes / 1024), (unsigned long long)(avail_bytes / 1024));
    mem_tree_write(&tiny_tree, "proc/meminfo", text);
    pn_ledger_set_reserves(0, 0);
}
