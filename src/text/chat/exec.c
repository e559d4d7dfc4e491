/* Statements: they write to c->out and to the variables of the innermost scope. */
#include <string.h>

#include "text/chat/eval.h"

int pn__j_push_scope(struct pn_jctx *c, struct pn_jscope *up) {
    struct pn_jscope *s = pn__j_take(c, 1, sizeof *s);
    if (!s) return pn__j_failed(c);
    s->up = up;
    c->scope = s;
    return 0;
}

int pn__j_set_var(struct pn_jctx *c, uint32_t sym, const struct pn_jval *v) {
    struct pn_jscope *s = c->scope;
    if (!s) {
        c->globals[sym] = *v;
        return 0;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->var[i].sym != sym) continue;
        s->var[i].v = *v;
        return 0;
    }
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 4;
        struct pn_jvar *grown = pn__j_take(c, cap, sizeof *grown);
        if (!grown) return pn__j_failed(c);
        if (s->n) memcpy(grown, s->var, s->n * sizeof *grown);
        s->var = grown;
        s->cap = cap;
    }
    s->var[s->n++] = (struct pn_jvar){sym, *v};
    return pn__j_step(c, s->n / 8);
}

static int assign(struct pn_jctx *c, const struct pn_jnode *target, const struct pn_jval *v) {
    if (target->kind == PN_JN_NAME) return pn__j_set_var(c, target->sym, v);
    c->node = target;
    if (target->kind == PN_JN_ATTR) {
        struct pn_jval ns;
        struct pn_jval name = target->v;
        int rc = pn__j_eval(c, target->a, &ns);
        if (rc) return rc;
        c->node = target;
        if (ns.type != PN_JV_NAMESPACE)
            return pn__j_fail(c, "cannot assign attribute on non-namespace object");
        return pn__j_dict_set(c, ns.d, &name, v);
    }
    struct pn_jval *items;
    size_t n;
    int rc = pn__j_items(c, v, &items, &n);
    if (rc) return rc;
    if (n > target->kid_n)
        return pn__j_fail(c, "too many values to unpack (expected %zu)", target->kid_n);
    if (n < target->kid_n)
        return pn__j_fail(c, "not enough values to unpack (expected %zu, got %zu)", target->kid_n,
                          n);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = assign(c, target->kid[i], &items[i]);
    return rc;
}

/* The text that a body writes, in a scope of its own. */
static int capture(struct pn_jctx *c, const struct pn_jnode *body, struct pn_jval *out) {
    struct pn_jbuf *outer = c->out;
    struct pn_jscope *scope = c->scope;
    struct pn_jbuf *b = pn__j_take(c, 1, sizeof *b);
    if (!b) return pn__j_failed(c);
    int flow = pn__j_push_scope(c, scope);
    c->out = b;
    if (flow == 0) flow = pn__j_exec(c, body);
    c->out = outer;
    c->scope = scope;
    if (flow < 0) return flow;
    int rc = pn__jbuf_str(c, b, out);
    return rc ? rc : flow;
}

/* A block's filters, on the text that stands where the innermost has no operand. */
static int filter_text(struct pn_jctx *c, const struct pn_jnode *f, const struct pn_jval *text,
                       struct pn_jval *out) {
    struct pn_jval in = *text;
    struct pn_jargs args;
    int rc = pn__j_enter(c);
    if (rc == 0 && f->a) rc = filter_text(c, f->a, text, &in);
    if (rc == 0) rc = pn__j_eval_args(c, f->args, &args);
    c->node = f;
    if (rc == 0) rc = f->filter->call(c, &in, &args, out);
    c->depth--;
    return rc;
}

static int exec_text_block(struct pn_jctx *c, const struct pn_jnode *n) {
    struct pn_jval text;
    struct pn_jval filtered;
    int flow = capture(c, n->c, &text);
    if (flow < 0) return flow;
    filtered = text;
    int rc = n->b ? filter_text(c, n->b, &text, &filtered) : 0;
    if (rc == 0)
        rc = n->kind == PN_JN_SET_BLOCK ? assign(c, n->a, &filtered)
                                        : pn__j_put(c, c->out, &filtered);
    return rc ? rc : flow;
}

static int exec_if(struct pn_jctx *c, const struct pn_jnode *n) {
    for (size_t i = 0; i < n->kid_n; i += 2) {
        struct pn_jval test;
        int rc = pn__j_eval(c, n->kid[i], &test);
        if (rc) return rc;
        if (pn__j_truth(&test)) return pn__j_exec(c, n->kid[i + 1]);
    }
    return n->c ? pn__j_exec(c, n->c) : 0;
}

/* A scope for the element with the target set; *pass says whether the loop's own condition holds
 * for it. */
static int begin_item(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jscope *scope,
                      const struct pn_jval *item, bool *pass) {
    struct pn_jval test;
    *pass = true;
    int rc = pn__j_push_scope(c, scope);
    if (rc == 0) rc = pn__j_step(c, 1);
    c->node = n;
    if (rc == 0) rc = assign(c, n->a, item);
    if (rc || n->kid_n == 0) return rc;
    rc = pn__j_eval(c, n->kid[0], &test);
    *pass = rc == 0 && pn__j_truth(&test);
    return rc;
}

/* Drops the elements that the condition refuses: `loop` counts the others. */
static int filter_items(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jscope *scope,
                        struct pn_jval **items, size_t *n_items) {
    struct pn_jlist *kept = pn__j_list_new(c, PN_JL_LIST, 0);
    if (!kept) return pn__j_failed(c);
    for (size_t i = 0; i < *n_items; i++) {
        bool pass;
        int rc = begin_item(c, n, scope, &(*items)[i], &pass);
        if (rc == 0 && pass) rc = pn__j_push(c, kept, &(*items)[i]);
        if (rc) return rc;
    }
    *items = kept->v;
    *n_items = kept->n;
    return 0;
}

static int run_items(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jscope *scope,
                     struct pn_jloop *loop) {
    bool any = false;
    struct pn_jval self = {.type = PN_JV_LOOP, .loop = loop};
    for (loop->i = 0; loop->i < loop->n; loop->i++) {
        bool pass;
        int rc = begin_item(c, n, scope, &loop->items[loop->i], &pass);
        if (rc == 0 && n->uses_loop) {
            pass = true;
            rc = pn__j_set_var(c, c->t->sym_loop, &self);
        }
        if (rc) return rc;
        if (!pass) continue;
        any = true;
        int flow = pn__j_exec(c, n->c);
        if (flow < 0) return flow;
        if (flow == PN_J_BREAK) break;
    }
    c->scope = scope;
    if (any || !n->d) return 0;
    int rc = pn__j_push_scope(c, scope);
    return rc ? rc : pn__j_exec(c, n->d);
}

int pn__j_run_for(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *over,
                  uint32_t depth) {
    struct pn_jscope *scope = c->scope;
    struct pn_jloop *loop = pn__j_take(c, 1, sizeof *loop);
    if (!loop) return pn__j_failed(c);
    c->node = n->b;
    loop->node = n;
    loop->depth = depth;
    loop->scope = scope;
    int rc = pn__j_items(c, over, &loop->items, &loop->n);
    if (rc == 0 && n->uses_loop && n->kid_n) rc = filter_items(c, n, scope, &loop->items, &loop->n);
    if (rc == 0) rc = run_items(c, n, scope, loop);
    c->scope = scope;
    return rc;
}

static int exec_for(struct pn_jctx *c, const struct pn_jnode *n) {
    struct pn_jval over;
    int rc = pn__j_eval(c, n->b, &over);
    return rc ? rc : pn__j_run_for(c, n, &over, 0);
}

static int new_macro(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) {
    struct pn_jmacro *m = pn__j_take(c, 1, sizeof *m);
    if (!m) return pn__j_failed(c);
    m->node = n->macro;
    m->scope = c->scope;
    *out = (struct pn_jval){.type = PN_JV_MACRO, .m = m};
    return 0;
}

static int exec_call_block(struct pn_jctx *c, const struct pn_jnode *n) {
    struct pn_jval f;
    struct pn_jval result;
    struct pn_jargs args;
    int rc = pn__j_eval(c, n->a->a, &f);
    if (rc == 0) rc = pn__j_eval_args(c, n->a->args, &args);
    if (rc) return rc;
    struct pn_jkw *kw = pn__j_take(c, args.kw_n + 1, sizeof *kw);
    if (!kw) return pn__j_failed(c);
    if (args.kw_n) memcpy(kw, args.kw, args.kw_n * sizeof *kw);
    kw[args.kw_n].name = n->macro->name;
    rc = new_macro(c, n, &kw[args.kw_n].v);
    args.kw = kw;
    args.kw_n++;
    c->node = n;
    if (rc == 0) rc = pn__j_call(c, &f, &args, &result);
    return rc ? rc : pn__j_put(c, c->out, &result);
}

static int exec_with(struct pn_jctx *c, const struct pn_jnode *n) {
    struct pn_jscope *scope = c->scope;
    struct pn_jscope *inner;
    int rc = pn__j_push_scope(c, scope);
    inner = c->scope;
    for (size_t i = 0; rc == 0 && i < n->kid_n; i += 2) {
        struct pn_jval v;
        c->scope = scope; /* the values don't see one another */
        rc = pn__j_eval(c, n->kid[i + 1], &v);
        c->scope = inner;
        if (rc == 0) rc = assign(c, n->kid[i], &v);
    }
    if (rc == 0) rc = pn__j_exec(c, n->c);
    c->scope = scope;
    return rc;
}

static int exec_scope(struct pn_jctx *c, const struct pn_jnode *n) {
    struct pn_jscope *scope = c->scope;
    int rc = pn__j_push_scope(c, scope);
    if (rc == 0) rc = pn__j_exec(c, n->c);
    c->scope = scope;
    return rc;
}

static int exec_node(struct pn_jctx *c, const struct pn_jnode *n) {
    struct pn_jval v;
    int rc;
    switch (n->kind) {
    case PN_JN_DATA:
        return pn__jbuf_put_str(c, c->out, n->v.s);
    case PN_JN_PRINT:
        rc = pn__j_eval(c, n->a, &v);
        c->node = n->a;
        return rc ? rc : pn__j_put(c, c->out, &v);
    case PN_JN_BODY:
        for (size_t i = 0; i < n->kid_n; i++) {
            rc = pn__j_exec(c, n->kid[i]);
            if (rc) return rc;
        }
        return 0;
    case PN_JN_IF:
        return exec_if(c, n);
    case PN_JN_FOR:
        return exec_for(c, n);
    case PN_JN_SET:
        rc = pn__j_eval(c, n->b, &v);
        c->node = n;
        return rc ? rc : assign(c, n->a, &v);
    case PN_JN_SET_BLOCK:
    case PN_JN_FILTER_BLOCK:
        return exec_text_block(c, n);
    case PN_JN_MACRO:
        rc = new_macro(c, n, &v);
        return rc ? rc : pn__j_set_var(c, n->macro->sym, &v);
    case PN_JN_CALL_BLOCK:
        return exec_call_block(c, n);
    case PN_JN_WITH:
        return exec_with(c, n);
    case PN_JN_SCOPE:
        return exec_scope(c, n);
    case PN_JN_BREAK:
        return PN_J_BREAK;
    default: /* PN_JN_CONTINUE: the parser makes no other statements */
        return PN_J_CONTINUE;
    }
}

int pn__j_exec(struct pn_jctx *c, const struct pn_jnode *n) {
    c->node = n;
    int rc = pn__j_step(c, 1);
    if (rc) return rc;
    rc = pn__j_enter(c);
    if (rc == 0) rc = exec_node(c, n);
    c->depth--;
    return rc;
}
