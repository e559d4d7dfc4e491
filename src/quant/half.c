/* The conversions of half.h as functions. */
#include "quant/half.h"
#include "quant/quant.h"

float pn__f16_to_f32(uint16_t h) {
    return pn__half_widen(h);
}

uint16_t pn__f32_to_f16(float f) {
    return pn__half_narrow(f);
}

float pn__bf16_to_f32(uint16_t h) {
    return pn__bfloat_widen(h);
}

uint16_t pn__f32_to_bf16(float f) {
    return pn__bfloat_narrow(f);
}
