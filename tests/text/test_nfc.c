/* Form C: what asks for it, and that it is right, linear and indifferent to bytes that are no
 * UTF-8. */
#include "text/nfc.h"
#include "text/tiny.h"

static struct tiny t;

static void nfc_is(const char *text, size_t n, const char *want, size_t want_n) {
    struct pn_detail d;
    struct pn_buf out = {0};
    PN_ASSERT_OK(pn__nfc(text, n, &out, &d), &d);
    assert_int_equal(out.n, want_n);
    if (want_n) assert_memory_equal(out.data, want, want_n);
    pn__buf_free(&out);
}
#define NFC(text, want) nfc_is(text, sizeof(text) - 1, want, sizeof(want) - 1)

static void forms(void **state) {
    (void)state;
    NFC("", "");
    NFC("plain", "plain");
    NFC("re\xcc\x81sume\xcc\x81", "r\xc3\xa9sum\xc3\xa9");
    NFC("\xc3\xa9", "\xc3\xa9");
    NFC("\xe2\x84\xab", "\xc3\x85"); /* the angstrom sign */
    /* Marks are put in order: dot below (220) comes before acute (230). */
    NFC("e\xcc\x81\xcc\xa3", "\xe1\xba\xb9\xcc\x81");
    /* Hangul jamo, and two starters that compose (Bengali). */
    NFC("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c");
    NFC("\xe0\xa7\x87\xe0\xa6\xbe", "\xe0\xa7\x8b");
    NFC("e\xcc\x81\xff\xf0\x9f"
        "e\xcc\x81",
        "\xc3\xa9\xff\xf0\x9f\xc3\xa9");
}

/* Long stretches without ASCII, and marks without end: the length is all that may grow. */
static void long_texts(void **state) {
    (void)state;
    enum { N = 100000 };
    struct pn_detail d;
    struct pn_buf out = {0};
    char *text = malloc(6 * N + 1);
    for (size_t i = 0; i < N; i++)
        memcpy(text + 3 * i, "\xe4\xb8\xad", 3);
    PN_ASSERT_OK(pn__nfc(text, 3 * N, &out, &d), &d);
    assert_int_equal(out.n, 3 * N);
    assert_memory_equal(out.data, text, 3 * N);
    for (size_t i = 0; i < N; i++)
        memcpy(text + 4 * i, "\xcc\x81\xcc\xa3", 4);
    PN_ASSERT_OK(pn__nfc(text, 4 * N, &out, &d), &d);
    assert_int_equal(out.n, 4 * N);
    /* Decomposed Hangul composes wherever a stretch ends. */
    for (size_t i = 0; i < N; i++)
        memcpy(text + 6 * i, "\xe1\x84\x92\xe1\x85\xa1", 6);
    PN_ASSERT_OK(pn__nfc(text, 6 * N, &out, &d), &d);
    assert_int_equal(out.n, 3 * N);
    for (size_t i = 0; i < N; i++)
        assert_memory_equal(out.data + 3 * i, "\xed\x95\x98", 3);
    pn__buf_free(&out);
    free(text);
}

static const char *json;

static void json_key(struct pn_gguf_writer *w) {
    pn__gguf_w_str(w, "tokenizer.huggingface.json", json);
}

/* Whether "e" with a combining acute becomes the two bytes of U+00E9. */
static bool normalises(const char *text) {
    struct pn_detail d;
    struct pn_ids l = {0};
    json = text;
    tiny_bpe(&t, "gpt-2");
    t.extra = text ? json_key : NULL;
    struct pn_vocab *v = tiny_vocab(&t);
    PN_ASSERT_OK(pn__tokenize(v, "e\xcc\x81", 3, 0, &l, &d), &d);
    bool composed = l.n == 2 && l.ids[0] == 0xC3 && l.ids[1] == 0xA9;
    assert_true(composed || (l.n == 3 && l.ids[0] == 'e'));
    pn__ids_free(&l);
    pn__vocab_free(v);
    return composed;
}

static void asked_for(void **state) {
    (void)state;
    assert_false(normalises(NULL));
    assert_true(normalises("{\"normalizer\": {\"type\": \"NFC\"}, \"model\": {}}"));
    assert_true(normalises("{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": "
                           "[{\"type\": \"Strip\"}, {\"type\": \"NFC\"}]}}"));
    assert_false(normalises("{\"normalizer\": null}"));
    assert_false(normalises("{\"normalizer\": {\"type\": \"NFKC\"}}"));
    assert_false(normalises("{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [7]}}"));
    assert_false(normalises("[]"));
    tiny_log_on();
    assert_false(normalises("{\"normalizer\": "));
    tiny_log_off();
    assert_int_equal(tiny_warnings, 1);
    assert_non_null(strstr(tiny_warning, "tokenizer.huggingface.json"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(long_texts),
        cmocka_unit_test(asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
