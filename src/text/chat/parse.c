/* Statements. Each function is called with the token behind its keyword next. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/chat/ast.h"
#include "text/chat/eval.h"

void pn__jplace_set(struct pn_detail *d, struct pn_jplace at, const char *fmt, ...) {
    char text[PN_DETAIL_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    pn__fail_set(d, "template: line %u, column %u: %s", at.line, at.column, text);
}

static int no_memory(struct pn_jparse *p) {
    bool full = p->t->arena.full;
    if (full)
        pn__fail_set(p->d, "template: needs more memory than the limit of %llu bytes",
                     (unsigned long long)p->t->limits.memory_bytes_max);
    else
        pn__fail_set(p->d, "template: no memory");
    return full ? PN_E_NOFIT : PN_E_NOMEM;
}

int pn__jparse_grow(struct pn_jparse *p, void *array, size_t n, size_t size) {
    /* Full at 0, 4, 8, 16, ... */
    if (n != 0 && (n < 4 || (n & (n - 1)) != 0)) return 0;
    void *old;
    memcpy(&old, array, sizeof old);
    void *grown = pn__jarena_take(&p->t->arena, n < 4 ? 4 : n * 2, size);
    if (!grown) return no_memory(p);
    if (n) memcpy(grown, old, n * size);
    memcpy(array, &grown, sizeof grown);
    return 0;
}

int pn__jparse_node(struct pn_jparse *p, enum pn_jkind kind, const struct pn_jtok *at,
                    struct pn_jnode **out) {
    struct pn_jnode *n = pn__jarena_take(&p->t->arena, 1, sizeof *n);
    if (!n) return no_memory(p);
    n->kind = kind;
    n->at = at->at;
    *out = n;
    return 0;
}

int pn__jparse_str(struct pn_jparse *p, const char *s, size_t n, struct pn_jstr **out) {
    struct pn_jstr *str = pn__jarena_take(&p->t->arena, 1, sizeof *str);
    if (!str) return no_memory(p);
    str->p = s;
    str->n = n;
    str->hash = pn__j_hash_text(s, n);
    *out = str;
    return 0;
}

static int grow_slots(struct pn_jparse *p) {
    uint32_t n = p->slot_n ? p->slot_n * 2 : 64;
    uint32_t *slot = pn__jarena_take(&p->t->arena, n, sizeof *slot);
    if (!slot) return no_memory(p);
    for (uint32_t i = 0; i < p->t->sym_n; i++) {
        uint32_t at = p->t->sym[i].name->hash;
        while (slot[at & (n - 1)])
            at++;
        slot[at & (n - 1)] = i + 1;
    }
    p->slot = slot;
    p->slot_n = n;
    return 0;
}

int pn__jparse_sym(struct pn_jparse *p, const struct pn_jtok *name, uint32_t *out) {
    struct pn_template *t = p->t;
    int rc = 0;
    if (t->sym_n * 2 >= p->slot_n) rc = grow_slots(p);
    if (rc) return rc;
    uint32_t at = pn__j_hash_text(name->p, name->n);
    for (; p->slot[at & (p->slot_n - 1)]; at++) {
        uint32_t i = p->slot[at & (p->slot_n - 1)] - 1;
        if (!pn__j_str_is(t->sym[i].name, name->p, name->n)) continue;
        *out = i;
        return 0;
    }
    rc = pn__jparse_grow(p, &t->sym, t->sym_n, sizeof *t->sym);
    if (rc == 0) rc = pn__jparse_str(p, name->p, name->n, &t->sym[t->sym_n].name);
    if (rc) return rc;
    p->slot[at & (p->slot_n - 1)] = t->sym_n + 1;
    *out = t->sym_n++;
    return 0;
}

bool pn__jtok_is(const struct pn_jtok *t, enum pn_jtok_kind kind, const char *text) {
    return t->kind == kind && (!text || (t->n == strlen(text) && memcmp(t->p, text, t->n) == 0));
}

bool pn__jparse_skip(struct pn_jparse *p, enum pn_jtok_kind kind, const char *text) {
    if (!pn__jtok_is(p->tok, kind, text)) return false;
    p->tok++;
    return true;
}

int pn__jparse_expect(struct pn_jparse *p, enum pn_jtok_kind kind, const char *text) {
    static const char *const names[] = {"the end", "text",   "'{{'",     "'}}'",     "'{%'",
                                        "'%}'",    "a name", "a string", "a number", "a number"};
    if (pn__jparse_skip(p, kind, text)) return 0;
    const struct pn_jtok *t = p->tok;
    char want[64];
    snprintf(want, sizeof want, "%s%s%s", text ? "'" : "", text ? text : names[kind],
             text ? "'" : "");
    if (t->kind == PN_JT_END)
        return pn__jparse_fail(p, PN_E_FORMAT, t, "the template ends where %s should be", want);
    return pn__jparse_fail(p, PN_E_FORMAT, t, "expected %s, got '%.*s'", want,
                           (int)(t->n < 40 ? t->n : 40), t->p);
}

int pn__jparse_enter(struct pn_jparse *p) {
    if (p->depth >= p->t->limits.depth_max)
        return pn__jparse_fail(p, PN_E_NOFIT, p->tok, "nested deeper than the limit of %u",
                               p->t->limits.depth_max);
    p->depth++;
    return 0;
}

/* `%}`, the body, and the end block named `end`, consumed. `open` is the statement's keyword. */
static int block_body(struct pn_jparse *p, const char *end, const struct pn_jtok *open,
                      struct pn_jnode **out) {
    const char *const ends[] = {end, NULL};
    int rc = pn__jparse_expect(p, PN_JT_BLOCK_END, NULL);
    if (rc == 0) rc = pn__jparse_body(p, ends, end, open, out);
    if (rc == 0) rc = pn__jparse_expect(p, PN_JT_NAME, end);
    return rc;
}

static int add_kid(struct pn_jparse *p, struct pn_jnode *n, struct pn_jnode *kid) {
    int rc = pn__jparse_grow(p, &n->kid, n->kid_n, sizeof(struct pn_jnode *));
    if (rc == 0) n->kid[n->kid_n++] = kid;
    return rc;
}

static int parse_if(struct pn_jparse *p, const struct pn_jtok *open, struct pn_jnode **out) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    struct pn_jnode *n = NULL;
    int rc = pn__jparse_node(p, PN_JN_IF, open, &n);
    bool more = true;
    while (rc == 0 && more) {
        struct pn_jnode *test;
        struct pn_jnode *body;
        rc = pn__jparse_tuple(p, false, &test);
        if (rc == 0) rc = pn__jparse_expect(p, PN_JT_BLOCK_END, NULL);
        if (rc == 0) rc = pn__jparse_body(p, ends, "endif", open, &body);
        if (rc == 0) rc = add_kid(p, n, test);
        if (rc == 0) rc = add_kid(p, n, body);
        more = rc == 0 && pn__jparse_skip(p, PN_JT_NAME, "elif");
    }
    if (rc == 0 && pn__jparse_skip(p, PN_JT_NAME, "else")) {
        rc = pn__jparse_expect(p, PN_JT_BLOCK_END, NULL);
        if (rc == 0) rc = pn__jparse_body(p, last, "endif", open, &n->c);
    }
    if (rc == 0) rc = pn__jparse_expect(p, PN_JT_NAME, "endif");
    *out = n;
    return rc;
}

static int parse_for(struct pn_jparse *p, const struct pn_jtok *open, struct pn_jnode **out) {
    static const char *const ends[] = {"else", "endfor", NULL};
    static const char *const last[] = {"endfor", NULL};
    struct pn_jnode *n = NULL;
    int rc = pn__jparse_node(p, PN_JN_FOR, open, &n);
    if (rc == 0) rc = pn__jparse_target(p, false, &n->a);
    if (rc == 0) rc = pn__jparse_expect(p, PN_JT_NAME, "in");
    if (rc == 0) rc = pn__jparse_tuple(p, false, &n->b);
    if (rc) return rc;
    if (pn__jparse_skip(p, PN_JT_NAME, "if")) {
        struct pn_jnode *test;
        rc = pn__jparse_expr(p, &test);
        if (rc == 0) rc = add_kid(p, n, test);
    }
    n->is_recursive = rc == 0 && pn__jparse_skip(p, PN_JT_NAME, "recursive");
    if (rc == 0) rc = pn__jparse_expect(p, PN_JT_BLOCK_END, NULL);
    uint32_t loop_n = p->loop_n;
    p->loops++;
    if (rc == 0) rc = pn__jparse_body(p, ends, "endfor", open, &n->c);
    p->loops--;
    n->uses_loop = p->loop_n > loop_n;
    if (rc == 0 && pn__jparse_skip(p, PN_JT_NAME, "else")) {
        rc = pn__jparse_expect(p, PN_JT_BLOCK_END, NULL);
        if (rc == 0) rc = pn__jparse_body(p, last, "endfor", open, &n->d);
    }
    if (rc == 0) rc = pn__jparse_expect(p, PN_JT_NAME, "endfor");
    *out = n;
    return rc;
}

static int parse_set(struct pn_jparse *p, const struct pn_jtok *open, struct pn_jnode **out) {
    struct pn_jnode *n = NULL;
    int rc = pn__jparse_node(p, PN_JN_SET, open, &n);
    if (rc == 0) rc = pn__jparse_target(p, true, &n->a);
    if (rc) return rc;
    *out = n;
    if (pn__jparse_skip(p, PN_JT_OP, "=")) return pn__jparse_tuple(p, true, &n->b);
    n->kind = PN_JN_SET_BLOCK;
    rc = pn__jparse_filters(p, false, &n->b);
    if (rc == 0) rc = block_body(p, "endset", open, &n->c);
    return rc;
}

/* (a, b=1, ...) of a macro or a call block. */
static int parse_params(struct pn_jparse *p, struct pn_jnode_macro *m) {
    size_t default_n = 0;
    int rc = pn__jparse_expect(p, PN_JT_OP, "(");
    while (rc == 0 && !pn__jtok_is(p->tok, PN_JT_OP, ")")) {
        const struct pn_jtok *name = p->tok;
        struct pn_jnode *initial = NULL;
        uint32_t sym = 0;
        if (m->param_n) rc = pn__jparse_expect(p, PN_JT_OP, ",");
        if (rc == 0) name = p->tok;
        if (rc == 0) rc = pn__jparse_expect(p, PN_JT_NAME, NULL);
        if (rc == 0) rc = pn__jparse_sym(p, name, &sym);
        if (rc == 0 && pn__jparse_skip(p, PN_JT_OP, "=")) {
            rc = pn__jparse_expr(p, &initial);
            default_n++;
        } else if (rc == 0 && default_n) {
            rc = pn__jparse_fail(p, PN_E_FORMAT, name,
                                 "a parameter without a default follows one "
                                 "with a default");
        }
        if (rc == 0) rc = pn__jparse_grow(p, &m->params, m->param_n, sizeof *m->params);
        if (rc == 0) rc = pn__jparse_grow(p, &m->defaults, m->param_n, sizeof(struct pn_jnode *));
        if (rc == 0) {
            m->params[m->param_n] = sym;
            m->defaults[m->param_n++] = initial;
        }
    }
    return rc ? rc : pn__jparse_expect(p, PN_JT_OP, ")");
}

/* The body of a macro or caller: a place that no break leaves. */
static int parse_macro_body(struct pn_jparse *p, const char *end, const struct pn_jtok *open,
                            struct pn_jnode_macro *m) {
    uint32_t loops = p->loops;
    uint32_t varargs_n = p->varargs_n;
    uint32_t kwargs_n = p->kwargs_n;
    uint32_t caller_n = p->caller_n;
    p->loops = 0;
    int rc = block_body(p, end, open, &m->body);
    p->loops = loops;
    m->uses_varargs = p->varargs_n > varargs_n;
    m->uses_kwargs = p->kwargs_n > kwargs_n;
    m->uses_caller = p->caller_n > caller_n;
    return rc;
}

static int new_macro(struct pn_jparse *p, struct pn_jnode *n) {
    n->macro = pn__jarena_take(&p->t->arena, 1, sizeof *n->macro);
    return n->macro ? 0 : no_memory(p);
}

static int parse_macro(struct pn_jparse *p, const struct pn_jtok *open, struct pn_jnode **out) {
    const struct pn_jtok *name = p->tok;
    struct pn_jnode *n = NULL;
    int rc = pn__jparse_node(p, PN_JN_MACRO, open, &n);
    if (rc == 0) rc = new_macro(p, n);
    if (rc == 0) rc = pn__jparse_expect(p, PN_JT_NAME, NULL);
    if (rc == 0) rc = pn__jparse_sym(p, name, &n->macro->sym);
    if (rc) return rc;
    n->macro->name = p->t->sym[n->macro->sym].name;
    rc = parse_params(p, n->macro);
    if (rc == 0) rc = parse_macro_body(p, "endmacro", open, n->macro);
    *out = n;
    return rc;
}

static int parse_call_block(struct pn_jparse *p, const struct pn_jtok *open,
                            struct pn_jnode **out) {
    struct pn_jnode *n = NULL;
    int rc = pn__jparse_node(p, PN_JN_CALL_BLOCK, open, &n);
    if (rc == 0) rc = new_macro(p, n);
    if (rc == 0 && pn__jtok_is(p->tok, PN_JT_OP, "(")) rc = parse_params(p, n->macro);
    if (rc) return rc;
    const struct pn_jtok *call = p->tok;
    n->macro->sym = p->t->sym_caller;
    n->macro->name = p->t->sym[p->t->sym_caller].name;
    rc = pn__jparse_expr(p, &n->a);
    if (rc == 0 && n->a->kind != PN_JN_CALL)
        rc = pn__jparse_fail(p, PN_E_FORMAT, call, "a call block needs a call");
    if (rc == 0) rc = parse_macro_body(p, "endcall", open, n->macro);
    *out = n;
    return rc;
}

static int parse_filter_block(struct pn_jparse *p, const struct pn_jtok *open,
                              struct pn_jnode **out) {
    struct pn_jnode *n = NULL;
    int rc = pn__jparse_node(p, PN_JN_FILTER_BLOCK, open, &n);
    if (rc == 0) rc = pn__jparse_filters(p, true, &n->b);
    if (rc == 0) rc = block_body(p, "endfilter", open, &n->c);
    *out = n;
    return rc;
}

static int parse_with(struct pn_jparse *p, const struct pn_jtok *open, struct pn_jnode **out) {
    struct pn_jnode *n = NULL;
    int rc = pn__jparse_node(p, PN_JN_WITH, open, &n);
    while (rc == 0 && p->tok->kind != PN_JT_BLOCK_END) {
        struct pn_jnode *target;
        struct pn_jnode *value;
        if (n->kid_n) rc = pn__jparse_expect(p, PN_JT_OP, ",");
        if (rc == 0) rc = pn__jparse_target(p, false, &target);
        if (rc == 0) rc = pn__jparse_expect(p, PN_JT_OP, "=");
        if (rc == 0) rc = pn__jparse_expr(p, &value);
        if (rc == 0) rc = add_kid(p, n, target);
        if (rc == 0) rc = add_kid(p, n, value);
    }
    if (rc == 0) rc = block_body(p, "endwith", open, &n->c);
    *out = n;
    return rc;
}

static int parse_scope(struct pn_jparse *p, const struct pn_jtok *open, struct pn_jnode **out) {
    struct pn_jnode *n = NULL;
    uint32_t loops = p->loops;
    int rc = pn__jparse_node(p, PN_JN_SCOPE, open, &n);
    p->loops = 0; /* a break doesn't leave it */
    if (rc == 0) rc = block_body(p, "endgeneration", open, &n->c);
    p->loops = loops;
    *out = n;
    return rc;
}

static int parse_jump(struct pn_jparse *p, const struct pn_jtok *open, struct pn_jnode **out) {
    if (p->loops == 0)
        return pn__jparse_fail(p, PN_E_FORMAT, open, "'%.*s' outside a loop", (int)open->n,
                               open->p);
    return pn__jparse_node(p, pn__jtok_is(open, PN_JT_NAME, "break") ? PN_JN_BREAK : PN_JN_CONTINUE,
                           open, out);
}

static int parse_print(struct pn_jparse *p, const struct pn_jtok *open, struct pn_jnode **out) {
    int rc = pn__jparse_node(p, PN_JN_PRINT, open, out);
    return rc ? rc : pn__jparse_tuple(p, true, &(*out)->a);
}

static const struct {
    const char *name;
    int (*parse)(struct pn_jparse *p, const struct pn_jtok *open, struct pn_jnode **out);
} statements[] = {
    {"if", parse_if},         {"for", parse_for},          {"set", parse_set},
    {"macro", parse_macro},   {"call", parse_call_block},  {"filter", parse_filter_block},
    {"with", parse_with},     {"generation", parse_scope}, {"break", parse_jump},
    {"continue", parse_jump}, {"print", parse_print},
};

/* A block whose '{%' was read and whose keyword is next, up to its last '%}'. */
static int parse_statement(struct pn_jparse *p, struct pn_jnode **out) {
    static const char *const others[] = {"block",      "extends", "include", "import", "from",
                                         "autoescape", "do",      "debug",   "trans"};
    const struct pn_jtok *open = p->tok;
    int rc = pn__jparse_expect(p, PN_JT_NAME, NULL);
    if (rc) return rc;
    for (size_t i = 0; i < PN_ARRAY_N(statements); i++) {
        if (!pn__jtok_is(open, PN_JT_NAME, statements[i].name)) continue;
        rc = statements[i].parse(p, open, out);
        return rc ? rc : pn__jparse_expect(p, PN_JT_BLOCK_END, NULL);
    }
    for (size_t i = 0; i < PN_ARRAY_N(others); i++) {
        if (pn__jtok_is(open, PN_JT_NAME, others[i]))
            return pn__jparse_fail(p, PN_E_UNSUPPORTED, open, "the block '%s' is not supported",
                                   others[i]);
    }
    int n = (int)(open->n < 40 ? open->n : 40);
    if (open->n > 3 && memcmp(open->p, "end", 3) == 0)
        return pn__jparse_fail(p, PN_E_FORMAT, open, "'%.*s' ends nothing that is open here", n,
                               open->p);
    return pn__jparse_fail(p, PN_E_FORMAT, open, "unknown block '%.*s'", n, open->p);
}

static bool is_end(const struct pn_jtok *t, const char *const *ends) {
    for (; ends && *ends; ends++) {
        if (pn__jtok_is(t, PN_JT_NAME, *ends)) return true;
    }
    return false;
}

static int parse_piece(struct pn_jparse *p, struct pn_jnode **out) {
    const struct pn_jtok *t = p->tok++;
    struct pn_jnode *n = NULL;
    struct pn_jstr *text = NULL;
    int rc;
    switch (t->kind) {
    case PN_JT_DATA:
        rc = pn__jparse_str(p, t->p, t->n, &text);
        if (rc == 0) rc = pn__jparse_node(p, PN_JN_DATA, t, &n);
        if (n) n->v = pn__j_str(text);
        break;
    case PN_JT_VAR_BEGIN:
        rc = pn__jparse_node(p, PN_JN_PRINT, p->tok, &n);
        if (rc == 0) rc = pn__jparse_tuple(p, true, &n->a);
        if (rc == 0) rc = pn__jparse_expect(p, PN_JT_VAR_END, NULL);
        break;
    default: /* PN_JT_BLOCK_BEGIN: the lexer gives nothing else outside of marks */
        rc = parse_statement(p, &n);
        break;
    }
    *out = n;
    return rc;
}

int pn__jparse_body(struct pn_jparse *p, const char *const *ends, const char *opened,
                    const struct pn_jtok *from, struct pn_jnode **out) {
    struct pn_jnode *body = NULL;
    int rc = pn__jparse_enter(p);
    if (rc) return rc;
    rc = pn__jparse_node(p, PN_JN_BODY, p->tok, &body);
    while (rc == 0) {
        struct pn_jnode *kid = NULL;
        if (p->tok->kind == PN_JT_END) {
            if (from)
                rc = pn__jparse_fail(p, PN_E_FORMAT, from, "this '%.*s' has no '%s'", (int)from->n,
                                     from->p, opened);
            break;
        }
        if (p->tok->kind == PN_JT_BLOCK_BEGIN && is_end(p->tok + 1, ends)) {
            p->tok++;
            break;
        }
        rc = parse_piece(p, &kid);
        if (rc == 0) rc = add_kid(p, body, kid);
    }
    p->depth--;
    *out = body;
    return rc;
}
