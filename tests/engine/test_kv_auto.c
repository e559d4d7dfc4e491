/* `--kv auto`: the format of each session is that of the level at which it begins, and stays. */
#include "engine/drive.h"
#include "engine/golden.h"
#include "engine/tight.h"

#define CTX TIGHT_CTX

static void expect_level(pn_mem_level level) {
    pn_mem_state s;
    assert_int_equal(pn_memwatch_read(&s), 0);
    assert_int_equal(s.byte_level, level);
}

static void to_watch(void) {
    tight_machine(WATCH_GIB, 0);
    expect_level(PN_MEM_LEVEL_WATCH);
}

/* After the dwell of each level on the way. */
static void to_ok(void) {
    tight_machine(OK_GIB, 0);
    for (int i = 0; i < 3; i++)
        tight_pass(30);
    expect_level(PN_MEM_LEVEL_OK);
}

static pn_engine *open_kv(const char *path, enum pn_kv_choice kv, uint32_t ctx, uint32_t chunk) {
    struct pn_engine_options o = {.model_path = path,
                                  .ctx = ctx,
                                  .slots = 3,
                                  .chunk = chunk,
                                  .threads = 1,
                                  .kv = kv,
                                  .root = tight.sim->tree.root,
                                  .watch = true};
    return open_engine(&o);
}

static pn_ledger_row kv_taken(void) {
    pn_ledger_view v;
    pn_ledger_read(&v);
    return v.cells[PN_PLACE_HOST][PN_OWNER_KV];
}

/* Two requests that follow each other in a session; both read older pages. */
static const struct pn_request first = {.tokens = tight.ids, .token_n = 300, .max_new = 3};
static const struct pn_request second = {.tokens = tight.ids + 300, .token_n = 150, .max_new = 8};

static bool same_rows(const struct answer *a, const struct answer *b) {
    assert_int_equal(a->row_n, b->row_n);
    return memcmp(a->rows, b->rows, a->row_n * a->vocab * sizeof *a->rows) == 0;
}

/* What an engine of one format answers to both. */
struct reference {
    struct answer first;
    struct answer second;
};

static void make_reference(enum pn_kv_choice kv, struct reference *r) {
    pn_engine *e = open_kv(tight.model, kv, CTX, 64);
    pn_session *s = new_session(e);
    assert_false(pn_engine_plan_used(e)->kv_per_session);
    ask(e, s, first, PN_STOP_LENGTH, &r->first);
    assert_int_equal(r->first.done.kv, kv);
    ask(e, s, second, PN_STOP_LENGTH, &r->second);
    assert_int_equal(r->second.done.kv, kv);
    pn_engine_free(e);
}

static void reference_free(struct reference *r) {
    answer_free(&r->first);
    answer_free(&r->second);
}

static void submit(pn_session *s, struct pn_request r, struct answer *a) {
    struct pn_detail d = {{0}};
    answer_init(a, &r);
    PN_ASSERT_OK(pn_session_submit(s, &r, &d), &d);
}

/* One session begins at OK and one at WATCH; both go on in the same steps, there and when it is OK
 * again, with the bits of engines that know one format only. */
static void sessions_keep_their_format(void **state) {
    (void)state;
    struct reference f16;
    struct reference q4;
    struct answer a;
    struct answer b;
    make_reference(PN_KV_CHOICE_F16, &f16);
    make_reference(PN_KV_CHOICE_Q4, &q4);
    assert_false(same_rows(&f16.second, &q4.second)); /* else nothing below says anything */
    uint64_t before = ledger_reserved();

    pn_engine *e = open_kv(tight.model, PN_KV_CHOICE_AUTO, CTX, 64);
    uint64_t loaded = ledger_reserved();
    assert_true(pn_engine_plan_used(e)->kv_per_session);
    pn_session *old = new_session(e);
    ask(e, old, first, PN_STOP_LENGTH, &a);
    assert_int_equal(a.done.kv, PN_KV_CHOICE_F16);
    assert_true(same_rows(&a, &f16.first));
    answer_free(&a);
    assert_null(strstr(tight.log.text, "[ladder]"));

    to_watch();
    pn_session *new = new_session(e);
    submit(old, second, &a);
    submit(new, first, &b);
    assert_non_null(strstr(tight.log.text,
                           "[ladder] sessions that begin now keep their KV in q4 (auto: "
                           "memory is short; llama moved"));
    drive(e);
    assert_int_equal(a.done.kv, PN_KV_CHOICE_F16);
    assert_int_equal(b.done.kv, PN_KV_CHOICE_Q4);
    assert_int_equal(pn_session_kv(old), PN_KV_CHOICE_F16);
    assert_int_equal(pn_session_kv(new), PN_KV_CHOICE_Q4);
    assert_true(same_rows(&a, &f16.second));
    assert_true(same_rows(&b, &q4.first));
    answer_free(&a);
    answer_free(&b);

    to_ok();
    pn_session *newest = new_session(e);
    submit(new, second, &b);
    submit(newest, first, &a);
    assert_non_null(strstr(tight.log.text, "KV in f16 (auto: memory is not short)"));
    drive(e);
    assert_int_equal(b.done.kv, PN_KV_CHOICE_Q4);
    assert_int_equal(a.done.kv, PN_KV_CHOICE_F16);
    assert_true(same_rows(&b, &q4.second));
    assert_true(same_rows(&a, &f16.first));
    answer_free(&a);
    answer_free(&b);

    /* A cut that leaves something leaves its format too; one that leaves nothing doesn't. */
    struct pn_detail d = {{0}};
    uint32_t kept;
    PN_ASSERT_OK(pn_session_truncate(new, 128, &d, &kept), &d);
    assert_int_equal(kept, 128);
    ask(e, new, second, PN_STOP_LENGTH, &b);
    assert_int_equal(b.done.kv, PN_KV_CHOICE_Q4);
    answer_free(&b);
    PN_ASSERT_OK(pn_session_truncate(new, 0, &d, &kept), &d);
    ask(e, new, first, PN_STOP_LENGTH, &b);
    assert_int_equal(b.done.kv, PN_KV_CHOICE_F16);
    assert_true(same_rows(&b, &f16.first));
    answer_free(&b);

    pn_session_free(old);
    pn_session_free(new);
    pn_session_free(newest);
    assert_int_equal(ledger_reserved(), loaded);
    pn_engine_free(e);
    assert_int_equal(ledger_reserved(), before);
    reference_free(&f16);
    reference_free(&q4);
}

/* A session that was promised q4 and came to no page has begun nothing. */
static void nothing_begun(void **state) {
    (void)state;
    struct pn_detail d = {{0}};
    struct answer a;
    pn_engine *e = open_kv(tight.model, PN_KV_CHOICE_AUTO, CTX, 64);
    pn_session *s = new_session(e);
    assert_int_equal(pn_session_kv(s), PN_KV_CHOICE_F16);
    to_watch();
    submit(s, first, &a);
    assert_int_equal(pn_session_kv(s), PN_KV_CHOICE_Q4);
    assert_int_equal(pn_session_cancel(s, &d), 0);
    drive(e);
    assert_int_equal(a.done.stop, PN_STOP_CANCELLED);
    assert_int_equal(a.done.kv, PN_KV_CHOICE_Q4);
    assert_int_equal(kv_taken().reserved_bytes, 0);
    to_ok();
    ask(e, s, first, PN_STOP_LENGTH, &a);
    assert_int_equal(a.done.kv, PN_KV_CHOICE_F16);
    answer_free(&a);
    pn_engine_free(e);
}

/* --kv f16 is f16 at every level, with the same bits. */
static void pinned(void **state) {
    (void)state;
    struct reference ok;
    struct reference watch;
    make_reference(PN_KV_CHOICE_F16, &ok);
    to_watch();
    make_reference(PN_KV_CHOICE_F16, &watch);
    assert_true(same_rows(&ok.first, &watch.first));
    assert_true(same_rows(&ok.second, &watch.second));
    assert_null(strstr(tight.log.text, "KV in"));
    reference_free(&ok);
    reference_free(&watch);
}

/* A family that loses too much never gets it. */
static void off_the_list(void **state) {
    (void)state;
    struct golden g;
    struct answer a;
    if (!golden_load("qwen2", false, &g)) {
        print_message("no golden qwen2 here\n");
        skip();
    }
    to_watch();
    pn_engine *e = open_kv(g.model_path, PN_KV_CHOICE_AUTO, 512, 64);
    assert_false(pn_engine_plan_used(e)->kv_per_session);
    assert_non_null(strstr(pn_engine_plan_used(e)->kv_why, "q4 is not safe"));
    ask(e, new_session(e), (struct pn_request){.tokens = tight.ids, .token_n = 40, .max_new = 1},
        PN_STOP_LENGTH, &a);
    assert_int_equal(a.done.kv, PN_KV_CHOICE_F16);
    answer_free(&a);
    pn_engine_free(e);
    golden_free(&g);
}

/* ---- bytes ---- */

/* A new session is charged its own way's bytes and takes just those; returns them. */
static uint64_t charged(pn_engine *e, uint32_t n, enum pn_kv_choice kv) {
    pn_admit_cost cost;
    pn_admit_bytes estimate;
    struct answer a;
    struct pn_detail d = {{0}};
    pn_session *s = new_session(e);
    pn_engine_cost(e, &cost);
    assert_int_equal(pn_admit_cost_bytes(&cost, (int)n, 0, &estimate), 0);
    uint64_t before = kv_taken().reserved_bytes;
    assert_int_equal(before, 0);
    submit(s, (struct pn_request){.tokens = tight.ids, .token_n = n, .max_new = 1}, &a);
    assert_int_equal(kv_taken().reserved_bytes, estimate.kv);
    uint64_t peak = 0;
    for (bool more = true; more;) {
        PN_ASSERT_OK(pn_engine_turn(e, &more, &d), &d);
        if (kv_taken().committed_bytes > peak) peak = kv_taken().committed_bytes;
    }
    assert_int_equal(peak, estimate.kv);
    assert_int_equal(a.done.kv, kv);
    pn_session_free(s);
    assert_int_equal(kv_taken().reserved_bytes, 0);
    answer_free(&a);
    return estimate.kv;
}

static void own_way_is_charged(void **state) {
    (void)state;
    static const uint32_t lengths[] = {1, 63, 64, 65, 300, 1000};
    pn_engine *e = open_kv(tight.model, PN_KV_CHOICE_AUTO, CTX, 64);
    for (size_t i = 0; i < PN_ARRAY_N(lengths); i++) {
        uint64_t f16 = charged(e, lengths[i], PN_KV_CHOICE_F16);
        to_watch();
        uint64_t q4 = charged(e, lengths[i], PN_KV_CHOICE_Q4);
        to_ok();
        if (lengths[i] > 64) assert_int_not_equal(f16, q4);
    }
    pn_engine_free(e);
}

/* Fills all slots, the first `q4_n` of them in q4, and returns what is booked of KV. */
static uint64_t filled(pn_engine *e, uint32_t ctx, uint32_t q4_n) {
    pn_session *s[3];
    struct answer a[3];
    for (uint32_t i = 0; i < 3; i++) {
        if (i < q4_n) {
            to_watch();
        } else {
            to_ok();
        }
        s[i] = new_session(e);
        submit(s[i], (struct pn_request){.tokens = tight.ids, .token_n = ctx}, &a[i]);
    }
    uint64_t bytes = kv_taken().reserved_bytes;
    drive(e);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(a[i].done.stop, PN_STOP_LENGTH);
        assert_int_equal(a[i].done.kv, i < q4_n ? PN_KV_CHOICE_Q4 : PN_KV_CHOICE_F16);
        pn_session_free(s[i]);
        answer_free(&a[i]);
    }
    assert_int_equal(kv_taken().reserved_bytes, 0);
    to_ok();
    return bytes;
}

/* The plan is what the larger way books in every slot, whichever that is. */
static void plan_is_the_larger_way(void **state) {
    (void)state;
    static const struct {
        uint32_t ctx;
        uint32_t chunk;
        bool q4_is_larger; /* both forms of nearly all pages at once */
    } rows[] = {{CTX, 64, false}, {256, 256, true}};
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        pn_engine *e = open_kv(tight.model, PN_KV_CHOICE_AUTO, rows[i].ctx, rows[i].chunk);
        uint64_t plan = pn_engine_plan_used(e)->parts[2].bytes;
        uint64_t f16 = filled(e, rows[i].ctx, 0);
        uint64_t mixed = filled(e, rows[i].ctx, 2);
        uint64_t q4 = filled(e, rows[i].ctx, 3);
        assert_int_equal(plan, rows[i].q4_is_larger ? q4 : f16);
        assert_true((q4 > f16) == rows[i].q4_is_larger);
        assert_int_equal(mixed, (f16 + 2 * q4) / 3);
        pn_engine_free(e);
    }
}

static int setup(void **state) {
    (void)state;
    return tight_setup(64);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, tight_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(sessions_keep_their_format), T(nothing_begun),          T(pinned), T(off_the_list),
        T(own_way_is_charged),         T(plan_is_the_larger_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
