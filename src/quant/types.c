/* The table of tensor types: names, block sizes, and the activation each is multiplied with. */
#include <string.h>

#include "base/checked.h"
#include "quant/quant.h"

/* X(NAME, values a block, bytes a block, activation). Q8_1 and Q8_K are activation formats of other
 * engines: their sizes are known so that a file that names them can be measured and refused. */
#define TYPE_TABLE(X)         \
    X(F32, 1, 4, F32)         \
    X(F16, 1, 2, F32)         \
    X(Q4_0, 32, 18, Q32)      \
    X(Q4_1, 32, 20, Q32)      \
    X(Q5_0, 32, 22, Q32)      \
    X(Q5_1, 32, 24, Q32)      \
    X(Q8_0, 32, 34, Q32)      \
    X(Q8_1, 32, 36, NONE)     \
    X(Q2_K, 256, 84, Q256)    \
    X(Q3_K, 256, 110, Q256)   \
    X(Q4_K, 256, 144, Q256)   \
    X(Q5_K, 256, 176, Q256)   \
    X(Q6_K, 256, 210, Q256)   \
    X(Q8_K, 256, 292, NONE)   \
    X(IQ2_XXS, 256, 66, Q256) \
    X(IQ2_XS, 256, 74, Q256)  \
    X(IQ3_XXS, 256, 98, Q256) \
    X(IQ1_S, 256, 50, Q256)   \
    X(IQ4_NL, 32, 18, Q32)    \
    X(IQ3_S, 256, 110, Q256)  \
    X(IQ2_S, 256, 82, Q256)   \
    X(IQ4_XS, 256, 136, Q256) \
    X(I8, 1, 1, NONE)         \
    X(I16, 1, 2, NONE)        \
    X(I32, 1, 4, NONE)        \
    X(I64, 1, 8, NONE)        \
    X(F64, 1, 8, NONE)        \
    X(IQ1_M, 256, 56, Q256)   \
    X(BF16, 1, 2, BF16)       \
    X(TQ1_0, 256, 54, Q256)   \
    X(TQ2_0, 256, 66, Q256)   \
    X(MXFP4, 32, 17, Q32)     \
    X(NVFP4, 64, 36, Q32)     \
    X(Q1_0, 128, 18, Q32)     \
    X(Q2_0, 64, 18, Q32)

static const struct pn_type_info infos[PN_TYPE_N] = {
#define TYPE_ROW(id, n, bytes, act) [PN_TYPE_##id] = {#id, n, bytes, PN_ACT_##act},
    TYPE_TABLE(TYPE_ROW)
#undef TYPE_ROW
};

/* Each name with a space in front; the first space is skipped. */
#define TYPE_WORD(id, n, bytes, act) " " #id
static const char type_list[] = TYPE_TABLE(TYPE_WORD);
#undef TYPE_WORD

const struct pn_type_info *pn__type_info(unsigned type) {
    if (type >= PN_TYPE_N || !infos[type].name) return NULL;
    return &infos[type];
}

const char *pn__type_name(unsigned type) {
    const struct pn_type_info *info = pn__type_info(type);
    return info ? info->name : "?";
}

bool pn__type_by_name(const char *name, enum pn_type *out) {
    for (unsigned t = 0; t < PN_TYPE_N; t++) {
        if (infos[t].name && strcmp(infos[t].name, name) == 0) {
            *out = (enum pn_type)t;
            return true;
        }
    }
    return false;
}

const char *pn__type_list(void) {
    return type_list + 1;
}

bool pn__type_row_bytes(unsigned type, uint64_t col_n, uint64_t *out) {
    const struct pn_type_info *info = pn__type_info(type);
    if (!info || col_n % info->block_n != 0) return false;
    return !pn__mul_u64(col_n / info->block_n, info->block_bytes, out);
}
