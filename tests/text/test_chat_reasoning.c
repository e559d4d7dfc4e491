/* What a model thought, apart from what it said (CASES C5). */
#include "text/chat/chat.h"
#include "text/tiny.h"

static struct tiny t;

static void marks_are_tokens(void **state) {
    (void)state;
    struct pn_detail d = {""};
    struct pn_chat_marks m;
    tiny_bpe(&t, "gpt-2");
    struct pn_vocab *v = tiny_vocab(&t);
    PN_ASSERT_OK(pn__chat_marks(v, &m, &d), &d);
    assert_int_equal(m.open, PN_TOKEN_NONE);
    assert_int_equal(m.end, PN_TOKEN_NONE);
    assert_false(pn__chat_begins_thinking(&m, (int32_t[]){PN_TOKEN_NONE}, 1, PN_TOKEN_NONE));
    pn__vocab_free(v);
    int32_t open = tiny_add(&t, "<think>", TINY_USER, 0);
    int32_t end = tiny_add(&t, "</think>", TINY_CONTROL, 0);
    v = tiny_vocab(&t);
    PN_ASSERT_OK(pn__chat_marks(v, &m, &d), &d);
    assert_int_equal(m.open, open);
    assert_int_equal(m.end, end);
    pn__vocab_free(v);
}

static void where_thinking_begins(void **state) {
    (void)state;
    const struct pn_chat_marks m = {.open = 300, .end = 301};
    static const struct {
        int32_t prompt[6];
        size_t n;
        int32_t first;
        bool thinks;
    } cases[] = {
        {{1, 2, 3}, 3, 300, true},            /* the answer opens it */
        {{1, 2, 3}, 3, 4, false},             /* nobody does */
        {{1, 300, 10}, 3, 4, true},           /* the prompt did, with a line break */
        {{1, 300, 10, 301, 10}, 5, 4, false}, /* and closed it: thinking is off */
        {{300, 1, 2, 3, 4, 5}, 6, 4, false},  /* an earlier turn's */
        {{0}, 0, 4, false},
    };
    for (size_t i = 0; i < PN_ARRAY_N(cases); i++) {
        assert_int_equal(pn__chat_begins_thinking(&m, cases[i].prompt, cases[i].n, cases[i].first),
                         cases[i].thinks);
    }
}

static void splits(const char *before, const char *behind, const char *reasoning,
                   const char *content) {
    char text[256];
    struct pn_str r;
    struct pn_str c;
    snprintf(text, sizeof text, "%s%s", before, behind);
    pn__chat_split_reasoning((struct pn_str){text, strlen(text)}, strlen(before), &r, &c);
    assert_int_equal(r.len, strlen(reasoning));
    assert_memory_equal(r.data, reasoning, r.len);
    assert_int_equal(c.len, strlen(content));
    assert_memory_equal(c.data, content, c.len);
}

static void the_two_parts(void **state) {
    (void)state;
    splits("<think>\nso\n</think>", "\n\nYes.\n", "so", "Yes.\n");
    /* The mark was in the prompt; marks that are control tokens aren't in the text. */
    splits("so\n\nit is\n</think>", "Yes.", "so\n\nit is", "Yes.");
    splits("so\n", "\nYes.", "so", "Yes.");
    splits("<think>\n\n</think>", "\n\n", "", "");
    splits("", "", "", "");
    /* Stopped before its end. */
    splits("<think>hm", "", "hm", "");
    /* Only the mark's own tag goes; one that is spoken of stays, on either side of it. */
    splits("<think>the tag </think> ends</think>", "say </think> literally",
           "the tag </think> ends", "say </think> literally");
}

static void says(const char *text, const char *reasoning, const char *content) {
    struct pn_str r;
    struct pn_str c;
    pn__chat_split_channels((struct pn_str){text, strlen(text)}, &r, &c);
    assert_int_equal(r.len, strlen(reasoning));
    assert_memory_equal(r.data, reasoning, r.len);
    assert_int_equal(c.len, strlen(content));
    assert_memory_equal(c.data, content, c.len);
}

#define ANALYSIS "<|channel|>analysis<|message|>"
#define FINAL "<|channel|>final<|message|>"
static void channels(void **state) {
    (void)state;
    says(ANALYSIS "hm<|end|><|start|>assistant" FINAL "Yes.", "hm", "Yes.");
    says(FINAL "Yes.", "", "Yes.");
    /* Cut off, at any place. */
    says(ANALYSIS "hm", "hm", "");
    says(ANALYSIS, "", "");
    says("<|channel|>", "", "");
    says("<|channel|>fin", "", "");
    says(ANALYSIS "hm<|end|><|start|>assistant<|channel|>final", "hm", "");
    /* Whatever comes, nothing is left that the model's template refuses. */
    says(FINAL "a" FINAL "b" ANALYSIS "c", "c", "b");
    says(ANALYSIS FINAL "x", "", "x");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_are_tokens),
        cmocka_unit_test(where_thinking_begins),
        cmocka_unit_test(the_two_parts),
        cmocka_unit_test(channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
