/* For real: an engine in a control group of its own, a neighbour in the same group that eats
 * memory, and the kernel as the judge. Nothing may be killed for want of memory, and all load stays
 * inside the group. Each body runs in a child process there: it returns 0, or says what didn't
 * hold. */
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/demo.h"
#include "engine/drive.h"
#include "engine/tiny.h"
#include "mem/child.h"
#include "mem/v1_group.h"

#define MIB (1ull << 20)
#define LIMIT (512 * MIB) /* of which the larger of 64 MiB and 1/16 are kept free */
#define DEMO_LIMIT (1400 * MIB)
#define DEMO_WAIT_S 150
#define CTX (1u << 20)

static char model[128];
static char demo[512];
static struct v1_group group;
static struct pn_detail detail;

static void nap_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static pn_mem_state now(void) {
    pn_mem_state s;
    while (pn_memwatch_read(&s) != 0)
        nap_ms(1);
    return s;
}

/* Waits until the byte level is `level` or (with `up`) above; false after `ms`. */
static bool wait_for(pn_mem_level level, bool up, long ms) {
    for (long t = 0; t < ms; t += 20) {
        pn_mem_level is = now().byte_level;
        if (up ? is >= level : is <= level) return true;
        nap_ms(20);
    }
    fprintf(stderr, "byte level still %s\n", pn_mem_level_name(now().byte_level));
    return false;
}

static uint64_t usage(void) {
    return v1_group_figure(&group, "memory.usage_in_bytes");
}

/* With the whole context of 2^20 tokens a slot takes 256 MiB of KV in f32. */
static struct pn_engine_options tiny_options(uint32_t ctx, uint32_t slots) {
    return (struct pn_engine_options){.model_path = model,
                                      .ctx = ctx,
                                      .slots = slots,
                                      .chunk = 64,
                                      .threads = 1,
                                      .kv = PN_KV_CHOICE_F32,
                                      .watch = true};
}

/* Runs a body in a new group and sees to it that nobody was killed. */
static void in_group(uint64_t limit_bytes, int (*body)(void *arg)) {
    if (v1_group_new(&group, limit_bytes) != 0) PN_SKIP_EXIT("%s", group.why);
    int status = v1_group_run(&group, body, NULL);
    long killed_n = v1_group_oom_kill_n(&group);
    uint64_t most = v1_group_figure(&group, "memory.max_usage_in_bytes");
    assert_int_equal(v1_group_free(&group), 0);
    print_message("most used: %llu MiB of %llu\n", (unsigned long long)(most / MIB),
                  (unsigned long long)(limit_bytes / MIB));
    assert_int_equal(killed_n, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- bodies ---- */

/* A neighbour takes 4 MiB each 40 ms up to 40 MiB before the limit: each level is seen on the way,
 * in order, while there is still room. */
static int level_rises(void *arg) {
    (void)arg;
    uint64_t seen_at[PN_MEM_LEVEL_N] = {0};
    pn_ledger_set_reserves(0, UINT64_MAX);
    CHECK(pn_memwatch_start() == 0);
    CHECK(now().byte_level == PN_MEM_LEVEL_OK);
    pid_t hog = group_hog_start(LIMIT - 40 * MIB - usage(), 4 * MIB, 40);
    CHECK(hog > 0);
    for (int i = 0; i < 1500 && !seen_at[PN_MEM_LEVEL_CRITICAL]; i++) {
        pn_mem_level level = now().byte_level;
        if (!seen_at[level]) seen_at[level] = usage();
        nap_ms(10);
    }
    for (unsigned level = 0; level < PN_MEM_LEVEL_N; level++) {
        printf("%s first seen at %llu MiB\n", pn_mem_level_name(level),
               (unsigned long long)(seen_at[level] / MIB));
        CHECK(seen_at[level] > 0 && seen_at[level] < LIMIT - 40 * MIB);
        CHECK(level == 0 || seen_at[level] >= seen_at[level - 1]);
    }
    CHECK(group_hog_stop(hog) == 0);
    pn_memwatch_stop();
    return 0;
}

/* A load that can't fit takes nothing; a context that can't is refused with the one that does, and
 * that one loads and computes. */
static int refused_with_the_fit(void *arg) {
    (void)arg;
    struct pn_engine_options o = tiny_options(CTX, 4);
    struct pn_plan plan;
    pn_engine *e;
    pn_ledger_set_reserves(0, UINT64_MAX);
    uint64_t before = usage();
    CHECK(pn_engine_open(&o, &detail, &e) == PN_E_NOFIT);
    printf("%s\n", detail.text);
    CHECK(strstr(detail.text, "cgroup:") && strstr(detail.text, "pn-test-"));
    CHECK(usage() < before + 8 * MIB);
    CHECK(v1_group_figure(&group, "memory.max_usage_in_bytes") < before + 16 * MIB);

    CHECK(pn_engine_plan(&o, &detail, &plan) == PN_E_NOFIT);
    CHECK(plan.ctx_fit > 0 && plan.ctx_fit < CTX && plan.slots_fit >= 1);
    CHECK(plan.lacking_bytes == plan.host_bytes - plan.headroom_bytes);
    char want[64];
    snprintf(want, sizeof want, "the longest context that fits is %u tokens", plan.ctx_fit);
    CHECK(strstr(detail.text, want));
    /* Figures move by a few pages from look to look. */
    o.ctx = plan.ctx_fit - 4096;
    CHECK(pn_engine_open(&o, &detail, &e) == 0);
    pn_engine_free(e);
    pn_memwatch_stop();
    return 0;
}

/* A neighbour eats while we are loaded: the level goes up, a request that no longer fits is refused
 * with what would, one that does is answered; the neighbour goes, and we come back down. */
static int neighbour_eats(void *arg) {
    (void)arg;
    struct pn_engine_options o = tiny_options(CTX, 1);
    pn_engine *e;
    pn_session *s;
    static int32_t ids[CTX / 2];
    struct pn_request large = {.tokens = ids, .token_n = CTX / 2};
    struct pn_request small = {.tokens = ids, .token_n = 10, .max_new = 4};
    bool more = true;
    pn_ledger_set_reserves(0, UINT64_MAX);
    CHECK(pn_engine_open(&o, &detail, &e) == 0);
    CHECK(pn_session_new(e, &detail, &s) == 0);
    CHECK(now().byte_level == PN_MEM_LEVEL_OK);
    /* 70 MiB are left: 64 are kept free, so that is TIGHT. */
    pid_t hog = group_hog_start(LIMIT - 70 * MIB - usage(), 16 * MIB, 0);
    CHECK(hog > 0);
    CHECK(wait_for(PN_MEM_LEVEL_TIGHT, true, 10000));
    int rc = pn_session_submit(s, &large, &detail);
    printf("%s\n", detail.text);
    CHECK(rc == PN_E_NOFIT);
    CHECK(strstr(detail.text, "cgroup:") && strstr(detail.text, "bytes"));
    CHECK(pn_session_submit(s, &small, &detail) == 0);
    while (more)
        CHECK(pn_engine_turn(e, &more, &detail) == 0);
    CHECK(pn_session_length(s) == 13);
    CHECK(group_hog_stop(hog) == 0);
    pn_memwatch_poll_now();
    CHECK(now().byte_level >= PN_MEM_LEVEL_TIGHT); /* not at once */
    CHECK(wait_for(PN_MEM_LEVEL_WATCH, false, 20000));
    CHECK(wait_for(PN_MEM_LEVEL_OK, false, 40000));
    pn_session_free(s);
    CHECK(pn_session_new(e, &detail, &s) == 0);
    CHECK(pn_session_submit(s, &large, &detail) == 0);
    CHECK(pn_session_cancel(s, &detail) == 0);
    CHECK(pn_engine_turn(e, &more, &detail) == 0);
    pn_engine_free(e);
    pn_memwatch_stop();
    return 0;
}

static void keep_done(void *user, const struct pn_done *done) {
    *(struct pn_done *)user = *done;
}

/* An open answer where a neighbour leaves room for a few thousand tokens only: it ends where the
 * memory does and says so, a second request is refused meanwhile, and answered afterwards. */
static int answer_ends_with_memory(void *arg) {
    (void)arg;
    struct pn_engine_options o = tiny_options(1u << 16, 2);
    struct pn_done done = {.stop = PN_STOP_ERROR};
    static int32_t ids[100];
    pn_engine *e;
    pn_session *s[2];
    bool more = true;
    pn_ledger_set_reserves(0, UINT64_MAX);
    CHECK(pn_engine_open(&o, &detail, &e) == 0);
    pid_t hog = group_hog_start(LIMIT - 66 * MIB - usage(), 16 * MIB, 0);
    CHECK(hog > 0);
    CHECK(wait_for(PN_MEM_LEVEL_TIGHT, true, 10000));
    nap_ms(1000); /* and is full */
    pn_memwatch_poll_now();
    for (int i = 0; i < 2; i++)
        CHECK(pn_session_new(e, &detail, &s[i]) == 0);
    struct pn_request r = {
        .tokens = ids, .token_n = 100, .max_new = PN_NEW_OPEN, .on_done = keep_done, .user = &done};
    struct pn_request other = {.tokens = ids, .token_n = 100, .max_new = 700};
    CHECK(pn_session_submit(s[0], &r, &detail) == 0);
    CHECK(pn_session_submit(s[1], &other, &detail) == PN_E_NOFIT);
    printf("%s\n", detail.text);
    for (int i = 0; more && i < 1 << 16; i++)
        CHECK(pn_engine_turn(e, &more, &detail) == 0);
    printf("%u tokens: %s\n", done.decode_n, done.detail.text);
    CHECK(done.stop == PN_STOP_MEMORY && done.decode_n >= PN_ADMIT_NEW_TOKENS);
    CHECK(strstr(done.detail.text, "the request ends at "));
    pn_session_free(s[0]);
    pn_memwatch_poll_now(); /* the last snapshot may be older than what was given back */
    CHECK(pn_session_submit(s[1], &other, &detail) == 0);
    for (more = true; more;)
        CHECK(pn_engine_turn(e, &more, &detail) == 0);
    CHECK(pn_session_length(s[1]) == 799);
    CHECK(group_hog_stop(hog) == 0);
    pn_engine_free(e);
    pn_memwatch_stop();
    return 0;
}

/* The demo model in 1400 MiB, at OK once the machine has calmed down. */
static int demo_runs_at_ok(void *arg) {
    (void)arg;
    struct pn_engine_options o = {.model_path = demo, .slots = 1, .threads = 1, .watch = true};
    pn_engine *e;
    pn_session *s;
    static int32_t ids[256];
    for (int i = 0; i < 256; i++)
        ids[i] = 1 + i * 31 % 1000;
    CHECK(pn_engine_open(&o, &detail, &e) == 0);
    CHECK(pn_session_new(e, &detail, &s) == 0);
    struct pn_request r = {.tokens = ids, .token_n = 256, .max_new = 32};
    CHECK(pn_session_submit(s, &r, &detail) == 0);
    bool more = true;
    while (more)
        CHECK(pn_engine_turn(e, &more, &detail) == 0);
    CHECK(pn_session_length(s) == 287);
    pn_mem_state m = now();
    for (int i = 0; i < DEMO_WAIT_S * 10 && m.level != PN_MEM_LEVEL_OK; i++) {
        nap_ms(100);
        m = now();
    }
    printf("level %s, %llu MiB to give (%s)\n", pn_mem_level_name(m.level),
           (unsigned long long)(m.headroom_bytes / MIB), m.headroom_domain);
    CHECK(m.level == PN_MEM_LEVEL_OK && m.byte_level == PN_MEM_LEVEL_OK);
    CHECK(strncmp(m.headroom_domain, "cgroup:", 7) == 0);
    pn_engine_free(e);
    pn_memwatch_stop();
    return 0;
}

/* ---- */

static void test_level_rises(void **state) {
    (void)state;
    in_group(LIMIT, level_rises);
}

static void test_refused(void **state) {
    (void)state;
    in_group(LIMIT, refused_with_the_fit);
}

static void test_neighbour(void **state) {
    (void)state;
    in_group(LIMIT, neighbour_eats);
}

static void test_answer_ends(void **state) {
    (void)state;
    in_group(LIMIT, answer_ends_with_memory);
}

static void test_demo(void **state) {
    (void)state;
    if (!demo_find(demo, sizeof demo)) PN_SKIP_TEST("no demo model: make demo");
    in_group(DEMO_LIMIT, demo_runs_at_ok);
}

static int setup(void **state) {
    struct tiny t = tiny_llama;
    tiny_tree_setup(state);
    t.ctx = CTX;
    snprintf(model, sizeof model, "%s/llama.gguf", tiny_tree.root);
    tiny_write(&t, NULL, model);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_level_rises), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_neighbour),   cmocka_unit_test(test_answer_ends),
        cmocka_unit_test(test_demo),
    };
    return cmocka_run_group_tests(tests, setup, tiny_tree_teardown);
}
