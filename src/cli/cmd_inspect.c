/* `pannier inspect MODEL [--json]`: what a file says about itself. Reads headers only, so that a
 * vocabulary without tensors or an architecture that nothing here runs will do. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "cli/inspect_cache.h"
#include "cli/inspect_experts.h"
#include "gguf/gguf.h"

/* Elements of an array and bytes of a string that the text output shows. */
#define SHOWN_ELEMS 6
#define SHOWN_BYTES 96

/* Tensors of one type. */
struct type_sum {
    uint64_t tensor_n;
    uint64_t bytes;
};

struct summary {
    struct type_sum types[PN_TYPE_N];
    uint64_t param_n;
    uint64_t file_bytes;
    uint64_t tensor_bytes;
    struct pn_expert_sum experts;
};

static void summarise(const struct pn_gguf *g, struct summary *sum) {
    memset(sum, 0, sizeof *sum);
    for (uint32_t i = 0; i < pn__gguf_shard_n(g); i++)
        sum->file_bytes += pn__gguf_shard_bytes(g, i);
    for (uint64_t i = 0; i < pn__gguf_tensor_n(g); i++) {
        const struct pn_gguf_tensor *t = pn__gguf_tensor(g, i);
        sum->types[t->type].tensor_n++;
        sum->types[t->type].bytes += t->bytes;
        sum->tensor_bytes += t->bytes;
        sum->param_n += t->dims[0] * t->row_n;
    }
}

/* ARCH.context_length; 0 when there is none. */
static uint64_t context_length(const struct pn_gguf *g) {
    struct pn_str arch;
    char key[128];
    uint64_t n = 0;
    if (pn__gguf_get_str(g, "general.architecture", &arch, NULL) != 1 || arch.len > 64) return 0;
    snprintf(key, sizeof key, "%.*s.context_length", (int)arch.len, arch.data);
    return pn__gguf_get_u64(g, key, &n, NULL) == 1 ? n : 0;
}

/* Length of the UTF-8 character at `p`, of which `n` bytes are there; 0: none begins here. */
static size_t utf8_len(const unsigned char *p, size_t n) {
    size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (p[0] > 0xf4 || len == 0 || len > n) return 0;
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
    }
    /* Overlong forms, surrogates, above U+10FFFF. */
    if (p[0] == 0xe0 && p[1] < 0xa0) return 0;
    if (p[0] == 0xed && p[1] > 0x9f) return 0;
    if (p[0] == 0xf0 && p[1] < 0x90) return 0;
    if (p[0] == 0xf4 && p[1] > 0x8f) return 0;
    return len;
}

/* ---- text ---- */

/* Any bytes on one line: nothing in them reaches the terminal as a command. */
static void print_escaped(const char *data, size_t len, size_t max) {
    const unsigned char *p = (const unsigned char *)data;
    size_t i = 0;
    while (i < len && i < max) {
        size_t n = utf8_len(p + i, len - i);
        /* C1 controls (U+0080 to U+009F) are commands too. */
        bool c1 = n == 2 && p[i] == 0xc2 && p[i + 1] < 0xa0;
        if (p[i] == '\n') {
            fputs("\\n", stdout);
        } else if (p[i] == '\t') {
            fputs("\\t", stdout);
        } else if (p[i] == '\r') {
            fputs("\\r", stdout);
        } else if (p[i] == '\\' || p[i] == '"') {
            printf("\\%c", p[i]);
        } else if (n == 0 || p[i] < 0x20 || p[i] == 0x7f) {
            printf("\\x%02x", p[i]);
        } else if (c1) {
            printf("\\x%02x\\x%02x", p[i], p[i + 1]);
        } else {
            fwrite(p + i, 1, n, stdout);
        }
        i += n ? n : 1;
    }
    if (i < len) printf("... (%zu bytes)", len);
}

static void print_text(const char *s) {
    print_escaped(s, strlen(s), SIZE_MAX);
}

static void print_number(const struct pn_gguf_arr *a, uint64_t i) {
    if (a->type == PN_GGUF_F32 || a->type == PN_GGUF_F64) {
        printf("%g", pn__gguf_arr_f64(a, i));
    } else if (a->type == PN_GGUF_BOOL) {
        fputs(pn__gguf_arr_i64(a, i) ? "true" : "false", stdout);
    } else if (pn__gguf_arr_f64(a, i) >= 0x1p63) { /* u64 only, beyond what arr_i64 gives */
        printf("%.0f", pn__gguf_arr_f64(a, i));
    } else {
        printf("%" PRId64, pn__gguf_arr_i64(a, i));
    }
}

static void print_array(const struct pn_gguf *g, const char *key) {
    struct pn_gguf_arr a;
    if (pn__gguf_get_arr(g, key, &a, NULL) != 1) return;
    printf("[");
    for (uint64_t i = 0; i < a.n && i < SHOWN_ELEMS; i++) {
        if (i) fputs(", ", stdout);
        if (a.type == PN_GGUF_STRING) {
            struct pn_str s = pn__gguf_arr_str(&a, i);
            fputs("\"", stdout);
            print_escaped(s.data, s.len, SHOWN_BYTES);
            fputs("\"", stdout);
        } else {
            print_number(&a, i);
        }
    }
    printf("%s] (%" PRIu64 " of %s)", a.n > SHOWN_ELEMS ? ", ..." : "", a.n,
           pn__gguf_type_name(a.type));
}

static void print_value(const struct pn_gguf *g, uint64_t i) {
    const char *key = pn__gguf_kv_key(g, i);
    struct pn_str s;
    uint64_t u;
    int64_t v;
    double f;
    bool b;
    if (pn__gguf_kv_type(g, i) == PN_GGUF_ARRAY) {
        print_array(g, key);
    } else if (pn__gguf_get_str(g, key, &s, NULL) == 1) {
        fputs("\"", stdout);
        print_escaped(s.data, s.len, SHOWN_BYTES);
        fputs("\"", stdout);
    } else if (pn__gguf_get_bool(g, key, &b, NULL) == 1) {
        fputs(b ? "true" : "false", stdout);
    } else if (pn__gguf_get_u64(g, key, &u, NULL) == 1) {
        printf("%" PRIu64, u);
    } else if (pn__gguf_get_i64(g, key, &v, NULL) == 1) {
        printf("%" PRId64, v);
    } else if (pn__gguf_get_f64(g, key, &f, NULL) == 1) {
        printf("%g", f);
    }
}

static void print_size(uint64_t bytes) {
    double v = (double)bytes;
    const char *unit = "KiB";
    printf("%" PRIu64 " bytes", bytes);
    if (bytes < 1024) return;
    v /= 1024;
    if (v >= 1024) {
        v /= 1024;
        unit = "MiB";
    }
    if (v >= 1024) {
        v /= 1024;
        unit = "GiB";
    }
    printf(" (%.1f %s)", v, unit);
}

static void print_named(const struct pn_gguf *g, const char *label, const char *key) {
    struct pn_str s;
    printf("%-14s ", label);
    if (pn__gguf_get_str(g, key, &s, NULL) == 1) {
        print_escaped(s.data, s.len, SHOWN_BYTES);
    } else {
        fputs("not given", stdout);
    }
    putchar('\n');
}

static void print_experts(const struct pn_expert_sum *e) {
    if (e->expert_n == 0) return;
    printf("%-14s %" PRIu64 ", %" PRIu64 " a token, in %" PRIu32 " of %" PRIu32 " blocks, ",
           "experts", e->expert_n, e->used_n, e->moe_block_n, e->block_n);
    print_size(e->all_bytes);
    printf("\n%-14s ", "an expert");
    if (e->one_min != e->one_max) {
        print_size(e->one_min);
        fputs(" to ", stdout);
    }
    print_size(e->one_max);
    printf("\n%-14s ", "a token reads");
    print_size(e->token_bytes);
    fputs(" of weights\n", stdout);
}

static void print_head(const struct pn_gguf *g, const struct summary *sum) {
    print_named(g, "architecture", "general.architecture");
    print_named(g, "name", "general.name");
    for (uint32_t i = 0; i < pn__gguf_shard_n(g); i++) {
        printf("%-14s ", i ? "" : "file");
        print_text(pn__gguf_shard_path(g, i));
        fputs(", ", stdout);
        print_size(pn__gguf_shard_bytes(g, i));
        putchar('\n');
    }
    printf("%-14s GGUF version %" PRIu32 "\n", "format", pn__gguf_version(g));
    printf("%-14s %" PRIu64, "parameters", sum->param_n);
    if (sum->param_n >= 1000000) printf(" (%.1f million)", (double)sum->param_n / 1e6);
    putchar('\n');
    uint64_t ctx = context_length(g);
    if (ctx) {
        printf("%-14s %" PRIu64 " tokens\n", "context", ctx);
    } else {
        printf("%-14s not given\n", "context");
    }
    print_experts(&sum->experts);
    pn__print_cache(g);
}

static int print_all(const struct pn_gguf *g, const struct summary *sum, struct pn_detail *d) {
    print_head(g, sum);
    printf("\n%-10s %10s %16s\n", "type", "tensors", "bytes");
    for (unsigned t = 0; t < PN_TYPE_N; t++) {
        if (sum->types[t].tensor_n == 0) continue;
        printf("%-10s %10" PRIu64 " %16" PRIu64 "\n", pn__type_name(t), sum->types[t].tensor_n,
               sum->types[t].bytes);
    }
    printf("%-10s %10" PRIu64 " %16" PRIu64 "\n", "all", pn__gguf_tensor_n(g), sum->tensor_bytes);

    printf("\nmetadata (%" PRIu64 " keys)\n", pn__gguf_kv_n(g));
    for (uint64_t i = 0; i < pn__gguf_kv_n(g); i++) {
        fputs("  ", stdout);
        print_text(pn__gguf_kv_key(g, i));
        fputs(" = ", stdout);
        print_value(g, i);
        putchar('\n');
    }
    int rc = pn__out_check(d);
    if (rc) return rc;

    printf("\ntensors (%" PRIu64 ")\n", pn__gguf_tensor_n(g));
    for (uint64_t i = 0; i < pn__gguf_tensor_n(g); i++) {
        const struct pn_gguf_tensor *t = pn__gguf_tensor(g, i);
        fputs("  ", stdout);
        print_text(t->name);
        printf("  %s [", pn__type_name(t->type));
        for (uint32_t k = 0; k < t->dim_n; k++)
            printf("%s%" PRIu64, k ? ", " : "", t->dims[k]);
        printf("]  %" PRIu64 " bytes at %" PRIu64, t->bytes, t->offset);
        if (pn__gguf_shard_n(g) > 1) printf(" in part %" PRIu32, t->shard + 1);
        putchar('\n');
    }
    return 0;
}

/* ---- JSON ---- */

/* JSON strings are UTF-8: other bytes become U+FFFD. */
static json_t *json_text(const char *data, size_t len) {
    json_t *j = json_stringn(data, len);
    if (j || len == 0) return j;
    const unsigned char *p = (const unsigned char *)data;
    char *out = pn__calloc(len, 3);
    size_t n = 0;
    if (!out) return NULL;
    for (size_t i = 0; i < len;) {
        size_t k = utf8_len(p + i, len - i);
        memcpy(out + n, k ? data + i : "\xef\xbf\xbd", k ? k : 3);
        n += k ? k : 3;
        i += k ? k : 1;
    }
    j = json_stringn(out, n);
    pn__free(out);
    return j;
}

/* JSON has no NaN and no infinity, and signed 64-bit integers only: those are strings. */
static json_t *json_float(double f) {
    if (isfinite(f)) return json_real(f);
    return json_string(isnan(f) ? "NaN" : f > 0 ? "Infinity" : "-Infinity");
}

static json_t *json_u64(uint64_t v) {
    char text[32];
    if (v <= INT64_MAX) return json_integer((json_int_t)v);
    snprintf(text, sizeof text, "%" PRIu64, v);
    return json_string(text);
}

static json_t *json_elem(const struct pn_gguf_arr *a, uint64_t i) {
    struct pn_str s;
    switch (a->type) {
    case PN_GGUF_STRING:
        s = pn__gguf_arr_str(a, i);
        return json_text(s.data, s.len);
    case PN_GGUF_F32:
    case PN_GGUF_F64:
        return json_float(pn__gguf_arr_f64(a, i));
    case PN_GGUF_BOOL:
        return json_boolean(pn__gguf_arr_i64(a, i));
    default: /* a u64 beyond a JSON integer comes as a real */
        if (pn__gguf_arr_f64(a, i) >= 0x1p63) return json_real(pn__gguf_arr_f64(a, i));
        return json_integer(pn__gguf_arr_i64(a, i));
    }
}

/* NULL: no memory, as everywhere here; jansson's functions pass it on. */
static json_t *json_array_of(const struct pn_gguf *g, const char *key) {
    struct pn_gguf_arr a;
    json_t *list = json_array();
    if (!list || pn__gguf_get_arr(g, key, &a, NULL) != 1) return list;
    for (uint64_t i = 0; i < a.n; i++) {
        if (json_array_append_new(list, json_elem(&a, i)) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *json_value(const struct pn_gguf *g, uint64_t i) {
    const char *key = pn__gguf_kv_key(g, i);
    struct pn_str s;
    uint64_t u;
    int64_t v;
    double f;
    bool b;
    if (pn__gguf_kv_type(g, i) == PN_GGUF_ARRAY) return json_array_of(g, key);
    if (pn__gguf_get_str(g, key, &s, NULL) == 1) return json_text(s.data, s.len);
    if (pn__gguf_get_bool(g, key, &b, NULL) == 1) return json_boolean(b);
    if (pn__gguf_get_u64(g, key, &u, NULL) == 1) return json_u64(u);
    if (pn__gguf_get_i64(g, key, &v, NULL) == 1) return json_integer(v);
    return json_float(pn__gguf_get_f64(g, key, &f, NULL) == 1 ? f : NAN);
}

static json_t *json_files(const struct pn_gguf *g) {
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < pn__gguf_shard_n(g); i++) {
        const char *path = pn__gguf_shard_path(g, i);
        json_t *row = json_pack("{s:o, s:o}", "path", json_text(path, strlen(path)), "bytes",
                                json_u64(pn__gguf_shard_bytes(g, i)));
        if (json_array_append_new(list, row) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *json_types(const struct summary *sum) {
    json_t *all = json_object();
    for (unsigned t = 0; all && t < PN_TYPE_N; t++) {
        if (sum->types[t].tensor_n == 0) continue;
        json_t *row = json_pack("{s:o, s:o}", "tensors", json_u64(sum->types[t].tensor_n), "bytes",
                                json_u64(sum->types[t].bytes));
        if (json_object_set_new(all, pn__type_name(t), row) == 0) continue;
        json_decref(all);
        return NULL;
    }
    return all;
}

static json_t *json_metadata(const struct pn_gguf *g) {
    json_t *all = json_object();
    for (uint64_t i = 0; all && i < pn__gguf_kv_n(g); i++) {
        const char *key = pn__gguf_kv_key(g, i);
        json_t *clean = json_text(key, strlen(key));
        int rc = clean ? json_object_set_new(all, json_string_value(clean), json_value(g, i)) : -1;
        json_decref(clean);
        if (rc == 0) continue;
        json_decref(all);
        return NULL;
    }
    return all;
}

static json_t *json_tensors(const struct pn_gguf *g) {
    json_t *list = json_array();
    for (uint64_t i = 0; list && i < pn__gguf_tensor_n(g); i++) {
        const struct pn_gguf_tensor *t = pn__gguf_tensor(g, i);
        json_t *dims = json_array();
        for (uint32_t k = 0; dims && k < t->dim_n; k++) {
            if (json_array_append_new(dims, json_u64(t->dims[k])) == 0) continue;
            json_decref(dims);
            dims = NULL;
        }
        json_t *row =
            json_pack("{s:o, s:s, s:o, s:o, s:o, s:I}", "name", json_text(t->name, strlen(t->name)),
                      "type", pn__type_name(t->type), "dims", dims, "bytes", json_u64(t->bytes),
                      "offset", json_u64(t->offset), "file", (json_int_t)t->shard);
        if (json_array_append_new(list, row) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* A string key's value, null when the file has none. */
static json_t *json_named(const struct pn_gguf *g, const char *key) {
    struct pn_str s;
    if (pn__gguf_get_str(g, key, &s, NULL) != 1) return json_null();
    return json_text(s.data, s.len);
}

static json_t *json_experts(const struct pn_expert_sum *e) {
    if (e->expert_n == 0) return json_null();
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "count", json_u64(e->expert_n), "used",
                     json_u64(e->used_n), "blocks", json_u64(e->moe_block_n), "bytes",
                     json_u64(e->all_bytes), "expert_bytes_min", json_u64(e->one_min),
                     "expert_bytes_max", json_u64(e->one_max), "token_bytes",
                     json_u64(e->token_bytes));
}

static int print_json(const struct pn_gguf *g, const struct summary *sum, struct pn_detail *d) {
    uint64_t ctx = context_length(g);
    json_t *all = json_pack(
        "{s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "architecture",
        json_named(g, "general.architecture"), "name", json_named(g, "general.name"), "files",
        json_files(g), "bytes", json_u64(sum->file_bytes), "version",
        (json_int_t)pn__gguf_version(g), "parameters", json_u64(sum->param_n), "context_length",
        ctx ? json_u64(ctx) : json_null(), "tensor_bytes", json_u64(sum->tensor_bytes), "experts",
        json_experts(&sum->experts), "cache", pn__cache_json(g), "types", json_types(sum),
        "metadata", json_metadata(g), "tensors", json_tensors(g));
    if (!all) return pn__fail(d, PN_E_NOMEM, "no memory for the JSON text");
    int rc = json_dumpf(all, stdout, JSON_INDENT(2));
    json_decref(all);
    putchar('\n');
    return rc ? pn__fail(d, PN_E_IO, "writing JSON to stdout failed") : 0;
}

int pn__cmd_inspect(const struct pn_settings *s, struct pn_detail *d) {
    struct pn_gguf *g;
    struct summary sum;
    int rc = pn__gguf_open(s->positional[0], d, &g);
    if (rc) return rc;
    summarise(g, &sum);
    rc = pn__expert_sum(g, &sum.experts, d);
    if (rc == 0) rc = pn__set_flag(s, PN_SET_JSON) ? print_json(g, &sum, d) : print_all(g, &sum, d);
    pn__gguf_close(g);
    return rc;
}
