/* The AVX-512 level: the reference compiled for it, then what has kernels of its own. */
#include "ops/cpu/avx512.h"

void pn__init_kernels_avx512(struct pn_kernels *k);
void pn__init_wide_avx512(struct pn_kernels *k);

void pn__init_avx512(struct pn_kernels *k) {
    pn__init_kernels_avx512(k);
    pn__init_wide_avx512(k);
    memcpy(k->matmul_narrow, k->matmul, sizeof k->matmul);
    pn__init_avx512_q32(k);
    pn__init_avx512_float(k);
    if (__builtin_cpu_supports("avx512bf16")) pn__init_avx512_bf16(k);
    pn__init_avx512_k(k);
    pn__init_avx512_unit32(k);
    pn__init_avx512_unit256(k);
}
