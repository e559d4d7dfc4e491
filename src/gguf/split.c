#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "gguf/gguf_internal.h"

/* "-00001-of-00003.gguf" */
#define TAIL_BYTES 20
#define FOLDER_MAX 4096 /* .gguf files looked at in one folder */

/* Five digits, or 0. */
static uint32_t five_digits(const char *p) {
    uint32_t v = 0;
    for (int i = 0; i < 5; i++) {
        if (p[i] < '0' || p[i] > '9') return 0;
        v = 10 * v + (uint32_t)(p[i] - '0');
    }
    return v;
}

struct gguf_split_name pn__gguf_split_name(const char *path) {
    struct gguf_split_name name = {0, 0, 0};
    size_t len = strlen(path);
    if (len <= TAIL_BYTES || len > UINT32_MAX) return name;
    const char *tail = path + len - TAIL_BYTES;
    if (tail[0] != '-' || memcmp(tail + 6, "-of-", 4) != 0) return name;
    if (strcmp(tail + 15, ".gguf") != 0) return name;
    uint32_t i = five_digits(tail + 1);
    uint32_t n = five_digits(tail + 10);
    if (i < 1 || i > n) return name;
    return (struct gguf_split_name){(uint32_t)(len - TAIL_BYTES), i, n};
}

char *pn__gguf_split_path(const char *path, const struct gguf_split_name *name, uint32_t i) {
    size_t cap = (size_t)name->prefix_len + TAIL_BYTES + 1;
    char *out = pn__calloc(cap, 1);
    if (!out) return NULL;
    memcpy(out, path, name->prefix_len);
    snprintf(out + name->prefix_len, TAIL_BYTES + 1, "-%05u-of-%05u.gguf", i % 100000u,
             name->n % 100000u);
    return out;
}

/* ---- a folder ---- */

struct name_list {
    char **names;
    size_t n;
};

static void free_names(struct name_list *l) {
    for (size_t i = 0; i < l->n; i++)
        pn__free(l->names[i]);
    pn__free(l->names);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_gguf_name(const char *name) {
    size_t len = strlen(name);
    return name[0] != '.' && len > 5 && strcmp(name + len - 5, ".gguf") == 0;
}

static int list_folder(const char *folder, DIR *dir, struct name_list *l, struct pn_detail *d) {
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(dir);
        if (!e && errno) {
            return pn__fail(d, PN_E_IO, "%.160s: listing the folder: %s", folder, strerror(errno));
        }
        if (!e) break;
        if (!is_gguf_name(e->d_name)) continue;
        if (l->n == FOLDER_MAX) {
            return pn__fail(d, PN_E_UNSUPPORTED,
                            "%.160s: the folder has more than %d .gguf files: name one", folder,
                            FOLDER_MAX);
        }
        char **grown = pn__realloc_array(l->names, l->n + 1, sizeof *grown);
        if (grown) l->names = grown;
        char *copy = grown ? pn__strdup(e->d_name) : NULL;
        if (!copy) return pn__fail(d, PN_E_NOMEM, "%.160s: no memory for its names", folder);
        l->names[l->n++] = copy;
    }
    if (l->n) qsort(l->names, l->n, sizeof *l->names, by_text);
    return 0;
}

/* Parts of one set differ in their number only. */
static bool same_model(const char *a, const char *b) {
    struct gguf_split_name x = pn__gguf_split_name(a);
    struct gguf_split_name y = pn__gguf_split_name(b);
    return x.n > 1 && x.n == y.n && x.prefix_len == y.prefix_len && memcmp(a, b, x.prefix_len) == 0;
}

static int pick_model(const char *folder, const struct name_list *l, struct pn_detail *d,
                      char **out) {
    if (l->n == 0) {
        return pn__fail(d, PN_E_NOTFOUND, "%.160s: the folder has no .gguf file", folder);
    }
    for (size_t i = 1; i < l->n; i++) {
        if (same_model(l->names[0], l->names[i])) continue;
        return pn__fail(d, PN_E_INVALID,
                        "%.160s: the folder has more than one model ('%.100s', '%.100s' ...): name "
                        "the file",
                        folder, l->names[0], l->names[i]);
    }
    size_t cap = strlen(folder) + 1 + strlen(l->names[0]) + 1;
    *out = pn__calloc(cap, 1);
    if (!*out) return pn__fail(d, PN_E_NOMEM, "%.160s: no memory for a path", folder);
    size_t len = strlen(folder);
    const char *slash = len > 0 && folder[len - 1] == '/' ? "" : "/";
    snprintf(*out, cap, "%s%s%s", folder, slash, l->names[0]);
    return 0;
}

int pn__gguf_folder_model(const char *folder, struct pn_detail *d, char **out) {
    struct name_list l = {NULL, 0};
    *out = NULL;
    DIR *dir = opendir(folder);
    if (!dir) {
        return pn__fail(d, PN_E_IO, "%.160s: opening the folder: %s", folder, strerror(errno));
    }
    int rc = list_folder(folder, dir, &l, d);
    closedir(dir);
    if (!rc) rc = pick_model(folder, &l, d, out);
    free_names(&l);
    return rc;
}

/* ---- the set ---- */

/* split.no and split.count of a file whose name makes it part i of n. */
static int check_part(const struct gguf_shard *s, const struct gguf_split_name *name,
                      struct pn_detail *d) {
    uint64_t count = 0;
    uint64_t no = 0;
    int has_count = pn__gguf_shard_u64(s, "split.count", &count, d);
    if (has_count < 0) return has_count;
    int has_no = pn__gguf_shard_u64(s, "split.no", &no, d);
    if (has_no < 0) return has_no;
    if (!has_count || !has_no) {
        return pn__fail(d, PN_E_FORMAT,
                        "%s: its name says part %u of %u, but key '%s' is missing: rename it if it "
                        "is a whole model",
                        s->label, name->i, name->n, has_count ? "split.no" : "split.count");
    }
    if (count != name->n) {
        return pn__fail(d, PN_E_FORMAT,
                        "%s: key 'split.count' at offset %u is %llu, but its name says %u parts",
                        s->label, pn__gguf_kv_find(s, "split.count")->pos,
                        (unsigned long long)count, name->n);
    }
    if (no != name->i - 1) {
        return pn__fail(d, PN_E_FORMAT,
                        "%s: key 'split.no' at offset %u is %llu (counted from 0), but its name "
                        "says part %u: files swapped?",
                        s->label, pn__gguf_kv_find(s, "split.no")->pos, (unsigned long long)no,
                        name->i);
    }
    return 0;
}

/* Keys that, where both files have them, must agree. */
static int check_same(const struct gguf_shard *first, const struct gguf_shard *s,
                      struct pn_detail *d) {
    static const char *const keys[] = {"general.architecture", "general.name", "general.uuid"};
    for (size_t i = 0; i < PN_ARRAY_N(keys); i++) {
        struct pn_str x;
        struct pn_str y;
        int rc = pn__gguf_shard_str(first, keys[i], &x, d);
        if (rc < 0) return rc;
        if (rc == 0) continue;
        rc = pn__gguf_shard_str(s, keys[i], &y, d);
        if (rc < 0) return rc;
        if (rc == 0 || (x.len == y.len && memcmp(x.data, y.data, x.len) == 0)) continue;
        return pn__fail(d, PN_E_FORMAT,
                        "%s: a part of another model: key '%s' is '%.*s', in the first part it is "
                        "'%.*s'",
                        s->label, keys[i], (int)(y.len > 60 ? 60 : y.len), y.data,
                        (int)(x.len > 60 ? 60 : x.len), x.data);
    }
    uint64_t n = 0;
    uint64_t first_n = 0;
    int rc = pn__gguf_shard_u64(s, "split.tensors.count", &n, d);
    if (rc < 0) return rc;
    int first_rc = pn__gguf_shard_u64(first, "split.tensors.count", &first_n, d);
    if (first_rc < 0) return first_rc;
    if (rc && first_rc && n != first_n) {
        return pn__fail(d, PN_E_FORMAT,
                        "%s: a part of another model: key 'split.tensors.count' is %llu, in the "
                        "first part it is %llu",
                        s->label, (unsigned long long)n, (unsigned long long)first_n);
    }
    return 0;
}

int pn__gguf_check_shard(const struct pn_gguf *g, uint32_t shard_i,
                         const struct gguf_split_name *name, struct pn_detail *d) {
    const struct gguf_shard *s = &g->shards[shard_i];
    if (name->n > 1) {
        int rc = check_part(s, name, d);
        if (rc || shard_i == 0) return rc;
        return check_same(&g->shards[0], s, d);
    }
    /* 0 is what a merged file carries, 1 a split into one. */
    uint64_t count = 0;
    int rc = pn__gguf_shard_u64(s, "split.count", &count, d);
    if (rc < 0) return rc;
    if (count <= 1) return 0;
    return pn__fail(d, PN_E_FORMAT,
                    "%s: key 'split.count' at offset %u is %llu, so this is a part of a split "
                    "model, but its name is not NAME-00001-of-%05llu.gguf (renamed, or parts "
                    "joined with `cat`?)",
                    s->label, pn__gguf_kv_find(s, "split.count")->pos, (unsigned long long)count,
                    (unsigned long long)count);
}

int pn__gguf_check_set(const struct pn_gguf *g, struct pn_detail *d) {
    uint64_t n = 0;
    if (g->shard_n <= 1) return 0;
    int rc = pn__gguf_shard_u64(&g->shards[0], "split.tensors.count", &n, d);
    if (rc <= 0 || n == g->tensor_n) return rc < 0 ? rc : 0;
    return pn__fail(d, PN_E_FORMAT,
                    "%s: key 'split.tensors.count' is %llu, but the %u parts hold %llu tensors: a "
                    "part is of another model",
                    g->shards[0].label, (unsigned long long)n, g->shard_n,
                    (unsigned long long)g->tensor_n);
}
