/* Sizes of K and V as pages store them. */
#include "ops/ops.h"

uint64_t pn__kv_row_bytes(enum pn_kv_format f, uint32_t dim) {
    switch (f) {
    case PN_KV_F32:
        return 4 * (uint64_t)dim;
    case PN_KV_F16:
        return 2 * (uint64_t)dim;
    case PN_KV_Q8_0:
        return 2 * (((uint64_t)dim + 31) / 32) + dim;
    case PN_KV_Q4:
        return 2 * (((uint64_t)dim + 31) / 32) + ((uint64_t)dim + 1) / 2;
    }
    return 0;
}

static uint64_t part_bytes(enum pn_kv_format f, uint32_t head_n, uint32_t dim) {
    uint64_t bytes = head_n * (uint64_t)PN_PAGE_TOKENS * pn__kv_row_bytes(f, dim);
    return (bytes + 63) & ~(uint64_t)63;
}

uint64_t pn__kv_v_offset(enum pn_kv_format f, const struct pn_kv_shape *shape) {
    return part_bytes(f, shape->head_n, shape->k_dim);
}

uint64_t pn__kv_layer_bytes(enum pn_kv_format f, const struct pn_kv_shape *shape) {
    uint64_t v_bytes = shape->v_in_k ? 0 : part_bytes(f, shape->head_n, shape->v_dim);
    return pn__kv_v_offset(f, shape) + v_bytes;
}
