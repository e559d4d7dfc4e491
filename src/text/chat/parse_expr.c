/* Expressions, loosest binding first. Operators of one rank make one node, so that a long sum is no
 * deeper than a short one. */
#include <string.h>

#include "text/chat/ast.h"
#include "text/chat/eval.h"

static int parse_unary(struct pn_jparse *p, bool with_filter, struct pn_jnode **out);

static int add_kid(struct pn_jparse *p, struct pn_jnode *n, struct pn_jnode *kid) {
    int rc = pn__jparse_grow(p, &n->kid, n->kid_n, sizeof(struct pn_jnode *));
    if (rc == 0) n->kid[n->kid_n++] = kid;
    return rc;
}

static int add_operand(struct pn_jparse *p, struct pn_jnode *n, uint8_t op, struct pn_jnode *kid) {
    int rc = pn__jparse_grow(p, &n->op, n->kid_n - 1, 1);
    if (rc) return rc;
    n->op[n->kid_n - 1] = op;
    return add_kid(p, n, kid);
}

/* Puts `first` under a new node of several operands unless it is that already. */
static int widen(struct pn_jparse *p, enum pn_jkind kind, const struct pn_jtok *at,
                 struct pn_jnode *first, struct pn_jnode **wide) {
    if (*wide) return 0;
    int rc = pn__jparse_node(p, kind, at, wide);
    return rc ? rc : add_kid(p, *wide, first);
}

struct rank {
    enum pn_jkind kind;
    struct {
        const char *text;
        uint8_t op;
    } ops[5];
};

static const struct rank ranks[] = {
    {PN_JN_ARITH, {{"+", PN_JO_ADD}, {"-", PN_JO_SUB}}},
    {PN_JN_CONCAT, {{"~", 0}}},
    {PN_JN_ARITH, {{"*", PN_JO_MUL}, {"//", PN_JO_FLOORDIV}, {"/", PN_JO_DIV}, {"%", PN_JO_MOD}}},
    {PN_JN_ARITH, {{"**", PN_JO_POW}}},
};

static int parse_rank(struct pn_jparse *p, size_t rank, struct pn_jnode **out) {
    if (rank == PN_ARRAY_N(ranks)) return parse_unary(p, true, out);
    const struct pn_jtok *at = p->tok;
    struct pn_jnode *wide = NULL;
    int rc = parse_rank(p, rank + 1, out);
    while (rc == 0 && p->tok->kind == PN_JT_OP) {
        size_t i = 0;
        while (ranks[rank].ops[i].text && !pn__jtok_is(p->tok, PN_JT_OP, ranks[rank].ops[i].text))
            i++;
        if (!ranks[rank].ops[i].text) break;
        struct pn_jnode *right;
        p->tok++;
        rc = widen(p, ranks[rank].kind, at, *out, &wide);
        if (rc == 0) rc = parse_rank(p, rank + 1, &right);
        if (rc == 0) rc = add_operand(p, wide, ranks[rank].ops[i].op, right);
    }
    if (wide) *out = wide;
    return rc;
}

/* The comparison at p->tok, consumed; false when there is none. */
static bool take_comparison(struct pn_jparse *p, uint8_t *op) {
    static const struct {
        const char *text;
        uint8_t op;
    } ops[] = {{"==", PN_JO_EQ}, {"!=", PN_JO_NE}, {"<", PN_JO_LT},
               {"<=", PN_JO_LE}, {">", PN_JO_GT},  {">=", PN_JO_GE}};
    for (size_t i = 0; i < PN_ARRAY_N(ops); i++) {
        if (!pn__jparse_skip(p, PN_JT_OP, ops[i].text)) continue;
        *op = ops[i].op;
        return true;
    }
    *op = PN_JO_IN;
    if (pn__jparse_skip(p, PN_JT_NAME, "in")) return true;
    *op = PN_JO_NOT_IN;
    if (!pn__jtok_is(p->tok, PN_JT_NAME, "not") || !pn__jtok_is(p->tok + 1, PN_JT_NAME, "in"))
        return false;
    p->tok += 2;
    return true;
}

static int parse_compare(struct pn_jparse *p, struct pn_jnode **out) {
    const struct pn_jtok *at = p->tok;
    struct pn_jnode *wide = NULL;
    uint8_t op;
    int rc = parse_rank(p, 0, out);
    while (rc == 0 && take_comparison(p, &op)) {
        struct pn_jnode *right;
        rc = widen(p, PN_JN_COMPARE, at, *out, &wide);
        if (rc == 0) rc = parse_rank(p, 0, &right);
        if (rc == 0) rc = add_operand(p, wide, op, right);
    }
    if (wide) *out = wide;
    return rc;
}

static int parse_not(struct pn_jparse *p, struct pn_jnode **out) {
    const struct pn_jtok *at = p->tok;
    bool negate = false;
    bool any = false;
    while (pn__jparse_skip(p, PN_JT_NAME, "not")) {
        negate = !negate;
        any = true;
    }
    int rc = parse_compare(p, out);
    /* Two of them still make a boolean. */
    for (int i = 0; rc == 0 && any && i < (negate ? 1 : 2); i++) {
        struct pn_jnode *n;
        rc = pn__jparse_node(p, PN_JN_NOT, at, &n);
        if (rc) break;
        n->a = *out;
        *out = n;
    }
    return rc;
}

static int parse_and(struct pn_jparse *p, struct pn_jnode **out) {
    const struct pn_jtok *at = p->tok;
    struct pn_jnode *wide = NULL;
    int rc = parse_not(p, out);
    while (rc == 0 && pn__jparse_skip(p, PN_JT_NAME, "and")) {
        struct pn_jnode *right;
        rc = widen(p, PN_JN_AND, at, *out, &wide);
        if (rc == 0) rc = parse_not(p, &right);
        if (rc == 0) rc = add_kid(p, wide, right);
    }
    if (wide) *out = wide;
    return rc;
}

int pn__jparse_or(struct pn_jparse *p, struct pn_jnode **out) {
    const struct pn_jtok *at = p->tok;
    struct pn_jnode *wide = NULL;
    int rc = pn__jparse_enter(p);
    if (rc) return rc;
    rc = parse_and(p, out);
    while (rc == 0 && pn__jparse_skip(p, PN_JT_NAME, "or")) {
        struct pn_jnode *right;
        rc = widen(p, PN_JN_OR, at, *out, &wide);
        if (rc == 0) rc = parse_and(p, &right);
        if (rc == 0) rc = add_kid(p, wide, right);
    }
    if (wide) *out = wide;
    p->depth--;
    return rc;
}

int pn__jparse_expr(struct pn_jparse *p, struct pn_jnode **out) {
    int rc = pn__jparse_enter(p);
    if (rc) return rc;
    rc = pn__jparse_or(p, out);
    while (rc == 0 && pn__jtok_is(p->tok, PN_JT_NAME, "if")) {
        struct pn_jnode *n;
        rc = pn__jparse_node(p, PN_JN_COND, p->tok++, &n);
        if (rc) break;
        n->b = *out;
        rc = pn__jparse_or(p, &n->a);
        if (rc == 0 && pn__jparse_skip(p, PN_JT_NAME, "else")) rc = pn__jparse_expr(p, &n->c);
        *out = n;
    }
    p->depth--;
    return rc;
}

static bool ends_tuple(const struct pn_jparse *p) {
    const struct pn_jtok *t = p->tok;
    return t->kind == PN_JT_VAR_END || t->kind == PN_JT_BLOCK_END ||
           pn__jtok_is(t, PN_JT_OP, ")") || pn__jtok_is(t, PN_JT_NAME, "recursive");
}

int pn__jparse_tuple(struct pn_jparse *p, bool with_cond, struct pn_jnode **out) {
    const struct pn_jtok *at = p->tok;
    struct pn_jnode *tuple = NULL;
    int rc = 0;
    while (rc == 0) {
        struct pn_jnode *kid;
        if (tuple && ends_tuple(p)) break;
        rc = with_cond ? pn__jparse_expr(p, &kid) : pn__jparse_or(p, &kid);
        if (rc == 0 && !tuple) {
            if (!pn__jtok_is(p->tok, PN_JT_OP, ",")) {
                *out = kid;
                return 0;
            }
            rc = pn__jparse_node(p, PN_JN_TUPLE, at, &tuple);
        }
        if (rc == 0) rc = add_kid(p, tuple, kid);
        if (rc == 0 && !pn__jparse_skip(p, PN_JT_OP, ",")) break;
    }
    *out = tuple;
    return rc;
}

static int parse_target_name(struct pn_jparse *p, bool with_attr, struct pn_jnode **out) {
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None"};
    const struct pn_jtok *name = p->tok;
    if (pn__jtok_is(name, PN_JT_OP, "(")) {
        p->tok++;
        int rc = pn__jparse_enter(p);
        if (rc == 0) rc = pn__jparse_target(p, false, out);
        if (rc) return rc;
        p->depth--;
        return pn__jparse_expect(p, PN_JT_OP, ")");
    }
    int rc = pn__jparse_expect(p, PN_JT_NAME, NULL);
    for (size_t i = 0; rc == 0 && i < PN_ARRAY_N(reserved); i++) {
        if (pn__jtok_is(name, PN_JT_NAME, reserved[i]))
            rc = pn__jparse_fail(p, PN_E_FORMAT, name, "'%s' can't be assigned to", reserved[i]);
    }
    if (rc == 0) rc = pn__jparse_node(p, PN_JN_NAME, name, out);
    if (rc == 0) rc = pn__jparse_sym(p, name, &(*out)->sym);
    if (rc || !with_attr || !pn__jparse_skip(p, PN_JT_OP, ".")) return rc;
    const struct pn_jtok *attr = p->tok;
    struct pn_jnode *n = NULL;
    struct pn_jstr *s = NULL;
    rc = pn__jparse_expect(p, PN_JT_NAME, NULL);
    if (rc == 0) rc = pn__jparse_node(p, PN_JN_ATTR, name, &n);
    if (rc == 0) rc = pn__jparse_str(p, attr->p, attr->n, &s);
    if (rc) return rc;
    n->a = *out;
    n->v = pn__j_str(s);
    *out = n;
    return 0;
}

int pn__jparse_target(struct pn_jparse *p, bool with_attr, struct pn_jnode **out) {
    const struct pn_jtok *at = p->tok;
    struct pn_jnode *tuple;
    int rc = parse_target_name(p, with_attr, out);
    if (rc || !pn__jtok_is(p->tok, PN_JT_OP, ",")) return rc;
    rc = pn__jparse_node(p, PN_JN_TUPLE, at, &tuple);
    if (rc == 0) rc = add_kid(p, tuple, *out);
    while (rc == 0 && pn__jparse_skip(p, PN_JT_OP, ",")) {
        if (p->tok->kind != PN_JT_NAME && !pn__jtok_is(p->tok, PN_JT_OP, "(")) break;
        if (pn__jtok_is(p->tok, PN_JT_NAME, "in")) break;
        rc = parse_target_name(p, with_attr, out);
        if (rc == 0) rc = add_kid(p, tuple, *out);
    }
    *out = tuple;
    return rc;
}

/* "(", arguments, ")". */
static int parse_args(struct pn_jparse *p, struct pn_jnode_args *a) {
    int rc = pn__jparse_expect(p, PN_JT_OP, "(");
    bool first = true;
    while (rc == 0 && !pn__jtok_is(p->tok, PN_JT_OP, ")")) {
        struct pn_jnode *value;
        if (!first) rc = pn__jparse_expect(p, PN_JT_OP, ",");
        if (rc || pn__jtok_is(p->tok, PN_JT_OP, ")")) break;
        first = false;
        const struct pn_jtok *at = p->tok;
        if (pn__jparse_skip(p, PN_JT_OP, "*") || pn__jparse_skip(p, PN_JT_OP, "**")) {
            rc = pn__jparse_expr(p, &value);
            struct pn_jnode **star = at->n == 1 ? &a->star : &a->star_star;
            if (rc == 0 && *star) rc = pn__jparse_fail(p, PN_E_FORMAT, at, "a second '*' argument");
            if (rc == 0) *star = value;
        } else if (at->kind == PN_JT_NAME && pn__jtok_is(at + 1, PN_JT_OP, "=")) {
            p->tok += 2;
            rc = pn__jparse_expr(p, &value);
            if (rc == 0) rc = pn__jparse_grow(p, &a->kw, a->kw_n, sizeof *a->kw);
            if (rc == 0) rc = pn__jparse_str(p, at->p, at->n, &a->kw[a->kw_n].name);
            if (rc == 0) a->kw[a->kw_n++].value = value;
        } else {
            rc = pn__jparse_expr(p, &value);
            if (rc == 0 && (a->kw_n || a->star || a->star_star))
                rc = pn__jparse_fail(p, PN_E_FORMAT, at,
                                     "a positional argument follows one with a name");
            if (rc == 0) rc = pn__jparse_grow(p, &a->pos, a->n, sizeof(struct pn_jnode *));
            if (rc == 0) a->pos[a->n++] = value;
        }
    }
    return rc ? rc : pn__jparse_expect(p, PN_JT_OP, ")");
}

static int new_args(struct pn_jparse *p, struct pn_jnode *n) {
    n->args = pn__jarena_take(&p->t->arena, 1, sizeof *n->args);
    return n->args ? 0 : pn__fail(p->d, PN_E_NOMEM, "template: no memory");
}

/* Methods that Python's texts and lists have and ours don't. What they are called on is only known
 * later, but a template that needs one is to be refused when it is loaded. */
static bool is_missing_method(const struct pn_jstr *name) {
    static const char *const names[] = {"encode",       "decode",    "casefold",   "expandtabs",
                                        "translate",    "maketrans", "format_map", "istitle",
                                        "isidentifier", "isascii",   "isprintable"};
    for (size_t i = 0; i < PN_ARRAY_N(names); i++) {
        if (pn__j_str_is(name, names[i], strlen(names[i]))) return true;
    }
    return false;
}

int pn__jparse_call(struct pn_jparse *p, struct pn_jnode **node) {
    struct pn_jnode *n;
    const struct pn_jnode *of = *node;
    if (of->kind == PN_JN_ATTR && is_missing_method(of->v.s))
        return pn__jparse_fail(p, PN_E_UNSUPPORTED, p->tok, "the method '%.*s' is not supported",
                               (int)of->v.s->n, of->v.s->p);
    int rc = pn__jparse_node(p, PN_JN_CALL, p->tok, &n);
    if (rc == 0) rc = new_args(p, n);
    if (rc == 0) rc = parse_args(p, n->args);
    if (rc) return rc;
    n->a = *node;
    n->at = (*node)->at;
    *node = n;
    return 0;
}

static int parse_const(struct pn_jparse *p, const struct pn_jtok *t, struct pn_jval v,
                       struct pn_jnode **out) {
    int rc = pn__jparse_node(p, PN_JN_CONST, t, out);
    if (rc == 0) (*out)->v = v;
    return rc;
}

/* Strings that follow one another are one. */
static int parse_string(struct pn_jparse *p, const struct pn_jtok *t, struct pn_jnode **out) {
    struct pn_jstr *s;
    size_t n = t->n;
    for (p->tok = t + 1; p->tok->kind == PN_JT_STRING; p->tok++)
        n += p->tok->n;
    const char *text = t->p;
    if (p->tok > t + 1) {
        char *joined = pn__jarena_take(&p->t->arena, n + 1, 1);
        if (!joined) return pn__fail(p->d, PN_E_NOMEM, "template: no memory");
        text = joined;
        for (; t < p->tok; t++) {
            memcpy(joined, t->p, t->n);
            joined += t->n;
        }
        t--;
    }
    int rc = pn__jparse_str(p, text, n, &s);
    return rc ? rc : parse_const(p, t, pn__j_str(s), out);
}

static int parse_name(struct pn_jparse *p, const struct pn_jtok *t, struct pn_jnode **out) {
    static const struct {
        const char *name;
        struct pn_jval v;
    } constants[] = {
        {"true", {.type = PN_JV_BOOL, .b = true}},
        {"True", {.type = PN_JV_BOOL, .b = true}},
        {"false", {.type = PN_JV_BOOL}},
        {"False", {.type = PN_JV_BOOL}},
        {"none", {.type = PN_JV_NONE}},
        {"None", {.type = PN_JV_NONE}},
    };
    for (size_t i = 0; i < PN_ARRAY_N(constants); i++) {
        if (pn__jtok_is(t, PN_JT_NAME, constants[i].name))
            return parse_const(p, t, constants[i].v, out);
    }
    int rc = pn__jparse_node(p, PN_JN_NAME, t, out);
    if (rc == 0) rc = pn__jparse_sym(p, t, &(*out)->sym);
    if (rc) return rc;
    p->loop_n += (*out)->sym == p->t->sym_loop;
    p->caller_n += (*out)->sym == p->t->sym_caller;
    p->varargs_n += (*out)->sym == p->t->sym_varargs;
    p->kwargs_n += (*out)->sym == p->t->sym_kwargs;
    return 0;
}

/* [a, b] and {a: b}, the opening bracket read. */
static int parse_display(struct pn_jparse *p, const struct pn_jtok *open, bool is_dict,
                         struct pn_jnode **out) {
    const char *end = is_dict ? "}" : "]";
    int rc = pn__jparse_node(p, is_dict ? PN_JN_DICT : PN_JN_LIST, open, out);
    struct pn_jnode *n = rc == 0 ? *out : NULL;
    while (rc == 0 && !pn__jtok_is(p->tok, PN_JT_OP, end)) {
        struct pn_jnode *kid;
        if (n->kid_n) rc = pn__jparse_expect(p, PN_JT_OP, ",");
        if (rc || pn__jtok_is(p->tok, PN_JT_OP, end)) break;
        rc = pn__jparse_expr(p, &kid);
        if (rc == 0) rc = add_kid(p, n, kid);
        if (rc || !is_dict) continue;
        rc = pn__jparse_expect(p, PN_JT_OP, ":");
        if (rc == 0) rc = pn__jparse_expr(p, &kid);
        if (rc == 0) rc = add_kid(p, n, kid);
    }
    return rc ? rc : pn__jparse_expect(p, PN_JT_OP, end);
}

static int parse_primary(struct pn_jparse *p, struct pn_jnode **out) {
    const struct pn_jtok *t = p->tok++;
    int rc = 0;
    switch (t->kind) {
    case PN_JT_NAME:
        return parse_name(p, t, out);
    case PN_JT_STRING:
        return parse_string(p, t, out);
    case PN_JT_INT:
        return parse_const(p, t, pn__j_int(t->i), out);
    case PN_JT_FLOAT:
        return parse_const(p, t, pn__j_float(t->f), out);
    case PN_JT_OP:
        if (pn__jtok_is(t, PN_JT_OP, "[")) return parse_display(p, t, false, out);
        if (pn__jtok_is(t, PN_JT_OP, "{")) return parse_display(p, t, true, out);
        if (!pn__jtok_is(t, PN_JT_OP, "(")) break;
        if (pn__jparse_skip(p, PN_JT_OP, ")")) return pn__jparse_node(p, PN_JN_TUPLE, t, out);
        rc = pn__jparse_tuple(p, true, out);
        return rc ? rc : pn__jparse_expect(p, PN_JT_OP, ")");
    default:
        break;
    }
    p->tok = t;
    if (t->kind == PN_JT_END)
        return pn__jparse_fail(p, PN_E_FORMAT, t, "the template ends where a value should be");
    return pn__jparse_fail(p, PN_E_FORMAT, t, "expected a value, got '%.*s'",
                           (int)(t->n < 40 ? t->n : 40), t->p);
}

/* What stands in [ ]: an index, or start:stop:step. */
static int parse_subscript(struct pn_jparse *p, struct pn_jnode **node) {
    struct pn_jnode *n;
    struct pn_jnode *part = NULL;
    int rc = pn__jparse_node(p, PN_JN_ITEM, (p->tok++), &n);
    if (rc) return rc;
    n->at = (*node)->at;
    n->a = *node;
    *node = n;
    if (!pn__jtok_is(p->tok, PN_JT_OP, ":")) {
        rc = pn__jparse_tuple(p, true, &part);
        if (rc) return rc;
        if (pn__jparse_skip(p, PN_JT_OP, "]")) {
            n->b = part;
            return 0;
        }
    }
    n->kind = PN_JN_SLICE;
    rc = add_kid(p, n, part);
    for (int i = 1; rc == 0 && i < 3; i++) {
        part = NULL;
        bool more = pn__jparse_skip(p, PN_JT_OP, ":");
        if (more && !pn__jtok_is(p->tok, PN_JT_OP, ":") && !pn__jtok_is(p->tok, PN_JT_OP, "]"))
            rc = pn__jparse_expr(p, &part);
        if (rc == 0) rc = add_kid(p, n, part);
    }
    return rc ? rc : pn__jparse_expect(p, PN_JT_OP, "]");
}

/* A number behind a dot is an item. */
static int parse_dot(struct pn_jparse *p, struct pn_jnode **node) {
    struct pn_jnode *n;
    struct pn_jstr *s;
    const struct pn_jtok *name = ++p->tok;
    bool is_index = name->kind == PN_JT_INT;
    if (!is_index && name->kind != PN_JT_NAME) return pn__jparse_expect(p, PN_JT_NAME, NULL);
    p->tok++;
    int rc = pn__jparse_node(p, is_index ? PN_JN_ITEM : PN_JN_ATTR, name, &n);
    if (rc) return rc;
    n->a = *node;
    *node = n;
    if (is_index) return parse_const(p, name, pn__j_int(name->i), &n->b);
    rc = pn__jparse_str(p, name->p, name->n, &s);
    if (rc == 0) n->v = pn__j_str(s);
    return rc;
}

static int parse_postfix(struct pn_jparse *p, struct pn_jnode **node) {
    int rc = 0;
    uint32_t depth = p->depth;
    while (rc == 0) {
        if (pn__jtok_is(p->tok, PN_JT_OP, "."))
            rc = parse_dot(p, node);
        else if (pn__jtok_is(p->tok, PN_JT_OP, "["))
            rc = parse_subscript(p, node);
        else if (pn__jtok_is(p->tok, PN_JT_OP, "("))
            rc = pn__jparse_call(p, node);
        else
            break;
        if (rc == 0) rc = pn__jparse_enter(p);
    }
    p->depth = depth;
    return rc;
}

static int parse_test(struct pn_jparse *p, struct pn_jnode **node) {
    struct pn_jnode *n;
    const struct pn_jtok *is = p->tok++;
    bool negate = pn__jparse_skip(p, PN_JT_NAME, "not");
    const struct pn_jtok *name = p->tok;
    int rc = pn__jparse_expect(p, PN_JT_NAME, NULL);
    if (rc == 0) rc = pn__jparse_node(p, PN_JN_TEST, is, &n);
    if (rc == 0) rc = new_args(p, n);
    if (rc) return rc;
    n->a = *node;
    n->test = pn__j_find_test(name->p, name->n);
    if (!n->test)
        return pn__jparse_fail(p, PN_E_UNSUPPORTED, name, "there is no test '%.*s'",
                               (int)(name->n < 40 ? name->n : 40), name->p);
    const struct pn_jtok *t = p->tok;
    bool is_word = t->kind == PN_JT_NAME && !pn__jtok_is(t, PN_JT_NAME, "else") &&
                   !pn__jtok_is(t, PN_JT_NAME, "or") && !pn__jtok_is(t, PN_JT_NAME, "and");
    if (is_word && pn__jtok_is(t, PN_JT_NAME, "is"))
        return pn__jparse_fail(p, PN_E_FORMAT, t, "tests can't be chained with 'is'");
    if (pn__jtok_is(t, PN_JT_OP, "(")) {
        rc = parse_args(p, n->args);
    } else if (is_word || t->kind == PN_JT_STRING || t->kind == PN_JT_INT ||
               t->kind == PN_JT_FLOAT || pn__jtok_is(t, PN_JT_OP, "[") ||
               pn__jtok_is(t, PN_JT_OP, "{")) {
        rc = pn__jparse_grow(p, &n->args->pos, 0, sizeof(struct pn_jnode *));
        if (rc == 0) rc = parse_primary(p, &n->args->pos[0]);
        if (rc == 0) rc = parse_postfix(p, &n->args->pos[0]);
        n->args->n = 1;
    }
    *node = n;
    if (rc || !negate) return rc;
    rc = pn__jparse_node(p, PN_JN_NOT, is, node);
    if (rc == 0) (*node)->a = n;
    return rc;
}

static int parse_filter(struct pn_jparse *p, struct pn_jnode **node) {
    struct pn_jnode *n;
    const struct pn_jtok *name = p->tok;
    bool known;
    int rc = pn__jparse_expect(p, PN_JT_NAME, NULL);
    if (rc == 0) rc = pn__jparse_node(p, PN_JN_FILTER, name, &n);
    if (rc == 0) rc = new_args(p, n);
    if (rc) return rc;
    n->filter = pn__j_find_filter(name->p, name->n, &known);
    if (!n->filter)
        return pn__jparse_fail(p, PN_E_UNSUPPORTED, name,
                               known ? "the filter '%.*s' is not supported"
                                     : "there is no filter '%.*s'",
                               (int)(name->n < 40 ? name->n : 40), name->p);
    if (pn__jtok_is(p->tok, PN_JT_OP, "(")) rc = parse_args(p, n->args);
    n->a = *node;
    *node = n;
    return rc;
}

int pn__jparse_filters(struct pn_jparse *p, bool first, struct pn_jnode **node) {
    uint32_t depth = p->depth;
    int rc = 0;
    while (rc == 0 && (first || pn__jparse_skip(p, PN_JT_OP, "|"))) {
        first = false;
        rc = parse_filter(p, node);
        if (rc == 0) rc = pn__jparse_enter(p);
    }
    p->depth = depth;
    return rc;
}

static int parse_unary(struct pn_jparse *p, bool with_filter, struct pn_jnode **out) {
    const struct pn_jtok *t = p->tok;
    bool negate = pn__jparse_skip(p, PN_JT_OP, "-");
    bool plus = !negate && pn__jparse_skip(p, PN_JT_OP, "+");
    uint32_t depth = p->depth;
    int rc;
    if (negate || plus) {
        struct pn_jnode *n;
        rc = pn__jparse_enter(p);
        if (rc == 0) rc = pn__jparse_node(p, negate ? PN_JN_NEG : PN_JN_POS, t, &n);
        if (rc == 0) rc = parse_unary(p, false, &n->a);
        if (rc) return rc;
        *out = n;
    } else {
        rc = parse_primary(p, out);
    }
    if (rc == 0) rc = parse_postfix(p, out);
    while (rc == 0 && with_filter) {
        if (pn__jparse_skip(p, PN_JT_OP, "|"))
            rc = parse_filter(p, out);
        else if (pn__jtok_is(p->tok, PN_JT_NAME, "is"))
            rc = parse_test(p, out);
        else if (pn__jtok_is(p->tok, PN_JT_OP, "("))
            rc = pn__jparse_call(p, out);
        else
            break;
        if (rc == 0) rc = pn__jparse_enter(p);
    }
    p->depth = depth;
    return rc;
}
