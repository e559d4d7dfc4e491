/* How long a conversation takes to become text, by its length: it should double with it. The real
 * check counts steps (linear in tests/text/test_chat.c); this shows the time that they take.
 *
 *   bench_chat [ROUNDS] [TEMPLATE.jinja]      the best of ROUNDS (9) renderings is printed; without
 *                                             a file a template of the ChatML kind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "text/chat/chat.h"

#define ROUNDS_DEFAULT 9
#define SOURCE_MAX ((size_t)1 << 20)

static const char chatml[] =
    "{%- for message in messages %}"
    "{%- if loop.first and message.role != 'system' %}"
    "{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{%- endif %}"
    "{%- set content = message.content | trim %}"
    "{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

static const char words[] = "The quick brown fox jumps over the lazy dog, and says so at length. ";

static json_t *conversation(size_t n) {
    json_t *messages = json_array();
    char text[4 * sizeof words];
    snprintf(text, sizeof text, "%s%s%s", words, words, words);
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role",
                                                  i % 2 ? "assistant" : "user", "content", text));
    }
    return json_pack("{s:o, s:b}", "messages", messages, "add_generation_prompt", 1);
}

static char *read_source(const char *path, size_t *n) {
    char *text = calloc(SOURCE_MAX, 1);
    FILE *f = fopen(path, "rb");
    if (text && f) *n = fread(text, 1, SOURCE_MAX, f);
    if (f) fclose(f);
    return f ? text : NULL;
}

/* One line of the table; false when the template fails. */
static bool measure(const struct pn_template *t, size_t n, int rounds) {
    struct tm now = {.tm_year = 125, .tm_mon = 2, .tm_mday = 9};
    struct pn_detail d = {""};
    json_t *j = conversation(n);
    double best = 0.0;
    bool good = true;
    for (int i = 0; good && i < rounds; i++) {
        struct pn_chat_text out = {0};
        uint64_t start = pn__clock_ns();
        good = pn__chat_render(t, j, NULL, &now, &out, &d) == 0;
        double s = pn__clock_s(start, pn__clock_ns());
        if (best == 0.0 || s < best) best = s;
        if (good && i == 0) printf("%8zu %10zu %10llu", n, out.len, (unsigned long long)out.steps);
        pn__chat_text_free(&out);
    }
    json_decref(j);
    if (good)
        printf(" %10.3f %12.2f\n", best * 1e3, best * 1e6 / (double)n);
    else
        fprintf(stderr, "bench_chat: %s\n", d.text);
    return good;
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {125, 250, 500, 1000};
    const struct pn_template_limits limits = {1u << 20, 1u << 30, 1u << 30, 1u << 30, 1000};
    int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : ROUNDS_DEFAULT;
    const char *source = chatml;
    size_t len = sizeof chatml - 1;
    char *file = argc > 2 ? read_source(argv[2], &len) : NULL;
    struct pn_detail d = {""};
    struct pn_template *t = NULL;
    if (argc > 2 && !file) {
        fprintf(stderr, "bench_chat: can't read %s\n", argv[2]);
        return 1;
    }
    int rc = pn__template_parse(file ? file : source, len, &limits, &d, &t);
    if (rc) fprintf(stderr, "bench_chat: %s\n", d.text);
    bool good = rc == 0;
    if (good) puts("messages      bytes      steps         ms   us/message");
    for (size_t i = 0; good && i < sizeof sizes / sizeof *sizes; i++)
        good = measure(t, sizes[i], rounds);
    pn__template_free(t);
    free(file);
    return good ? 0 : 1;
}
