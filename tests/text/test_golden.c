/* Real vocabularies against the reference engine's ids, where the files are at hand, and the demo
 * model's prompts. */
#include "gguf/gguf.h"
#include "support/pn_test.h"
#include "text/text.h"

static char *read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *s = calloc((size_t)n + 1, 1);
    assert_int_equal(fread(s, 1, (size_t)n, f), n);
    fclose(f);
    *len = (size_t)n;
    return s;
}

static struct pn_vocab *load(const char *path) {
    struct pn_detail d;
    struct pn_gguf *g = NULL;
    struct pn_vocab *v = NULL;
    PN_ASSERT_OK(pn__gguf_open(path, &d, &g), &d);
    PN_ASSERT_OK(pn__vocab_load(g, NULL, &d, &v), &d);
    pn__gguf_close(g);
    return v;
}

/* Feeds ids through the decoder; the caller frees the text. */
static char *decode(const struct pn_vocab *v, const struct pn_ids *l, bool at_start, size_t *len) {
    size_t cap = pn__decoder_max(v);
    char *buf = malloc(cap);
    char *text = calloc(l->n + 1, cap);
    struct pn_decoder dec = {.at_start = at_start};
    *len = 0;
    for (size_t i = 0; i < l->n; i++) {
        size_t n = pn__decoder_feed(&dec, v, l->ids[i], true, buf, cap);
        memcpy(text + *len, buf, n);
        *len += n;
    }
    assert_int_equal(pn__decoder_finish(&dec), 0);
    free(buf);
    return text;
}

/* One text against one line of ids; false and a message when they differ. */
static bool same_ids(const struct pn_vocab *v, const char *text, size_t len, unsigned flags,
                     const char *line) {
    struct pn_detail d;
    struct pn_ids l = {0};
    PN_ASSERT_OK(pn__tokenize(v, text, len, flags, &l, &d), &d);
    bool same = true;
    size_t n = 0;
    for (char *end;; line = end, n++) {
        line += strspn(line, ", \n");
        long want = strtol(line, &end, 10);
        if (end == line) break;
        same = same && n < l.n && l.ids[n] == want;
    }
    same = same && n == l.n;
    if (!same) {
        print_error("'%.*s':", (int)len, text);
        for (size_t i = 0; i < l.n; i++)
            print_error(" %d", l.ids[i]);
        print_error("\n");
    }
    size_t back_len;
    char *back = decode(v, &l, true, &back_len);
    assert_int_equal(back_len, len);
    assert_memory_equal(back, text, len);
    free(back);
    pn__ids_free(&l);
    return same;
}

static void check_vocab(const char *name) {
    static const char mark[] = "\n__ggml_vocab_test__\n";
    char path[512];
    size_t inp_len, out_len;
    snprintf(path, sizeof path, "%s/goldens/vocab/ggml-vocab-%s.gguf.inp", PN_TEST_SHARED, name);
    char *inp = read_file(path, &inp_len);
    if (!inp) PN_SKIP_TEST("no %s: the shared vocabularies are not here", path);
    snprintf(path, sizeof path, "%s/goldens/vocab/ggml-vocab-%s.gguf.out", PN_TEST_SHARED, name);
    char *out = read_file(path, &out_len);
    assert_non_null(out);
    snprintf(path, sizeof path, "%s/goldens/vocab/ggml-vocab-%s.gguf", PN_TEST_SHARED, name);
    struct pn_vocab *v = load(path);

    int texts = 0, wrong = 0;
    char *text = inp, *line = out;
    while (line < out + out_len) {
        char *end = memmem(text, inp_len - (size_t)(text - inp), mark, sizeof mark - 1);
        size_t len = end ? (size_t)(end - text) : inp_len - (size_t)(text - inp);
        /* The file's own last line end is no part of the last text. */
        if (!end && len && text[len - 1] == '\n') len--;
        char *eol = strchr(line, '\n');
        if (eol) *eol = 0;
        wrong += !same_ids(v, text, len, 0, line);
        wrong += !same_ids(v, text, len, PN_TOKENIZE_SPECIAL, line);
        texts++;
        if (!end || !eol) break;
        text = end + sizeof mark - 1;
        line = eol + 1;
    }
    assert_true(texts >= 46);
    assert_int_equal(wrong, 0);
    pn__vocab_free(v);
    free(inp);
    free(out);
}

static void llama_spm(void **state) {
    (void)state;
    check_vocab("llama-spm");
}

static void llama_bpe(void **state) {
    (void)state;
    check_vocab("llama-bpe");
}

static void gpt_2(void **state) {
    (void)state;
    check_vocab("gpt-2");
}

static void qwen35(void **state) {
    (void)state;
    check_vocab("qwen35");
}

static void deepseek_coder(void **state) {
    (void)state;
    check_vocab("deepseek-coder");
}

/* The value of the next "key" after `at`: a pointer behind the colon. */
static char *json_value(char *at, const char *key) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    char *p = strstr(at, quoted);
    return p ? p + strlen(quoted) : NULL;
}

/* The JSON string that starts at or after `p`, unescaped in place; its length. Only the escapes of
 * plain ASCII texts. */
static size_t json_string(char *p, char **text) {
    char *out = *text = p = strchr(p, '"') + 1;
    for (; *p != '"'; p++) {
        if (*p != '\\') {
            *out++ = *p;
            continue;
        }
        p++;
        assert_non_null(strchr("nt\"\\", *p));
        *out++ = *p == 'n' ? '\n' : *p == 't' ? '\t' : *p;
    }
    return (size_t)(out - *text);
}

/* The demo model's prompts, their markers parsed. */
static void smollm2(void **state) {
    (void)state;
    char path[512];
    size_t len;
    snprintf(path, sizeof path, "%s/goldens/smollm2/golden.json", PN_TEST_SHARED);
    char *json = read_file(path, &len);
    if (!json) PN_SKIP_TEST("no %s", path);
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    snprintf(path, sizeof path, "%s%s/pannier/SmolLM2-135M-Instruct.Q4_1.gguf",
             cache && *cache ? cache : home, cache && *cache ? "" : "/.cache");
    FILE *f = fopen(path, "rb");
    if (!f) {
        free(json);
        PN_SKIP_TEST("no %s: make demo fetches it", path);
    }
    fclose(f);
    struct pn_vocab *v = load(path);
    assert_string_equal(pn__vocab_pre(v), "smollm");

    int texts = 0;
    for (char *at = json; (at = json_value(at, "text")); texts++) {
        char *ids = json_value(at, "prompt");
        char *close = strchr(ids, ']');
        char *text;
        size_t text_len = json_string(at, &text);
        *close = 0;
        assert_true(same_ids(v, text, text_len, PN_TOKENIZE_SPECIAL, strchr(ids, '[') + 1));
        at = close + 1;
    }
    assert_int_equal(texts, 4);
    pn__vocab_free(v);
    free(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_spm), cmocka_unit_test(llama_bpe),      cmocka_unit_test(gpt_2),
        cmocka_unit_test(qwen35),    cmocka_unit_test(deepseek_coder), cmocka_unit_test(smollm2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
