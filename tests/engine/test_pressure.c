/* The engine on a machine that gets tight. */
#include <unistd.h>

#include "engine/drive.h"
#include "engine/tight.h"

#define CTX TIGHT_CTX
#define CACHE_BYTES (4ull << 30)

static pn_engine *open_tiny(uint32_t slots) {
    struct pn_engine_options o = {.model_path = tight.model,
                                  .ctx = CTX,
                                  .slots = slots,
                                  .threads = 1,
                                  .root = tight.sim->tree.root,
                                  .watch = true};
    return open_engine(&o);
}

static struct pn_engine_pressure turn(pn_engine *e) {
    struct pn_detail d = {{0}};
    struct pn_engine_pressure p;
    bool more;
    PN_ASSERT_OK(pn_engine_turn(e, &more, &d), &d);
    pn_engine_pressure(e, &p);
    return p;
}

/* ---- rung 2 ---- */

static void slot_ceiling(void **state) {
    (void)state;
    struct answer a[4];
    pn_engine *e = open_tiny(4);
    struct pn_engine_pressure p;
    tight_machine(TIGHT_GIB, 0);
    for (int i = 0; i < 4; i++) {
        struct pn_detail d = {{0}};
        struct pn_request r = {
            .tokens = tight.ids, .token_n = 10, .max_new = 20 + 20 * (uint32_t)i};
        answer_init(&a[i], &r);
        PN_ASSERT_OK(pn_session_submit(new_session(e), &r, &d), &d);
    }
    p = turn(e);
    assert_int_equal(p.ladder.level, PN_MEM_LEVEL_TIGHT);
    assert_int_equal(p.ladder.max_slots, 2);
    assert_int_equal(p.running_n, 2);
    assert_int_equal(p.held_n, 2);
    assert_non_null(strstr(tight.log.text, "[ladder] refusing 2 decode slots for now: TIGHT"));
    /* It gets worse: those that run go on. */
    tight_machine(CRITICAL_GIB, 0);
    p = turn(e);
    assert_int_equal(p.ladder.max_slots, 1);
    assert_int_equal(p.running_n, 2);
    while (a[0].done_n == 0)
        p = turn(e);
    p = turn(e);
    assert_int_equal(p.running_n, 1); /* no third beside the second */
    assert_int_equal(p.held_n, 2);
    while (a[1].done_n == 0)
        p = turn(e);
    p = turn(e);
    assert_int_equal(p.running_n, 1);
    assert_int_equal(p.held_n, 1);
    /* And better: a step at a time, each after its dwell. */
    tight_machine(OK_GIB, 0);
    p = turn(e);
    assert_int_equal(p.running_n, 1);
    tight_pass(5);
    p = turn(e);
    assert_int_equal(p.ladder.level, PN_MEM_LEVEL_TIGHT);
    assert_int_equal(p.running_n, 2);
    assert_int_equal(p.held_n, 0);
    drive(e);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(a[i].done.stop, PN_STOP_LENGTH);
        answer_free(&a[i]);
    }
    pn_engine_free(e);
}

/* A request that is held can be cancelled, and its bytes come back. */
static void held_can_be_cancelled(void **state) {
    (void)state;
    struct answer a[3];
    pn_session *s[3];
    struct pn_detail d = {{0}};
    pn_engine *e = open_tiny(3);
    uint64_t before = ledger_reserved();
    tight_machine(CRITICAL_GIB, 0);
    /* The level refuses nothing by itself: there is memory enough. */
    pn_ledger_set_reserves(0, 0);
    pn_memwatch_poll_now();
    for (int i = 0; i < 3; i++) {
        struct pn_request r = {.tokens = tight.ids, .token_n = 10, .max_new = 30};
        answer_init(&a[i], &r);
        s[i] = new_session(e);
        PN_ASSERT_OK(pn_session_submit(s[i], &r, &d), &d);
    }
    struct pn_engine_pressure p = turn(e);
    assert_int_equal(p.held_n, 2);
    assert_int_equal(pn_session_cancel(s[1], &d), 0);
    p = turn(e);
    assert_int_equal(a[1].done.stop, PN_STOP_CANCELLED);
    assert_int_equal(p.held_n, 1);
    drive(e);
    assert_int_equal(a[0].done.stop, PN_STOP_LENGTH);
    assert_int_equal(a[2].done.stop, PN_STOP_LENGTH);
    for (int i = 0; i < 3; i++) {
        pn_session_free(s[i]);
        answer_free(&a[i]);
    }
    assert_int_equal(ledger_reserved(), before);
    pn_engine_free(e);
}

/* ---- rung 3 ---- */

static int try(pn_engine *e, uint32_t token_n, struct pn_detail *d) {
    pn_session *s = new_session(e);
    struct pn_request r = {.tokens = tight.ids, .token_n = token_n};
    int rc = pn_session_submit(s, &r, d);
    drive(e);
    pn_session_free(s);
    return rc;
}

static void window_is_clamped(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    uint32_t fit;
    pn_engine *e = open_tiny(1);
    assert_int_equal(try(e, CTX, &d), 0);
    assert_int_equal(pn_admit(e, CTX, &fit), PN_ADMIT_ADMITTED);
    assert_null(strstr(tight.log.text, "[ladder]"));
    tight_machine(TIGHT_GIB, 0);
    assert_int_equal(try(e, 512, &d), 0);
    assert_int_equal(try(e, 513, &d), PN_E_NOFIT);
    assert_string_equal(d.text, "a prompt of 513 tokens; memory is TIGHT: at most 512 are taken at "
                                "present, 1024 while it is OK");
    assert_non_null(
        strstr(tight.log.text, "[ladder] TIGHT -> prefill window clamped 1024 -> 512 ("));
    assert_int_equal(pn_admit(e, 512, &fit), PN_ADMIT_ADMITTED);
    assert_int_equal(pn_admit(e, 513, &fit), PN_ADMIT_DENIED);
    assert_int_equal(fit, 512);
    assert_int_equal(pn_admit(e, CTX + 1, &fit), PN_ADMIT_CAPPED);
    assert_int_equal(fit, CTX);
    tight_machine(CRITICAL_GIB, 0);
    assert_int_equal(try(e, 257, &d), PN_E_NOFIT);
    assert_non_null(strstr(d.text, "at most 256"));
    assert_int_equal(pn_admit(e, 10, &fit), PN_ADMIT_DENIED); /* no bytes above the reserve */
    assert_int_equal(fit, 0);
    pn_ladder_set_disabled(true);
    tight_machine(1.1, 0);
    assert_int_equal(try(e, CTX, &d), 0);
    pn_ladder_set_disabled(false);
    tight_machine(OK_GIB, 0);
    tight_pass(5);
    tight_pass(15);
    tight_pass(30);
    assert_int_equal(turn(e).ladder.level, PN_MEM_LEVEL_OK);
    assert_int_equal(try(e, CTX, &d), 0);
    pn_engine_free(e);
}

/* A machine that waits for its disk: the level says so, nothing is taken away; and one that stands
 * still takes no new work at all. */
static void stalls_alone(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    pn_mem_state s;
    pn_engine *e = open_tiny(4);
    tight_machine(OK_GIB, 0.4);
    assert_int_equal(pn_memwatch_read(&s), 0);
    assert_int_equal(s.level, PN_MEM_LEVEL_TIGHT);
    assert_int_equal(s.byte_level, PN_MEM_LEVEL_OK);
    assert_int_equal(s.deficit_bytes, 0);
    assert_int_equal(try(e, CTX, &d), 0);
    assert_int_equal(turn(e).ladder.max_slots, 4);
    tight_machine(OK_GIB, 20);
    assert_int_equal(turn(e).ladder.level, PN_MEM_LEVEL_OK);
    assert_int_equal(try(e, 10, &d), PN_E_NOFIT);
    assert_non_null(strstr(d.text, "sustained memory stall"));
    /* What can't be read is not OK, whatever the bytes were. */
    tight_machine(OK_GIB, 0);
    mem_tree_write(&tight.sim->tree, "proc/pressure/memory", "garbage\n");
    pn_memwatch_poll_now();
    assert_int_equal(turn(e).ladder.level, PN_MEM_LEVEL_TIGHT);
    pn_engine_free(e);
}

/* ---- rung 1 ---- */

struct cache {
    uint64_t bytes;
    int asked_n;
};

static uint64_t cache_held(void *user) {
    return ((struct cache *)user)->bytes;
}

static void cache_shed(void *user, uint64_t bytes) {
    struct cache *c = user;
    c->bytes -= bytes;
    c->asked_n++;
}

/* An idle driver turns, and the cache gives what is lacking: once for each snapshot, however often
 * it turns and however many engines there are. */
static void caches_give(void **state) {
    (void)state;
    struct cache c = {.bytes = CACHE_BYTES};
    pn_mem_state s;
    pn_engine *e = open_tiny(1);
    pn_engine *other = open_tiny(1);
    int id = pn_shed_register("test", 0, cache_held, 0, cache_shed, &c);
    assert_true(id >= 0);
    turn(e);
    assert_int_equal(c.asked_n, 0);
    /* Stops the thread's own polls, so that snapshots can be counted. */
    tight_machine(WATCH_GIB, 0);
    assert_int_equal(pn_memwatch_read(&s), 0);
    assert_true(s.deficit_bytes > 0);
    uint64_t seq = s.seq;
    turn(e);
    turn(e);
    turn(other);
    assert_int_equal(pn_memwatch_read(&s), 0);
    /* The thread may have polled meanwhile: then that many snapshots asked. */
    assert_in_range(c.asked_n, 1, 1 + s.seq - seq);
    assert_int_equal(CACHE_BYTES - c.bytes, (uint64_t)c.asked_n * s.deficit_bytes);
    assert_int_equal(pn_shed_unregister(id), 0);
    pn_engine_free(e);
    pn_engine_free(other);
}

/* A snapshot ends the sleep of a driver that has nothing to do. */
static void snapshot_wakes(void **state) {
    (void)state;
    pn_engine *e = open_tiny(1);
    uint64_t seen = pn_mem_wake_count();
    uint64_t woken = pn_mem_wait(seen, 5000); /* a poll comes within 250 ms */
    assert_true(woken != seen);
    pn_memwatch_stop();
    seen = pn_mem_wake_count();
    assert_int_equal(pn_mem_wait(seen, 1), seen);
    struct pn_detail d = {{0}};
    struct pn_request r = {.tokens = tight.ids, .token_n = 1};
    PN_ASSERT_OK(pn_session_submit(new_session(e), &r, &d), &d);
    assert_true(pn_mem_wait(seen, 5000) != seen);
    drive(e);
    pn_engine_free(e);
}

static int setup(void **state) {
    (void)state;
    return tight_setup(0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, tight_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(slot_ceiling), T(held_can_be_cancelled), T(window_is_clamped),
        T(stalls_alone), T(caches_give),           T(snapshot_wakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
