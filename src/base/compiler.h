/* Compiler attributes, spelled once. */
#ifndef PN_BASE_COMPILER_H
#define PN_BASE_COMPILER_H

#define PN_PRINTF(fmt_i, arg_i) __attribute__((format(printf, fmt_i, arg_i)))
#define PN_MUST_CHECK __attribute__((warn_unused_result))
#define PN_ALIGNED(n) __attribute__((aligned(n)))
#define PN_NOINLINE __attribute__((noinline))
#define PN_ARRAY_N(a) (sizeof(a) / sizeof((a)[0]))

#define PN_CACHE_LINE 64

#endif
