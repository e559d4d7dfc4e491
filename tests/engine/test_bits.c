/* Golden models' logits, to the bit: on every processor and at every level the bytes that are
 * recorded here. The other tests compare levels of one processor; this one sees to it that a build
 * for another one gives what x86-64 gives. With --print it prints the list instead.
 *
 * One thing isn't ours: sines and cosines of the rope come from the C library, in double, and are
 * rounded once. Where this test alone fails, for models with rope, on a system with another
 * library, that is the first thing to look at. */
#include <inttypes.h>

#include "engine/golden.h"
#include "ops/ops.h"

struct record {
    const char *model;
    bool is_long;
    enum pn_kv_choice kv;
    uint64_t hash; /* of all rows, prompt and script */
};

static const struct record records[] = {
    {"wide-llama-q4_0", false, PN_KV_CHOICE_F16, 0xfed7265129422763},
    {"wide-llama-q8_0", false, PN_KV_CHOICE_Q8_0, 0x3acd13d285781223},
    {"wide-llama-q4_k_s", false, PN_KV_CHOICE_F16, 0x9a26d30a7e094c78},
    {"wide-llama-q6_k", false, PN_KV_CHOICE_F32, 0xa145304e61b8901b},
    {"llama-gqa", true, PN_KV_CHOICE_Q4, 0x3ccaa2ea687abb50},
    {"gemma3", true, PN_KV_CHOICE_Q8_0, 0x67d53f0895fbfdf8},
    {"qwen2", false, PN_KV_CHOICE_F16, 0x1ee7035ee18bf06f},
    {"qwen35", false, PN_KV_CHOICE_F16, 0xb2a5c14bb3f11289},
    {"qwen3moe", false, PN_KV_CHOICE_F16, 0x972afc8ed6499e8f},
    {"gpt-oss", false, PN_KV_CHOICE_F16, 0xcbe67144e8ecd72c},
    {"deepseek2", false, PN_KV_CHOICE_F16, 0xb610b7b9d42a3003},
};

static const struct {
    enum pn_isa isa;
    enum pn_isa_choice choice;
} levels[] = {
    {PN_ISA_REF, PN_ISA_CHOICE_REF},       {PN_ISA_AVX2, PN_ISA_CHOICE_AVX2},
    {PN_ISA_AVX512, PN_ISA_CHOICE_AVX512}, {PN_ISA_AMX, PN_ISA_CHOICE_AMX},
    {PN_ISA_NEON, PN_ISA_CHOICE_NEON},
};

/* FNV-1a over the floats' bytes, the lowest first. */
static uint64_t hash_of(const float *x, size_t n) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        for (int shift = 0; shift < 32; shift += 8)
            hash = (hash ^ (bits >> shift & 0xff)) * 0x100000001b3u;
    }
    return hash;
}

static uint64_t hash_at(const struct record *r, enum pn_isa_choice isa) {
    struct golden g;
    if (!golden_load(r->model, r->is_long, &g)) fail_msg("golden %s isn't there", r->model);
    struct run_options o = {.threads = 2, .chunk = 512, .kv = r->kv, .isa = isa};
    struct run_result got;
    run_model(g.model_path, &g.prompt, &g.greedy, &o, &got);
    uint64_t hash = hash_of(got.rows, got.row_n * got.vocab);
    run_free(&got);
    golden_free(&g);
    return hash;
}

static void recorded(void **state) {
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < PN_ARRAY_N(records); i++)
        for (size_t l = 0; l < PN_ARRAY_N(levels); l++) {
            const struct record *r = &records[i];
            if (pn__isa_best(levels[l].isa) != levels[l].isa) continue;
            uint64_t hash = hash_at(r, levels[l].choice);
            print_message("%s%s at %s: %016" PRIx64 "%s\n", r->model, r->is_long ? " long" : "",
                          pn__isa_name(levels[l].isa), hash, hash == r->hash ? "" : ", wrong");
            wrong += hash != r->hash;
        }
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        for (size_t i = 0; i < PN_ARRAY_N(records); i++)
            printf("%s 0x%016" PRIx64 "\n", records[i].model,
                   hash_at(&records[i], PN_ISA_CHOICE_REF));
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(recorded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
