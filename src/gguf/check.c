#include <stdio.h>
#include <string.h>

#include "gguf/gguf_internal.h"

#define ARCH_MAX_BYTES 64

/* Architectures and general.type values of files that are no language model by themselves. */
static const struct {
    const char *name;
    const char *what;
} parts[] = {
    {"clip", "a vision projector (mmproj)"},
    {"mmproj", "a vision projector (mmproj)"},
    {"adapter", "an adapter (LoRA)"},
    {"lora", "an adapter (LoRA)"},
    {"controlvector", "a control vector (adapter)"},
    {"imatrix", "an importance matrix"},
    {"eagle", "a draft model for speculative decoding"},
    {"eagle2", "a draft model for speculative decoding"},
    {"eagle3", "a draft model for speculative decoding"},
    {"dflash", "a draft model for speculative decoding"},
    {"medusa", "a draft model for speculative decoding"},
    {"gemma4-assistant", "a draft model for speculative decoding"},
    {"gemma4_assistant", "a draft model for speculative decoding"},
};

static const char *part_of(const struct pn_str *s) {
    for (size_t i = 0; i < PN_ARRAY_N(parts); i++) {
        if (s->len == strlen(parts[i].name) && memcmp(s->data, parts[i].name, s->len) == 0) {
            return parts[i].what;
        }
    }
    return NULL;
}

static int refuse(const struct pn_gguf *g, const char *key, const struct pn_str *value,
                  const char *what, struct pn_detail *d) {
    return pn__fail(d, PN_E_UNSUPPORTED,
                    "%s: this is %s, not a language model (key '%s' is '%.*s'): it can't be run by "
                    "itself, name the model's own file",
                    g->shards[0].label, what, key, (int)(value->len > 60 ? 60 : value->len),
                    value->data);
}

/* A file of a model's multi-token-prediction blocks alone: no block before them is there. */
static int check_draft(const struct pn_gguf *g, const struct pn_str *arch, struct pn_detail *d) {
    char key[ARCH_MAX_BYTES + 32];
    uint64_t next_n = 0;
    int len = (int)(arch->len > ARCH_MAX_BYTES ? ARCH_MAX_BYTES : arch->len);
    snprintf(key, sizeof key, "%.*s.nextn_predict_layers", len, arch->data);
    int rc = pn__gguf_get_u64(g, key, &next_n, d);
    if (rc <= 0 || next_n == 0) return rc < 0 ? rc : 0;
    for (uint64_t i = 0; i < g->tensor_n; i++) {
        if (strncmp(g->tensors[i].name, "blk.0.", 6) == 0) return 0;
    }
    return pn__fail(d, PN_E_UNSUPPORTED,
                    "%s: this is a draft model for speculative decoding (key '%s' is %llu and "
                    "there is no tensor 'blk.0.*'): it can't be run by itself, name the model's "
                    "own file",
                    g->shards[0].label, key, (unsigned long long)next_n);
}

int pn__gguf_check_model(const struct pn_gguf *g, struct pn_detail *d) {
    struct pn_str type;
    struct pn_str arch;
    int rc = pn__gguf_get_str(g, "general.type", &type, d);
    if (rc < 0) return rc;
    const char *what = rc ? part_of(&type) : NULL;
    if (what) return refuse(g, "general.type", &type, what, d);
    rc = pn__gguf_get_str(g, "adapter.type", &type, d);
    if (rc < 0) return rc;
    if (rc) return refuse(g, "adapter.type", &type, "an adapter (LoRA)", d);

    rc = pn__gguf_get_str(g, "general.architecture", &arch, d);
    if (rc < 0) return rc;
    if (rc == 0 || arch.len == 0) {
        return pn__fail(d, PN_E_FORMAT, "%s: key 'general.architecture' is %s", g->shards[0].label,
                        rc ? "empty" : "missing: nothing says which model this is");
    }
    what = part_of(&arch);
    if (what) return refuse(g, "general.architecture", &arch, what, d);
    if (g->tensor_n == 0) {
        return pn__fail(d, PN_E_UNSUPPORTED,
                        "%s: the file has no tensors, only metadata and a vocabulary: it can be "
                        "inspected and used to tokenize, not run",
                        g->shards[0].label);
    }
    return check_draft(g, &arch, d);
}
