/* Inside the chat folder: a rendering under way, and the functions that its parts call. */
#ifndef PN_TEXT_CHAT_EVAL_H
#define PN_TEXT_CHAT_EVAL_H

#include "text/chat/ast.h"

struct pn_jvar {
    uint32_t sym;
    struct pn_jval v;
};

struct pn_jscope {
    struct pn_jscope *up; /* NULL: the globals */
    struct pn_jvar *var;
    uint32_t n, cap;
};

struct pn_jloop {
    const struct pn_jnode *node;
    struct pn_jval *items;
    size_t n, i;
    uint32_t depth; /* of recursion, from 0 */
    struct pn_jval changed;
    struct pn_jscope *scope; /* around the loop */
};

struct pn_jmacro {
    const struct pn_jnode_macro *node;
    struct pn_jscope *scope; /* where it was defined */
};

struct pn_jctx {
    const struct pn_template *t;
    struct pn_detail *d;
    struct pn_jarena arena;
    const struct tm *now;
    const struct pn_jnode *node; /* where the rendering is */
    struct pn_jval *globals;     /* [t->sym_n] */
    struct pn_jscope *scope;
    struct pn_jbuf *out;
    uint64_t steps;
    uint32_t depth;
    int failed; /* what the last NULL of pn__j_take meant */
    bool refused;
    json_t *read;       /* an array of what fromjson read: values share its texts */
    bool printed_parts; /* it stopped because it would have printed a content's list of parts */
};

/* The detail with the place in front; returns PN_E_INVALID. */
#define pn__j_fail(c, ...) (pn__j_fail_set(c, __VA_ARGS__), pn__fail_code(PN_E_INVALID))
void pn__j_fail_set(struct pn_jctx *c, const char *fmt, ...) PN_PRINTF(2, 3);
/* What the last NULL of pn__j_take meant. */
static inline int pn__j_failed(const struct pn_jctx *c) {
    return c->failed == PN_E_NOMEM ? PN_E_NOMEM : PN_E_NOFIT;
}
/* "'x' is undefined" and its kin. */
#define pn__j_fail_undefined(c, v) (pn__j_undefined_set(c, v), pn__fail_code(PN_E_INVALID))
void pn__j_undefined_set(struct pn_jctx *c, const struct pn_jval *v);
int pn__j_step(struct pn_jctx *c, uint64_t n) PN_MUST_CHECK;
int pn__j_enter(struct pn_jctx *c) PN_MUST_CHECK; /* c->depth-- leaves again, also after failure */

int pn__j_eval(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *out) PN_MUST_CHECK;
/* 0, or how a loop's body ended early. */
enum { PN_J_BREAK = 1, PN_J_CONTINUE = 2 };
int pn__j_exec(struct pn_jctx *c, const struct pn_jnode *n) PN_MUST_CHECK;
int pn__j_set_var(struct pn_jctx *c, uint32_t sym, const struct pn_jval *v) PN_MUST_CHECK;
int pn__j_push_scope(struct pn_jctx *c, struct pn_jscope *up) PN_MUST_CHECK;

/* Calls (call.c). `out` may not be one of the arguments. */
int pn__j_eval_args(struct pn_jctx *c, const struct pn_jnode_args *n,
                    struct pn_jargs *out) PN_MUST_CHECK;
int pn__j_call(struct pn_jctx *c, const struct pn_jval *f, const struct pn_jargs *a,
               struct pn_jval *out) PN_MUST_CHECK;
int pn__j_run_for(struct pn_jctx *c, const struct pn_jnode *n, struct pn_jval *over,
                  uint32_t depth) PN_MUST_CHECK;

/* Inside the folder a limit is PN_E_NOFIT, so that nothing is tried again after one. To callers it
 * is a bad request as any other, not a lack of memory. */
static inline int pn__j_public_error(int rc) {
    return rc == PN_E_NOFIT ? PN_E_INVALID : rc;
}
/* pn__template_render; `is_chat`: known roles count as the template's, and a content's list of
 * parts is not printed but ends the rendering with *printed_parts. `out` is half-built on failure.
 */
int pn__j_render(const struct pn_template *t, const json_t *conversation, const json_t *model,
                 const struct tm *now, bool is_chat, bool *printed_parts, struct pn_chat_text *out,
                 struct pn_detail *d) PN_MUST_CHECK;

/* Arguments by name: "value default=" lists them, those with '=' may be left out (MISSING then). */
#define PN_J_PARAM_MAX 8
int pn__j_bind(struct pn_jctx *c, const char *who, const struct pn_jargs *a, const char *params,
               struct pn_jval out[PN_J_PARAM_MAX]) PN_MUST_CHECK;
/* The argument, or a default when it is missing (or none). `what` names it in the message. */
int pn__j_arg_int(struct pn_jctx *c, const struct pn_jval *v, const char *what, int64_t initial,
                  int64_t *out) PN_MUST_CHECK;
/* A text or NULL when missing or none. */
int pn__j_arg_str(struct pn_jctx *c, const struct pn_jval *v, const char *what,
                  const struct pn_jstr **out) PN_MUST_CHECK;

/* Operators (ops.c) and access (access.c). */
int pn__j_arith(struct pn_jctx *c, enum pn_jop op, const struct pn_jval *a, const struct pn_jval *b,
                struct pn_jval *out) PN_MUST_CHECK;
int pn__j_add_str(struct pn_jctx *c, struct pn_jstr *a, struct pn_jstr *b,
                  struct pn_jval *out) PN_MUST_CHECK;
int pn__j_relation(struct pn_jctx *c, enum pn_jop op, const struct pn_jval *a,
                   const struct pn_jval *b, bool *out) PN_MUST_CHECK;
/* printf as Python's % does it (format.c). */
int pn__j_format(struct pn_jctx *c, const struct pn_jstr *format, const struct pn_jval *args,
                 struct pn_jval *out) PN_MUST_CHECK;
/* str.format. */
int pn__j_format_braces(struct pn_jctx *c, const struct pn_jstr *s, const struct pn_jargs *args,
                        struct pn_jval *out) PN_MUST_CHECK;
int pn__j_attr(struct pn_jctx *c, const struct pn_jval *of, struct pn_jstr *name,
               struct pn_jval *out) PN_MUST_CHECK;
int pn__j_item(struct pn_jctx *c, const struct pn_jval *of, const struct pn_jval *key,
               struct pn_jval *out) PN_MUST_CHECK;
int pn__j_slice(struct pn_jctx *c, const struct pn_jval *of, const struct pn_jval at[3],
                struct pn_jval *out) PN_MUST_CHECK;
int pn__j_make_fn(struct pn_jctx *c, const char *name, pn_jfn_call *call,
                  const struct pn_jval *self, struct pn_jval *out) PN_MUST_CHECK;
/* The byte where character `i` begins, or the length. */
size_t pn__j_char_at(const struct pn_jstr *s, size_t i);
size_t pn__j_char_n(const struct pn_jstr *s);

/* ---- built-ins. Each table ends with a NULL name. ---- */

struct pn_jtest {
    const char *name;
    int (*call)(struct pn_jctx *c, const struct pn_jval *v, const struct pn_jargs *a, bool *out);
};
struct pn_jmethod { /* also a filter: `self` is what is filtered then */
    const char *name;
    pn_jfn_call *call;
};
extern const struct pn_jmethod pn__j_filters_text[];
extern const struct pn_jmethod pn__j_filters_list[];
extern const struct pn_jmethod pn__j_filters_pick[];
extern const struct pn_jmethod pn__j_filters_value[];
extern const struct pn_jmethod pn__j_str_methods[];
extern const struct pn_jmethod pn__j_str_methods_case[];
extern const struct pn_jmethod pn__j_list_methods[];
extern const struct pn_jmethod pn__j_dict_methods[];
extern const struct pn_jmethod pn__j_globals[];
extern const struct pn_jmethod pn__j_loop_methods[];
extern const struct pn_jmethod pn__j_cycler_methods[];

/* NULL when there is none of that name; *known then says whether jinja2 has it. */
const struct pn_jmethod *pn__j_find_filter(const char *name, size_t n, bool *known);
const struct pn_jtest *pn__j_find_test(const char *name, size_t n);
const struct pn_jmethod *pn__j_find_method(const struct pn_jmethod *table, const char *name,
                                           size_t n);

/* dict(...) and update(...): a mapping or pairs, then keywords, into `d`. */
int pn__j_dict_merge(struct pn_jctx *c, struct pn_jdict *d, const struct pn_jargs *a) PN_MUST_CHECK;
/* Shared by methods and filters: strip, replace, upper ... */
enum pn_jcase {
    PN_J_UPPER,
    PN_J_LOWER,
    PN_J_TITLE,
    PN_J_CAPITALIZE,
    PN_J_FIRST_UPPER, /* as CAPITALIZE, but for letters that have a form for titles */
    PN_J_SWAPCASE,
};
int pn__j_case(struct pn_jctx *c, const struct pn_jstr *s, enum pn_jcase how,
               struct pn_jval *out) PN_MUST_CHECK;
int pn__j_strip(struct pn_jctx *c, const struct pn_jstr *s, const struct pn_jstr *chars, bool left,
                bool right, struct pn_jval *out) PN_MUST_CHECK;
/* Length of the line end at s[at], 0 when there is none. */
size_t pn__j_line_end(const struct pn_jstr *s, size_t at);
/* At most `most` times; negative: all. */
int pn__j_replace(struct pn_jctx *c, const struct pn_jstr *s, const struct pn_jstr *old,
                  const struct pn_jstr *with, int64_t most, struct pn_jval *out) PN_MUST_CHECK;
/* json.dumps. `indent` NULL: on one line. */
struct pn_jdump {
    bool ascii, sort_keys;
    const struct pn_jstr *indent, *item, *colon;
};
int pn__j_put_json(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jval *v,
                   const struct pn_jdump *how, uint32_t level) PN_MUST_CHECK;
/* Sorts v[0, n) by key[0, n), stable. */
int pn__j_sort(struct pn_jctx *c, struct pn_jval *v, struct pn_jval *key, size_t n,
               bool reverse) PN_MUST_CHECK;
/* value.a.b for attribute "a.b", an index for an integer, the value itself when missing or none;
 * lowered when it is a text and `fold`. */
int pn__j_pick(struct pn_jctx *c, const struct pn_jval *v, const struct pn_jval *attribute,
               const struct pn_jval *initial, bool fold, struct pn_jval *out) PN_MUST_CHECK;

#endif
