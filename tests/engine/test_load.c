/* Loading what is broken, and on a system that fails: every error names what and where, and nothing
 * is kept. */
#include <errno.h>
#include <math.h>

#include "base/alloc.h"
#include "engine/drive.h"
#include "engine/golden.h"
#include "engine/tiny.h"
#include "gguf/gguf.h"
#include "support/io_fault.h"

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
    const char *path = tiny_path("wrong.gguf");
    for (size_t i = 0; i < PN_ARRAY_N(wrong); i++) {
        struct pn_detail d = {{0}};
        struct pn_engine_options o = short_options(path, PN_WEIGHTS_COPY);
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
    const char *path = tiny_path("optional.gguf");
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        struct answer a;
        tiny_write(&tiny_llama, &rows[i], path);
        struct pn_engine_options o = short_options(path, PN_WEIGHTS_COPY);
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
    const char *const paths[] = {tiny_path("llama.gguf"), tiny_path("part-00002-of-00002.gguf"),
                                 g.model_path};
    uint64_t before = ledger_reserved();
    for (size_t i = 0; i < 2 * PN_ARRAY_N(paths); i++) {
        struct pn_engine_options o =
            short_options(paths[i / 2], i % 2 ? PN_WEIGHTS_MAP : PN_WEIGHTS_COPY);
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
    struct pn_engine_options o = short_options(path, PN_WEIGHTS_COPY);
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
    const char *path = tiny_path("llama.gguf");
    uint64_t from;
    uint64_t to;
    data_range(path, &from, &to);
    for (uint64_t at = from; at < to; at += 96) {
        char end[48];
        io_fault_reset();
        fault.end_at = at;
        snprintf(end, sizeof end, "file ends at offset %llu", (unsigned long long)at);
        expect_io_error(path, at % 128 ? "file ends" : end);
    }
    /* Reads of the header go beyond it: only where they don't reach is it the data's reads. */
    for (uint64_t at = to - 4096; at < to; at += 96) {
        io_fault_reset();
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
        struct pn_engine_options o =
            short_options(tiny_path("llama.gguf"), (enum pn_weights_choice)way);
        io_fault_reset();
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
        struct pn_engine_options o = short_options(tiny_path("llama.gguf"), PN_WEIGHTS_MAP);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(optional_parts),
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test_setup_teardown(reads_that_fail, io_fault_arm, io_fault_disarm),
        cmocka_unit_test_setup_teardown(slow_reads, io_fault_arm, io_fault_disarm),
        cmocka_unit_test_setup_teardown(maps_that_fail, io_fault_arm, io_fault_disarm),
    };
    return cmocka_run_group_tests(tests, tiny_files_setup, tiny_tree_teardown);
}
