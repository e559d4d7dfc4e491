/* Inside the chat folder: a template as its lexer and parser see it. */
#ifndef PN_TEXT_CHAT_AST_H
#define PN_TEXT_CHAT_AST_H

#include "base/err.h"
#include "text/chat/chat.h"
#include "text/chat/value.h"

struct pn_jplace {
    uint32_t line, column; /* from 1; columns count characters */
};

enum pn_jtok_kind {
    PN_JT_END,
    PN_JT_DATA,
    PN_JT_VAR_BEGIN,
    PN_JT_VAR_END,
    PN_JT_BLOCK_BEGIN,
    PN_JT_BLOCK_END,
    PN_JT_NAME,
    PN_JT_STRING,
    PN_JT_INT,
    PN_JT_FLOAT,
    PN_JT_OP, /* `p` is one of the lexer's operators */
};

struct pn_jtok {
    enum pn_jtok_kind kind;
    struct pn_jplace at;
    const char *p; /* the text; of a STRING with its escapes resolved */
    size_t n;
    int64_t i;
    double f;
};

/* All tokens of source[0, n), which must be valid UTF-8 and lives in the arena, the last one
 * PN_JT_END. */
struct pn_jlex {
    struct pn_jarena *arena;
    struct pn_detail *d;
    const char *s;
    size_t n, at;
    struct pn_jplace place; /* of `counted` */
    size_t counted;
    bool line_starts; /* the last token ended with a newline */
    struct pn_jtok *tok;
    size_t tok_n, tok_cap;
    uint32_t depth_max;
    char open[256]; /* brackets that wait for their ends */
    uint32_t open_n;
};
int pn__jlex_all(struct pn_jlex *x) PN_MUST_CHECK;
/* A token inside {{ }} or {% %} at x->at, not a blank and not the end; moves x->at behind it. */
int pn__jlex_inner(struct pn_jlex *x) PN_MUST_CHECK;
struct pn_jplace pn__jlex_place(struct pn_jlex *x, size_t at);
int pn__jlex_add(struct pn_jlex *x, enum pn_jtok_kind kind, size_t at, const char *p, size_t n);
/* Write the place, then the text, into the detail; macros for the reason that pn__fail is one. */
#define pn__jplace_fail(d, code, at, ...) (pn__jplace_set(d, at, __VA_ARGS__), pn__fail_code(code))
void pn__jplace_set(struct pn_detail *d, struct pn_jplace at, const char *fmt, ...) PN_PRINTF(3, 4);
/* White space as Python's str.strip and re's \s have it. */
bool pn__j_is_space(uint32_t cp);
/* Length of the white space at s[at, to), and of that which ends at `to`. */
size_t pn__j_space_len(const char *s, size_t at, size_t to);
size_t pn__j_rspace_len(const char *s, size_t from, size_t to);

enum pn_jkind {
    /* expressions */
    PN_JN_CONST,
    PN_JN_NAME,
    PN_JN_LIST,
    PN_JN_TUPLE,
    PN_JN_DICT,   /* kid: key, value, key, value ... */
    PN_JN_ATTR,   /* a.str */
    PN_JN_ITEM,   /* a[b] */
    PN_JN_SLICE,  /* a[kid[0]:kid[1]:kid[2]], each may be NULL */
    PN_JN_CALL,   /* a(args) */
    PN_JN_FILTER, /* a|filter(args); a NULL: the text of a block */
    PN_JN_TEST,   /* a is test(args) */
    PN_JN_NOT,
    PN_JN_NEG,
    PN_JN_POS,
    PN_JN_ARITH,   /* kid[0] op[0] kid[1] op[1] ..., from left to right */
    PN_JN_COMPARE, /* likewise, chained as Python chains them */
    PN_JN_CONCAT,
    PN_JN_AND,
    PN_JN_OR,
    PN_JN_COND, /* b if a else c; c may be NULL */
    /* statements */
    PN_JN_DATA,
    PN_JN_PRINT,
    PN_JN_BODY,
    PN_JN_IF,        /* kid: test, body, test, body ...; else c */
    PN_JN_FOR,       /* for target a in b if kid[0]: body c else d */
    PN_JN_SET,       /* a = b */
    PN_JN_SET_BLOCK, /* a = text of c through filter b (or NULL) */
    PN_JN_MACRO,
    PN_JN_CALL_BLOCK,   /* a is the CALL, macro the caller */
    PN_JN_FILTER_BLOCK, /* b of the text of c */
    PN_JN_WITH,         /* kid: target, value ...; body c */
    PN_JN_SCOPE,        /* c in a scope of its own */
    PN_JN_BREAK,
    PN_JN_CONTINUE,
};

/* Operators of ARITH and COMPARE. */
enum pn_jop {
    PN_JO_ADD,
    PN_JO_SUB,
    PN_JO_MUL,
    PN_JO_DIV,
    PN_JO_FLOORDIV,
    PN_JO_MOD,
    PN_JO_POW,
    PN_JO_EQ,
    PN_JO_NE,
    PN_JO_LT,
    PN_JO_LE,
    PN_JO_GT,
    PN_JO_GE,
    PN_JO_IN,
    PN_JO_NOT_IN,
};

struct pn_jnode_args {
    struct pn_jnode **pos;
    size_t n;
    struct pn_jnode_kw {
        struct pn_jstr *name;
        struct pn_jnode *value;
    } * kw;
    size_t kw_n;
    struct pn_jnode *star;      /* *x */
    struct pn_jnode *star_star; /* **x */
};

struct pn_jnode_macro {
    uint32_t sym; /* of its name */
    const struct pn_jstr *name;
    uint32_t *params; /* [param_n], their defaults at the end of it */
    size_t param_n;
    struct pn_jnode **defaults; /* [param_n], NULL where there is none */
    struct pn_jnode *body;
    bool uses_varargs, uses_kwargs, uses_caller;
};

struct pn_jnode {
    enum pn_jkind kind;
    struct pn_jplace at;
    uint32_t sym;      /* NAME, ATTR of an assignment's namespace */
    bool is_recursive; /* FOR */
    bool uses_loop;    /* FOR: its body says `loop` */
    struct pn_jnode *a, *b, *c, *d;
    struct pn_jnode **kid;
    uint8_t *op; /* [kid_n - 1], enum pn_jop */
    size_t kid_n;
    struct pn_jval v; /* CONST; DATA and ATTR: a string */
    struct pn_jnode_args *args;
    struct pn_jnode_macro *macro;
    const struct pn_jmethod *filter;
    const struct pn_jtest *test;
};

struct pn_jsym {
    struct pn_jstr *name;
};

struct pn_template {
    struct pn_jarena arena;
    struct pn_template_limits limits;
    struct pn_str source; /* in the arena, its line ends made "\n" */
    struct pn_jnode *body;
    struct pn_jsym *sym; /* [sym_n]: every name that it says */
    uint32_t sym_n;
    uint32_t sym_loop, sym_caller, sym_varargs, sym_kwargs;
};

struct pn_jparse {
    struct pn_template *t;
    struct pn_detail *d;
    const struct pn_jtok *tok; /* the next one */
    uint32_t depth;
    uint32_t loops; /* around this place, inside the macro */
    uint32_t sym_cap;
    uint32_t *slot; /* [slot_n]: names by hash, sym + 1 */
    uint32_t slot_n;
    uint32_t loop_n, varargs_n, kwargs_n, caller_n; /* names said so far */
};

#define pn__jparse_fail(p, code, tok_at, ...) \
    pn__jplace_fail((p)->d, code, (tok_at)->at, __VA_ARGS__)
int pn__jparse_body(struct pn_jparse *p, const char *const *ends, const char *opened,
                    const struct pn_jtok *from, struct pn_jnode **out) PN_MUST_CHECK;
int pn__jparse_node(struct pn_jparse *p, enum pn_jkind kind, const struct pn_jtok *at,
                    struct pn_jnode **out) PN_MUST_CHECK;
int pn__jparse_sym(struct pn_jparse *p, const struct pn_jtok *name, uint32_t *out) PN_MUST_CHECK;
int pn__jparse_str(struct pn_jparse *p, const char *s, size_t n, struct pn_jstr **out);
/* Doubles the array at *p when `n` elements fill it; `n` counts from 0 one by one. */
int pn__jparse_grow(struct pn_jparse *p, void *array, size_t n, size_t size) PN_MUST_CHECK;
bool pn__jtok_is(const struct pn_jtok *t, enum pn_jtok_kind kind, const char *text);
bool pn__jparse_skip(struct pn_jparse *p, enum pn_jtok_kind kind, const char *text);
int pn__jparse_expect(struct pn_jparse *p, enum pn_jtok_kind kind, const char *text) PN_MUST_CHECK;
int pn__jparse_enter(struct pn_jparse *p) PN_MUST_CHECK;

int pn__jparse_expr(struct pn_jparse *p, struct pn_jnode **out) PN_MUST_CHECK;
/* Without a conditional: what follows `in` of a for. */
int pn__jparse_or(struct pn_jparse *p, struct pn_jnode **out) PN_MUST_CHECK;
int pn__jparse_tuple(struct pn_jparse *p, bool with_cond, struct pn_jnode **out) PN_MUST_CHECK;
/* name(.name of a namespace)?, or a tuple of names. */
int pn__jparse_target(struct pn_jparse *p, bool with_attr, struct pn_jnode **out) PN_MUST_CHECK;
/* A chain of filters on a block's text; `first` when the first name has no '|' before it. */
int pn__jparse_filters(struct pn_jparse *p, bool first, struct pn_jnode **node) PN_MUST_CHECK;
int pn__jparse_call(struct pn_jparse *p, struct pn_jnode **node) PN_MUST_CHECK;

#endif
