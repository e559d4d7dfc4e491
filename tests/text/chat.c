#include "text/chat.h"

const struct pn_template_limits chat_limits = {1 << 20, 64 << 20, 1 << 30, 100000000, 1000};

const struct tm *chat_now(void) {
    static struct tm now = {.tm_year = 125,
                            .tm_mon = 2,
                            .tm_mday = 9,
                            .tm_hour = 14,
                            .tm_min = 5,
                            .tm_sec = 6,
                            .tm_wday = 0,
                            .tm_yday = 67};
    return &now;
}

json_t *chat_json(const char *text) {
    char *quoted = strdup(text);
    json_error_t e;
    for (char *p = quoted; *p; p++)
        if (*p == '\'') *p = '"';
    json_t *j = json_loads(quoted, JSON_DECODE_ANY, &e);
    if (!j) fail_msg("%s: %s", quoted, e.text);
    free(quoted);
    return j;
}

char *chat_read(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    size_t cap = 1 << 20;
    char *text = malloc(cap + 1);
    *n = fread(text, 1, cap, f);
    text[*n] = 0;
    fclose(f);
    return text;
}

struct pn_template *chat_parse(const char *text) {
    struct pn_detail d = {""};
    struct pn_template *t = NULL;
    int rc = pn__template_parse(text, strlen(text), &chat_limits, &d, &t);
    if (rc) fail_msg("'%s': %s", text, d.text);
    return t;
}

void chat_gives(const char *text, const char *variables, const char *want) {
    struct pn_detail d = {""};
    struct pn_chat_text out = {0};
    struct pn_template *t = chat_parse(text);
    json_t *j = variables ? chat_json(variables) : NULL;
    int rc = pn__template_render(t, j, NULL, chat_now(), &out, &d);
    if (rc) fail_msg("'%s': %s", text, d.text);
    if (out.len != strlen(want) || memcmp(out.text, want, out.len) != 0)
        fail_msg("'%s' gives '%s', not '%s'", text, out.text, want);
    pn__chat_text_free(&out);
    pn__template_free(t);
    json_decref(j);
}

void chat_fails(const char *text, const char *variables, int code, const char *says) {
    struct pn_detail d = {""};
    struct pn_chat_text out = {0};
    struct pn_template *t = NULL;
    json_t *j = variables ? chat_json(variables) : NULL;
    int rc = pn__template_parse(text, strlen(text), &chat_limits, &d, &t);
    if (rc == 0) rc = pn__template_render(t, j, NULL, chat_now(), &out, &d);
    if (rc != code || !strstr(d.text, says))
        fail_msg("'%s' ends with %s '%s' (%s), not %s '%s'", text, pn_err_name(rc), d.text,
                 out.text ? out.text : "", pn_err_name(code), says);
    assert_null(out.text);
    pn__template_free(t);
    json_decref(j);
}
