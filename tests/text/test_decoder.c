/* Ids to text as a stream (CASES T5): whole characters only, the same text however it is cut. */
#include "text/tiny.h"

#define FFFD "\xef\xbf\xbd"

static struct tiny t;

struct stream {
    const struct pn_vocab *v;
    struct pn_decoder dec;
    char text[256];
    size_t len;
};

static void feed(struct stream *s, int32_t id) {
    char buf[256];
    size_t cap = pn__decoder_max(s->v);
    assert_true(cap <= sizeof buf);
    size_t n = pn__decoder_feed(&s->dec, s->v, id, false, buf, cap);
    assert_true(n <= cap);
    memcpy(s->text + s->len, buf, n);
    s->len += n;
}

static void text_is(const struct stream *s, const char *text) {
    if (s->len != strlen(text) || memcmp(s->text, text, s->len) != 0)
        fail_msg("'%.*s' is not '%s'", (int)s->len, s->text, text);
}

/* The bytes one token each; what is written after each of them and how much is dropped in the
 * end. */
static void bytes_give(const struct pn_vocab *v, const char *bytes, const char *text,
                       size_t dropped) {
    struct stream s = {.v = v};
    for (size_t i = 0; bytes[i]; i++) {
        feed(&s, 3 + (uint8_t)bytes[i]);
        assert_true(s.dec.held_n <= 3);
    }
    text_is(&s, text);
    assert_int_equal(pn__decoder_finish(&s.dec), dropped);
    assert_int_equal(pn__decoder_finish(&s.dec), 0);
}

static void an_emoji_cut_anywhere(void **state) {
    (void)state;
    tiny_spm(&t);
    struct pn_vocab *v = tiny_vocab(&t);
    static const char emoji[] = "\xf0\x9f\xa6\x99";
    for (size_t n = 0; n <= 4; n++) {
        char cut[5] = {0};
        memcpy(cut, emoji, n);
        bytes_give(v, cut, n == 4 ? emoji : "", n == 4 ? 0 : n);
    }
    struct stream s = {.v = v};
    for (size_t n = 0; n < 6; n++) {
        feed(&s, 3 + (uint8_t)emoji[n % 4]);
        assert_int_equal(s.len, n < 3 ? 0 : 4);
    }
    pn__vocab_free(v);
}

static void junk_never_stalls(void **state) {
    (void)state;
    tiny_spm(&t);
    struct pn_vocab *v = tiny_vocab(&t);
    bytes_give(v,
               "\xf0"
               "a",
               FFFD "a", 0);
    bytes_give(v,
               "\xf0\x9f\xa6"
               "a",
               FFFD "a", 0);
    bytes_give(v, "\xff\xfe", FFFD FFFD, 0);
    bytes_give(v,
               "\x80\x80"
               "b",
               FFFD FFFD "b", 0);
    bytes_give(v, "\xf0\x9f\xf0\x9f\xa6\x99", FFFD "\xf0\x9f\xa6\x99", 0);
    bytes_give(v, "\xed\xa0\x80", FFFD FFFD FFFD, 0); /* a surrogate */
    bytes_give(v, "\xc0\xaf", FFFD FFFD, 0);          /* overlong */
    bytes_give(v, "\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD, 0);
    bytes_give(v, "\xe4\xb8", "", 2);
    bytes_give(v, "\xe4\xb8\xe4", FFFD, 1);
    struct stream s = {.v = v};
    for (int i = 0; i < 80; i++) {
        feed(&s, 3 + 0xF0);
        assert_true(s.dec.held_n == 1 && s.len == (size_t)i * 3);
    }
    pn__vocab_free(v);
}

/* The same bytes in one token and in many. */
static void pieces_of_any_size_give_the_same(void **state) {
    (void)state;
    static const char whole[] = "a\xc3\xa9\xe4\xb8\xad\xf0\x9f\xa6\x99\xe2\x80 z";
    tiny_spm(&t);
    int32_t id = tiny_add(&t, "a\xc3\xa9\xe4\xb8\xad\xf0\x9f\xa6\x99", TINY_NORMAL, 0);
    struct pn_vocab *v = tiny_vocab(&t);
    bytes_give(v, whole, "a\xc3\xa9\xe4\xb8\xad\xf0\x9f\xa6\x99" FFFD " z", 0);
    struct stream s = {.v = v};
    feed(&s, id);
    feed(&s, 3 + 0xE2);
    feed(&s, 3 + 0x80);
    feed(&s, 259);
    feed(&s, tiny_find(&t, "z"));
    text_is(&s, "a\xc3\xa9\xe4\xb8\xad\xf0\x9f\xa6\x99" FFFD " z");
    /* A start of a character in front of a whole one, in one piece. */
    struct stream held = {.v = v};
    feed(&held, 3 + 0xF0);
    feed(&held, id);
    text_is(&held, FFFD "a\xc3\xa9\xe4\xb8\xad\xf0\x9f\xa6\x99");
    pn__vocab_free(v);
}

static void the_leading_space_is_dropped_once(void **state) {
    (void)state;
    tiny_spm(&t);
    int32_t word = tiny_add(&t, "\xe2\x96\x81w", TINY_NORMAL, 0);
    struct pn_vocab *v = tiny_vocab(&t);
    struct stream s = {.v = v, .dec.at_start = true};
    feed(&s, 1); /* <s> writes nothing, so the text has not begun */
    feed(&s, word);
    feed(&s, word);
    text_is(&s, "w w");
    struct stream middle = {.v = v};
    feed(&middle, word);
    text_is(&middle, " w");
    struct stream odd = {.v = v, .dec.at_start = true};
    feed(&odd, -1);
    feed(&odd, 1000000);
    feed(&odd, tiny_find(&t, "w"));
    feed(&odd, word);
    text_is(&odd, "w w");
    pn__vocab_free(v);

    tiny_bpe(&t, "gpt-2");
    v = tiny_vocab(&t);
    struct stream bpe = {.v = v, .dec.at_start = true};
    feed(&bpe, ' ');
    feed(&bpe, 'a');
    text_is(&bpe, " a");
    pn__vocab_free(v);
}

static void control_tokens_are_silent(void **state) {
    (void)state;
    tiny_spm(&t);
    struct pn_vocab *v = tiny_vocab(&t);
    struct pn_decoder dec = {0};
    char buf[64];
    size_t cap = pn__decoder_max(v);
    assert_int_equal(pn__decoder_feed(&dec, v, 2, false, buf, cap), 0);
    assert_int_equal(pn__decoder_feed(&dec, v, 2, true, buf, cap), 4);
    assert_memory_equal(buf, "</s>", 4);
    pn__vocab_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_emoji_cut_anywhere),
        cmocka_unit_test(junk_never_stalls),
        cmocka_unit_test(pieces_of_any_size_give_the_same),
        cmocka_unit_test(the_leading_space_is_dropped_once),
        cmocka_unit_test(control_tokens_are_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
