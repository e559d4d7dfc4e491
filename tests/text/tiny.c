#include "text/tiny.h"

#include <unistd.h>

#include "pn_mem.h"
#include "text/utf8.h"
#include "text/vocab.h"

int tiny_warnings;
char tiny_warning[1024];

static void on_log(void *user, enum pn_log_level level, const char *line) {
    (void)user;
    if (level != PN_LOG_WARN) return;
    tiny_warnings++;
    snprintf(tiny_warning, sizeof tiny_warning, "%s", line);
}

void tiny_log_on(void) {
    tiny_warnings = 0;
    tiny_warning[0] = 0;
    pn_log_set(on_log, NULL, PN_LOG_DEBUG);
}

void tiny_log_off(void) {
    pn_log_set(NULL, NULL, PN_LOG_ERROR);
}

int32_t tiny_add(struct tiny *t, const char *text, int32_t type, float score) {
    assert_true(t->n < TINY_MAX && strlen(text) < sizeof t->text[0]);
    strcpy(t->text[t->n], text);
    t->type[t->n] = type;
    t->score[t->n] = score;
    return (int32_t)t->n++;
}

int32_t tiny_find(const struct tiny *t, const char *text) {
    for (uint32_t i = 0; i < t->n; i++)
        if (strcmp(t->text[i], text) == 0) return (int32_t)i;
    return -1;
}

int32_t tiny_merge(struct tiny *t, const char *merge) {
    char joined[64];
    const char *space = strchr(merge + 1, ' ');
    snprintf(joined, sizeof joined, "%.*s%s", (int)(space - merge), merge, space + 1);
    t->merges[t->merge_n++] = merge;
    int32_t id = tiny_find(t, joined);
    return id >= 0 ? id : tiny_add(t, joined, TINY_NORMAL, 0);
}

void tiny_bpe(struct tiny *t, const char *pre) {
    memset(t, 0, sizeof *t);
    t->model = "gpt2";
    t->pre = pre;
    for (int b = 0; b < 256; b++) {
        char text[5] = {0};
        pn__utf8_put(pn__byte_to_cp((uint8_t)b), text);
        tiny_add(t, text, TINY_NORMAL, 0);
    }
}

void tiny_spm(struct tiny *t) {
    memset(t, 0, sizeof *t);
    t->model = "llama";
    tiny_add(t, "<unk>", TINY_UNKNOWN, 0);
    tiny_add(t, "<s>", TINY_CONTROL, 0);
    tiny_add(t, "</s>", TINY_CONTROL, 0);
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        tiny_add(t, text, TINY_BYTE, 0);
    }
    tiny_add(t, PN_SPM_SPACE, TINY_NORMAL, -1000);
    for (char c = 'a'; c <= 'z'; c++)
        tiny_add(t, (char[]){c, 0}, TINY_NORMAL, -1000);
}

struct pn_gguf *tiny_open(const struct tiny *t, struct pn_detail *d) {
    struct pn_gguf_writer *w = NULL;
    struct pn_gguf *g = NULL;
    struct pn_str strings[TINY_MAX];
    PN_ASSERT_OK(pn__gguf_writer_new(&w, d), d);
    pn__gguf_w_str(w, "general.architecture", "llama");
    if (t->model) pn__gguf_w_str(w, "tokenizer.ggml.model", t->model);
    if (t->pre) pn__gguf_w_str(w, "tokenizer.ggml.pre", t->pre);
    for (uint32_t i = 0; i < t->n; i++)
        strings[i] = (struct pn_str){t->text[i], strlen(t->text[i])};
    if (!t->no_tokens) pn__gguf_w_strings(w, "tokenizer.ggml.tokens", strings, t->n);
    if (!t->no_types) pn__gguf_w_array(w, "tokenizer.ggml.token_type", PN_GGUF_I32, t->type, t->n);
    if (!t->no_scores) pn__gguf_w_array(w, "tokenizer.ggml.scores", PN_GGUF_F32, t->score, t->n);
    for (uint32_t i = 0; i < t->merge_n; i++)
        strings[i] = (struct pn_str){t->merges[i], strlen(t->merges[i])};
    if (!t->no_merges) pn__gguf_w_strings(w, "tokenizer.ggml.merges", strings, t->merge_n);
    if (t->extra) t->extra(w);

    char path[] = "/tmp/pn_text_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    PN_ASSERT_OK(pn__gguf_w_file(w, path, d), d);
    pn__gguf_writer_free(w);
    if (pn__gguf_open(path, d, &g) != 0) g = NULL;
    unlink(path);
    return g;
}

int tiny_load(const struct tiny *t, const char *pre, struct pn_detail *d, struct pn_vocab **out) {
    struct pn_gguf *g = tiny_open(t, d);
    if (!g) fail_msg("%s", d->text);
    int rc = pn__vocab_load(g, pre, d, out);
    pn__gguf_close(g);
    return rc;
}

struct pn_vocab *tiny_vocab(const struct tiny *t) {
    struct pn_detail d;
    struct pn_vocab *v = NULL;
    PN_ASSERT_OK(tiny_load(t, NULL, &d, &v), &d);
    return v;
}

void expect_ids(const struct pn_vocab *v, const char *text, size_t len, unsigned flags,
                const int32_t *ids, size_t n) {
    struct pn_detail d;
    struct pn_ids l = {0};
    PN_ASSERT_OK(pn__tokenize(v, text, len, flags, &l, &d), &d);
    bool same = l.n == n && (n == 0 || memcmp(l.ids, ids, n * sizeof *ids) == 0);
    if (!same) {
        print_error("'%.*s' gives", (int)len, text);
        for (size_t i = 0; i < l.n; i++)
            print_error(" %d", l.ids[i]);
        print_error("\n");
    }
    assert_true(same);
    pn__ids_free(&l);
}
