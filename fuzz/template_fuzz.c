/* Any template on any conversation: both end in a value within their limits, and every byte of a
 * result belongs to a run. The input is the template, a NUL, and the conversation's JSON. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Inputs that rendered, for the plain test: seeds that are all refused early would test little. */
extern uint64_t template_fuzz_rendered_n;
uint64_t template_fuzz_rendered_n;

static void check(const struct pn_chat_text *out) {
    size_t at = 0;
    for (size_t i = 0; i < out->run_n; i++) {
        if (out->runs[i].end <= at) abort();
        if (i && out->runs[i].conversation == out->runs[i - 1].conversation) abort();
        at = out->runs[i].end;
    }
    if (at != out->len || out->text[out->len] != 0) abort();
}

static void render(const struct pn_template *t, const json_t *j, bool is_chat) {
    static const struct tm now = {.tm_year = 125, .tm_mon = 2, .tm_mday = 9};
    struct pn_chat_text out = {0};
    struct pn_detail d = {""};
    int rc = is_chat ? pn__chat_render(t, j, NULL, &now, &out, &d)
                     : pn__template_render(t, j, NULL, &now, &out, &d);
    if (rc == 0) {
        check(&out);
        template_fuzz_rendered_n++;
    } else if (d.text[0] == 0 && !out.refused) {
        abort();
    }
    pn__chat_text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct pn_template_limits limits = {1 << 16, 1 << 16, 1 << 22, 100000, 100};
    const char *text = (const char *)data;
    size_t len = strnlen(text, size);
    struct pn_template *t = NULL;
    struct pn_detail d = {""};
    json_t *j = NULL;
    if (pn__template_parse(text, len, &limits, &d, &t) != 0) {
        if (d.text[0] == 0 || t) abort();
        return 0;
    }
    if (len < size) j = json_loadb(text + len + 1, size - len - 1, JSON_ALLOW_NUL, NULL);
    if (json_is_object(j)) render(t, j, true);
    render(t, json_is_object(j) ? j : NULL, false);
    json_decref(j);
    pn__template_free(t);
    return 0;
}
