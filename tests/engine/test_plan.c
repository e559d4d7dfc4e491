/* The plan says exactly what is then taken, what fits and what doesn't; and nothing is taken for a
 * model that doesn't fit. The machine is a folder of our own making. */
#include "engine/drive.h"
#include "engine/engine_internal.h"
#include "engine/golden.h"
#include "engine/tiny.h"
#include "ops/ops.h"

#define LARGE (8ull << 30)

static char model[128];

static struct pn_engine_options on_machine(const char *path, uint64_t avail_bytes) {
    tiny_machine(avail_bytes);
    return (struct pn_engine_options){.model_path = path, .root = tiny_tree.root, .threads = 1};
}

static struct pn_plan plan_of(const struct pn_engine_options *o) {
    struct pn_detail d = {{0}};
    struct pn_plan p;
    PN_ASSERT_OK(pn_engine_plan(o, &d, &p), &d);
    assert_true(p.fits);
    return p;
}

static uint64_t cell_of_plan(const struct pn_plan *p, unsigned place, unsigned owner) {
    uint64_t sum = 0;
    for (int i = 0; i < PN_PLAN_PART_N; i++) {
        bool here = p->parts[i].place == place && p->parts[i].owner == owner;
        sum += here ? p->parts[i].bytes : 0;
    }
    return sum;
}

/* What is booked: with `whole` all of the plan, else what loading takes, which is all but what
 * requests will take. NULL: nothing. */
static void check_ledger(const struct pn_plan *p, bool whole) {
    pn_ledger_view v;
    pn_ledger_read(&v);
    for (unsigned place = 0; place < PN_PLACE_N; place++) {
        for (unsigned owner = 0; owner < PN_OWNER_N; owner++) {
            bool later = !whole && (owner == PN_OWNER_KV || owner == PN_OWNER_STATE);
            uint64_t want = p && !later ? cell_of_plan(p, place, owner) : 0;
            if (v.cells[place][owner].reserved_bytes == want) continue;
            fail_msg("%s at %s: %llu bytes are booked, %llu planned", pn_mem_owner_name(owner),
                     pn_mem_place_name(place),
                     (unsigned long long)v.cells[place][owner].reserved_bytes,
                     (unsigned long long)want);
        }
    }
    if (!p || !whole) return;
    assert_int_equal(v.places[PN_PLACE_HOST].reserved_bytes, p->host_bytes);
    assert_int_equal(v.places[PN_PLACE_HOST].reserved_bytes +
                         v.places[PN_PLACE_FILE].reserved_bytes,
                     p->total_bytes);
}

/* A prompt as long as the context in every slot: booked, not computed. */
static void ask_for_all(pn_engine *e, const struct pn_plan *p) {
    struct pn_detail d = {{0}};
    int32_t *ids = calloc(p->ctx, sizeof *ids);
    assert_non_null(ids);
    for (uint32_t i = 0; i < p->slots; i++) {
        struct pn_request r = {.tokens = ids, .token_n = p->ctx};
        PN_ASSERT_OK(pn_session_submit(new_session(e), &r, &d), &d);
    }
    free(ids);
}

/* First of all tests: the ledger's peaks are still 0. */
static void too_small(void **state) {
    (void)state;
    pn_ledger_view v;
    struct pn_detail d = {{0}};
    struct pn_engine_options o = on_machine(model, 64 << 10);
    pn_engine *e = (pn_engine *)&d;
    assert_int_equal(pn_engine_open(&o, &d, &e), PN_E_NOFIT);
    assert_null(e);
    struct pn_plan p;
    assert_int_equal(pn_engine_plan(&o, &d, &p), PN_E_NOFIT);
    assert_false(p.fits);
    assert_int_equal(p.ctx_fit, 0);
    assert_int_equal(p.headroom_bytes, 64 << 10);
    assert_true(p.host_bytes > 64 << 10);
    assert_string_equal(p.domain, "host");
    char want[64];
    snprintf(want, sizeof want, "takes %llu MiB",
             (unsigned long long)((p.host_bytes + (1 << 20) - 1) >> 20));
    assert_non_null(strstr(d.text, want));
    assert_non_null(strstr(d.text, "host has 1 MiB"));
    assert_non_null(strstr(d.text, "not even 64 tokens"));
    pn_ledger_read(&v);
    assert_int_equal(v.places[PN_PLACE_HOST].reserved_peak_bytes, 0);
    assert_int_equal(v.places[PN_PLACE_FILE].reserved_peak_bytes, 0);
    assert_int_equal(v.refusal_n, 0);
}

static void bytes_are_exact(void **state) {
    (void)state;
    static const char *const names[] = {
        "llama-gqa", "llama-tied-hd24", "llama-ropefreqs", "llama-yarn",
        "qwen2",     "qwen3",           "gemma3",          "gemma3-27b",
        "qwen35",    "qwen35-mtp",      "wide-llama-q4_0", "olmoe",
        "qwen3moe",  "gpt-oss",         "deepseek2",       "deepseek2-lite"};
    static const struct {
        uint32_t ctx;
        uint32_t slots;
        uint32_t chunk;
        enum pn_kv_choice kv;
    } shapes[] = {{64, 1, 0, PN_KV_CHOICE_F32},
                  {130, 3, 7, PN_KV_CHOICE_F16},
                  {100, 0, 64, PN_KV_CHOICE_Q8_0},
                  {600, 2, 64, PN_KV_CHOICE_Q4}};
    for (size_t i = 0; i < PN_ARRAY_N(names); i++) {
        struct golden g;
        assert_true(golden_load(names[i], false, &g));
        for (size_t k = 0; k < 2 * PN_ARRAY_N(shapes); k++) {
            struct pn_engine_options o = on_machine(g.model_path, LARGE);
            o.ctx = shapes[k / 2].ctx;
            o.slots = shapes[k / 2].slots;
            o.chunk = shapes[k / 2].chunk;
            o.kv = shapes[k / 2].kv;
            o.weights = k % 2 ? PN_WEIGHTS_MAP : PN_WEIGHTS_COPY;
            struct pn_plan p = plan_of(&o);
            check_ledger(NULL, true);
            pn_engine *e = open_engine(&o);
            const struct pn_plan *used = pn_engine_plan_used(e);
            assert_int_equal(used->total_bytes, p.total_bytes);
            assert_int_equal(used->slots, o.slots ? o.slots : 4);
            assert_int_equal(used->ctx, o.ctx);
            check_ledger(used, false);
            ask_for_all(e, used);
            check_ledger(used, true);
            pn_engine_free(e);
            check_ledger(NULL, true);
        }
        golden_free(&g);
    }
}

/* On a machine of just the right size `ctx` fits; with 4096 bytes less it is a page shorter. */
static void check_edge(struct pn_engine_options o, uint32_t ctx) {
    struct pn_detail d = {{0}};
    o.ctx = ctx;
    uint64_t bytes = plan_of(&o).host_bytes;
    tiny_machine(bytes);
    o.ctx = 0;
    struct pn_plan p = plan_of(&o);
    assert_int_equal(p.ctx, ctx);
    assert_int_equal(p.ctx_fit, ctx);
    assert_int_equal(p.host_bytes, bytes);
    tiny_machine(bytes - 4096);
    p = plan_of(&o);
    assert_int_equal(p.ctx, ctx - PN_PAGE_TOKENS);
    /* A page more is refused, and the message names what fits. */
    char want[64];
    o.ctx = ctx;
    assert_int_equal(pn_engine_plan(&o, &d, &p), PN_E_NOFIT);
    assert_int_equal(p.ctx_fit, ctx - PN_PAGE_TOKENS);
    snprintf(want, sizeof want, "the longest context that fits is %u tokens", ctx - PN_PAGE_TOKENS);
    assert_non_null(strstr(d.text, want));
    tiny_machine(LARGE);
}

static void context_shrinks_to_fit(void **state) {
    (void)state;
    char gemma[128];
    struct tiny t = tiny_gemma3;
    t.ctx = 4096;
    snprintf(gemma, sizeof gemma, "%s/gemma3.gguf", tiny_tree.root);
    tiny_write(&t, NULL, gemma);
    static const uint32_t ctxs[] = {128, 192, 640, 2048, 4032};
    for (size_t i = 0; i < PN_ARRAY_N(ctxs); i++) {
        for (uint32_t slots = 1; slots <= 3; slots++) {
            struct pn_engine_options o = on_machine(i % 2 ? gemma : model, LARGE);
            o.slots = slots;
            o.chunk = i % 2 ? 64 : 0;
            o.weights = slots == 2 ? PN_WEIGHTS_COPY : PN_WEIGHTS_MAP;
            check_edge(o, ctxs[i]);
        }
    }
}

static void slots_that_fit(void **state) {
    (void)state;
    for (uint32_t slots = 1; slots <= 4; slots++) {
        struct pn_engine_options o = on_machine(model, LARGE);
        o.ctx = 128;
        o.slots = slots;
        o.chunk = 16;
        o.weights = PN_WEIGHTS_MAP;
        tiny_machine(plan_of(&o).host_bytes);
        o.slots = 0;
        struct pn_plan p = plan_of(&o);
        assert_int_equal(p.slots, slots);
        assert_int_equal(p.ctx_fit, 128);
    }
    struct pn_engine_options o = on_machine(model, LARGE);
    assert_int_equal(plan_of(&o).slots, 4);
    assert_int_equal(plan_of(&o).ctx, 4096);
}

static void weights_are_chosen(void **state) {
    (void)state;
    struct pn_engine_options o = on_machine(model, LARGE);
    o.slots = 1;
    struct pn_plan p = plan_of(&o);
    assert_int_equal(p.weights, PN_WEIGHTS_COPY);
    assert_non_null(strstr(p.weights_why, "fits beside the rest at 4096 tokens"));
    uint64_t copy_bytes = p.host_bytes;
    tiny_machine(copy_bytes);
    assert_int_equal(plan_of(&o).weights, PN_WEIGHTS_COPY);
    tiny_machine(copy_bytes - 4096);
    p = plan_of(&o);
    assert_int_equal(p.weights, PN_WEIGHTS_MAP);
    assert_int_equal(p.ctx, 4096);
    assert_non_null(strstr(p.weights_why, "doesn't fit"));
    assert_non_null(strstr(p.weights_why, "MiB"));
    pn_engine *e = open_engine(&o);
    check_ledger(&p, false);
    pn_engine_free(e);
    o.weights = PN_WEIGHTS_MAP;
    assert_string_equal(plan_of(&o).weights_why, "asked for");
}

static void limit_space(uint64_t bytes) {
    char text[256];
    snprintf(text, sizeof text,
             "Max data size             unlimited            unlimited            bytes\n"
             "Max address space         %llu           unlimited            bytes\n",
             (unsigned long long)bytes);
    mem_tree_write(&tiny_tree, "proc/self/limits", text);
    mem_tree_write(&tiny_tree, "proc/self/status", "VmSize: 0 kB\nVmData: 0 kB\n");
}

/* A map takes no memory that could run out, but address space, where that is limited. */
static void address_space_counts_the_map(void **state) {
    (void)state;
    struct pn_engine_options o = on_machine(model, LARGE);
    struct pn_detail d = {{0}};
    o.slots = 1;
    o.ctx = 4096;
    o.weights = PN_WEIGHTS_MAP;
    struct pn_plan p = plan_of(&o);
    assert_true(p.host_bytes < p.total_bytes);
    uint64_t exact = p.total_bytes; /* nothing is kept free on this machine */
    limit_space(exact);
    p = plan_of(&o);
    limit_space(exact - 1);
    assert_int_equal(pn_engine_plan(&o, &d, &p), PN_E_NOFIT);
    assert_string_equal(p.domain, "rlimit");
    assert_true(!p.fits && p.lacking_bytes == 1 && p.headroom_bytes == p.total_bytes - 1);
    assert_non_null(strstr(d.text, "rlimit has"));
    assert_true(p.ctx_fit > 0 && p.ctx_fit < 4096);
    mem_tree_remove(&tiny_tree, "proc/self/limits");
    mem_tree_remove(&tiny_tree, "proc/self/status");
    pn_ledger_set_domain(PN_DOMAIN_RLIMIT, NULL, UINT64_MAX, 0);
}

static void context_above_training(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    struct pn_engine_options o = on_machine(model, LARGE);
    pn_engine *e;
    o.ctx = 4097;
    assert_int_equal(pn_engine_open(&o, &d, &e), PN_E_CONTEXT);
    assert_null(e);
    assert_non_null(strstr(d.text, "4097"));
    assert_non_null(strstr(d.text, "4096"));
    assert_non_null(strstr(d.text, "llama.context_length"));
    check_ledger(NULL, true);
}

/* Blocks that only predict further tokens are neither loaded nor planned: the bytes are those of
 * the same model without them. */
static void unused_blocks(void **state) {
    (void)state;
    struct golden plain;
    struct golden mtp;
    assert_true(golden_load("qwen35", false, &plain));
    assert_true(golden_load("qwen35-mtp", false, &mtp));
    for (int way = PN_WEIGHTS_MAP; way <= PN_WEIGHTS_COPY; way++) {
        struct pn_engine_options a = on_machine(plain.model_path, LARGE);
        struct pn_engine_options b = on_machine(mtp.model_path, LARGE);
        a.weights = b.weights = (enum pn_weights_choice)way;
        struct pn_plan p = plan_of(&a);
        struct pn_plan q = plan_of(&b);
        for (int i = 0; i < PN_PLAN_PART_N; i++) {
            assert_int_equal(p.parts[i].bytes, q.parts[i].bytes);
        }
        assert_int_equal(p.file_weights_bytes, q.file_weights_bytes);
        assert_int_equal(p.unused_blocks, 0);
        assert_int_equal(p.unused_bytes, 0);
        assert_int_equal(q.unused_blocks, 1);
        assert_true(q.unused_bytes > 0);
    }
    golden_free(&plain);
    golden_free(&mtp);
}

/* Which format is used and why: an explicit choice is carried out, auto follows the ladder for the
 * families that bear it, and what was never measured doesn't count as borne. */
static void kv_formats(void **state) {
    (void)state;
    static const struct {
        enum pn_kv_choice asked;
        double kl;
        bool ladder;
        enum pn_kv_choice used;
        const char *why;
    } cases[] = {
        {PN_KV_CHOICE_Q8_0, 0.001, true, PN_KV_CHOICE_Q8_0, "asked for"},
        {PN_KV_CHOICE_Q4, 0.001, false, PN_KV_CHOICE_Q4, "0.0010 at 1000 tokens, within 0.05"},
        {PN_KV_CHOICE_Q4, 0.3, true, PN_KV_CHOICE_Q4, "0.3000 at 1000 tokens, above 0.05"},
        {PN_KV_CHOICE_Q4, 0, true, PN_KV_CHOICE_Q4, "never measured for toy"},
        {PN_KV_CHOICE_AUTO, 0.001, false, PN_KV_CHOICE_F16, "not short"},
        {PN_KV_CHOICE_AUTO, 0.05, true, PN_KV_CHOICE_Q4, "memory is short"},
        {PN_KV_CHOICE_AUTO, 0.051, true, PN_KV_CHOICE_F16, "not safe"},
        {PN_KV_CHOICE_AUTO, 0, true, PN_KV_CHOICE_F16, "never measured for toy"},
    };
    for (size_t i = 0; i < PN_ARRAY_N(cases); i++) {
        struct pn_family family = {.arch = "toy", .kv_q4_kl = cases[i].kl};
        char why[160];
        assert_int_equal(pn__kv_choose(cases[i].asked, &family, cases[i].ladder, why),
                         cases[i].used);
        if (!strstr(why, cases[i].why)) fail_msg("case %zu: %s", i, why);
    }
    struct golden g;
    assert_true(golden_load("llama-gqa", false, &g));
    struct pn_engine_options o = on_machine(g.model_path, LARGE);
    o.ctx = 2000;
    o.slots = 1;
    o.kv = PN_KV_CHOICE_AUTO; /* nobody watches: no ladder */
    struct pn_plan p = plan_of(&o);
    assert_int_equal(p.kv, PN_KV_CHOICE_F16);
    assert_string_equal(p.kv_why, "auto: memory is not short");
    uint64_t f16_bytes = p.parts[2].bytes;
    assert_string_equal(p.parts[2].name, "kv");
    o.kv = PN_KV_CHOICE_Q4;
    o.chunk = 64;
    p = plan_of(&o);
    assert_int_equal(p.kv, PN_KV_CHOICE_Q4);
    assert_true(p.parts[2].bytes < f16_bytes);
    golden_free(&g);
}

static void bad_options(void **state) {
    (void)state;
    static const struct {
        struct pn_engine_options o;
        const char *named;
    } rows[] = {
        {{.slots = 1025}, "1025 slots"},
        {{.slots = UINT32_MAX}, "4294967295 slots"},
        {{.threads = 257}, "257 threads"},
        {{.threads = UINT32_MAX}, "4294967295 threads"},
        {{.kv = (enum pn_kv_choice)5}, "KV format 5"},
        {{.weights = (enum pn_weights_choice)3}, "weights 3"},
        {{.isa = (enum pn_isa_choice)6}, "ISA 6"},
    };
    struct pn_detail d = {{0}};
    struct pn_plan p;
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        struct pn_engine_options o = rows[i].o;
        o.model_path = model;
        o.root = tiny_tree.root;
        assert_int_equal(pn_engine_plan(&o, &d, &p), PN_E_INVALID);
        assert_non_null(strstr(d.text, rows[i].named));
    }
    struct pn_engine_options none = {.model_path = NULL};
    pn_engine *e;
    assert_int_equal(pn_engine_open(&none, &d, &e), PN_E_INVALID);
    assert_null(e);
    /* Large but legal ones only cost what they must. */
    struct pn_engine_options o = on_machine(model, LARGE);
    o.chunk = UINT32_MAX;
    o.out_rows = UINT32_MAX;
    o.slots = 1;
    assert_true(plan_of(&o).total_bytes < LARGE);
}

static int setup(void **state) {
    struct tiny t = tiny_llama;
    t.ctx = 4096;
    tiny_tree_setup(state);
    snprintf(model, sizeof model, "%s/llama.gguf", tiny_tree.root);
    tiny_write(&t, NULL, model);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_small),
        cmocka_unit_test(bytes_are_exact),
        cmocka_unit_test(context_shrinks_to_fit),
        cmocka_unit_test(slots_that_fit),
        cmocka_unit_test(weights_are_chosen),
        cmocka_unit_test(address_space_counts_the_map),
        cmocka_unit_test(context_above_training),
        cmocka_unit_test(unused_blocks),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(kv_formats),
    };
    return cmocka_run_group_tests(tests, setup, tiny_tree_teardown);
}
