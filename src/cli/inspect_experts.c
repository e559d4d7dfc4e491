#include "cli/inspect_experts.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

/* Blocks a file may claim; more is not looked at. */
#define BLOCK_MAX 4096u
#define EXPERT_MAX (1u << 20)

/* Number `suffix` of the architecture for a block: a list has one for each. 0: not given. */
static uint64_t number(const struct pn_gguf *g, const char *suffix, uint64_t block_i) {
    struct pn_str arch;
    struct pn_gguf_arr list;
    char key[160];
    uint64_t n = 0;
    if (pn__gguf_get_str(g, "general.architecture", &arch, NULL) != 1 || arch.len > 64) return 0;
    snprintf(key, sizeof key, "%.*s.%s", (int)arch.len, arch.data, suffix);
    if (pn__gguf_get_u64(g, key, &n, NULL) == 1) return n;
    if (pn__gguf_get_arr(g, key, &list, NULL) != 1 || block_i >= list.n) return 0;
    int64_t value = pn__gguf_arr_i64(&list, block_i);
    return value > 0 ? (uint64_t)value : 0;
}

/* blk.N.ffn_…_exps.…: its block; -1 for other tensors. */
static int64_t experts_block(const char *name) {
    unsigned block;
    char rest[64];
    if (sscanf(name, "blk.%u.%63s", &block, rest) != 2 || block >= BLOCK_MAX) return -1;
    bool exps = strncmp(rest, "ffn_", 4) == 0 && strstr(rest, "_exps.") != NULL;
    return exps ? (int64_t)block : -1;
}

/* Blocks past the last one that runs predict further tokens and are not read. */
static bool runs(const char *name, uint64_t block_n) {
    unsigned block;
    return sscanf(name, "blk.%u.", &block) != 1 || block < block_n;
}

/* The token embedding is read by row, unless it is the output matrix as well. */
static bool read_whole(const struct pn_gguf *g, const char *name) {
    return strcmp(name, "token_embd.weight") != 0 || !pn__gguf_find(g, "output.weight");
}

int pn__expert_sum(const struct pn_gguf *g, struct pn_expert_sum *out, struct pn_detail *d) {
    memset(out, 0, sizeof *out);
    uint64_t block_n = number(g, "block_count", 0);
    uint64_t unused_n = number(g, "nextn_predict_layers", 0);
    block_n = block_n > unused_n ? block_n - unused_n : 0;
    if (block_n > BLOCK_MAX) block_n = BLOCK_MAX;
    uint64_t *one = pn__calloc(block_n + 1, sizeof *one); /* bytes of an expert, by block */
    if (!one) return pn__fail(d, PN_E_NOMEM, "table of %llu blocks", (unsigned long long)block_n);
    for (uint64_t i = 0; i < pn__gguf_tensor_n(g); i++) {
        const struct pn_gguf_tensor *t = pn__gguf_tensor(g, i);
        int64_t block = experts_block(t->name);
        if (!runs(t->name, block_n)) continue;
        if (block < 0) {
            if (read_whole(g, t->name)) out->token_bytes += t->bytes;
            continue;
        }
        /* Weights are [cols, rows, experts], biases [rows, experts]. */
        uint64_t n = t->dims[t->dim_n > 0 ? t->dim_n - 1 : 0];
        if (n == 0 || n > EXPERT_MAX) continue;
        one[block] += t->bytes / n;
        out->all_bytes += t->bytes;
    }
    for (uint64_t i = 0; i < block_n; i++) {
        uint64_t expert_n = number(g, "expert_count", i);
        uint64_t used_n = number(g, "expert_used_count", i);
        if (expert_n > out->expert_n) out->expert_n = expert_n;
        if (used_n > out->used_n) out->used_n = used_n;
        if (one[i] == 0) continue;
        out->token_bytes += used_n * one[i];
        if (out->moe_block_n == 0 || one[i] < out->one_min) out->one_min = one[i];
        if (one[i] > out->one_max) out->one_max = one[i];
        out->moe_block_n++;
    }
    out->block_n = (uint32_t)block_n;
    pn__free(one);
    return 0;
}
