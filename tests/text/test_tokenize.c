/* Text to ids on tiny vocabularies: merge order, special tokens, spaces, bytes. */
#include "text/tiny.h"

#define SPACE "\xe2\x96\x81"
#define G "\xc4\xa0" /* a space in the byte alphabet */

static struct tiny t;

static void bpe_merges_by_rank_then_from_the_left(void **state) {
    (void)state;
    tiny_bpe(&t, "gpt-2");
    int32_t bc = tiny_merge(&t, "b c");
    int32_t ab = tiny_merge(&t, "a b");
    int32_t abc = tiny_merge(&t, "ab c");
    int32_t aa = tiny_merge(&t, "a a");
    int32_t space_a = tiny_merge(&t, G " a");
    struct pn_vocab *v = tiny_vocab(&t);
    EXPECT(v, "abc", 0, 'a', bc);
    EXPECT(v, "ab", 0, ab);
    EXPECT(v, "aaa", 0, aa, 'a');
    EXPECT(v, "aaaa", 0, aa, aa);
    EXPECT(v, "a a", 0, 'a', space_a);
    (void)abc; /* "ab" never stands in front of "c": "b c" comes first */
    pn__vocab_free(v);
}

/* A merge whose result is no token is undone into bytes; a part that is no token still merges. */
static void bpe_symbols_that_are_no_tokens(void **state) {
    (void)state;
    tiny_bpe(&t, "gpt-2");
    t.merges[t.merge_n++] = "x y";
    t.merges[t.merge_n++] = "xy z";
    int32_t xyz = tiny_add(&t, "xyz", TINY_NORMAL, 0);
    struct pn_vocab *v = tiny_vocab(&t);
    EXPECT(v, "xyz", 0, xyz);
    EXPECT(v, "xy", 0, 'x', 'y');
    pn__vocab_free(v);
}

static void whole_pieces_before_merges_where_the_rule_says_so(void **state) {
    (void)state;
    tiny_bpe(&t, "llama-bpe");
    int32_t he = tiny_merge(&t, "h e");
    int32_t hen = tiny_add(&t, "hen", TINY_NORMAL, 0);
    struct pn_vocab *v = tiny_vocab(&t);
    EXPECT(v, "hen", 0, hen);
    EXPECT(v, "hens", 0, he, 'n', 's');
    pn__vocab_free(v);
    t.pre = "gpt-2";
    v = tiny_vocab(&t);
    EXPECT(v, "hen", 0, he, 'n');
    pn__vocab_free(v);
}

static void any_bytes_make_the_round_trip(void **state) {
    (void)state;
    char all[512];
    for (int i = 0; i < 256; i++) {
        all[i] = (char)i;
        all[511 - i] = (char)i;
    }
    for (int spm = 0; spm < 2; spm++) {
        if (spm)
            tiny_spm(&t);
        else
            tiny_bpe(&t, "qwen2");
        struct pn_vocab *v = tiny_vocab(&t);
        struct pn_detail d;
        struct pn_ids l = {0};
        PN_ASSERT_OK(pn__tokenize(v, all, sizeof all, 0, &l, &d), &d);
        size_t at = 0;
        for (size_t i = spm ? 1 : 0; i < l.n; i++) {
            struct pn_str p = pn__vocab_piece(v, l.ids[i], false);
            assert_true(at + p.len <= sizeof all);
            assert_memory_equal(p.data, all + at, p.len);
            at += p.len;
        }
        assert_int_equal(at, sizeof all);
        pn__ids_free(&l);
        pn__vocab_free(v);
    }
}

static void special_tokens(void **state) {
    (void)state;
    tiny_bpe(&t, "gpt-2");
    int32_t end = tiny_add(&t, "<|im_end|>", TINY_CONTROL, 0);
    int32_t user = tiny_add(&t, "[TOOL]", TINY_USER, 0);
    int32_t longer = tiny_add(&t, "[TOOL]>", TINY_USER, 0);
    int32_t unk = tiny_add(&t, "[U]", TINY_UNKNOWN, 0);
    struct pn_vocab *v = tiny_vocab(&t);
    unsigned special = PN_TOKENIZE_SPECIAL;
    EXPECT(v, "a<|im_end|>b", special, 'a', end, 'b');
    EXPECT(v, "<|im_end|>", special, end);
    EXPECT(v, "<|im_end|", special, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|');
    EXPECT(v, "<|im_end|>", 0, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
    EXPECT(v, "a[TOOL]b", 0, 'a', user, 'b');
    EXPECT(v, "[TOOL]>[TOOL][", 0, longer, user, '[');
    EXPECT(v, "[U]", 0, '[', 'U', ']');
    EXPECT(v, "[U]", special, unk);
    EXPECT(v, "[[TOOL]", 0, '[', user);
    pn__vocab_free(v);
}

/* However the merges, the scores or the whole-piece rule could spell it: text is text. */
static void text_never_becomes_a_control_token(void **state) {
    (void)state;
    tiny_bpe(&t, "llama-bpe");
    int32_t control = tiny_add(&t, "end", TINY_CONTROL, 0);
    int32_t en = tiny_merge(&t, "e n");
    assert_int_equal(tiny_merge(&t, "en d"), control);
    struct pn_vocab *v = tiny_vocab(&t);
    EXPECT(v, "end", 0, 'e', 'n', 'd');
    EXPECT(v, "en", 0, en);
    EXPECT(v, "end", PN_TOKENIZE_SPECIAL, control);
    pn__vocab_free(v);

    tiny_spm(&t);
    t.text[1][0] = 0;
    strcpy(t.text[1], "end");
    int32_t spm_en = tiny_add(&t, "en", TINY_NORMAL, -1);
    v = tiny_vocab(&t);
    EXPECT(v, "end", 0, tiny_find(&t, SPACE), spm_en, tiny_find(&t, "d"));
    EXPECT(v, "<0x41>", 0, tiny_find(&t, SPACE), 3 + '<', 3 + '0', tiny_find(&t, "x"), 3 + '4',
           3 + '1', 3 + '>');
    pn__vocab_free(v);
}

static void spm_scores_and_spaces(void **state) {
    (void)state;
    tiny_spm(&t);
    int32_t sp = tiny_find(&t, SPACE), a = tiny_find(&t, "a"), b = tiny_find(&t, "b");
    int32_t ab = tiny_add(&t, "ab", TINY_NORMAL, -2);
    int32_t bc = tiny_add(&t, "bc", TINY_NORMAL, -1);
    int32_t sp_a = tiny_add(&t, SPACE "a", TINY_NORMAL, -3);
    int32_t turn = tiny_add(&t, "<t>", TINY_USER, 0);
    struct pn_vocab *v = tiny_vocab(&t);
    EXPECT(v, "a", 0, sp_a);
    EXPECT(v, "abc", 0, sp_a, bc);
    EXPECT(v, "bab", 0, sp, b, ab);
    EXPECT(v, " a", 0, sp, sp_a);
    EXPECT(v, "b<t>a a", 0, sp, b, turn, sp_a, sp_a);
    EXPECT(v, "<s>a", PN_TOKENIZE_SPECIAL, 1, sp_a);
    EXPECT(v, "a", PN_TOKENIZE_BOS, 1, sp_a);
    EXPECT(v, "\xc3\xa9", 0, sp, 3 + 0xC3, 3 + 0xA9);
    expect_ids(v, "", 0, 0, (int32_t[]){0}, 0);
    expect_ids(v, "", 0, PN_TOKENIZE_BOS, (int32_t[]){1}, 1);
    assert_true(pn__vocab_add_bos(v));
    pn__vocab_free(v);
    (void)a;
}

static void no_space_prefix(struct pn_gguf_writer *w) {
    pn__gguf_w_bool(w, "tokenizer.ggml.add_space_prefix", false);
}

static void spm_without_space_prefix(void **state) {
    (void)state;
    tiny_spm(&t);
    t.extra = no_space_prefix;
    struct pn_vocab *v = tiny_vocab(&t);
    EXPECT(v, "a b", 0, tiny_find(&t, "a"), tiny_find(&t, SPACE), tiny_find(&t, "b"));
    pn__vocab_free(v);
}

static void spm_without_byte_tokens_has_the_unknown_token(void **state) {
    (void)state;
    memset(&t, 0, sizeof t);
    t.model = "llama";
    int32_t unk = tiny_add(&t, "<unk>", TINY_UNKNOWN, 0);
    int32_t sp = tiny_add(&t, SPACE, TINY_NORMAL, -1);
    int32_t a = tiny_add(&t, "a", TINY_NORMAL, -1);
    struct pn_vocab *v = tiny_vocab(&t);
    EXPECT(v,
           "a\xe4\xb8\xad"
           "a\xff",
           0, sp, a, unk, a, unk);
    pn__vocab_free(v);
}

static void bytes_without_a_token_are_left_out_loudly(void **state) {
    (void)state;
    tiny_bpe(&t, "gpt-2");
    t.text['q'][0] = 'Q';
    t.text['q'][1] = 'Q';
    struct pn_vocab *v = tiny_vocab(&t);
    tiny_log_on();
    EXPECT(v, "aqbq", 0, 'a', 'b');
    tiny_log_off();
    assert_int_equal(tiny_warnings, 1);
    assert_non_null(strstr(tiny_warning, "2 bytes"));
    assert_non_null(strstr(tiny_warning, "0x71"));
    pn__vocab_free(v);
}

/* gemma4's files say no to BOS and mean yes. */
static void gemma4_bos(struct pn_gguf_writer *w) {
    pn__gguf_w_u32(w, "tokenizer.ggml.bos_token_id", 1);
    pn__gguf_w_bool(w, "tokenizer.ggml.add_bos_token", false);
}

static void gemma4_spaces_lines_and_bytes(void **state) {
    (void)state;
    tiny_spm(&t);
    t.model = "gemma4";
    t.extra = gemma4_bos;
    int32_t sp = tiny_find(&t, SPACE), a = tiny_find(&t, "a");
    int32_t nl = tiny_add(&t, "\n", TINY_NORMAL, 0);
    int32_t nl3 = tiny_add(&t, "\n\n\n", TINY_NORMAL, 0);
    int32_t sp_a = tiny_merge(&t, SPACE " a");
    int32_t a_sp_a = tiny_merge(&t, "a " SPACE "a");
    struct pn_vocab *v = tiny_vocab(&t);
    assert_string_equal(pn__vocab_pre(v), "gemma4");
    EXPECT(v, "a", 0, a);
    EXPECT(v, " a", 0, sp_a);
    EXPECT(v, "a a", 0, a_sp_a);
    EXPECT(v, "a  a", 0, a, sp, sp_a);
    EXPECT(v, "a\n\n\na", 0, a, nl3, a);
    EXPECT(v, "a\n\na", 0, a, nl, nl, a);
    EXPECT(v, "\xc3\xa9\xff", 0, 3 + 0xC3, 3 + 0xA9, 3 + 0xFF);
    assert_true(pn__vocab_add_bos(v));
    pn__vocab_free(v);
}

static void phi3_name(struct pn_gguf_writer *w) {
    pn__gguf_w_str(w, "general.name", "Phi-3 Mini");
}

static void phi3_takes_the_space_after_special_tokens(void **state) {
    (void)state;
    tiny_spm(&t);
    int32_t user = tiny_add(&t, "<|user|>", TINY_CONTROL, 0);
    int32_t sp = tiny_find(&t, SPACE), a = tiny_find(&t, "a");
    struct pn_vocab *v = tiny_vocab(&t);
    EXPECT(v, "<|user|>\n a", PN_TOKENIZE_SPECIAL, user, sp, 3 + '\n', sp, a);
    pn__vocab_free(v);
    t.extra = phi3_name;
    v = tiny_vocab(&t);
    EXPECT(v, "<|user|>\n a", PN_TOKENIZE_SPECIAL, user, sp, a);
    EXPECT(v, "<s> a", PN_TOKENIZE_SPECIAL, 1, sp, sp, a);
    EXPECT(v, "<|user|> \n", PN_TOKENIZE_SPECIAL, user);
    pn__vocab_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_merges_by_rank_then_from_the_left),
        cmocka_unit_test(bpe_symbols_that_are_no_tokens),
        cmocka_unit_test(whole_pieces_before_merges_where_the_rule_says_so),
        cmocka_unit_test(any_bytes_make_the_round_trip),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(text_never_becomes_a_control_token),
        cmocka_unit_test(spm_scores_and_spaces),
        cmocka_unit_test(spm_without_space_prefix),
        cmocka_unit_test(spm_without_byte_tokens_has_the_unknown_token),
        cmocka_unit_test(bytes_without_a_token_are_left_out_loudly),
        cmocka_unit_test(gemma4_spaces_lines_and_bytes),
        cmocka_unit_test(phi3_takes_the_space_after_special_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
