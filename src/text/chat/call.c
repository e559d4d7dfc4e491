/* Calls: arguments, macros, and finding built-ins by name. */
#include <string.h>

#include "text/chat/eval.h"

int pn__j_eval_args(struct pn_jctx *c, const struct pn_jnode_args *n, struct pn_jargs *out) {
    struct pn_jval star;
    struct pn_jval *more = NULL;
    size_t more_n = 0;
    size_t star_kw_n = 0;
    memset(out, 0, sizeof *out);
    int rc = 0;
    if (n->star) rc = pn__j_eval(c, n->star, &star);
    if (rc == 0 && n->star) rc = pn__j_items(c, &star, &more, &more_n);
    if (rc == 0 && n->star_star) rc = pn__j_eval(c, n->star_star, &star);
    if (rc == 0 && n->star_star && star.type != PN_JV_DICT)
        rc = pn__j_fail(c, "argument after ** must be a mapping, not %s", pn__j_type_name(&star));
    if (rc) return rc;
    if (n->star_star) star_kw_n = star.d->n;
    if (n->n + more_n) out->pos = pn__j_take(c, n->n + more_n, sizeof *out->pos);
    if (n->kw_n + star_kw_n) out->kw = pn__j_take(c, n->kw_n + star_kw_n, sizeof *out->kw);
    if ((n->n + more_n && !out->pos) || (n->kw_n + star_kw_n && !out->kw)) return pn__j_failed(c);
    for (; out->n < n->n; out->n++) {
        rc = pn__j_eval(c, n->pos[out->n], &out->pos[out->n]);
        if (rc) return rc;
    }
    for (size_t i = 0; i < more_n; i++)
        out->pos[out->n++] = more[i];
    for (; out->kw_n < n->kw_n; out->kw_n++) {
        out->kw[out->kw_n].name = n->kw[out->kw_n].name;
        rc = pn__j_eval(c, n->kw[out->kw_n].value, &out->kw[out->kw_n].v);
        if (rc) return rc;
    }
    for (size_t i = 0; i < star_kw_n; i++) {
        if (star.d->e[i].k.type != PN_JV_STR) return pn__j_fail(c, "keywords must be strings");
        out->kw[out->kw_n++] = (struct pn_jkw){star.d->e[i].k.s, star.d->e[i].v};
    }
    return 0;
}

/* The parameter of `params` at place `i`, or -1 past the end; *optional when it ends with '='. */
static int param_at(const char *params, size_t i, const char **name, bool *optional) {
    for (;; i--) {
        params += strspn(params, " ");
        size_t n = strcspn(params, " ");
        if (n == 0) return -1;
        *optional = params[n - 1] == '=';
        *name = params;
        if (i == 0) return (int)(n - *optional);
        params += n;
    }
}

/* Place of the parameter that a keyword names; the number of parameters when there is none. */
static size_t param_of(const char *params, const struct pn_jstr *keyword) {
    const char *name;
    bool optional;
    for (size_t i = 0;; i++) {
        int n = param_at(params, i, &name, &optional);
        if (n < 0 || pn__j_str_is(keyword, name, (size_t)n)) return i;
    }
}

int pn__j_bind(struct pn_jctx *c, const char *who, const struct pn_jargs *a, const char *params,
               struct pn_jval out[PN_J_PARAM_MAX]) {
    const char *name = "";
    bool optional;
    size_t param_n = 0;
    while (param_at(params, param_n, &name, &optional) >= 0)
        param_n++;
    for (size_t i = 0; i < PN_J_PARAM_MAX; i++)
        out[i] = i < a->n && i < param_n ? a->pos[i] : (struct pn_jval){0};
    if (a->n > param_n)
        return pn__j_fail(c, "%s() takes at most %zu arguments (%zu given)", who, param_n, a->n);
    for (size_t k = 0; k < a->kw_n; k++) {
        const struct pn_jstr *given = a->kw[k].name;
        int shown = (int)(given->n < 40 ? given->n : 40);
        size_t i = param_of(params, given);
        if (i == param_n)
            return pn__j_fail(c, "%s() got an unexpected keyword argument '%.*s'", who, shown,
                              given->p);
        if (out[i].type != PN_JV_MISSING)
            return pn__j_fail(c, "%s() got multiple values for argument '%.*s'", who, shown,
                              given->p);
        out[i] = a->kw[k].v;
    }
    for (size_t i = 0; i < param_n; i++) {
        int n = param_at(params, i, &name, &optional);
        if (out[i].type == PN_JV_MISSING && !optional)
            return pn__j_fail(c, "%s() missing 1 required argument: '%.*s'", who, n, name);
    }
    return 0;
}

int pn__j_arg_int(struct pn_jctx *c, const struct pn_jval *v, const char *what, int64_t initial,
                  int64_t *out) {
    *out = initial;
    if (v->type == PN_JV_MISSING || v->type == PN_JV_NONE) return 0;
    if (v->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, v);
    if (!pn__j_is_int(v))
        return pn__j_fail(c, "%s: an integer is needed, not '%s'", what, pn__j_type_name(v));
    *out = pn__j_as_int(v);
    return 0;
}

int pn__j_arg_str(struct pn_jctx *c, const struct pn_jval *v, const char *what,
                  const struct pn_jstr **out) {
    *out = NULL;
    if (v->type == PN_JV_MISSING || v->type == PN_JV_NONE) return 0;
    if (v->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, v);
    if (v->type != PN_JV_STR)
        return pn__j_fail(c, "%s: a string is needed, not '%s'", what, pn__j_type_name(v));
    *out = v->s;
    return 0;
}

int pn__j_make_fn(struct pn_jctx *c, const char *name, pn_jfn_call *call,
                  const struct pn_jval *self, struct pn_jval *out) {
    struct pn_jfn *fn = pn__j_take(c, 1, sizeof *fn);
    if (!fn) return pn__j_failed(c);
    fn->name = name;
    fn->call = call;
    if (self) fn->self = *self;
    *out = (struct pn_jval){.type = PN_JV_FUNCTION, .fn = fn};
    return 0;
}

/* ---- macros ---- */

static int set_varargs(struct pn_jctx *c, const struct pn_jnode_macro *m,
                       const struct pn_jargs *a) {
    if (!m->uses_varargs) {
        if (a->n <= m->param_n) return 0;
        return pn__j_fail(c, "macro '%.*s' takes not more than %zu argument(s)", (int)m->name->n,
                          m->name->p, m->param_n);
    }
    struct pn_jlist *l = pn__j_list_new(c, PN_JL_TUPLE, 0);
    if (!l) return pn__j_failed(c);
    for (size_t i = m->param_n; i < a->n; i++) {
        int rc = pn__j_push(c, l, &a->pos[i]);
        if (rc) return rc;
    }
    struct pn_jval v = pn__j_list(l);
    return pn__j_set_var(c, c->t->sym_varargs, &v);
}

/* Keyword arguments: into `given` by parameter, the others into kwargs or an error. */
static int take_keywords(struct pn_jctx *c, const struct pn_jnode_macro *m,
                         const struct pn_jargs *a, struct pn_jval *given) {
    struct pn_jdict *rest = pn__j_dict_new(c);
    struct pn_jval caller = pn__j_none();
    if (!rest) return pn__j_failed(c);
    for (size_t k = 0; k < a->kw_n; k++) {
        const struct pn_jstr *name = a->kw[k].name;
        size_t i = 0;
        while (i < m->param_n && !pn__j_str_is(c->t->sym[m->params[i]].name, name->p, name->n))
            i++;
        if (i < m->param_n && given[i].type != PN_JV_MISSING)
            return pn__j_fail(c, "macro '%.*s' got multiple values for argument '%.*s'",
                              (int)m->name->n, m->name->p, (int)name->n, name->p);
        if (i < m->param_n) {
            given[i] = a->kw[k].v;
        } else if (m->uses_caller && pn__j_str_is(name, "caller", 6)) {
            caller = a->kw[k].v;
        } else if (m->uses_kwargs) {
            struct pn_jval key;
            int rc = pn__j_part(c, name, 0, name->n, &key);
            if (rc == 0) rc = pn__j_dict_set(c, rest, &key, &a->kw[k].v);
            if (rc) return rc;
        } else {
            return pn__j_fail(c, "macro '%.*s' takes no keyword argument '%.*s'", (int)m->name->n,
                              m->name->p, (int)name->n, name->p);
        }
    }
    struct pn_jval v = pn__j_dict(rest);
    int rc = m->uses_kwargs ? pn__j_set_var(c, c->t->sym_kwargs, &v) : 0;
    if (rc || !m->uses_caller) return rc;
    if (caller.type == PN_JV_NONE)
        rc = pn__j_undefined(c, NULL, NULL, "No caller defined", &caller);
    return rc ? rc : pn__j_set_var(c, c->t->sym_caller, &caller);
}

static int bind_params(struct pn_jctx *c, const struct pn_jnode_macro *m,
                       const struct pn_jargs *a) {
    struct pn_jval *given = pn__j_take(c, m->param_n + 1, sizeof *given);
    if (!given) return pn__j_failed(c);
    for (size_t i = 0; i < m->param_n && i < a->n; i++)
        given[i] = a->pos[i];
    int rc = set_varargs(c, m, a);
    if (rc == 0) rc = take_keywords(c, m, a, given);
    for (size_t i = 0; rc == 0 && i < m->param_n; i++) {
        if (given[i].type == PN_JV_MISSING && m->defaults[i])
            rc = pn__j_eval(c, m->defaults[i], &given[i]);
        else if (given[i].type == PN_JV_MISSING)
            rc = pn__j_undefined(c, NULL, c->t->sym[m->params[i]].name, NULL, &given[i]);
        if (rc == 0) rc = pn__j_set_var(c, m->params[i], &given[i]);
    }
    return rc;
}

static int call_macro(struct pn_jctx *c, const struct pn_jmacro *m, const struct pn_jargs *a,
                      struct pn_jval *out) {
    struct pn_jbuf *outer = c->out;
    struct pn_jscope *scope = c->scope;
    struct pn_jbuf *b = pn__j_take(c, 1, sizeof *b);
    if (!b) return pn__j_failed(c);
    int rc = pn__j_push_scope(c, m->scope);
    if (rc == 0) rc = bind_params(c, m->node, a);
    c->out = b;
    if (rc == 0) rc = pn__j_exec(c, m->node->body);
    c->out = outer;
    c->scope = scope;
    return rc ? rc : pn__jbuf_str(c, b, out);
}

/* loop(items): the same loop over other items, one level down; gives what it writes. */
static int call_loop(struct pn_jctx *c, const struct pn_jloop *loop, const struct pn_jargs *a,
                     struct pn_jval *out) {
    struct pn_jval v[PN_J_PARAM_MAX];
    struct pn_jbuf *outer = c->out;
    struct pn_jscope *scope = c->scope;
    if (!loop->node->is_recursive)
        return pn__j_fail(c, "this loop is not recursive: it can't be called");
    int rc = pn__j_bind(c, "loop", a, "iterable", v);
    if (rc) return rc;
    struct pn_jbuf *b = pn__j_take(c, 1, sizeof *b);
    if (!b) return pn__j_failed(c);
    c->out = b;
    c->scope = loop->scope;
    rc = pn__j_run_for(c, loop->node, &v[0], loop->depth + 1);
    c->out = outer;
    c->scope = scope;
    return rc ? rc : pn__jbuf_str(c, b, out);
}

static int call_cycler(struct pn_jctx *c, struct pn_jcycler *cy, bool joins,
                       const struct pn_jargs *a, struct pn_jval *out) {
    struct pn_jval v[PN_J_PARAM_MAX];
    int rc = pn__j_bind(c, joins ? "joiner" : "cycler", a, "", v);
    if (rc) return rc;
    if (!joins) return pn__j_fail(c, "'Cycler' object is not callable");
    if (cy->at++ == 0) return pn__j_text(c, "", 0, out);
    *out = cy->sep;
    return 0;
}

int pn__j_call(struct pn_jctx *c, const struct pn_jval *f, const struct pn_jargs *a,
               struct pn_jval *out) {
    switch (f->type) {
    case PN_JV_FUNCTION:
        return f->fn->call(c, &f->fn->self, a, out);
    case PN_JV_MACRO:
        return call_macro(c, f->m, a, out);
    case PN_JV_LOOP:
        return call_loop(c, f->loop, a, out);
    case PN_JV_CYCLER:
    case PN_JV_JOINER:
        return call_cycler(c, f->cycler, f->type == PN_JV_JOINER, a, out);
    case PN_JV_UNDEFINED:
        return pn__j_fail_undefined(c, f);
    default:
        return pn__j_fail(c, "'%s' object is not callable", pn__j_type_name(f));
    }
}

/* ---- tables ---- */

const struct pn_jmethod *pn__j_find_method(const struct pn_jmethod *table, const char *name,
                                           size_t n) {
    for (; table->name; table++) {
        if (strlen(table->name) == n && memcmp(table->name, name, n) == 0) return table;
    }
    return NULL;
}

const struct pn_jmethod *pn__j_find_filter(const char *name, size_t n, bool *known) {
    static const char *const others[] = {"pprint",  "random",         "striptags", "urlize",
                                         "xmlattr", "filesizeformat", "wordwrap"};
    static const struct pn_jmethod *const tables[] = {pn__j_filters_text, pn__j_filters_list,
                                                      pn__j_filters_pick, pn__j_filters_value};
    *known = true;
    for (size_t i = 0; i < PN_ARRAY_N(tables); i++) {
        const struct pn_jmethod *f = pn__j_find_method(tables[i], name, n);
        if (f) return f;
    }
    for (size_t i = 0; i < PN_ARRAY_N(others); i++) {
        if (strlen(others[i]) == n && memcmp(others[i], name, n) == 0) return NULL;
    }
    *known = false;
    return NULL;
}
