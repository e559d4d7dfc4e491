/* Loading a vocabulary: what is refused, what the ids and types mean, names of pre-tokenisers. */
#include "text/tiny.h"

static struct tiny t;

static void refused(const struct tiny *tiny, const char *pre, int code, const char *says) {
    struct pn_detail d;
    struct pn_vocab *v = NULL;
    assert_int_equal(tiny_load(tiny, pre, &d, &v), code);
    assert_null(v);
    if (!strstr(d.text, says)) fail_msg("'%s' does not say '%s'", d.text, says);
}

static void unknown_models_are_refused_by_name(void **state) {
    (void)state;
    tiny_spm(&t);
    t.model = "bert";
    refused(&t, NULL, PN_E_UNSUPPORTED, "'bert'");
    t.model = NULL;
    refused(&t, NULL, PN_E_FORMAT, "tokenizer.ggml.model");
}

/* CASES T7: never a silent default. */
static void unknown_and_missing_pre(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_vocab *v = NULL;
    tiny_bpe(&t, "martian");
    refused(&t, NULL, PN_E_UNSUPPORTED, "'martian'");
    refused(&t, NULL, PN_E_UNSUPPORTED, "deepseek-v3");
    refused(&t, "venusian", PN_E_USAGE, "'venusian'");
    refused(&t, "venusian", PN_E_USAGE, "gemma4");
    PN_ASSERT_OK(tiny_load(&t, "llama3", &d, &v), &d);
    assert_string_equal(pn__vocab_pre(v), "llama-bpe");
    pn__vocab_free(v);

    t.pre = NULL;
    tiny_log_on();
    v = tiny_vocab(&t);
    assert_int_equal(tiny_warnings, 1);
    assert_non_null(strstr(tiny_warning, "tokenizer.ggml.pre"));
    assert_string_equal(pn__vocab_pre(v), "default");
    pn__vocab_free(v);

    tiny_spm(&t);
    PN_ASSERT_OK(tiny_load(&t, "qwen2", &d, &v), &d);
    tiny_log_off();
    assert_int_equal(tiny_warnings, 2);
    assert_non_null(strstr(tiny_warning, "'qwen2'"));
    assert_string_equal(pn__vocab_pre(v), "none");
    pn__vocab_free(v);
}

static void aliases(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"llama3", "llama-bpe"},    {"llama-v3", "llama-bpe"},
        {"llama-bpe", "llama-bpe"}, {"falcon3", "llama-bpe"},
        {"pixtral", "llama-bpe"},   {"deepseek-r1-qwen", "qwen2"},
        {"megrez", "qwen2"},        {"llama4", "gpt-4o"},
        {"phi-2", "gpt-2"},         {"hunyuan-dense", "deepseek-v3"},
        {"olmo", "olmo"},           {"jina-v5-nano", "llama-bpe"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        tiny_bpe(&t, pairs[i][0]);
        struct pn_vocab *v = tiny_vocab(&t);
        assert_string_equal(pn__vocab_pre(v), pairs[i][1]);
        pn__vocab_free(v);
    }
    tiny_bpe(&t, "llama");
    refused(&t, NULL, PN_E_UNSUPPORTED, "'llama'");
    tiny_bpe(&t, "");
    refused(&t, NULL, PN_E_UNSUPPORTED, "''");
}

static void short_types(struct pn_gguf_writer *w) {
    int32_t one = 1;
    pn__gguf_w_array(w, "tokenizer.ggml.token_type", PN_GGUF_I32, &one, 1);
}

static void text_scores(struct pn_gguf_writer *w) {
    struct pn_str s = {"x", 1};
    pn__gguf_w_strings(w, "tokenizer.ggml.scores", &s, 1);
}

static void number_tokens(struct pn_gguf_writer *w) {
    int32_t one = 1;
    pn__gguf_w_array(w, "tokenizer.ggml.tokens", PN_GGUF_I32, &one, 1);
}

static void number_merges(struct pn_gguf_writer *w) {
    int32_t one = 1;
    pn__gguf_w_array(w, "tokenizer.ggml.merges", PN_GGUF_I32, &one, 1);
}

static void malformed_arrays_are_refused(void **state) {
    (void)state;
    tiny_spm(&t);
    t.no_tokens = true;
    refused(&t, NULL, PN_E_FORMAT, "'tokenizer.ggml.tokens' is missing");
    t.extra = number_tokens;
    refused(&t, NULL, PN_E_FORMAT, "not strings");
    t.no_tokens = false;
    t.no_types = true;
    t.extra = short_types;
    refused(&t, NULL, PN_E_FORMAT, "1 elements for 286 tokens");
    t.no_types = false;
    t.no_scores = true;
    t.extra = text_scores;
    refused(&t, NULL, PN_E_FORMAT, "tokenizer.ggml.scores");
    tiny_spm(&t);
    t.n = 0;
    refused(&t, NULL, PN_E_FORMAT, "0 tokens");
    tiny_spm(&t);
    tiny_add(&t, "q", TINY_NORMAL, 0);
    refused(&t, NULL, PN_E_FORMAT, "both 'q'");
}

static void malformed_merges_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"", "x", "xy", "x ", " x", " ", "  "};
    tiny_bpe(&t, "gpt-2");
    t.no_merges = true;
    refused(&t, NULL, PN_E_FORMAT, "'tokenizer.ggml.merges' is missing");
    t.extra = number_merges;
    refused(&t, NULL, PN_E_FORMAT, "not strings");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tiny_bpe(&t, "gpt-2");
        t.merges[t.merge_n++] = "a b";
        t.merges[t.merge_n++] = bad[i];
        refused(&t, NULL, PN_E_FORMAT, "element 1");
    }
}

static void ids(struct pn_gguf_writer *w) {
    pn__gguf_w_u32(w, "tokenizer.ggml.bos_token_id", 5);
    pn__gguf_w_u32(w, "tokenizer.ggml.eos_token_id", 6);
    pn__gguf_w_u32(w, "tokenizer.ggml.eot_token_id", 7);
    pn__gguf_w_u32(w, "tokenizer.ggml.eom_token_id", 100000);
    static const int32_t list[] = {6, 8, 9};
    pn__gguf_w_array(w, "tokenizer.ggml.eos_token_ids", PN_GGUF_I32, list, 3);
}

static void ends_of_generation(void **state) {
    (void)state;
    tiny_bpe(&t, "gpt-2");
    t.extra = ids;
    int32_t end = tiny_add(&t, "<|im_end|>", TINY_CONTROL, 0);
    int32_t text = tiny_add(&t, "<|endoftext|>", TINY_NORMAL, 0);
    int32_t start = tiny_add(&t, "<|im_start|>", TINY_CONTROL, 0);
    tiny_log_on();
    struct pn_vocab *v = tiny_vocab(&t);
    tiny_log_off();
    assert_int_equal(tiny_warnings, 1);
    assert_non_null(strstr(tiny_warning, "100000"));
    assert_int_equal(pn__vocab_n(v), 259);
    assert_int_equal(pn__vocab_bos(v), 5);
    assert_int_equal(pn__vocab_eos(v), 6);
    assert_false(pn__vocab_add_bos(v));
    for (int32_t id = -2; id < 300; id++) {
        bool eog = (id >= 6 && id <= 9) || id == end || id == text;
        assert_int_equal(pn__vocab_is_eog(v, id), eog);
    }
    assert_true(pn__vocab_is_control(v, text));
    assert_true(pn__vocab_is_control(v, start));
    assert_false(pn__vocab_is_control(v, 'a'));
    assert_false(pn__vocab_is_control(v, -1));
    assert_false(pn__vocab_is_control(v, 259));
    pn__vocab_free(v);
}

/* gpt-oss: "<|end|>" ends a channel, not the answer, and the channel marks are shown. */
static void harmony_ends(void **state) {
    (void)state;
    tiny_bpe(&t, "gpt-4o");
    int32_t end = tiny_add(&t, "<|end|>", TINY_CONTROL, 0);
    struct pn_vocab *v = tiny_vocab(&t);
    assert_true(pn__vocab_is_eog(v, end));
    pn__vocab_free(v);
    int32_t ret = tiny_add(&t, "<|return|>", TINY_CONTROL, 0);
    int32_t call = tiny_add(&t, "<|call|>", TINY_CONTROL, 0);
    int32_t channel = tiny_add(&t, "<|channel|>", TINY_CONTROL, 0);
    v = tiny_vocab(&t);
    assert_false(pn__vocab_is_eog(v, end));
    assert_true(pn__vocab_is_eog(v, ret));
    assert_true(pn__vocab_is_eog(v, call));
    assert_false(pn__vocab_is_control(v, channel));
    assert_int_equal(pn__vocab_piece(v, channel, false).len, strlen("<|channel|>"));
    pn__vocab_free(v);
}

static void piece_is(const struct pn_vocab *v, int32_t id, bool special, const char *text) {
    struct pn_str p = pn__vocab_piece(v, id, special);
    assert_int_equal(p.len, strlen(text));
    assert_memory_equal(p.data, text, p.len);
}

static void pieces(void **state) {
    (void)state;
    tiny_spm(&t);
    int32_t word = tiny_add(&t, "\xe2\x96\x81of\xe2\x96\x81", TINY_NORMAL, 0);
    int32_t user = tiny_add(&t, "\xe2\x96\x81U", TINY_USER, 0);
    int32_t unused = tiny_add(&t, "<unused>", TINY_UNUSED, 0);
    struct pn_vocab *v = tiny_vocab(&t);
    piece_is(v, word, false, " of ");
    piece_is(v, user, false, "\xe2\x96\x81U");
    piece_is(v, unused, true, "");
    piece_is(v, 1, false, "");
    piece_is(v, 1, true, "<s>");
    piece_is(v, 0, true, "<unk>");
    piece_is(v, 3 + 0xFF, false, "\xff");
    piece_is(v, -1, true, "");
    piece_is(v, (int32_t)t.n, true, "");
    pn__vocab_free(v);

    tiny_bpe(&t, "gpt-2");
    /* A space and an e with acute in the byte alphabet, and a character outside of it. */
    int32_t id = tiny_add(&t, "\xc4\xa0\xc3\x83\xc2\xa9", TINY_NORMAL, 0);
    int32_t odd = tiny_add(&t, "\xe4\xb8\xad", TINY_NORMAL, 0);
    v = tiny_vocab(&t);
    piece_is(v, id, false, " \xc3\xa9");
    piece_is(v, odd, false, "\xe4\xb8\xad");
    for (int b = 1; b < 256; b++)
        piece_is(v, b, false, (char[]){(char)b, 0});
    pn__vocab_free(v);
}

static void memory_is_counted(void **state) {
    (void)state;
    tiny_bpe(&t, "gpt-2");
    struct pn_vocab *v = tiny_vocab(&t);
    uint64_t before = pn__vocab_bytes(v);
    pn__vocab_free(v);
    for (int i = 0; i < 100; i++) {
        char text[24];
        snprintf(text, sizeof text, "token number %d", i);
        tiny_add(&t, text, TINY_NORMAL, 0);
    }
    v = tiny_vocab(&t);
    assert_true(pn__vocab_bytes(v) >= before + 100 * 14);
    pn__vocab_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_models_are_refused_by_name),
        cmocka_unit_test(unknown_and_missing_pre),
        cmocka_unit_test(aliases),
        cmocka_unit_test(malformed_arrays_are_refused),
        cmocka_unit_test(malformed_merges_are_refused),
        cmocka_unit_test(ends_of_generation),
        cmocka_unit_test(harmony_ends),
        cmocka_unit_test(pieces),
        cmocka_unit_test(memory_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
