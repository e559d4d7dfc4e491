/* Units (quant.h) unpacked with AVX2 and BMI2: the types that matmuls take row by row. */
#ifndef PN_OPS_CPU_X86_UNITS_H
#define PN_OPS_CPU_X86_UNITS_H

#include "quant/quant.h"

/* Unpacks as pn__unit_fn(type) does; that itself where there is nothing faster. */
pn_unit_fn pn__unit_fn_x86(enum pn_type type);

#endif
