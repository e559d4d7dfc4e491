/* Tests: what stands behind `is`. */
#include <string.h>

#include "text/chat/eval.h"

#define TEST(name)                                                                            \
    static int t_##name(struct pn_jctx *c, const struct pn_jval *v, const struct pn_jargs *a, \
                        bool *out)

/* Tests that look at the value alone take no arguments. */
#define PLAIN(name, expression)                   \
    TEST(name) {                                  \
        struct pn_jval none[PN_J_PARAM_MAX];      \
        *out = (expression);                      \
        return pn__j_bind(c, #name, a, "", none); \
    }

PLAIN(defined, v->type != PN_JV_UNDEFINED)
PLAIN(undefined, v->type == PN_JV_UNDEFINED)
PLAIN(none, v->type == PN_JV_NONE)
PLAIN(boolean, v->type == PN_JV_BOOL)
PLAIN(is_true, v->type == PN_JV_BOOL && v->b)
PLAIN(is_false, v->type == PN_JV_BOOL && !v->b)
PLAIN(integer, v->type == PN_JV_INT)
PLAIN(float, v->type == PN_JV_FLOAT)
PLAIN(number, pn__j_is_number(v))
PLAIN(string, v->type == PN_JV_STR)
PLAIN(mapping, v->type == PN_JV_DICT)
PLAIN(iterable, pn__j_can_iterate(v))
PLAIN(sequence, v->type == PN_JV_STR || v->type == PN_JV_DICT || v->type == PN_JV_UNDEFINED ||
                    (v->type == PN_JV_LIST && v->l->kind <= PN_JL_RANGE))
PLAIN(callable, v->type == PN_JV_FUNCTION || v->type == PN_JV_MACRO || v->type == PN_JV_LOOP ||
                    v->type == PN_JV_UNDEFINED || v->type == PN_JV_JOINER)
PLAIN(escaped, v->type == PN_JV_STR && v->s->safe)

/* lower and upper: str(value).islower(). */
static int one_case(struct pn_jctx *c, const struct pn_jval *v, const struct pn_jargs *a,
                    const char *method, bool *out) {
    struct pn_jval text;
    struct pn_jval result = pn__j_bool(false);
    int rc = pn__j_to_str(c, v, &text);
    if (rc == 0)
        rc = pn__j_find_method(pn__j_str_methods_case, method, 7)->call(c, &text, a, &result);
    *out = rc == 0 && result.b;
    return rc;
}

TEST(lower) {
    return one_case(c, v, a, "islower", out);
}
TEST(upper) {
    return one_case(c, v, a, "isupper", out);
}

static int remainder_is(struct pn_jctx *c, const struct pn_jval *v, const struct pn_jval *by,
                        int64_t want, bool *out) {
    struct pn_jval r;
    struct pn_jval w = pn__j_int(want);
    int rc = pn__j_arith(c, PN_JO_MOD, v, by, &r);
    return rc ? rc : pn__j_equal(c, &r, &w, out);
}

TEST(odd) {
    struct pn_jval none[PN_J_PARAM_MAX];
    struct pn_jval two = pn__j_int(2);
    int rc = pn__j_bind(c, "odd", a, "", none);
    return rc ? rc : remainder_is(c, v, &two, 1, out);
}

TEST(even) {
    struct pn_jval none[PN_J_PARAM_MAX];
    struct pn_jval two = pn__j_int(2);
    int rc = pn__j_bind(c, "even", a, "", none);
    return rc ? rc : remainder_is(c, v, &two, 0, out);
}

TEST(divisibleby) {
    struct pn_jval by[PN_J_PARAM_MAX];
    int rc = pn__j_bind(c, "divisibleby", a, "num", by);
    return rc ? rc : remainder_is(c, v, &by[0], 0, out);
}

#define RELATION(name, op)                                         \
    TEST(name) {                                                   \
        struct pn_jval other[PN_J_PARAM_MAX];                      \
        int rc = pn__j_bind(c, #name, a, "other", other);          \
        return rc ? rc : pn__j_relation(c, op, v, &other[0], out); \
    }
RELATION(eq, PN_JO_EQ)
RELATION(ne, PN_JO_NE)
RELATION(lt, PN_JO_LT)
RELATION(le, PN_JO_LE)
RELATION(gt, PN_JO_GT)
RELATION(ge, PN_JO_GE)
RELATION(in, PN_JO_IN)

/* Python's `is`: the same object. */
TEST(sameas) {
    struct pn_jval other[PN_J_PARAM_MAX];
    int rc = pn__j_bind(c, "sameas", a, "other", other);
    if (rc) return rc;
    *out = v->type == other[0].type;
    if (!*out) return 0;
    if (v->type == PN_JV_NONE) return 0;
    if (pn__j_is_number(v)) return pn__j_equal(c, v, &other[0], out);
    *out = v->p == other[0].p;
    return 0;
}

TEST(filter) {
    struct pn_jval none[PN_J_PARAM_MAX];
    bool known;
    *out = v->type == PN_JV_STR && pn__j_find_filter(v->s->p, v->s->n, &known) != NULL;
    return pn__j_bind(c, "filter", a, "", none);
}

TEST(test) {
    struct pn_jval none[PN_J_PARAM_MAX];
    *out = v->type == PN_JV_STR && pn__j_find_test(v->s->p, v->s->n) != NULL;
    return pn__j_bind(c, "test", a, "", none);
}

static const struct pn_jtest tests[] = {
    {"defined", t_defined},
    {"undefined", t_undefined},
    {"none", t_none},
    {"boolean", t_boolean},
    {"true", t_is_true},
    {"false", t_is_false},
    {"integer", t_integer},
    {"float", t_float},
    {"number", t_number},
    {"string", t_string},
    {"mapping", t_mapping},
    {"iterable", t_iterable},
    {"sequence", t_sequence},
    {"callable", t_callable},
    {"escaped", t_escaped},
    {"lower", t_lower},
    {"upper", t_upper},
    {"odd", t_odd},
    {"even", t_even},
    {"divisibleby", t_divisibleby},
    {"sameas", t_sameas},
    {"filter", t_filter},
    {"test", t_test},
    {"in", t_in},
    {"==", t_eq},
    {"eq", t_eq},
    {"equalto", t_eq},
    {"!=", t_ne},
    {"ne", t_ne},
    {"<", t_lt},
    {"lt", t_lt},
    {"lessthan", t_lt},
    {"<=", t_le},
    {"le", t_le},
    {">", t_gt},
    {"gt", t_gt},
    {"greaterthan", t_gt},
    {">=", t_ge},
    {"ge", t_ge},
};

const struct pn_jtest *pn__j_find_test(const char *name, size_t n) {
    for (size_t i = 0; i < PN_ARRAY_N(tests); i++) {
        if (strlen(tests[i].name) == n && memcmp(tests[i].name, name, n) == 0) return &tests[i];
    }
    return NULL;
}
