/* One-feature templates with the results of Python's jinja2 (chat_features.py wrote them). What
 * jinja2 refuses we refuse, with a place; the words may differ. */
#include "text/chat.h"

/* What we refuse on purpose, and why. */
static const char *const refused_by_us[] = {
    "10 ** 20",                  /* integers have 64 bits */
    "9223372036854775807 + 1",   /* likewise */
    "s | nope2 if false else 1", /* an unknown filter is refused at load, wherever it stands */
};

static const json_t *expected_of(const char *name, const json_t *c, bool *refused) {
    *refused = json_object_get(c, "error") != NULL;
    for (size_t i = 0; i < PN_ARRAY_N(refused_by_us); i++) {
        if (strcmp(refused_by_us[i], name) == 0) *refused = true;
    }
    return json_object_get(c, "text");
}

static bool run(const json_t *c, const json_t *variables) {
    const char *name = json_string_value(json_object_get(c, "name"));
    const json_t *template = json_object_get(c, "template");
    struct pn_detail d = {""};
    struct pn_template *t = NULL;
    struct pn_chat_text out = {0};
    bool refused;
    const json_t *want = expected_of(name, c, &refused);
    int rc = pn__template_parse(json_string_value(template), json_string_length(template),
                                &chat_limits, &d, &t);
    if (rc == 0) rc = pn__template_render(t, variables, NULL, chat_now(), &out, &d);
    bool right = rc == 0 && !refused && out.len == json_string_length(want) &&
                 memcmp(out.text, json_string_value(want), out.len) == 0;
    if (refused) right = rc != 0 && (strstr(d.text, "template: line ") || out.refused);
    if (!right)
        print_error(
            "%s\n  gives  '%s' (%s)\n  wanted '%s'\n", name, out.text ? out.text : "", d.text,
            refused ? json_string_value(json_object_get(c, "error")) : json_string_value(want));
    pn__chat_text_free(&out);
    pn__template_free(t);
    return right;
}

static void as_jinja2(void **state) {
    (void)state;
    json_error_t e;
    json_t *all = json_load_file(PN_TEST_DATA "/templates/features.json", JSON_ALLOW_NUL, &e);
    if (!all) fail_msg("features.json: %s", e.text);
    const json_t *cases = json_object_get(all, "cases");
    size_t wrong = 0;
    for (size_t i = 0; i < json_array_size(cases); i++)
        wrong += !run(json_array_get(cases, i), json_object_get(all, "variables"));
    print_message("%zu templates, %zu wrong\n", json_array_size(cases), wrong);
    assert_true(json_array_size(cases) > 300);
    assert_int_equal(wrong, 0);
    json_decref(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_jinja2)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
