#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/io.h"
#include "cli/cli.h"
#include "cli/template_cli.h"
#include "gguf/gguf.h"
#include "text/chat/chat.h"

/* Everything that the command holds. */
struct work {
    struct pn_gguf *g;
    struct pn_vocab *vocab; /* of a model; NULL for a template file */
    char *source;           /* of a template file */
    struct pn_template *t;
    json_t *conversation;
    json_t *model; /* variables that are the model's */
    struct pn_chat_text text;
    struct pn_ids ids;
};

static void deinit(struct work *w) {
    pn__ids_free(&w->ids);
    pn__chat_text_free(&w->text);
    json_decref(w->model);
    json_decref(w->conversation);
    pn__template_free(w->t);
    pn__free(w->source);
    pn__vocab_free(w->vocab);
    pn__gguf_close(w->g);
}

static int parse_now(const char *text, struct tm *now, struct pn_detail *d) {
    memset(now, 0, sizeof *now);
    if (!text) {
        time_t t = time(NULL);
        if (!localtime_r(&t, now))
            return pn__fail(d, PN_E_IO, "no local time: %s", strerror(errno));
        return 0;
    }
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", now);
    if (!end || *end)
        return pn__fail(d, PN_E_USAGE, "--now: '%.40s' is no time such as 2025-03-09T14:05:06",
                        text);
    /* The day of the week and of the year follow; a day that a month hasn't got shows here. */
    struct tm whole = *now;
    time_t t = timegm(&whole);
    if (whole.tm_mday != now->tm_mday || !gmtime_r(&t, now))
        return pn__fail(d, PN_E_USAGE, "--now: there is no such day as in '%.40s'", text);
    return 0;
}

static int read_conversation(struct work *w, struct pn_detail *d) {
    json_error_t e;
    w->conversation = json_loadf(stdin, JSON_ALLOW_NUL, &e);
    w->model = json_object();
    if (!w->model) return pn__fail(d, PN_E_NOMEM, "conversation: no memory");
    if (!w->conversation && ferror(stdin))
        return pn__fail(d, PN_E_IO, "standard input: %s", strerror(errno));
    if (!w->conversation)
        return pn__fail(d, PN_E_INVALID, "conversation: line %d, column %d: %s", e.line, e.column,
                        e.text);
    if (!json_is_object(w->conversation))
        return pn__fail(d, PN_E_INVALID, "conversation: the JSON is no object");
    /* These are no part of what somebody said: the template may make marks of them. */
    static const char *const keys[] = {"bos_token", "eos_token"};
    for (size_t i = 0; i < PN_ARRAY_N(keys); i++) {
        json_t *token = json_object_get(w->conversation, keys[i]);
        if (token && json_object_set(w->model, keys[i], token))
            return pn__fail(d, PN_E_NOMEM, "conversation: no memory");
    }
    return 0;
}

/* A file given by its path. */
static int read_source(const struct pn_settings *s, const char *path, struct work *w,
                       struct pn_str *out, struct pn_detail *d) {
    int rc = pn__cli_template_read(s, path, &w->source, &out->len, d);
    out->data = w->source;
    return rc;
}

static int open_model(const struct pn_settings *s, struct work *w, struct pn_str *source,
                      struct pn_detail *d) {
    const char *file = pn__set_text(s, PN_SET_CHAT_TEMPLATE);
    bool with_tools = json_array_size(json_object_get(w->conversation, "tools")) > 0;
    int rc = pn__gguf_open(s->positional[0], d, &w->g);
    if (rc == 0) rc = pn__vocab_load(w->g, pn__set_text(s, PN_SET_PRE), d, &w->vocab);
    if (rc == 0) rc = pn__chat_vars(w->vocab, w->model, d);
    if (rc == 0 && file) return read_source(s, file, w, source, d);
    return rc ? rc : pn__chat_template_find(w->g, with_tools, source, d);
}

/* The template's text, from a template file or from a model (which begins with "GGUF", or is a
 * folder). */
static int find_source(const struct pn_settings *s, struct work *w, struct pn_str *source,
                       struct pn_detail *d) {
    const char *path = s->positional[0];
    char magic[4] = {0};
    struct stat st;
    int fd = pn__io()->open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        int code = errno == ENOENT ? PN_E_NOTFOUND : PN_E_IO;
        return pn__fail(d, code, "%s: %s", path, strerror(errno));
    }
    bool is_model = pn__io()->fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    if (!is_model && S_ISREG(st.st_mode))
        is_model = pn__io()->pread(fd, magic, sizeof magic, 0) == sizeof magic &&
                   memcmp(magic, "GGUF", sizeof magic) == 0;
    pn__io()->close(fd);
    if (is_model) return open_model(s, w, source, d);
    if (pn__set_given(s, PN_SET_CHAT_TEMPLATE))
        return pn__fail(d, PN_E_USAGE, "--chat-template goes with a model, and %s is none", path);
    return read_source(s, path, w, source, d);
}

static int print_text(const struct pn_chat_text *text, struct pn_detail *d) {
    if (fwrite(text->text, 1, text->len, stdout) < text->len)
        return pn__fail(d, PN_E_IO, "standard output: %s", strerror(errno));
    return 0;
}

static void print_ids(const struct pn_ids *ids) {
    for (size_t i = 0; i < ids->n; i++)
        printf(i ? " %d" : "%d", ids->ids[i]);
    putchar('\n');
}

int pn__cmd_template(const struct pn_settings *s, struct pn_detail *d) {
    struct pn_template_limits limits;
    struct work w = {0};
    struct pn_str source = {0};
    struct tm now;
    bool ids = pn__set_flag(s, PN_SET_IDS);
    pn__cli_template_limits(s, &limits);
    int rc = parse_now(pn__set_text(s, PN_SET_NOW), &now, d);
    if (rc == 0) rc = read_conversation(&w, d);
    if (rc == 0) rc = pn__cli_template_args(s, w.conversation, d);
    if (rc == 0) rc = find_source(s, &w, &source, d);
    if (rc == 0 && ids && !w.vocab)
        rc =
            pn__fail(d, PN_E_USAGE, "--ids needs a model: %s is a template file", s->positional[0]);
    if (rc == 0) rc = pn__template_parse(source.data, source.len, &limits, d, &w.t);
    if (rc == 0) rc = pn__chat_render(w.t, w.conversation, w.model, &now, &w.text, d);
    if (rc == 0 && ids) rc = pn__chat_tokenize(w.vocab, w.t, &w.text, &w.ids, d);
    if (rc == 0 && ids)
        print_ids(&w.ids);
    else if (rc == 0)
        rc = print_text(&w.text, d);
    deinit(&w);
    return rc;
}
