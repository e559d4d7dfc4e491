/* Loading what is broken, and on a system that fails: every error names what and where, and nothing
 * is kept. */
#include <errno.h>
#include <math.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/io.h"
#include "engine/drive.h"
#include "engine/golden.h"
#include "engine/tiny.h"
#include "gguf/gguf.h"

static struct mem_tree tree;
static const int32_t prompt[5] = {3, 9, 27, 14, 30};

static const char *in_tree(const char *name) {
    static char paths[4][128];
    static int i;
    i = (i + 1) % 4;
    snprintf(paths[i], sizeof paths[i], "%s/%s", tree.root, name);
    return paths[i];
}

static struct pn_engine_options options_of(const char *path, enum pn_weights_choice weights) {
    return (struct pn_engine_options){
        .model_path = path, .ctx = 64, .slots = 1, .threads = 1, .out_rows = 8, .weights = weights};
}

static struct pn_request short_request(void) {
    return (struct pn_request){.tokens = prompt, .token_n = 5, .all_logits = true};
}

/* ---- the wrong file ---- */

static const struct {
    struct tiny_edit edit;
    int code;
    const char *named[2];
} wrong[] = {
    {{.drop = "general.architecture"}, PN_E_FORMAT, {"general.architecture"}},
    {{.key = "general.architecture", .str = "nosuch"},
     PN_E_UNSUPPORTED,
     {"'nosuch'", "llama, qwen2, qwen3, gemma3, qwen35"}},
    {{.key = "general.type", .str = "adapter"}, PN_E_UNSUPPORTED, {"adapter"}},
    {{.drop = "llama.block_count"}, PN_E_FORMAT, {"'llama.block_count' is missing"}},
    {{.drop = "llama.context_length"}, PN_E_FORMAT, {"'llama.context_length' is missing"}},
    {{.drop = "llama.embedding_length"}, PN_E_FORMAT, {"'llama.embedding_length' is missing"}},
    {{.drop = "llama.feed_forward_length"},
     PN_E_FORMAT,
     {"'llama.feed_forward_length' is missing"}},
    {{.drop = "llama.attention.head_count"},
     PN_E_FORMAT,
     {"'llama.attention.head_count' is missing"}},
    {{.drop = "llama.attention.layer_norm_rms_epsilon"},
     PN_E_FORMAT,
     {"'llama.attention.layer_norm_rms_epsilon' is missing"}},
    {{.drop = "token_embd.weight"}, PN_E_FORMAT, {"'token_embd.weight' is missing"}},
    {{.drop = "output_norm.weight"}, PN_E_FORMAT, {"'output_norm.weight' is missing"}},
    {{.drop = "blk.1.ffn_down.weight"}, PN_E_FORMAT, {"'blk.1.ffn_down.weight' is missing"}},
    {{.drop = "blk.0.attn_norm.weight"}, PN_E_FORMAT, {"'blk.0.attn_norm.weight' is missing"}},
    {{.reshaped = "blk.0.attn_q.weight"},
     PN_E_FORMAT,
     {"'blk.0.attn_q.weight' is 32 x 33", "asks for 32 x 32"}},
    {{.reshaped = "blk.1.attn_norm.weight"},
     PN_E_FORMAT,
     {"'blk.1.attn_norm.weight' is 33", "asks for 32 x 1"}},
    {{.reshaped = "token_embd.weight"}, PN_E_FORMAT, {"'output.weight' is 32 x 40"}},
    {{.extra = "blk.0.mystery.weight"},
     PN_E_UNSUPPORTED,
     {"'blk.0.mystery.weight' has no place in architecture 'llama'"}},
    {{.extra = "blk.2.attn_q.weight"}, PN_E_UNSUPPORTED, {"'blk.2.attn_q.weight' has no place"}},
    {{.key = "llama.block_count", .u32 = 3}, PN_E_FORMAT, {"'blk.2.attn_norm.weight' is missing"}},
    {{.key = "llama.block_count", .u32 = 1}, PN_E_UNSUPPORTED, {"'blk.1.", "has no place"}},
    {{.key = "llama.block_count", .u32 = 0}, PN_E_FORMAT, {"'llama.block_count' is 0"}},
    {{.key = "llama.block_count", .u32 = UINT32_MAX},
     PN_E_FORMAT,
     {"'llama.block_count' is 4294967295, more than 4096"}},
    {{.key = "llama.block_count", .str = "two"}, PN_E_FORMAT, {"llama.block_count"}},
    {{.key = "llama.context_length", .u32 = 0}, PN_E_FORMAT, {"'llama.context_length' is 0"}},
    {{.key = "llama.embedding_length", .u32 = 1u << 30},
     PN_E_FORMAT,
     {"'llama.embedding_length' is 1073741824"}},
    {{.key = "llama.feed_forward_length", .u32 = UINT32_MAX},
     PN_E_FORMAT,
     {"'llama.feed_forward_length' is 4294967295"}},
    {{.key = "llama.attention.head_count", .u32 = UINT32_MAX},
     PN_E_FORMAT,
     {"'llama.attention.head_count' is 4294967295"}},
    {{.key = "llama.attention.head_count", .u32 = 4096},
     PN_E_FORMAT,
     {"'blk.0.attn_q.weight'", "asks for 32 x 32768"}},
    {{.key = "llama.attention.head_count_kv", .u32 = 3}, PN_E_FORMAT, {"4 heads", "3 KV heads"}},
    {{.key = "llama.attention.head_count_kv", .u32 = 0}, PN_E_FORMAT, {"4 heads", "0 KV heads"}},
    {{.key = "llama.attention.key_length", .u32 = 7}, PN_E_FORMAT, {"7 keys"}},
    {{.key = "llama.attention.key_length", .u32 = 0}, PN_E_FORMAT, {"0 keys"}},
    {{.key = "llama.attention.key_length", .u32 = 2050},
     PN_E_FORMAT,
     {"'llama.attention.key_length' is 2050"}},
    {{.key = "llama.attention.value_length", .u32 = 0}, PN_E_FORMAT, {"0 values"}},
    {{.key = "llama.attention.layer_norm_rms_epsilon", .f32 = -1.0, .is_f32 = true},
     PN_E_FORMAT,
     {"layer_norm_rms_epsilon is -1"}},
    {{.key = "llama.attention.layer_norm_rms_epsilon", .f32 = NAN, .is_f32 = true},
     PN_E_FORMAT,
     {"'llama.attention.layer_norm_rms_epsilon' is not a finite number"}},
    {{.key = "llama.rope.scaling.type", .str = "longrope"},
     PN_E_UNSUPPORTED,
     {"'llama.rope.scaling.type' is 'longrope'", "none, linear, yarn"}},
    {{.key = "llama.rope.scaling.type", .str = "yarn"},
     PN_E_FORMAT,
     {"'llama.rope.scaling.type' is 'yarn'", "factor is missing"}},
    {{.key = "llama.rope.scaling.type", .str = "linear"}, PN_E_FORMAT, {"factor is missing"}},
    {{.key = "llama.rope.scaling.factor", .f32 = -2.0, .is_f32 = true},
     PN_E_FORMAT,
     {"factor -2 is negative"}},
    {{.key = "llama.rope.freq_base", .f32 = 0.0, .is_f32 = true},
     PN_E_FORMAT,
     {"rope.freq_base is 0"}},
    {{.key = "llama.rope.dimension_count", .u32 = 3}, PN_E_FORMAT, {"dimension_count is 3"}},
    {{.key = "llama.rope.dimension_count", .u32 = 10},
     PN_E_FORMAT,
     {"dimension_count is 10", "key length 8"}},
    {{.key = "llama.expert_count", .u32 = 4}, PN_E_FORMAT, {"llama.expert_used_count", "missing"}},
    {{.key = "llama.nextn_predict_layers", .u32 = 2},
     PN_E_FORMAT,
     {"nextn_predict_layers is 2 of 2 blocks"}},
};

static void wrong_files(void **state) {
    (void)state;
    uint64_t before = ledger_reserved();
    const char *path = in_tree("wrong.gguf");
    for (size_t i = 0; i < PN_ARRAY_N(wrong); i++) {
        struct pn_detail d = {{0}};
        struct pn_engine_options o = options_of(path, PN_WEIGHTS_COPY);
        pn_engine *e;
        tiny_write(&tiny_llama, &wrong[i].edit, path);
        int rc = pn_engine_open(&o, &d, &e);
        if (rc != wrong[i].code) {
            fail_msg("row %zu: %s, %s wanted: %s", i, pn_err_name(rc), pn_err_name(wrong[i].code),
                     d.text);
        }
        assert_null(e);
        for (int k = 0; k < 2 && wrong[i].named[k]; k++) {
            if (!strstr(d.text, wrong[i].named[k])) {
                fail_msg("row %zu: '%s' doesn't say '%s'", i, d.text, wrong[i].named[k]);
            }
        }
        assert_non_null(strstr(d.text, "wrong.gguf"));
        assert_int_equal(ledger_reserved(), before);
    }
}

/* What a file may lack. */
static void optional_parts(void **state) {
    (void)state;
    static const struct tiny_edit rows[] = {
        {.drop = "output.weight"},
        {.extra = "blk.1.attn_rot_embd"},
        {.key = "llama.rope.scaling.type", .str = "none"},
        {.key = "llama.rope.dimension_count", .u32 = 4},
    };
    const char *path = in_tree("optional.gguf");
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        struct answer a;
        tiny_write(&tiny_llama, &rows[i], path);
        struct pn_engine_options o = options_of(path, PN_WEIGHTS_COPY);
        pn_engine *e = open_engine(&o);
        ask(e, new_session(e), short_request(), PN_STOP_LENGTH, &a);
        assert_int_equal(a.row_n, 5);
        answer_free(&a);
        pn_engine_free(e);
    }
}

/* ---- a failing system ---- */

/* Opens and asks; the code of whatever failed first. */
static int whole_life(const struct pn_engine_options *o, struct pn_detail *d, struct answer *a) {
    pn_engine *e;
    pn_session *s;
    bool more = true;
    struct pn_request r = short_request();
    answer_init(a, &r);
    int rc = pn_engine_open(o, d, &e);
    if (rc) return rc;
    rc = pn_session_new(e, d, &s);
    if (rc == 0) rc = pn_session_submit(s, &r, d);
    while (rc == 0 && more) {
        rc = pn_engine_turn(e, &more, d);
    }
    pn_engine_free(e);
    return rc;
}

static void every_allocation_fails_once(void **state) {
    (void)state;
    struct golden g;
    assert_true(golden_load("qwen35-mtp", false, &g));
    const char *const paths[] = {in_tree("llama.gguf"), in_tree("part-00002-of-00002.gguf"),
                                 g.model_path};
    uint64_t before = ledger_reserved();
    for (size_t i = 0; i < 2 * PN_ARRAY_N(paths); i++) {
        struct pn_engine_options o =
            options_of(paths[i / 2], i % 2 ? PN_WEIGHTS_MAP : PN_WEIGHTS_COPY);
        o.threads = 2;
        uint64_t n = 0;
        uint64_t made = 0;
        /* Until one is done before the allocation that was to fail. A few can be done without. */
        while (made >= n) {
            struct pn_detail d = {{0}};
            struct answer a;
            uint64_t start = pn__alloc_count();
            pn__alloc_fail_nth(++n);
            int rc = whole_life(&o, &d, &a);
            pn__alloc_fail_nth(0);
            made = pn__alloc_count() - start;
            if (rc) {
                assert_int_equal(rc, PN_E_NOMEM);
                assert_int_not_equal(d.text[0], '\0');
            } else {
                assert_int_equal(a.row_n, 5);
            }
            answer_free(&a);
            assert_int_equal(ledger_reserved(), before);
        }
        assert_true(n > 20);
    }
    golden_free(&g);
}

static struct fault {
    uint64_t eio_from; /* reads that reach this offset fail */
    uint64_t end_at;   /* the file ends here, whatever fstat said */
    size_t short_bytes;
    int eintr_every;
    int mmap_errno;
    int read_n;
    int open_n;
} fault;

static int f_open(const char *path, int flags) {
    int fd = pn__io_system()->open(path, flags);
    fault.open_n += fd >= 0;
    return fd;
}

static int f_close(int fd) {
    fault.open_n--;
    return pn__io_system()->close(fd);
}

static int f_fstat(int fd, struct stat *st) {
    return pn__io_system()->fstat(fd, st);
}

static ssize_t f_pread(int fd, void *buf, size_t bytes, off_t off) {
    fault.read_n++;
    if (fault.eintr_every && fault.read_n % fault.eintr_every == 0) {
        errno = EINTR;
        return -1;
    }
    if ((uint64_t)off + bytes > fault.eio_from) {
        errno = EIO;
        return -1;
    }
    if ((uint64_t)off >= fault.end_at) return 0;
    if (bytes > fault.end_at - (uint64_t)off) bytes = fault.end_at - (uint64_t)off;
    if (fault.short_bytes && bytes > fault.short_bytes) bytes = fault.short_bytes;
    return pn__io_system()->pread(fd, buf, bytes, off);
}

static void *f_mmap(int fd, uint64_t bytes, off_t off) {
    if (!fault.mmap_errno) return pn__io_system()->mmap_read(fd, bytes, off);
    errno = fault.mmap_errno;
    return (void *)-1;
}

static int f_munmap(void *p, uint64_t bytes) {
    return pn__io_system()->munmap(p, bytes);
}

static const struct pn_io shim = {f_open, f_close, f_fstat, f_pread, f_mmap, f_munmap};

static void reset_fault(void) {
    fault = (struct fault){.eio_from = UINT64_MAX, .end_at = UINT64_MAX};
}

static int arm(void **state) {
    (void)state;
    reset_fault();
    pn__io_set(&shim);
    return 0;
}

static int disarm(void **state) {
    (void)state;
    pn__io_set(NULL);
    assert_int_equal(fault.open_n, 0);
    return 0;
}

/* Where tensors' data begins and ends. */
static void data_range(const char *path, uint64_t *from, uint64_t *to) {
    struct pn_detail d = {{0}};
    struct pn_gguf *g;
    PN_ASSERT_OK(pn__gguf_open(path, &d, &g), &d);
    *from = UINT64_MAX;
    *to = 0;
    for (uint64_t i = 0; i < pn__gguf_tensor_n(g); i++) {
        const struct pn_gguf_tensor *t = pn__gguf_tensor(g, i);
        if (t->offset < *from) *from = t->offset;
        if (t->offset + t->bytes > *to) *to = t->offset + t->bytes;
    }
    pn__gguf_close(g);
}

static void expect_io_error(const char *path, const char *named) {
    struct pn_detail d = {{0}};
    struct pn_engine_options o = options_of(path, PN_WEIGHTS_COPY);
    uint64_t before = ledger_reserved();
    pn_engine *e;
    assert_int_equal(pn_engine_open(&o, &d, &e), PN_E_IO);
    assert_null(e);
    if (!strstr(d.text, "llama.gguf") || !strstr(d.text, "offset") || !strstr(d.text, named)) {
        fail_msg("'%s' doesn't name the file, the offset and '%s'", d.text, named);
    }
    assert_int_equal(ledger_reserved(), before);
    assert_int_equal(fault.open_n, 0);
}

static void reads_that_fail(void **state) {
    (void)state;
    const char *path = in_tree("llama.gguf");
    uint64_t from;
    uint64_t to;
    data_range(path, &from, &to);
    for (uint64_t at = from; at < to; at += 96) {
        char end[48];
        reset_fault();
        fault.end_at = at;
        snprintf(end, sizeof end, "file ends at offset %llu", (unsigned long long)at);
        expect_io_error(path, at % 128 ? "file ends" : end);
    }
    /* Reads of the header go beyond it: only where they don't reach is it the data's reads. */
    for (uint64_t at = to - 4096; at < to; at += 96) {
        reset_fault();
        fault.eio_from = at;
        expect_io_error(path, strerror(EIO));
    }
}

static void slow_reads(void **state) {
    (void)state;
    struct answer want;
    struct answer got;
    struct pn_detail d = {{0}};
    for (int way = PN_WEIGHTS_MAP; way <= PN_WEIGHTS_COPY; way++) {
        struct pn_engine_options o = options_of(in_tree("llama.gguf"), (enum pn_weights_choice)way);
        reset_fault();
        PN_ASSERT_OK(whole_life(&o, &d, &want), &d);
        fault.short_bytes = 100;
        fault.eintr_every = 3;
        PN_ASSERT_OK(whole_life(&o, &d, &got), &d);
        assert_memory_equal(want.rows, got.rows, 5 * want.vocab * sizeof(float));
        answer_free(&want);
        answer_free(&got);
    }
}

static void maps_that_fail(void **state) {
    (void)state;
    static const int errors[][2] = {{ENOMEM, PN_E_NOMEM}, {ENODEV, PN_E_IO}};
    for (size_t i = 0; i < PN_ARRAY_N(errors); i++) {
        struct pn_detail d = {{0}};
        struct pn_engine_options o = options_of(in_tree("llama.gguf"), PN_WEIGHTS_MAP);
        uint64_t before = ledger_reserved();
        pn_engine *e;
        fault.mmap_errno = errors[i][0];
        assert_int_equal(pn_engine_open(&o, &d, &e), errors[i][1]);
        assert_null(e);
        assert_non_null(strstr(d.text, "llama.gguf"));
        assert_int_equal(ledger_reserved(), before);
        assert_int_equal(fault.open_n, 0);
    }
}

static int setup(void **state) {
    (void)state;
    char prefix[128];
    mem_tree_new(&tree);
    tiny_write(&tiny_llama, NULL, in_tree("llama.gguf"));
    snprintf(prefix, sizeof prefix, "%s/part", tree.root);
    tiny_write_split(&tiny_llama, prefix, 2);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    mem_tree_free(&tree);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(optional_parts),
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test_setup_teardown(reads_that_fail, arm, disarm),
        cmocka_unit_test_setup_teardown(slow_reads, arm, disarm),
        cmocka_unit_test_setup_teardown(maps_that_fail, arm, disarm),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
