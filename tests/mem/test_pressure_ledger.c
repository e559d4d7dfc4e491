/* A real limit: in a cgroup of 256 MiB the ledger sees it, refuses what can't fit before anything
 * is allocated, and grants what can. */
#include <sys/wait.h>

#include "core/mem/pn_block.h"
#include "mem/child.h"
#include "mem/v1_group.h"
#include "support/pn_test.h"

#define MIB (1ull << 20)

static struct pn_detail detail;

/* The least that the group must be able to give beyond its reserve of 64 MiB: what a process
 * itself takes is small, but a sanitizer's shadow isn't. */
#define LEAST_HEADROOM (100 * MIB)

static int in_group(void *arg) {
    (void)arg;
    struct pn_block b;
    pn_domain_view v;
    pn_host_sample s;
    unsigned domain;
    pn_ledger_set_reserves(0, UINT64_MAX);
    pn_ledger_sample(NULL);
    pn_ledger_domain(PN_DOMAIN_CGROUP, &v);
    printf("%s: available %llu, kept free %llu, headroom %llu\n", v.name,
           (unsigned long long)v.available_bytes, (unsigned long long)v.reserve_bytes,
           (unsigned long long)v.headroom_bytes);
    CHECK(v.set && strncmp(v.name, "cgroup:", 7) == 0 && strstr(v.name, "pn-test-"));
    CHECK(v.available_bytes <= 256 * MIB && v.reserve_bytes == 64 * MIB);
    CHECK(v.headroom_bytes >= LEAST_HEADROOM);

    CHECK(pn__block_new(PN_OWNER_WEIGHTS, 300 * MIB, PN_BLOCK_COMMIT, &detail, &b) == PN_E_NOFIT);
    printf("%s\n", detail.text);
    CHECK(strstr(detail.text, "cgroup:") && strstr(detail.text, "pn-test-"));
    pn_host_signals_sample(NULL, &s);
    CHECK(s.cgroup_current_bytes < 100 * MIB && s.cgroup_max_bytes == 256 * MIB);

    CHECK(pn__block_new(PN_OWNER_WEIGHTS, 64 * MIB, PN_BLOCK_COMMIT, &detail, &b) == 0);
    uint64_t before = pn_ledger_place_headroom(PN_PLACE_HOST, &domain);
    CHECK(domain == PN_DOMAIN_CGROUP);
    CHECK(before == v.headroom_bytes - 64 * MIB);
    /* The kernel now counts what was touched: measured anew, the headroom is the same. */
    pn_ledger_sample(NULL);
    uint64_t after = pn_ledger_headroom(PN_DOMAIN_CGROUP);
    CHECK(after + 8 * MIB > before && after < before + 8 * MIB);
    pn__block_free(&b);
    pn_ledger_sample(NULL);
    after = pn_ledger_headroom(PN_DOMAIN_CGROUP);
    CHECK(after + 8 * MIB > v.headroom_bytes && after < v.headroom_bytes + 8 * MIB);
    return 0;
}

static void test_real_group(void **state) {
    (void)state;
    struct v1_group g;
    if (v1_group_new(&g, 256 * MIB) != 0) PN_SKIP_EXIT("%s", g.why);
    int status = v1_group_run(&g, in_group, NULL);
    long killed_n = v1_group_oom_kill_n(&g);
    assert_int_equal(v1_group_free(&g), 0);
    assert_int_equal(killed_n, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_real_group)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
