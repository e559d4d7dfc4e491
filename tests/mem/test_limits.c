/* The fixture trees of limits.json: what is available, and which domain binds. */
#include <jansson.h>

#include "mem/mem_tree.h"
#include "pn_mem.h"
#include "support/pn_test.h"

static void check_row(const json_t *row) {
    struct mem_tree t;
    pn_host_sample s;
    unsigned domain;
    const char *path;
    json_t *text;
    mem_tree_new(&t);
    json_object_foreach(json_object_get(row, "root"), path, text) {
        mem_tree_write(&t, path, json_string_value(text));
    }
    pn_host_signals_sample(t.root, &s);
    mem_tree_free(&t);

    uint64_t want = (uint64_t)json_integer_value(json_object_get(row, "eff_avail_bytes"));
    const char *bind = json_string_value(json_object_get(row, "bind"));
    uint64_t got = pn_host_eff_avail(&s, &domain);
    if (got != want || strcmp(pn_mem_domain_name(domain), bind) != 0) {
        print_error("'%s': %llu bytes by %s\n", json_string_value(json_object_get(row, "name")),
                    (unsigned long long)got, pn_mem_domain_name(domain));
    }
    assert_true(got == want);
    assert_string_equal(pn_mem_domain_name(domain), bind);
    for (int i = 0; i < PN_SOURCE_N; i++) {
        if (s.sources[i].why[0]) print_error("%s\n", s.sources[i].why);
        assert_int_not_equal(s.sources[i].status, PN_SOURCE_FAILED);
        assert_string_equal(s.sources[i].why, "");
    }
}

static void test_limits(void **state) {
    (void)state;
    json_error_t error;
    json_t *all = json_load_file(PN_TEST_DATA "/fixtures/limits.json", 0, &error);
    assert_non_null(all);
    assert_true(json_array_size(all) >= 12);
    for (size_t i = 0; i < json_array_size(all); i++)
        check_row(json_array_get(all, i));
    json_decref(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
