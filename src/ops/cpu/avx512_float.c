/* F32 and F16 weights, and BF16 for processors without instructions of their own for it. */
#include "ops/cpu/avx512_float.h"

/* ---- preparation ---- */

/* Sixteen values rounded to bfloat16, nearest even, subnormal results flushed. By integers: the
 * instruction takes subnormal inputs for zeros before it rounds. */
INLINE __m256i to_bf16(__m512 x) {
    __m512i bits = _mm512_castps_si512(x);
    __m512i high = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __m512i h = _mm512_srli_epi32(sum, 16);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    h = _mm512_mask_or_epi32(h, nan, high, _mm512_set1_epi32(0x40));
    __mmask16 tiny = _mm512_testn_epi32_mask(h, _mm512_set1_epi32(0x7f80));
    h = _mm512_mask_and_epi32(h, tiny, h, _mm512_set1_epi32(0x8000));
    return _mm512_cvtepi32_epi16(h);
}

static void prepare_bf16(const struct pn_acts *a, uint32_t lo, uint32_t hi) {
    for (uint32_t m = lo; m < hi; m++) {
        const float *x = a->x + m * a->x_stride;
        uint16_t *to = a->bf + m * wide(a->col_n);
        for (uint32_t k = 0; k < wide(a->col_n); k += 16) {
            __mmask16 mask = k < a->col_n ? first_of_16(a->col_n - k) : 0;
            _mm256_storeu_si256((__m256i *)(void *)(to + k),
                                to_bf16(_mm512_maskz_loadu_ps(mask, x + k)));
        }
    }
}

static void matmul_f32(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                       const struct pn_thread_scratch *scratch) {
    matmul(mm, lo, hi, scratch, KIND_F32);
}

static void matmul_f16(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                       const struct pn_thread_scratch *scratch) {
    matmul(mm, lo, hi, scratch, KIND_F16);
}

static void matmul_bf16(const struct pn_mm *mm, uint32_t lo, uint32_t hi,
                        const struct pn_thread_scratch *scratch) {
    matmul(mm, lo, hi, scratch, KIND_BF16);
}

void pn__init_avx512_float(struct pn_kernels *k) {
    k->prepare[PN_ACT_BF16] = prepare_bf16;
    k->matmul[PN_TYPE_F32] = matmul_f32;
    k->matmul[PN_TYPE_F16] = matmul_f16;
    k->matmul[PN_TYPE_BF16] = matmul_bf16;
    /* The reference's narrow matmul knows another layout of BF16 inputs. */
    k->matmul_narrow[PN_TYPE_F32] = matmul_f32;
    k->matmul_narrow[PN_TYPE_F16] = matmul_f16;
    k->matmul_narrow[PN_TYPE_BF16] = matmul_bf16;
}
