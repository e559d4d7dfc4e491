/* The CPU backend: which instruction sets there are, scratch, threads. */
#include "ops/cpu/cpu.h"

#include <assert.h>
#include <sched.h>
#include <string.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/alloc.h"
#include "base/arena.h"
#include "base/checked.h"

/* ---- instruction sets ---- */

void pn__init_avx2(struct pn_kernels *k);
void pn__init_avx512(struct pn_kernels *k);
void pn__init_amx(struct pn_kernels *k);
void pn__init_neon(struct pn_kernels *k);

typedef void (*init_fn)(struct pn_kernels *k);

#if defined(__x86_64__)
/* clang 14 doesn't know the name for __builtin_cpu_supports. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* Tile registers are the system's to grant: to the whole process, for good. Refused by kernels
 * before 5.16, and where a thread's signal stack is too small for them. */
static bool amx_allowed(void) {
#if defined(__linux__)
    const int request = 0x1023 /* ARCH_REQ_XCOMP_PERM */, tile_data = 18;
    return syscall(SYS_arch_prctl, request, tile_data) == 0;
#else
    return false;
#endif
}

static bool has_amx(void) {
    unsigned a, b, c, d;
    const unsigned tile = 1u << 24, int8 = 1u << 25; /* of leaf 7's edx */
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & tile) && (d & int8) && amx_allowed();
}
#endif

static bool cpu_has(enum pn_isa isa) {
    switch (isa) {
    case PN_ISA_REF:
        return true;
#if defined(__x86_64__)
    case PN_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("bmi2") && has_f16c();
    case PN_ISA_AMX:
        return cpu_has(PN_ISA_AVX512) && has_amx();
    case PN_ISA_AVX512:
        return cpu_has(PN_ISA_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
#endif
#if defined(__aarch64__)
    case PN_ISA_NEON:
        return true;
#endif
    default:
        return false;
    }
}

/* NULL for a level that this build has no kernels for. */
static init_fn isa_init(enum pn_isa isa) {
    switch (isa) {
    case PN_ISA_REF:
        return pn__init_kernels_ref;
#if PN_HAVE_X86
    case PN_ISA_AVX2:
        return pn__init_avx2;
    case PN_ISA_AVX512:
        return pn__init_avx512;
    case PN_ISA_AMX:
        return pn__init_amx;
#endif
#if PN_HAVE_NEON
    case PN_ISA_NEON:
        return pn__init_neon;
#endif
    default:
        return NULL;
    }
}

const char *pn__isa_name(enum pn_isa isa) {
    switch (isa) {
    case PN_ISA_REF:
        return "ref";
    case PN_ISA_AVX2:
        return "avx2";
    case PN_ISA_AVX512:
        return "avx512";
    case PN_ISA_AMX:
        return "amx";
    case PN_ISA_NEON:
        return "neon";
    }
    return "?";
}

enum pn_isa pn__isa_best(enum pn_isa limit) {
    for (int i = (int)limit; i > PN_ISA_REF; i--)
        if (isa_init((enum pn_isa)i) && cpu_has((enum pn_isa)i)) return (enum pn_isa)i;
    return PN_ISA_REF;
}

/* ---- making one ---- */

uint32_t pn__cpu_resolve_threads(uint32_t thread_n) {
    if (thread_n > 0) return thread_n;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    if (n < 1) return 1;
    return n < PN_THREAD_MAX ? (uint32_t)n : PN_THREAD_MAX;
}

static uint64_t panel_size(enum pn_isa isa, uint64_t col_n) {
    if (isa != PN_ISA_AVX2 && isa != PN_ISA_AVX512 && isa != PN_ISA_AMX) return 0;
    bool amx = isa == PN_ISA_AMX;
    uint64_t group = amx ? PN_AMX_GROUP_BYTES(col_n) : PN_PANEL_GROUP_BYTES(col_n);
    uint64_t most = amx ? PN_AMX_CACHE_BYTES : PN_PANEL_CACHE_BYTES;
    uint64_t group_n = amx ? PN_AMX_GROUPS : PN_PANEL_GROUPS;
    group = (group + 63) & ~(uint64_t)63;
    while (group_n > 2 && group_n * group > most)
        group_n /= 2;
    return group_n * group;
}

/* Pairs of a row and an expert; each expert's may take whole tiles. */
static uint64_t pair_max(const struct pn_cpu_config *c) {
    uint64_t pairs = (uint64_t)c->row_max * c->top_k_max;
    return pairs + pn__min_u64(pairs, c->expert_max) * (PN_TILE - 1);
}

/* Floats for EXPERT_Y_ROWS output rows of every pair; where that is much, for as many as fit into
 * EXPERT_Y_BYTES, but at least the rows that a kernel takes at once. */
#define EXPERT_Y_ROWS 64u
#define EXPERT_Y_BYTES (2u << 20)

static uint64_t expert_y_max(const struct pn_cpu_config *c) {
    uint64_t pairs = pair_max(c);
    uint64_t most = EXPERT_Y_BYTES / sizeof(float);
    return pairs * EXPERT_Y_ROWS <= most
               ? pairs * EXPERT_Y_ROWS
               : (pairs * PN_NARROW_ROWS > most ? pairs * PN_NARROW_ROWS : most);
}

static bool has_acts(const struct pn_cpu_config *c, enum pn_act_kind kind) {
    return c->expert_acts & 1u << kind;
}

static void layout_moe(struct pn_arena *a, const struct pn_cpu_config *c,
                       struct pn_moe_scratch *m) {
    uint64_t pairs = pair_max(c);
    uint64_t wide_n = ((uint64_t)c->col_max + 31) / 32 * 32;
    uint64_t value_n;
    uint64_t ff_n;
    *m = (struct pn_moe_scratch){0};
    if (pairs == 0) return;
    if (pairs > UINT32_MAX || pn__mul_u64(wide_n, pairs, &value_n) ||
        pn__mul_u64(((uint64_t)c->expert_ff_max + 15) / 16 * 16, pairs, &ff_n)) {
        a->overflow = true;
        return;
    }
    m->groups = pn__arena_take(a, c->expert_max, sizeof *m->groups);
    m->cursors = pn__arena_take(a, c->expert_max, sizeof *m->cursors);
    m->pair_rows = pn__arena_take(a, pairs, sizeof *m->pair_rows);
    m->places = pn__arena_take(a, (uint64_t)c->row_max * c->top_k_max, sizeof *m->places);
    if (has_acts(c, PN_ACT_Q32) || has_acts(c, PN_ACT_Q256)) {
        m->acts.q = pn__arena_take(a, value_n, sizeof *m->acts.q);
        m->acts.d = pn__arena_take(a, value_n / 32, sizeof *m->acts.d);
        m->acts.sums = pn__arena_take(a, value_n / PN_ACT_SUM_LEN, sizeof *m->acts.sums);
    }
    if (has_acts(c, PN_ACT_BF16)) m->acts.bf = pn__arena_take(a, value_n, sizeof *m->acts.bf);
    if (has_acts(c, PN_ACT_F32)) m->x = pn__arena_take(a, value_n, sizeof *m->x);
    m->gate = pn__arena_take(a, ff_n, sizeof *m->gate);
    m->up = pn__arena_take(a, ff_n, sizeof *m->up);
}

/* Memory for row_n prepared rows of col_n values, of any kind. */
static void layout_acts(struct pn_arena *a, uint64_t row_n, uint64_t col_n, struct pn_acts *acts) {
    uint64_t wide_n = (col_n + 31) / 32 * 32;
    uint64_t tiled_rows = (row_n + PN_TILE - 1) / PN_TILE * PN_TILE;
    uint64_t value_n;
    if (pn__mul_u64(wide_n, tiled_rows, &value_n)) a->overflow = true;
    *acts = (struct pn_acts){0};
    if (value_n == 0) return;
    acts->q = pn__arena_take(a, value_n, sizeof *acts->q);
    acts->d = pn__arena_take(a, value_n / 32, sizeof *acts->d);
    acts->sums = pn__arena_take(a, value_n / PN_ACT_SUM_LEN, sizeof *acts->sums);
    acts->bf = pn__arena_take(a, value_n, sizeof *acts->bf);
}

/* One thread shares its walks with nobody. */
static void layout_parts(struct pn_arena *a, const struct pn_cpu_config *c, uint32_t thread_n,
                         struct pn_att_part *parts) {
    uint64_t query_n = thread_n > 1 ? (uint64_t)thread_n * PN_ATT_PARTS : 0;
    *parts = (struct pn_att_part){0};
    if (query_n == 0) return;
    parts->v = pn__arena_take(a, query_n * c->dim_max, sizeof(float));
    parts->r = pn__arena_take(a, query_n * c->dim_max, sizeof(float));
    parts->max = pn__arena_take(a, query_n, sizeof(float));
    parts->sum = pn__arena_take(a, query_n, sizeof(float));
}

/* The same walk counts and hands out. `slots` is NULL when counting. */
static void layout(struct pn_arena *a, const struct pn_cpu_config *c, uint32_t thread_n,
                   struct pn_acts *acts, struct pn_moe_scratch *moe, struct pn_att_part *parts,
                   struct pn_thread_slot *slots) {
    uint64_t wide_n = ((uint64_t)c->col_max + 31) / 32 * 32;
    uint64_t panel_bytes = panel_size(c->isa, wide_n);

    layout_acts(a, c->row_max, c->col_max, acts);
    layout_moe(a, c, moe);
    layout_parts(a, c, thread_n, parts);

    for (uint32_t i = 0; i < thread_n; i++) {
        struct pn_thread_scratch t;
        t.sums = pn__arena_take(a, (uint64_t)c->row_max * PN_MM_ROWS, sizeof(float));
        t.rows = pn__arena_take(a, wide_n * PN_MM_ROWS, sizeof(float));
        t.panel = panel_bytes ? pn__arena_take(a, panel_bytes, 1) : NULL;
        t.panel_bytes = panel_bytes;
        layout_acts(a, c->row_max, c->head_col_max, &t.head_acts);
        t.k_row = pn__arena_take(a, c->dim_max, sizeof(float));
        t.scores = pn__arena_take(a, (PN_ATT_QUERIES + 1) * PN_GROUP_TOKENS, sizeof(float));
        t.group_v = pn__arena_take(a, (uint64_t)PN_ATT_QUERIES * c->dim_max, sizeof(float));
        t.merged_v = pn__arena_take(a, (uint64_t)PN_ATT_QUERIES * c->dim_max, sizeof(float));
        t.turned_q = pn__arena_take(a, (uint64_t)PN_ATT_QUERIES * c->dim_max, sizeof(float));
        t.group_r = pn__arena_take(a, (uint64_t)PN_ATT_QUERIES * c->dim_max, sizeof(float));
        t.merged_r = pn__arena_take(a, (uint64_t)PN_ATT_QUERIES * c->dim_max, sizeof(float));
        t.expert_y_n = expert_y_max(c);
        t.expert_y = t.expert_y_n ? pn__arena_take(a, t.expert_y_n, sizeof(float)) : NULL;
        if (slots) slots[i].scratch = t;
    }
}

uint64_t pn__cpu_scratch_bytes(const struct pn_cpu_config *config) {
    struct pn_arena a;
    struct pn_acts acts;
    struct pn_moe_scratch moe;
    struct pn_att_part parts;
    pn__arena_init(&a, NULL, 0);
    layout(&a, config, pn__cpu_resolve_threads(config->thread_n), &acts, &moe, &parts, NULL);
    return a.overflow ? UINT64_MAX : a.used_bytes;
}

int pn__cpu_new(const struct pn_cpu_config *config, void *scratch, struct pn_detail *d,
                struct pn_cpu **out) {
    *out = NULL;
    if (config->row_max == 0 || config->col_max == 0 || config->dim_max == 0)
        return pn__fail(d, PN_E_INVALID, "backend for %u rows of %u values, heads of %u",
                        config->row_max, config->col_max, config->dim_max);
    if (config->head_col_max > config->col_max)
        return pn__fail(d, PN_E_INVALID, "backend for rows of %u values, a head's of %u",
                        config->col_max, config->head_col_max);
    if (config->top_k_max > PN_TOP_K_MAX || config->expert_max > PN_EXPERT_MAX ||
        (config->expert_max == 0) != (config->top_k_max == 0) ||
        (config->expert_max == 0) != (config->expert_ff_max == 0))
        return pn__fail(d, PN_E_INVALID, "backend for %u of %u experts of %u", config->top_k_max,
                        config->expert_max, config->expert_ff_max);
    if (!isa_init(config->isa) || !cpu_has(config->isa))
        return pn__fail(d, PN_E_UNSUPPORTED, "no kernels for %s on this CPU; the best level is %s",
                        pn__isa_name(config->isa), pn__isa_name(pn__isa_best(PN_ISA_NEON)));

    struct pn_cpu *cpu = pn__calloc(1, sizeof *cpu);
    if (!cpu) return pn__fail(d, PN_E_NOMEM, "CPU backend");
    int rc;
    cpu->config = *config;
    cpu->config.thread_n = pn__cpu_resolve_threads(config->thread_n);
    rc = pn__pool_new(cpu->config.thread_n, config->pin, d, &cpu->pool);
    if (rc) goto fail;
    cpu->slots = pn__calloc(cpu->config.thread_n, sizeof *cpu->slots);
    if (!cpu->slots) {
        rc = pn__fail(d, PN_E_NOMEM, "CPU backend of %u threads", cpu->config.thread_n);
        goto fail;
    }
    struct pn_arena a;
    pn__arena_init(&a, scratch, pn__cpu_scratch_bytes(&cpu->config));
    layout(&a, config, cpu->config.thread_n, &cpu->acts, &cpu->moe, &cpu->parts, cpu->slots);
    isa_init(config->isa)(&cpu->kernels);
    *out = cpu;
    return 0;

fail:
    pn__cpu_free(cpu);
    return rc;
}

void pn__cpu_free(struct pn_cpu *cpu) {
    if (!cpu) return;
    pn__pool_free(cpu->pool);
    pn__free(cpu->slots);
    pn__free(cpu);
}

uint32_t pn__cpu_thread_n(const struct pn_cpu *cpu) {
    return cpu->config.thread_n;
}

uint32_t pn__cpu_pinned_n(const struct pn_cpu *cpu) {
    return pn__pool_pinned_n(cpu->pool);
}

enum pn_isa pn__cpu_isa(const struct pn_cpu *cpu) {
    return cpu->config.isa;
}

void pn__cpu_run(struct pn_cpu *cpu, void (*fn)(void *user, uint32_t thread_i, uint32_t thread_n),
                 void *user) {
    pn__pool_run(cpu->pool, fn, user);
}

/* ---- splitting ---- */

struct split {
    struct pn_cpu *cpu;
    pn_slice_fn fn;
    void *user;
    uint32_t item_n;
    uint32_t grain;
};

static void run_slice(void *user, uint32_t thread_i, uint32_t thread_n) {
    struct split *p = user;
    uint64_t grain_n = ((uint64_t)p->item_n + p->grain - 1) / p->grain;
    uint64_t lo = grain_n * thread_i / thread_n * p->grain;
    uint64_t hi = pn__min_u64(grain_n * (thread_i + 1) / thread_n * p->grain, p->item_n);
    p->cpu->slots[thread_i].slice_n = lo < hi;
    if (lo < hi) p->fn(p->user, (uint32_t)lo, (uint32_t)hi, thread_i);
}

static void run_items(void *user, uint32_t thread_i, uint32_t thread_n) {
    struct split *p = user;
    (void)thread_n;
    p->cpu->slots[thread_i].slice_n = 0;
    for (;;) {
        /* Relaxed: the pool's hand-over orders the data, the counter only picks. */
        uint32_t i = atomic_fetch_add_explicit(&p->cpu->next_item, 1, memory_order_relaxed);
        if (i >= p->item_n) return;
        p->cpu->slots[thread_i].slice_n++;
        p->fn(p->user, i, i + 1, thread_i);
    }
}

static void note_threads(struct pn_step *s, uint32_t thread_n) {
    if (thread_n > s->stats.thread_n) s->stats.thread_n = thread_n;
}

static bool alone(struct pn_step *s, uint32_t item_n, uint32_t grain, uint64_t work, pn_slice_fn fn,
                  void *user) {
    if (item_n > grain && work >= PN_SPLIT_WORK_MIN && s->cpu->config.thread_n > 1) return false;
    if (item_n > 0) {
        note_threads(s, 1);
        fn(user, 0, item_n, 0);
    }
    return true;
}

static void together(struct pn_step *s, struct split *p,
                     void (*fn)(void *user, uint32_t thread_i, uint32_t thread_n)) {
    pn__pool_run(s->cpu->pool, fn, p);
    uint32_t busy_n = 0;
    for (uint32_t i = 0; i < s->cpu->config.thread_n; i++)
        busy_n += s->cpu->slots[i].slice_n > 0;
    note_threads(s, busy_n);
}

void pn__split(struct pn_step *s, uint32_t item_n, uint32_t grain, uint64_t work, pn_slice_fn fn,
               void *user) {
    if (alone(s, item_n, grain, work, fn, user)) return;
    struct split p = {s->cpu, fn, user, item_n, grain};
    together(s, &p, run_slice);
}

void pn__split_dynamic(struct pn_step *s, uint32_t item_n, uint64_t work, pn_slice_fn fn,
                       void *user) {
    if (alone(s, item_n, 1, work, fn, user)) return;
    struct split p = {s->cpu, fn, user, item_n, 1};
    atomic_store_explicit(&s->cpu->next_item, 0, memory_order_relaxed);
    together(s, &p, run_items);
}
