/* Inside the chat folder: the values that templates compute with, as Python has them, and the
 * arena that they live in. Strings are UTF-8 and immutable; each of their bytes knows whether the
 * template or the conversation wrote it. */
#ifndef PN_TEXT_CHAT_VALUE_H
#define PN_TEXT_CHAT_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct pn_jctx;
struct pn_jnode;

/* Memory that is only ever freed whole. Zero it, set bytes_max. */
struct pn_jarena {
    struct pn_jchunk *chunk; /* newest first */
    uint64_t bytes;
    uint64_t bytes_max;
    bool full; /* the last failure was the limit, not the system */
};
void *pn__jarena_take(struct pn_jarena *a, size_t n, size_t size); /* zeroed; NULL on failure */
void pn__jarena_free(struct pn_jarena *a);

/* Who wrote a byte. */
enum { PN_J_TEMPLATE = 0, PN_J_CONVERSATION = 1 };

/* A growing text. `by` is NULL as long as all bytes are `one`'s. */
struct pn_jbuf {
    char *p;
    uint8_t *by; /* [cap] */
    size_t n, cap;
    uint8_t one;
};

struct pn_jstr {
    const char *p;
    const uint8_t *by; /* [n], or NULL: all are `one`'s */
    size_t n;
    uint32_t hash; /* 0: not yet computed */
    uint8_t one;
    bool safe;           /* Markup: what is added to it is escaped first */
    struct pn_jbuf *buf; /* what it was put together in, so that adding to its end is cheap */
};

enum pn_jtype {
    PN_JV_MISSING, /* no value at all: an argument not given */
    PN_JV_UNDEFINED,
    PN_JV_NONE,
    PN_JV_BOOL,
    PN_JV_INT,
    PN_JV_FLOAT,
    PN_JV_STR,
    PN_JV_LIST,
    PN_JV_DICT,
    PN_JV_NAMESPACE,
    PN_JV_FUNCTION, /* a built-in, or a method bound to its value */
    PN_JV_MACRO,
    PN_JV_LOOP,
    PN_JV_CYCLER,
    PN_JV_JOINER,
};

struct pn_jval {
    uint8_t type;
    uint8_t by;    /* numbers, booleans, none: who wrote it */
    bool is_parts; /* a list that is a message's content */
    union {
        bool b;
        int64_t i;
        double f;
        struct pn_jstr *s;
        struct pn_jlist *l;
        struct pn_jdict *d; /* also of a namespace */
        struct pn_jundef *u;
        struct pn_jfn *fn;
        struct pn_jmacro *m;
        struct pn_jloop *loop;
        struct pn_jcycler *cycler;
        void *p;
    };
};

enum pn_jlist_kind {
    PN_JL_LIST,
    PN_JL_TUPLE,
    PN_JL_RANGE,
    PN_JL_VIEW, /* of a dict: keys, values, items */
    PN_JL_ONCE, /* what lazy filters give in Python: empty after it was walked */
};

struct pn_jlist {
    enum pn_jlist_kind kind;
    uint8_t by;
    struct pn_jval *v;
    size_t n, cap;
    bool is_group;    /* a tuple of groupby: its parts are also .grouper and .list */
    bool shared;      /* `v` is another list's: copied before an element is written */
    const char *name; /* of a view: dict_items ... */
    int64_t range[3]; /* start, stop, step */
};

struct pn_jpair {
    struct pn_jval k, v;
    uint32_t hash;
};

struct pn_jdict {
    struct pn_jpair *e; /* in order of insertion */
    size_t n, cap;
    uint32_t *slot; /* [slot_n], a power of two: index + 1, or 0; none for small ones */
    size_t slot_n;
    uint8_t by;
};

/* What an undefined value would have been. */
struct pn_jundef {
    const struct pn_jstr *name;
    const char *of;   /* type name of the value that doesn't have it; NULL: a variable */
    const char *hint; /* instead of both */
};

struct pn_jargs {
    struct pn_jval *pos;
    size_t n;
    struct pn_jkw {
        const struct pn_jstr *name;
        struct pn_jval v;
    } * kw;
    size_t kw_n;
};

typedef int pn_jfn_call(struct pn_jctx *c, const struct pn_jval *self, const struct pn_jargs *a,
                        struct pn_jval *out);
struct pn_jfn {
    const char *name;
    pn_jfn_call *call;
    struct pn_jval self;
};

struct pn_jcycler {
    struct pn_jval *v;
    size_t n, at;
    struct pn_jval sep; /* of a joiner */
};

/* ---- making values (value.c). Those that return NULL or non-zero have written the detail ---- */

void *pn__j_take(struct pn_jctx *c, size_t n, size_t size) PN_MUST_CHECK;

static inline struct pn_jval pn__j_none(void) {
    return (struct pn_jval){.type = PN_JV_NONE};
}
static inline struct pn_jval pn__j_bool(bool b) {
    return (struct pn_jval){.type = PN_JV_BOOL, .b = b};
}
static inline struct pn_jval pn__j_int(int64_t i) {
    return (struct pn_jval){.type = PN_JV_INT, .i = i};
}
static inline struct pn_jval pn__j_float(double f) {
    return (struct pn_jval){.type = PN_JV_FLOAT, .f = f};
}
static inline struct pn_jval pn__j_list(struct pn_jlist *l) {
    return (struct pn_jval){.type = PN_JV_LIST, .l = l};
}
static inline struct pn_jval pn__j_dict(struct pn_jdict *d) {
    return (struct pn_jval){.type = PN_JV_DICT, .d = d};
}
static inline struct pn_jval pn__j_str(struct pn_jstr *s) {
    return (struct pn_jval){.type = PN_JV_STR, .s = s};
}
static inline bool pn__j_is_str(const struct pn_jval *v) {
    return v->type == PN_JV_STR;
}
static inline bool pn__j_is_list(const struct pn_jval *v, enum pn_jlist_kind kind) {
    return v->type == PN_JV_LIST && v->l->kind == kind;
}
/* Python's int, of which bool is one. */
static inline bool pn__j_is_int(const struct pn_jval *v) {
    return v->type == PN_JV_INT || v->type == PN_JV_BOOL;
}
static inline bool pn__j_is_number(const struct pn_jval *v) {
    return pn__j_is_int(v) || v->type == PN_JV_FLOAT;
}
static inline int64_t pn__j_as_int(const struct pn_jval *v) {
    return v->type == PN_JV_BOOL ? v->b : v->i;
}
static inline double pn__j_as_float(const struct pn_jval *v) {
    return v->type == PN_JV_FLOAT ? v->f : (double)pn__j_as_int(v);
}
static inline bool pn__j_str_is(const struct pn_jstr *s, const char *text, size_t n) {
    return s->n == n && __builtin_memcmp(s->p, text, n) == 0;
}

/* A text of the template's (not copied), and a part of another text (shared). */
int pn__j_text(struct pn_jctx *c, const char *p, size_t n, struct pn_jval *out) PN_MUST_CHECK;
int pn__j_part(struct pn_jctx *c, const struct pn_jstr *s, size_t from, size_t to,
               struct pn_jval *out) PN_MUST_CHECK;
int pn__j_undefined(struct pn_jctx *c, const char *of, const struct pn_jstr *name, const char *hint,
                    struct pn_jval *out) PN_MUST_CHECK;

struct pn_jlist *pn__j_list_new(struct pn_jctx *c, enum pn_jlist_kind kind, size_t cap);
int pn__j_push(struct pn_jctx *c, struct pn_jlist *l, const struct pn_jval *v) PN_MUST_CHECK;

struct pn_jdict *pn__j_dict_new(struct pn_jctx *c);
/* 1: found, 0: not; negative: `k` can't be a key. */
int pn__j_dict_get(struct pn_jctx *c, const struct pn_jdict *d, const struct pn_jval *k,
                   struct pn_jval *out) PN_MUST_CHECK;
int pn__j_dict_set(struct pn_jctx *c, struct pn_jdict *d, const struct pn_jval *k,
                   const struct pn_jval *v) PN_MUST_CHECK;
int pn__j_dict_remove(struct pn_jctx *c, struct pn_jdict *d,
                      const struct pn_jval *k) PN_MUST_CHECK; /* 1: it was there */

/* A JSON value as the conversation's (or, `by`, the template's). */
int pn__j_from_json(struct pn_jctx *c, const json_t *j, uint8_t by,
                    struct pn_jval *out) PN_MUST_CHECK;

/* The elements that a for loop would see; walks a PN_JL_ONCE. The array stays as it is when the
 * list grows. */
int pn__j_items(struct pn_jctx *c, const struct pn_jval *v, struct pn_jval **items,
                size_t *n) PN_MUST_CHECK;
bool pn__j_can_iterate(const struct pn_jval *v);
int pn__j_length(struct pn_jctx *c, const struct pn_jval *v, size_t *n) PN_MUST_CHECK;

/* "str", "list", "NoneType" ...: Python's name of the type. */
const char *pn__j_type_name(const struct pn_jval *v);
bool pn__j_truth(const struct pn_jval *v);

/* ---- texts under construction (buf.c) -------------------------------------------------------- */

int pn__jbuf_put(struct pn_jctx *c, struct pn_jbuf *b, const char *p, size_t n, const uint8_t *by,
                 uint8_t one) PN_MUST_CHECK;
static inline int pn__jbuf_put_str(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jstr *s) {
    return pn__jbuf_put(c, b, s->p, s->n, s->by, s->one);
}
static inline int pn__jbuf_put_part(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jstr *s,
                                    size_t from, size_t to) {
    return pn__jbuf_put(c, b, s->p + from, to - from, s->by ? s->by + from : NULL, s->one);
}
/* With &, <, >, ' and " as HTML writes them. */
int pn__jbuf_put_escaped(struct pn_jctx *c, struct pn_jbuf *b,
                         const struct pn_jstr *s) PN_MUST_CHECK;
/* The buffer's text as a value. The buffer lives on and may be added to. */
int pn__jbuf_str(struct pn_jctx *c, struct pn_jbuf *b, struct pn_jval *out) PN_MUST_CHECK;
/* The buffer that `v` fills to its end, so that adding to it is cheap, or a new, empty one. */
struct pn_jbuf *pn__jbuf_after(struct pn_jctx *c, const struct pn_jval *v);
static inline uint8_t pn__j_by_at(const struct pn_jstr *s, size_t i) {
    return s->by ? s->by[i] : s->one;
}

/* str(v) and repr(v), appended (print.c). */
int pn__j_put(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jval *v) PN_MUST_CHECK;
int pn__j_put_repr(struct pn_jctx *c, struct pn_jbuf *b, const struct pn_jval *v) PN_MUST_CHECK;
/* str(v) as a value; a text stays what it is. */
int pn__j_to_str(struct pn_jctx *c, const struct pn_jval *v, struct pn_jval *out) PN_MUST_CHECK;
/* Shortest text that reads back as `f`, as Python spells it. Returns its length. */
#define PN_J_FLOAT_BYTES 40
int pn__j_float_text(double f, char out[PN_J_FLOAT_BYTES]);

/* ---- comparing (compare.c) ------------------------------------------------------------------- */

int pn__j_equal(struct pn_jctx *c, const struct pn_jval *a, const struct pn_jval *b,
                bool *out) PN_MUST_CHECK;
/* *out < 0, 0, > 0; an error when there is no order between them. `op` is for the message. NaN is
 * in no order with anything: *out is 2. */
int pn__j_compare(struct pn_jctx *c, const struct pn_jval *a, const struct pn_jval *b,
                  const char *op, int *out) PN_MUST_CHECK;
int pn__j_contains(struct pn_jctx *c, const struct pn_jval *in, const struct pn_jval *v,
                   bool *out) PN_MUST_CHECK;
uint32_t pn__j_hash_text(const char *p, size_t n); /* never 0 */
int pn__j_hash(struct pn_jctx *c, const struct pn_jval *v, uint32_t *out) PN_MUST_CHECK;

/* Place of `what` in s[from, to), or `to` when there is none. Linear in both for all inputs. */
size_t pn__j_find(const char *s, size_t from, size_t to, const char *what, size_t n);

#endif
