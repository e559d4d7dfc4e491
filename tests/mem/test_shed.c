/* Rung 1 with dummy caches: who is asked, in which order, for how much. */
#include "pn_mem.h"
#include "support/pn_test.h"

struct cache {
    uint64_t bytes;
    uint64_t step; /* gives in whole steps of this, rounded up; 0: gives nothing */
    int asked_n;
    int unregister_rc;
    int id;
};

static uint64_t held(void *user) {
    return ((struct cache *)user)->bytes;
}

static void shed(void *user, uint64_t bytes) {
    struct cache *c = user;
    c->asked_n++;
    /* Called under no lock, but the table stands still. */
    c->unregister_rc = pn_shed_unregister(c->id);
    if (c->step == 0) return;
    uint64_t give = (bytes + c->step - 1) / c->step * c->step;
    c->bytes -= give < c->bytes ? give : c->bytes;
}

static struct cache prefix;
static struct cache experts;
static struct cache late;

static int setup(void **state) {
    (void)state;
    prefix = (struct cache){.bytes = 1000, .step = 10};
    experts = (struct cache){.bytes = 5000, .step = 100};
    late = (struct cache){.bytes = 300, .step = 1};
    experts.id = pn_shed_register("experts", 1, held, 400, shed, &experts);
    late.id = pn_shed_register("late", 2, held, 0, shed, &late);
    prefix.id = pn_shed_register("prefix", 0, held, 0, shed, &prefix);
    return experts.id < 0 || late.id < 0 || prefix.id < 0;
}

static int teardown(void **state) {
    (void)state;
    return pn_shed_unregister(experts.id) || pn_shed_unregister(late.id) ||
           pn_shed_unregister(prefix.id);
}

static void test_levels(void **state) {
    (void)state;
    assert_int_equal(pn_shed(PN_MEM_LEVEL_OK, 500), 0);
    assert_int_equal(pn_shed(PN_MEM_LEVEL_CRITICAL, 0), 0); /* no deficit, no action */
    assert_int_equal(prefix.asked_n + experts.asked_n + late.asked_n, 0);
    assert_int_equal(pn_shed(PN_MEM_LEVEL_WATCH, 105), 110);
    assert_int_equal(prefix.bytes, 890);
    assert_int_equal(pn_shed(PN_MEM_LEVEL_WATCH, 5000), 890); /* prefix entries only */
    assert_int_equal(experts.asked_n, 0);
    assert_int_equal(pn_shed(PN_MEM_LEVEL_TIGHT, 150), 200);
    assert_int_equal(experts.bytes, 4800);
    assert_int_equal(late.asked_n, 0); /* the deficit was met before its turn */
    assert_int_equal(pn_shed(PN_MEM_LEVEL_TIGHT, 4500), 4400 + 100);
    assert_int_equal(experts.bytes, 400); /* its floor */
    assert_int_equal(late.bytes, 200);
    assert_int_equal(prefix.unregister_rc, PN_E_BUSY);
}

static void test_critical(void **state) {
    (void)state;
    assert_int_equal(pn_shed(PN_MEM_LEVEL_CRITICAL, 1), 1000 + 4600 + 300);
    assert_int_equal(prefix.bytes + late.bytes, 0);
    assert_int_equal(experts.bytes, 400);
    pn_decision all[8];
    char text[160];
    assert_int_equal(pn_decisions_read(all, 4), 4);
    /* The deficit first, then everybody to the floor. */
    assert_string_equal(pn_decision_text(&all[0], text, sizeof text),
                        "shed: prefix asked for 1, gave 10 bytes");
    assert_string_equal(all[1].name, "prefix");
    assert_string_equal(all[2].name, "experts");
    assert_string_equal(all[3].name, "late");
}

/* One that doesn't give is seen not to: the next is asked for what it owes. */
static void test_liar(void **state) {
    (void)state;
    prefix.step = 0;
    assert_int_equal(pn_shed(PN_MEM_LEVEL_TIGHT, 100), 100);
    assert_int_equal(prefix.asked_n, 1);
    assert_int_equal(experts.bytes, 4900);
}

static void test_register(void **state) {
    (void)state;
    int ids[PN_SHEDDER_MAX];
    char endless[PN_SHEDDER_NAME_BYTES + 1];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_int_equal(pn_shed_register(NULL, 0, held, 0, shed, NULL), PN_E_INVALID);
    assert_int_equal(pn_shed_register("", 0, held, 0, shed, NULL), PN_E_INVALID);
    assert_int_equal(pn_shed_register(endless, 0, held, 0, shed, NULL), PN_E_INVALID);
    assert_int_equal(pn_shed_register("x", -1, held, 0, shed, NULL), PN_E_INVALID);
    assert_int_equal(pn_shed_register("x", 0, NULL, 0, shed, NULL), PN_E_INVALID);
    assert_int_equal(pn_shed_register("x", 0, held, 0, NULL, NULL), PN_E_INVALID);
    int n = 0;
    while ((ids[n] = pn_shed_register("x", 3, held, 0, shed, &late)) >= 0)
        n++;
    assert_int_equal(ids[n], PN_E_NOFIT);
    assert_int_equal(n, PN_SHEDDER_MAX - 3);
    for (int i = 0; i < n; i++)
        assert_int_equal(pn_shed_unregister(ids[i]), 0);
    assert_int_equal(pn_shed_unregister(ids[0]), PN_E_INVALID);
    assert_int_equal(pn_shed_unregister(-1), PN_E_INVALID);
    assert_int_equal(pn_shed_unregister(PN_SHEDDER_MAX), PN_E_INVALID);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_levels),
        T(test_critical),
        T(test_liar),
        T(test_register),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
