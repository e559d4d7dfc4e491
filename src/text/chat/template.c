/* From a template's text to its tree, and from the tree to a conversation's text. */
#include <string.h>

#include "base/alloc.h"
#include "text/chat/chat.h"
#include "text/chat/eval.h"
#include "text/utf8.h"

/* ---- parsing ---- */

/* A copy in the arena with every kind of line end as "\n" and the last one taken away, as jinja2
 * reads its sources. */
static int copy_source(struct pn_template *t, const char *text, size_t len, struct pn_detail *d,
                       char **out, size_t *n) {
    char *s = pn__jarena_take(&t->arena, len + 1, 1);
    if (!s) return pn__fail(d, PN_E_NOMEM, "template: no memory for %zu bytes", len);
    *n = 0;
    for (size_t i = 0; i < len; i++) {
        bool is_cr = text[i] == '\r';
        s[(*n)++] = (char)(is_cr ? '\n' : text[i]);
        if (is_cr && i + 1 < len && text[i + 1] == '\n') i++;
    }
    if (*n && s[*n - 1] == '\n') (*n)--;
    *out = s;
    return 0;
}

static int known_names(struct pn_jparse *p) {
    struct pn_template *t = p->t;
    const struct {
        const char *name;
        uint32_t *sym;
    } known[] = {{"loop", &t->sym_loop},
                 {"caller", &t->sym_caller},
                 {"varargs", &t->sym_varargs},
                 {"kwargs", &t->sym_kwargs}};
    for (size_t i = 0; i < PN_ARRAY_N(known); i++) {
        struct pn_jtok name = {.p = known[i].name, .n = strlen(known[i].name)};
        int rc = pn__jparse_sym(p, &name, known[i].sym);
        if (rc) return rc;
    }
    return 0;
}

static int parse(struct pn_template *t, const char *text, size_t len, struct pn_detail *d) {
    struct pn_jlex x = {.arena = &t->arena, .d = d, .depth_max = t->limits.depth_max};
    struct pn_jparse p = {.t = t, .d = d};
    char *s;
    size_t valid = pn__utf8_valid_len(text, len);
    if (valid < len)
        return pn__fail(d, PN_E_FORMAT, "template: not UTF-8 at byte %zu (0x%02X)", valid,
                        (uint8_t)text[valid]);
    int rc = copy_source(t, text, len, d, &s, &x.n);
    if (rc) return rc;
    x.s = s;
    t->source = (struct pn_str){s, x.n};
    rc = pn__jlex_all(&x);
    if (rc) return rc;
    p.tok = x.tok;
    rc = known_names(&p);
    return rc ? rc : pn__jparse_body(&p, NULL, NULL, NULL, &t->body);
}

int pn__template_parse(const char *text, size_t len, const struct pn_template_limits *limits,
                       struct pn_detail *d, struct pn_template **out) {
    *out = NULL;
    if (len > limits->source_bytes_max)
        return pn__fail(d, PN_E_INVALID, "template: %zu bytes, more than the limit of %llu", len,
                        (unsigned long long)limits->source_bytes_max);
    struct pn_template *t = pn__calloc(1, sizeof *t);
    if (!t) return pn__fail(d, PN_E_NOMEM, "template: no memory");
    t->limits = *limits;
    t->arena.bytes_max = limits->memory_bytes_max;
    int rc = parse(t, text, len, d);
    if (rc) {
        pn__template_free(t);
        return pn__j_public_error(rc);
    }
    *out = t;
    return 0;
}

void pn__template_free(struct pn_template *t) {
    if (!t) return;
    pn__jarena_free(&t->arena);
    pn__free(t);
}

/* ---- rendering ---- */

/* A role that a chat request has: the word is the request's form, not its text, and templates put
 * marks together out of it. */
static bool is_known_role(const struct pn_jstr *s) {
    static const char *const roles[] = {"system",    "user",  "assistant", "tool",
                                        "developer", "model", "function",  "ipython"};
    for (size_t i = 0; i < PN_ARRAY_N(roles); i++) {
        if (pn__j_str_is(s, roles[i], strlen(roles[i]))) return true;
    }
    return false;
}

static void mark_message(struct pn_jdict *d) {
    for (size_t i = 0; i < d->n; i++) {
        struct pn_jval *v = &d->e[i].v;
        const struct pn_jstr *k = d->e[i].k.s;
        if (pn__j_str_is(k, "role", 4) && v->type == PN_JV_STR && is_known_role(v->s))
            v->s->one = PN_J_TEMPLATE;
        if (pn__j_str_is(k, "content", 7) && v->type == PN_JV_LIST) v->is_parts = true;
    }
}

static int set_global(struct pn_jctx *c, uint32_t sym, const json_t *conversation,
                      const json_t *model, bool is_chat) {
    const struct pn_jstr *name = c->t->sym[sym].name;
    struct pn_jval *v = &c->globals[sym];
    const json_t *j = model ? json_object_getn(model, name->p, name->n) : NULL;
    if (j) return pn__j_from_json(c, j, PN_J_TEMPLATE, v);
    j = conversation ? json_object_getn(conversation, name->p, name->n) : NULL;
    if (j) {
        int rc = pn__j_from_json(c, j, PN_J_CONVERSATION, v);
        if (rc || !is_chat || v->type != PN_JV_LIST || !pn__j_str_is(name, "messages", 8))
            return rc;
        for (size_t i = 0; i < v->l->n; i++) {
            if (v->l->v[i].type == PN_JV_DICT) mark_message(v->l->v[i].d);
        }
        return 0;
    }
    const struct pn_jmethod *f = pn__j_find_method(pn__j_globals, name->p, name->n);
    return f ? pn__j_make_fn(c, f->name, f->call, NULL, v) : 0;
}

/* The buffer's bytes and marks as the caller's own. */
static int take_result(const struct pn_jbuf *b, struct pn_chat_text *out, struct pn_detail *d) {
    size_t run_n = b->n > 0;
    for (size_t i = 1; b->by && i < b->n; i++)
        run_n += b->by[i] != b->by[i - 1];
    out->text = pn__calloc(b->n + 1, 1);
    out->runs = pn__calloc(run_n, sizeof *out->runs);
    if (!out->text || !out->runs)
        return pn__fail(d, PN_E_NOMEM, "template: no memory for %zu bytes of text", b->n);
    if (b->n) memcpy(out->text, b->p, b->n);
    out->len = b->n;
    for (size_t i = b->by ? 0 : b->n - (b->n > 0); i < b->n; i++) {
        if (i + 1 < b->n && b->by[i + 1] == b->by[i]) continue;
        out->runs[out->run_n++] =
            (struct pn_chat_run){i + 1, (b->by ? b->by[i] : b->one) == PN_J_CONVERSATION};
    }
    return 0;
}

int pn__j_render(const struct pn_template *t, const json_t *conversation, const json_t *model,
                 const struct tm *now, bool is_chat, bool *printed_parts, struct pn_chat_text *out,
                 struct pn_detail *d) {
    struct pn_jbuf text = {0};
    struct pn_jctx c = {.t = t, .d = d, .now = now, .out = &text};
    int rc = 0;
    c.arena.bytes_max = t->limits.memory_bytes_max;
    c.globals = pn__j_take(&c, t->sym_n, sizeof *c.globals);
    if (!c.globals) rc = pn__j_failed(&c);
    for (uint32_t i = 0; rc == 0 && i < t->sym_n; i++)
        rc = set_global(&c, i, conversation, model, is_chat);
    if (rc == 0) rc = pn__j_exec(&c, t->body);
    if (rc == 0) rc = take_result(&text, out, d);
    out->refused = rc != 0 && c.refused;
    out->steps = c.steps;
    *printed_parts = c.printed_parts;
    json_decref(c.read);
    pn__jarena_free(&c.arena);
    return rc;
}

int pn__template_render(const struct pn_template *t, const json_t *conversation,
                        const json_t *model, const struct tm *now, struct pn_chat_text *out,
                        struct pn_detail *d) {
    bool printed_parts;
    int rc = pn__j_render(t, conversation, model, now, false, &printed_parts, out, d);
    if (rc) {
        bool refused = out->refused;
        pn__chat_text_free(out);
        out->refused = refused;
    }
    return pn__j_public_error(rc);
}

void pn__chat_text_free(struct pn_chat_text *out) {
    pn__free(out->text);
    pn__free(out->runs);
    memset(out, 0, sizeof *out);
}
