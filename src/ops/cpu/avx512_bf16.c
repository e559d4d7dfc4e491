/* BF16 weights by vdpbf16ps, where a processor has it. */
#include "ops/cpu/avx512_float.h"

static void matmul_bf16(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                        const struct pn_thread_scratch *scratch) {
    matmul(mm, lo, hi, scratch, KIND_BF16);
}

void pn__init_avx512_bf16(struct pn_kernels *k) {
    k->matmul[PN_TYPE_BF16] = matmul_bf16;
    k->matmul_narrow[PN_TYPE_BF16] = matmul_bf16;
}
