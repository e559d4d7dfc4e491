#include "cli/template_cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/io.h"
#include "gguf/gguf.h"

void pn__cli_template_limits(const struct pn_settings *s, struct pn_template_limits *out) {
    *out = (struct pn_template_limits){
        .source_bytes_max = (uint64_t)pn__set_int(s, PN_SET_TEMPLATE_BYTES),
        .output_bytes_max = (uint64_t)pn__set_int(s, PN_SET_TEMPLATE_OUTPUT),
        .memory_bytes_max = (uint64_t)pn__set_int(s, PN_SET_TEMPLATE_MEMORY),
        .steps_max = (uint64_t)pn__set_int(s, PN_SET_TEMPLATE_STEPS),
        .depth_max = (uint32_t)pn__set_int(s, PN_SET_TEMPLATE_DEPTH),
    };
}

static int read_open(int fd, const char *path, uint64_t bytes_max, char **text, size_t *len,
                     struct pn_detail *d) {
    struct stat st;
    if (pn__io()->fstat(fd, &st)) return pn__fail(d, PN_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return pn__fail(d, PN_E_INVALID, "%s: not a file", path);
    uint64_t n = (uint64_t)st.st_size;
    if (n > bytes_max)
        return pn__fail(d, PN_E_INVALID, "%s: %llu bytes, more than --template-bytes of %llu", path,
                        (unsigned long long)n, (unsigned long long)bytes_max);
    *text = pn__calloc(n + 1, 1);
    if (!*text) return pn__fail(d, PN_E_NOMEM, "%s: no memory", path);
    *len = n;
    return pn__io_read_exact(fd, path, *text, n, 0, d);
}

int pn__cli_template_read(const struct pn_settings *s, const char *path, char **text, size_t *len,
                          struct pn_detail *d) {
    *text = NULL;
    *len = 0;
    int fd = pn__io()->open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        int code = errno == ENOENT ? PN_E_NOTFOUND : PN_E_IO;
        return pn__fail(d, code, "%s: %s", path, strerror(errno));
    }
    int rc = read_open(fd, path, (uint64_t)pn__set_int(s, PN_SET_TEMPLATE_BYTES), text, len, d);
    pn__io()->close(fd);
    if (rc) {
        pn__free(*text);
        *text = NULL;
    }
    return rc;
}

/* Variables that the program sets, and what would replace them. */
static bool is_ours(const char *name, size_t n) {
    static const char *const ours[] = {"messages", "tools", "add_generation_prompt", "bos_token",
                                       "eos_token"};
    for (size_t i = 0; i < PN_ARRAY_N(ours); i++) {
        if (strlen(ours[i]) == n && memcmp(ours[i], name, n) == 0) return true;
    }
    return false;
}

int pn__cli_template_args(const struct pn_settings *s, json_t *vars, struct pn_detail *d) {
    const char *text;
    char name[64];
    for (uint32_t i = 0; (text = pn__set_listed(s, PN_SET_TEMPLATE_ARG, i)); i++) {
        json_error_t e;
        size_t n = strcspn(text, "=");
        if (n == 0 || text[n] == '\0')
            return pn__fail(d, PN_E_USAGE,
                            "--template-arg: '%.80s' is not NAME=JSON, such as "
                            "enable_thinking=false",
                            text);
        if (n >= sizeof name)
            return pn__fail(d, PN_E_USAGE,
                            "--template-arg: '%.20s…' is a name of %zu bytes, at "
                            "most %zu are taken",
                            text, n, sizeof name - 1);
        if (is_ours(text, n))
            return pn__fail(d, PN_E_USAGE, "--template-arg: '%.*s' is set by the program", (int)n,
                            text);
        json_t *value = json_loads(text + n + 1, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
        if (!value)
            return pn__fail(d, PN_E_USAGE,
                            "--template-arg: '%.80s': what follows the = is no JSON (column %d: "
                            "%.80s); a text needs its quotes: NAME='\"text\"'",
                            text, e.column, e.text);
        snprintf(name, sizeof name, "%.*s", (int)n, text);
        if (json_object_set_new(vars, name, value))
            return pn__fail(d, PN_E_USAGE, "--template-arg: the name in '%.80s' is not UTF-8",
                            text);
    }
    return 0;
}

/* ---- a model's ---- */

static const char raw_hint[] = "(--raw continues text without one, --chat-template FILE brings "
                               "one)";

static int parse(const struct pn_settings *s, const char *name, const char *text, size_t len,
                 struct pn_chat_model *m, struct pn_detail *d) {
    struct pn_template_limits limits;
    struct pn_detail why = {""};
    pn__cli_template_limits(s, &limits);
    int rc = pn__template_parse(text, len, &limits, &why, &m->t);
    if (rc == 0) return 0;
    /* It begins with "template: " and the place. */
    return pn__fail(d, rc, "%s: chat %.300s %s", name, why.text, raw_hint);
}

int pn__chat_model_open(const struct pn_settings *s, struct pn_detail *d,
                        struct pn_chat_model *out) {
    const char *file = pn__set_text(s, PN_SET_CHAT_TEMPLATE);
    const char *path = s->positional[0];
    struct pn_gguf *g = NULL;
    struct pn_str source = {0};
    char *text = NULL;
    out->vars = json_object();
    out->args = json_object();
    int rc = 0;
    if (!out->vars || !out->args) rc = pn__fail(d, PN_E_NOMEM, "chat template: no memory");
    if (rc == 0) rc = pn__cli_template_args(s, out->args, d);
    if (rc == 0) rc = pn__gguf_open(path, d, &g);
    if (rc == 0 && file) {
        rc = pn__cli_template_read(s, file, &text, &source.len, d);
        source.data = text;
    } else if (rc == 0) {
        struct pn_detail why = {""};
        rc = pn__chat_template_find(g, false, &source, &why);
        if (rc == PN_E_NOTFOUND)
            rc = pn__fail(d, rc, "%s: the model has no chat template %s", path, raw_hint);
        else if (rc)
            *d = why;
    }
    if (rc == 0) rc = parse(s, file ? file : path, source.data, source.len, out, d);
    if (rc == 0) rc = pn__vocab_load(g, pn__set_text(s, PN_SET_PRE), d, &out->vocab);
    if (rc == 0) rc = pn__chat_vars(out->vocab, out->vars, d);
    pn__gguf_close(g);
    pn__free(text);
    return rc;
}

void pn__chat_model_deinit(struct pn_chat_model *m) {
    pn__template_free(m->t);
    pn__vocab_free(m->vocab);
    json_decref(m->vars);
    json_decref(m->args);
}
