/* The chat templates of real models against what Python's jinja2 made of them. They are other
 * people's files, read where they lie: without them there is nothing to test. */
#include "text/chat.h"

#define DIR PN_TEST_SHARED "/goldens/templates/"

static json_t *load(const char *name) {
    char path[1024];
    json_error_t e;
    snprintf(path, sizeof path, DIR "%s", name);
    return json_load_file(path, 0, &e);
}

static const char *text_of(const json_t *expected, const char *name) {
    return json_string_value(json_object_get(json_object_get(expected, name), "text"));
}

struct outcome {
    int rc;
    struct pn_chat_text text;
    struct pn_detail d;
};

static bool gave(const struct outcome *o, const char *want) {
    return o->rc == 0 && want && o->text.len == strlen(want) &&
           memcmp(o->text.text, want, o->text.len) == 0;
}

/* As the goldens' README has it. */
static bool is_right(const struct outcome *o, const char *name, const json_t *expected) {
    const json_t *e = json_object_get(expected, name);
    const char *error = json_string_value(json_object_get(e, "error"));
    if (strcmp(name, "parts") == 0) {
        const char *joined = text_of(expected, "parts_joined");
        const char *own = text_of(expected, name);
        bool is_list = own && (strstr(own, "{'type'") || strstr(own, "{\"type\""));
        if (joined) return gave(o, joined) || (!is_list && gave(o, own));
    }
    if (!error) return gave(o, text_of(expected, name));
    if (json_is_true(json_object_get(e, "raised")))
        return o->rc == PN_E_INVALID && o->text.refused && strcmp(o->d.text, error) == 0;
    if (strcmp(name, "tool_null") == 0 && text_of(expected, "tool_result"))
        return gave(o, text_of(expected, "tool_result"));
    return o->rc == 0 || (o->rc == PN_E_INVALID && strstr(o->d.text, "line "));
}

static void run(const char *file, const json_t *cases, const json_t *model, const json_t *expected,
                int *wrong, int *n) {
    char path[1024];
    struct pn_detail d = {""};
    struct pn_template *t = NULL;
    size_t len = 0;
    const char *name;
    const json_t *conversation;
    snprintf(path, sizeof path, DIR "%s", file);
    char *text = chat_read(path, &len);
    assert_non_null(text);
    if (pn__template_parse(text, len, &chat_limits, &d, &t)) fail_msg("%s: %s", file, d.text);
    json_t *all = json_object_get(cases, "cases");
    json_object_foreach(all, name, conversation) {
        struct outcome o = {0};
        o.rc = pn__chat_render(t, conversation, model, chat_now(), &o.text, &o.d);
        ++*n;
        if (!is_right(&o, name, expected)) {
            const char *want = text_of(expected, name);
            print_error("%s, %s: %s\n--- got\n%s\n--- wanted\n%s\n", file, name, o.d.text,
                        o.text.text ? o.text.text : "", want ? want : "(an error)");
            ++*wrong;
        }
        pn__chat_text_free(&o.text);
    }
    pn__template_free(t);
    free(text);
}

static void real_templates(void **state) {
    (void)state;
    json_t *cases = load("cases.json");
    json_t *expected = load("expected.json");
    const char *file;
    const json_t *of;
    int wrong = 0;
    int n = 0;
    if (!cases || !expected) PN_SKIP_TEST("no %s", DIR);
    assert_string_equal(json_string_value(json_object_get(cases, "now")), "2025-03-09T14:05:06");
    json_t *model = json_object();
    json_object_set(model, "bos_token", json_object_get(cases, "bos_token"));
    json_object_set(model, "eos_token", json_object_get(cases, "eos_token"));
    json_object_foreach(expected, file, of) run(file, cases, model, of, &wrong, &n);
    print_message("%d conversations\n", n);
    assert_true(n >= 300);
    assert_int_equal(wrong, 0);
    json_decref(model);
    json_decref(cases);
    json_decref(expected);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(real_templates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
