/* Operators. */
#include <math.h>
#include <string.h>

#include "text/chat/eval.h"

static const char *const names[] = {
    "+", "-", "*", "/", "//", "%", "** or pow()", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

int pn__j_add_str(struct pn_jctx *c, struct pn_jstr *a, struct pn_jstr *b, struct pn_jval *out) {
    struct pn_jval left = pn__j_str(a);
    struct pn_jbuf *buf = pn__jbuf_after(c, &left);
    if (!buf) return pn__j_failed(c);
    bool safe = a->safe || b->safe;
    int rc = 0;
    if (buf->n == 0)
        rc = safe && !a->safe ? pn__jbuf_put_escaped(c, buf, a) : pn__jbuf_put_str(c, buf, a);
    if (rc == 0)
        rc = safe && !b->safe ? pn__jbuf_put_escaped(c, buf, b) : pn__jbuf_put_str(c, buf, b);
    if (rc == 0) rc = pn__jbuf_str(c, buf, out);
    if (rc == 0) out->s->safe = safe;
    return rc;
}

static int overflow(struct pn_jctx *c, enum pn_jop op) {
    return pn__j_fail(c, "'%s' gives an integer of more than 64 bits", names[op]);
}

static int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static int int_pow(struct pn_jctx *c, int64_t a, int64_t b, struct pn_jval *out) {
    int64_t r = 1;
    if (b < 0 && a == 0) return pn__j_fail(c, "0.0 cannot be raised to a negative power");
    if (b < 0) {
        *out = pn__j_float(pow((double)a, (double)b));
        return 0;
    }
    if (a == 0 || a == 1 || a == -1) {
        *out = pn__j_int(b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a);
        return 0;
    }
    for (; b > 0; b--) { /* at most 63 times before it overflows */
        if (__builtin_mul_overflow(r, a, &r)) return overflow(c, PN_JO_POW);
    }
    *out = pn__j_int(r);
    return 0;
}

static int int_arith(struct pn_jctx *c, enum pn_jop op, int64_t a, int64_t b, struct pn_jval *out) {
    int64_t r = 0;
    bool wrapped = false;
    if (b == 0 && (op == PN_JO_DIV || op == PN_JO_FLOORDIV || op == PN_JO_MOD))
        return pn__j_fail(c, op == PN_JO_DIV ? "division by zero"
                                             : "integer division or modulo by zero");
    switch (op) {
    case PN_JO_ADD:
        wrapped = __builtin_add_overflow(a, b, &r);
        break;
    case PN_JO_SUB:
        wrapped = __builtin_sub_overflow(a, b, &r);
        break;
    case PN_JO_MUL:
        wrapped = __builtin_mul_overflow(a, b, &r);
        break;
    case PN_JO_DIV:
        *out = pn__j_float((double)a / (double)b);
        return 0;
    case PN_JO_FLOORDIV:
        wrapped = b == -1 && a == INT64_MIN;
        if (!wrapped) r = floor_div(a, b);
        break;
    case PN_JO_MOD:
        if (b != -1) r = a - floor_div(a, b) * b;
        break;
    default:
        return int_pow(c, a, b, out);
    }
    *out = pn__j_int(r);
    return wrapped ? overflow(c, op) : 0;
}

static int float_arith(struct pn_jctx *c, enum pn_jop op, double a, double b, struct pn_jval *out) {
    double r;
    if (b == 0 && (op == PN_JO_DIV || op == PN_JO_FLOORDIV || op == PN_JO_MOD))
        return pn__j_fail(c, op == PN_JO_DIV ? "float division by zero"
                                             : "float floor division by zero");
    switch (op) {
    case PN_JO_ADD:
        r = a + b;
        break;
    case PN_JO_SUB:
        r = a - b;
        break;
    case PN_JO_MUL:
        r = a * b;
        break;
    case PN_JO_DIV:
        r = a / b;
        break;
    case PN_JO_POW:
        r = pow(a, b);
        break;
    default: {
        double mod = fmod(a, b);
        if (mod != 0 && (b < 0) != (mod < 0)) mod += b;
        r = op == PN_JO_MOD ? mod : floor((a - mod) / b + 0.5);
        break;
    }
    }
    *out = pn__j_float(r);
    return 0;
}

/* Text or list times n. */
static int repeat(struct pn_jctx *c, const struct pn_jval *v, int64_t times, struct pn_jval *out) {
    if (times < 0) times = 0;
    if (v->type == PN_JV_STR) {
        struct pn_jbuf *b = pn__j_take(c, 1, sizeof *b);
        if (!b) return pn__j_failed(c);
        int rc = 0;
        /* What can't fit is not tried. */
        if (v->s->n && (uint64_t)times > c->t->limits.output_bytes_max / v->s->n) {
            pn__j_fail_set(c, "a text of %zu bytes, %lld times, is beyond the limit of %llu bytes",
                           v->s->n, (long long)times,
                           (unsigned long long)c->t->limits.output_bytes_max);
            return pn__fail_code(PN_E_NOFIT);
        }
        for (int64_t i = 0; rc == 0 && v->s->n && i < times; i++) {
            rc = pn__jbuf_put_str(c, b, v->s);
            if (rc == 0) rc = pn__j_step(c, 1);
        }
        if (rc == 0) rc = pn__jbuf_str(c, b, out);
        if (rc == 0) out->s->safe = v->s->safe;
        return rc;
    }
    struct pn_jlist *l = pn__j_list_new(c, v->l->kind, 0);
    if (!l) return pn__j_failed(c);
    for (int64_t i = 0; v->l->n && i < times; i++) {
        for (size_t k = 0; k < v->l->n; k++) {
            int rc = pn__j_step(c, 1);
            if (rc == 0) rc = pn__j_push(c, l, &v->l->v[k]);
            if (rc) return rc;
        }
    }
    *out = pn__j_list(l);
    return 0;
}

static int add_lists(struct pn_jctx *c, const struct pn_jlist *a, const struct pn_jlist *b,
                     struct pn_jval *out) {
    struct pn_jlist *l = pn__j_list_new(c, a->kind, a->n + b->n);
    if (!l) return pn__j_failed(c);
    if (a->n) memcpy(l->v, a->v, a->n * sizeof *l->v);
    if (b->n) memcpy(l->v + a->n, b->v, b->n * sizeof *l->v);
    l->n = a->n + b->n;
    *out = pn__j_list(l);
    return pn__j_step(c, l->n);
}

static bool is_sequence(const struct pn_jval *v) {
    return v->type == PN_JV_STR || (v->type == PN_JV_LIST && v->l->kind <= PN_JL_TUPLE);
}

static int type_error(struct pn_jctx *c, enum pn_jop op, const struct pn_jval *a,
                      const struct pn_jval *b) {
    if (op == PN_JO_ADD && (a->type == PN_JV_STR || a->type == PN_JV_LIST))
        return pn__j_fail(c, "can only concatenate %s (not \"%s\") to %s", pn__j_type_name(a),
                          pn__j_type_name(b), pn__j_type_name(a));
    return pn__j_fail(c, "unsupported operand type(s) for %s: '%s' and '%s'", names[op],
                      pn__j_type_name(a), pn__j_type_name(b));
}

int pn__j_arith(struct pn_jctx *c, enum pn_jop op, const struct pn_jval *a, const struct pn_jval *b,
                struct pn_jval *out) {
    int rc;
    if (a->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, a);
    if (a->type == PN_JV_STR && op == PN_JO_MOD) return pn__j_format(c, a->s, b, out);
    if (b->type == PN_JV_UNDEFINED) return pn__j_fail_undefined(c, b);
    if (pn__j_is_number(a) && pn__j_is_number(b)) {
        rc = pn__j_is_int(a) && pn__j_is_int(b)
                 ? int_arith(c, op, pn__j_as_int(a), pn__j_as_int(b), out)
                 : float_arith(c, op, pn__j_as_float(a), pn__j_as_float(b), out);
        if (rc == 0) out->by = a->by | b->by;
        return rc;
    }
    if (op == PN_JO_ADD && a->type == PN_JV_STR && b->type == PN_JV_STR)
        return pn__j_add_str(c, a->s, b->s, out);
    if (op == PN_JO_ADD && a->type == PN_JV_LIST && b->type == PN_JV_LIST && is_sequence(a) &&
        a->l->kind == b->l->kind)
        return add_lists(c, a->l, b->l, out);
    if (op == PN_JO_MUL && is_sequence(a) && pn__j_is_int(b))
        return repeat(c, a, pn__j_as_int(b), out);
    if (op == PN_JO_MUL && is_sequence(b) && pn__j_is_int(a))
        return repeat(c, b, pn__j_as_int(a), out);
    return type_error(c, op, a, b);
}

int pn__j_relation(struct pn_jctx *c, enum pn_jop op, const struct pn_jval *a,
                   const struct pn_jval *b, bool *out) {
    int order = 0;
    int rc;
    switch (op) {
    case PN_JO_EQ:
    case PN_JO_NE:
        rc = pn__j_equal(c, a, b, out);
        if (op == PN_JO_NE) *out = !*out;
        return rc;
    case PN_JO_IN:
    case PN_JO_NOT_IN:
        rc = pn__j_contains(c, b, a, out);
        if (op == PN_JO_NOT_IN) *out = !*out;
        return rc;
    default:
        break;
    }
    rc = pn__j_compare(c, a, b, names[op], &order);
    *out = op == PN_JO_LT   ? order < 0
           : op == PN_JO_LE ? order <= 0
           : op == PN_JO_GT ? order == 1
                            : order == 0 || order == 1;
    return rc;
}
