/* Reasoning told apart from the answer. The marks are tokens: a text that only speaks of its tags
 * is left alone (CASES C5). */
#include <string.h>

#include "text/chat/chat.h"

static const char open_tag[] = "<think>";
static const char end_tag[] = "</think>";
static const char channel_mark[] = "<|channel|>";

/* Prompts that open the reasoning end with its mark and a line break or two. */
#define LOOK_BACK 4

/* The one token that a text is in this vocabulary, if it is one. */
static int mark_of(const struct pn_vocab *v, const char *text, int32_t *out, struct pn_detail *d) {
    struct pn_ids ids = {0};
    int rc = pn__tokenize(v, text, strlen(text), PN_TOKENIZE_SPECIAL, &ids, d);
    *out = rc == 0 && ids.n == 1 ? ids.ids[0] : PN_TOKEN_NONE;
    pn__ids_free(&ids);
    return rc;
}

int pn__chat_marks(const struct pn_vocab *v, struct pn_chat_marks *out, struct pn_detail *d) {
    int rc = mark_of(v, open_tag, &out->open, d);
    if (rc == 0) rc = mark_of(v, end_tag, &out->end, d);
    if (rc == 0) rc = mark_of(v, channel_mark, &out->channel, d);
    return rc;
}

bool pn__chat_begins_thinking(const struct pn_chat_marks *m, const int32_t *prompt, size_t prompt_n,
                              int32_t first) {
    if (m->open == PN_TOKEN_NONE || m->end == PN_TOKEN_NONE) return false;
    if (first == m->open) return true;
    for (size_t i = 1; i <= LOOK_BACK && i <= prompt_n; i++) {
        int32_t id = prompt[prompt_n - i];
        if (id == m->end) return false;
        if (id == m->open) return true;
    }
    return false;
}

static struct pn_str behind(struct pn_str s, size_t n) {
    return (struct pn_str){s.data + n, s.len - n};
}

static struct pn_str trim_lines(struct pn_str s) {
    while (s.len && s.data[0] == '\n')
        s = behind(s, 1);
    while (s.len && s.data[s.len - 1] == '\n')
        s.len--;
    return s;
}

/* A tag that is a control token is not in the text. */
static struct pn_str without_tags(struct pn_str s) {
    const size_t open_n = sizeof open_tag - 1;
    const size_t end_n = sizeof end_tag - 1;
    s = trim_lines(s);
    if (s.len >= open_n && memcmp(s.data, open_tag, open_n) == 0) s = behind(s, open_n);
    if (s.len >= end_n && memcmp(s.data + s.len - end_n, end_tag, end_n) == 0) s.len -= end_n;
    return trim_lines(s);
}

void pn__chat_split_reasoning(struct pn_str text, size_t end, struct pn_str *reasoning,
                              struct pn_str *content) {
    *reasoning = without_tags((struct pn_str){text.data, end});
    *content = behind(text, end);
    while (content->len && content->data[0] == '\n')
        *content = behind(*content, 1);
}

/* The place of `what` in s, from `at` on, or s.len. */
static size_t find(struct pn_str s, size_t at, const char *what) {
    size_t n = strlen(what);
    for (; at + n <= s.len; at++) {
        if (memcmp(s.data + at, what, n) == 0) return at;
    }
    return s.len;
}

/* What the channel whose mark is at `at` says: from its "<|message|>" up to the next mark. */
static struct pn_str message_at(struct pn_str s, size_t at) {
    static const char message[] = "<|message|>";
    static const char *const ends[] = {"<|end|>", "<|start|>", "<|channel|>", "<|call|>"};
    size_t from = find(s, at, message) + sizeof message - 1;
    if (from >= s.len) return (struct pn_str){"", 0};
    size_t to = s.len;
    for (size_t i = 0; i < PN_ARRAY_N(ends); i++) {
        size_t end = find(s, from, ends[i]);
        if (end < to) to = end;
    }
    return (struct pn_str){s.data + from, to - from};
}

void pn__chat_split_channels(struct pn_str text, struct pn_str *reasoning, struct pn_str *content) {
    static const char final_name[] = "final";
    const size_t name_n = sizeof final_name - 1;
    *reasoning = *content = (struct pn_str){"", 0};
    for (size_t at = find(text, 0, channel_mark); at < text.len;) {
        size_t name = at + sizeof channel_mark - 1;
        bool is_final =
            name + name_n <= text.len && memcmp(text.data + name, final_name, name_n) == 0;
        struct pn_str said = message_at(text, at);
        if (is_final)
            *content = said;
        else if (reasoning->len == 0)
            *reasoning = said;
        at = find(text, name, channel_mark);
    }
}
