/* Expressions. The recursion follows the template's own nesting (and its macros'), which is
 * counted; chains of operators are loops. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/chat/eval.h"

void pn__j_fail_set(struct pn_jctx *c, const char *fmt, ...) {
    char text[PN_DETAIL_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (c->node)
        pn__jplace_set(c->d, c->node->at, "%s", text);
    else
        pn__fail_set(c->d, "template: %s", text);
}

void pn__j_undefined_set(struct pn_jctx *c, const struct pn_jval *v) {
    const struct pn_jundef *u = v->u;
    const char *name = u->name ? u->name->p : "";
    int n = u->name ? (int)(u->name->n < 80 ? u->name->n : 80) : 0;
    if (u->hint)
        pn__j_fail_set(c, "%s", u->hint);
    else if (!u->of)
        pn__j_fail_set(c, "'%.*s' is undefined", n, name);
    else
        pn__j_fail_set(c, "'%s%s' has no attribute '%.*s'", u->of,
                       strcmp(u->of, "None") == 0 ? "" : " object", n, name);
}

int pn__j_step(struct pn_jctx *c, uint64_t n) {
    c->steps += n;
    if (c->steps <= c->t->limits.steps_max) return 0;
    c->failed = PN_E_NOFIT;
    struct pn_jplace at = c->node ? c->node->at : (struct pn_jplace){1, 1};
    return pn__jplace_fail(c->d, PN_E_NOFIT, at, "the rendering takes more than %llu steps",
                           (unsigned long long)c->t->limits.steps_max);
}

int pn__j_enter(struct pn_jctx *c) {
    if (c->depth++ < c->t->limits.depth_max) return 0;
    struct pn_jplace at = c->node ? c->node->at : (struct pn_jplace){1, 1};
    return pn__jplace_fail(c->d, PN_E_NOFIT, at, "nested deeper than the limit of %u",
                           c->t->limits.depth_max);
}

static int eval_name(struct pn_jctx *c, uint32_t sym, struct pn_jval *out) {
    uint32_t seen = 0;
    for (const struct pn_jscope *s = c->scope; s; s = s->up) {
        for (uint32_t i = s->n; i-- > 0;) {
            if (s->var[i].sym != sym) continue;
            *out = s->var[i].v;
            return 0;
        }
        seen += s->n + 1;
    }
    if (c->globals[sym].type == PN_JV_MISSING)
        return pn__j_undefined(c, NULL, c->t->sym[sym].name, NULL, out);
    *out = c->globals[sym];
    return pn__j_step(c, seen / 8);
}

static int eval_list(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    struct pn_jlist *l =
        pn__j_list_new(c, n->kind == PN_JN_LIST ? PN_JL_LIST : PN_JL_TUPLE, n->kid_n);
    if (!l) return pn__j_failed(c);
    for (size_t i = 0; i < n->kid_n; i++) {
        int rc = pn__j_eval(c, n->kid[i], &l->v[i]);
        if (rc) return rc;
        l->n = i + 1;
    }
    *out = pn__j_list(l);
    return 0;
}

static int eval_dict(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    struct pn_jdict *d = pn__j_dict_new(c);
    if (!d) return pn__j_failed(c);
    for (size_t i = 0; i < n->kid_n; i += 2) {
        struct pn_jval k;
        struct pn_jval v;
        int rc = pn__j_eval(c, n->kid[i], &k);
        if (rc == 0) rc = pn__j_eval(c, n->kid[i + 1], &v);
        c->node = n;
        if (rc == 0) rc = pn__j_dict_set(c, d, &k, &v);
        if (rc) return rc;
    }
    *out = pn__j_dict(d);
    return 0;
}

static int eval_slice(struct pn_jctx *c, const struct pn_jnode *n, const struct pn_jval *of,
                      struct pn_jval *out) {
    struct pn_jval at[3];
    for (int i = 0; i < 3; i++) {
        at[i] = pn__j_none();
        int rc = n->kid[i] ? pn__j_eval(c, n->kid[i], &at[i]) : 0;
        if (rc) return rc;
    }
    c->node = n;
    return pn__j_slice(c, of, at, out);
}

static int eval_arith(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    struct pn_jval left;
    int rc = pn__j_eval(c, n->kid[0], &left);
    for (size_t i = 1; rc == 0 && i < n->kid_n; i++) {
        struct pn_jval right;
        struct pn_jval result;
        rc = pn__j_eval(c, n->kid[i], &right);
        c->node = n;
        if (rc == 0) rc = pn__j_arith(c, (enum pn_jop)n->op[i - 1], &left, &right, &result);
        if (rc == 0) left = result;
    }
    *out = left;
    return rc;
}

static int eval_compare(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    struct pn_jval left;
    bool holds = true;
    int rc = pn__j_eval(c, n->kid[0], &left);
    for (size_t i = 1; rc == 0 && holds && i < n->kid_n; i++) {
        struct pn_jval right;
        rc = pn__j_eval(c, n->kid[i], &right);
        c->node = n;
        if (rc == 0) rc = pn__j_relation(c, (enum pn_jop)n->op[i - 1], &left, &right, &holds);
        left = right;
    }
    *out = pn__j_bool(holds);
    return rc;
}

static int eval_concat(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    /* All operands first: one of them may add to the buffer that another one lies in. */
    struct pn_jval *v = pn__j_take(c, n->kid_n, sizeof *v);
    if (!v) return pn__j_failed(c);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n->kid_n; i++)
        rc = pn__j_eval(c, n->kid[i], &v[i]);
    c->node = n;
    struct pn_jbuf *b = rc == 0 ? pn__jbuf_after(c, &v[0]) : NULL;
    if (!b) return rc ? rc : pn__j_failed(c);
    for (size_t i = b->n ? 1 : 0; rc == 0 && i < n->kid_n; i++)
        rc = pn__j_put(c, b, &v[i]);
    return rc ? rc : pn__jbuf_str(c, b, out);
}

static int eval_logic(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    for (size_t i = 0; i < n->kid_n; i++) {
        int rc = pn__j_eval(c, n->kid[i], out);
        if (rc) return rc;
        if (pn__j_truth(out) == (n->kind == PN_JN_OR)) return 0;
    }
    return 0;
}

static int eval_cond(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    struct pn_jval test;
    int rc = pn__j_eval(c, n->a, &test);
    if (rc) return rc;
    if (pn__j_truth(&test)) return pn__j_eval(c, n->b, out);
    if (n->c) return pn__j_eval(c, n->c, out);
    return pn__j_undefined(c, NULL, NULL, "the inline if-expression was false and has no else",
                           out);
}

static int eval_call(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    struct pn_jval f;
    struct pn_jargs args;
    int rc = pn__j_eval(c, n->a, &f);
    if (rc == 0) rc = pn__j_eval_args(c, n->args, &args);
    c->node = n;
    return rc ? rc : pn__j_call(c, &f, &args, out);
}

static int eval_filter(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    struct pn_jval in;
    struct pn_jargs args;
    int rc = pn__j_eval(c, n->a, &in);
    if (rc == 0) rc = pn__j_eval_args(c, n->args, &args);
    c->node = n;
    return rc ? rc : n->filter->call(c, &in, &args, out);
}

static int eval_test(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    struct pn_jval v;
    struct pn_jargs args;
    bool holds = false;
    int rc = pn__j_eval(c, n->a, &v);
    if (rc == 0) rc = pn__j_eval_args(c, n->args, &args);
    c->node = n;
    if (rc == 0) rc = n->test->call(c, &v, &args, &holds);
    *out = pn__j_bool(holds);
    return rc;
}

static int eval_sign(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    struct pn_jval v;
    struct pn_jval zero = pn__j_int(0);
    int rc = pn__j_eval(c, n->a, &v);
    if (rc) return rc;
    c->node = n;
    if (v.type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, &v);
    if (!pn__j_is_number(&v))
        return pn__j_fail(c, "bad operand type for unary %c: '%s'",
                          n->kind == PN_JN_NEG ? '-' : '+', pn__j_type_name(&v));
    if (v.type == PN_JV_FLOAT) {
        *out = pn__j_float(n->kind == PN_JN_NEG ? -v.f : v.f);
        return 0;
    }
    return pn__j_arith(c, n->kind == PN_JN_NEG ? PN_JO_SUB : PN_JO_ADD, &zero, &v, out);
}

/* a.b and a[b]. */
static int eval_access(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    struct pn_jval of;
    struct pn_jval key;
    int rc = pn__j_eval(c, n->a, &of);
    if (rc) return rc;
    c->node = n;
    if (n->kind == PN_JN_ATTR) return pn__j_attr(c, &of, n->v.s, out);
    if (n->kind == PN_JN_SLICE) return eval_slice(c, n, &of, out);
    rc = pn__j_eval(c, n->b, &key);
    c->node = n;
    return rc ? rc : pn__j_item(c, &of, &key, out);
}

static int eval_node(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    int rc;
    switch (n->kind) {
    case PN_JN_NAME:
        return eval_name(c, n->sym, out);
    case PN_JN_LIST:
    case PN_JN_TUPLE:
        return eval_list(c, n, out);
    case PN_JN_DICT:
        return eval_dict(c, n, out);
    case PN_JN_ATTR:
    case PN_JN_ITEM:
    case PN_JN_SLICE:
        return eval_access(c, n, out);
    case PN_JN_CALL:
        return eval_call(c, n, out);
    case PN_JN_FILTER:
        return eval_filter(c, n, out);
    case PN_JN_TEST:
        return eval_test(c, n, out);
    case PN_JN_NOT:
        rc = pn__j_eval(c, n->a, out);
        if (rc == 0) *out = pn__j_bool(!pn__j_truth(out));
        return rc;
    case PN_JN_NEG:
    case PN_JN_POS:
        return eval_sign(c, n, out);
    case PN_JN_ARITH:
        return eval_arith(c, n, out);
    case PN_JN_COMPARE:
        return eval_compare(c, n, out);
    case PN_JN_CONCAT:
        return eval_concat(c, n, out);
    case PN_JN_AND:
    case PN_JN_OR:
        return eval_logic(c, n, out);
    default: /* PN_JN_COND: the parser makes no other expressions */
        return eval_cond(c, n, out);
    }
}

int pn__j_eval(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    if (n->kind == PN_JN_CONST) {
        *out = n->v;
        return 0;
    }
    c->node = n;
    int rc = pn__j_step(c, 1);
    if (rc) return rc;
    rc = pn__j_enter(c);
    if (rc == 0) rc = eval_node(c, n, out);
    c->depth--;
    return rc;
}
