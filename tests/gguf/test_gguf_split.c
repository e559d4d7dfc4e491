/* Row G9: split models. Any part's name opens the set, a wrong set is refused by name. */
#include "gguf_bytes.h"

/* Writes a model of `tensor_n` tensors in `shard_n` parts under a fresh folder; its path. */
static const char *make_set(const char *folder, const char *prefix, uint32_t tensor_n,
                            uint32_t shard_n) {
    char path[512];
    struct pn_detail d;
    struct pn_gguf_writer *w = gb_model(tensor_n);
    const char *dir = gb_path(folder);
    mkdir(dir, 0777);
    snprintf(path, sizeof path, "%s/%s", dir, prefix);
    PN_ASSERT_OK(pn__gguf_w_split(w, path, shard_n, &d), &d);
    pn__gguf_writer_free(w);
    return dir;
}

static const char *in(const char *dir, const char *name) {
    char joined[512];
    snprintf(joined, sizeof joined, "%s/%s", dir + strlen(gb_dir) + 1, name);
    return gb_path(joined);
}

/* The bytes of part shard_i of shard_n of `w`, with `edit` bytes written over the value of `key`.
 */
static void write_part(const char *path, const struct pn_gguf_writer *w, uint32_t shard_i,
                       uint32_t shard_n, const char *key, const void *edit, size_t edit_n) {
    struct pn_detail d;
    uint8_t *p;
    uint64_t n;
    PN_ASSERT_OK(pn__gguf_w_part_bytes(w, shard_i, shard_n, &p, &n, &d), &d);
    uint8_t *at = key ? memmem(p, n, key, strlen(key)) : NULL;
    if (key) {
        assert_non_null(at);
        memcpy(at + strlen(key) + 4, edit, edit_n);
    }
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
    pn__free(p);
}

static void opens_whole(const char *path, const char *first) {
    struct pn_detail d;
    struct pn_gguf *g;
    PN_ASSERT_OK(pn__gguf_open(path, &d, &g), &d);
    assert_int_equal(pn__gguf_shard_n(g), 3);
    assert_int_equal(pn__gguf_tensor_n(g), 7);
    assert_string_equal(pn__gguf_path(g), first);
    for (uint64_t i = 0; i < 7; i++) {
        char name[8];
        const uint8_t *map;
        float value;
        snprintf(name, sizeof name, "t%d", (int)i);
        const struct pn_gguf_tensor *t = pn__gguf_find(g, name);
        assert_non_null(t);
        assert_ptr_equal(t, pn__gguf_tensor(g, i));
        PN_ASSERT_OK(pn__gguf_map(g, t->shard, &d, &map), &d);
        memcpy(&value, map + t->offset, 4);
        assert_true(value == (float)i);
    }
    assert_null(pn__gguf_find(g, "t7"));
    assert_int_equal(pn__gguf_kv_index(g, "general.architecture"), 0);
    pn__gguf_close(g);
}

static void any_part_opens_all(void **state) {
    (void)state;
    const char *dir = make_set("set", "m", 7, 3);
    const char *first = in(dir, "m-00001-of-00003.gguf");
    opens_whole(first, first);
    opens_whole(in(dir, "m-00002-of-00003.gguf"), first);
    opens_whole(in(dir, "m-00003-of-00003.gguf"), first);
    opens_whole(dir, first);
    char slash[512];
    snprintf(slash, sizeof slash, "%s/", dir);
    opens_whole(slash, first);
}

static void folders(void **state) {
    (void)state;
    const char *dir = make_set("two", "m", 7, 3);
    gb_write("two/other.gguf", "x", 1);
    GB_REFUSED(dir, PN_E_INVALID, "two", "more than one model", "m-00001-of-00003.gguf",
               "other.gguf");
    dir = make_set("sets", "a", 7, 3);
    make_set("sets", "b", 7, 3);
    GB_REFUSED(dir, PN_E_INVALID, "more than one model", "a-00001-of-00003.gguf",
               "b-00001-of-00003.gguf");
    dir = make_set("holes", "m", 7, 3);
    unlink(in(dir, "m-00001-of-00003.gguf"));
    GB_REFUSED(dir, PN_E_NOTFOUND, "m-00001-of-00003.gguf", "part 1 of 3 is missing");
}

static void missing(void **state) {
    (void)state;
    const char *dir = make_set("missing", "m", 7, 3);
    unlink(in(dir, "m-00003-of-00003.gguf"));
    GB_REFUSED(in(dir, "m-00001-of-00003.gguf"), PN_E_NOTFOUND, "m-00003-of-00003.gguf",
               "part 3 of 3 is missing");
    GB_REFUSED(in(dir, "m-00002-of-00003.gguf"), PN_E_NOTFOUND, "m-00003-of-00003.gguf");
    GB_REFUSED(in(dir, "m-00003-of-00003.gguf"), PN_E_NOTFOUND, "m-00003-of-00003.gguf",
               "no such file");
    unlink(in(dir, "m-00001-of-00003.gguf"));
    GB_REFUSED(in(dir, "m-00002-of-00003.gguf"), PN_E_NOTFOUND, "m-00001-of-00003.gguf",
               "part 1 of 3 is missing");
    mkdir(in(dir, "m-00001-of-00003.gguf"), 0777);
    GB_REFUSED(in(dir, "m-00002-of-00003.gguf"), PN_E_INVALID, "m-00001-of-00003.gguf", "a folder");
    rmdir(in(dir, "m-00001-of-00003.gguf"));
    gb_write("missing/m-00001-of-00003.gguf", "", 0);
    GB_REFUSED(in(dir, "m-00002-of-00003.gguf"), PN_E_FORMAT, "m-00001-of-00003.gguf", "empty");
}

static void swapped(void **state) {
    (void)state;
    const char *dir = make_set("swapped", "m", 7, 3);
    const char *x = in(dir, "m-00002-of-00003.gguf");
    const char *y = in(dir, "m-00003-of-00003.gguf");
    const char *tmp = in(dir, "tmp");
    rename(x, tmp);
    rename(y, x);
    rename(tmp, y);
    GB_REFUSED(in(dir, "m-00001-of-00003.gguf"), PN_E_FORMAT, "m-00002-of-00003.gguf", "'split.no'",
               "is 2", "part 2", "swapped", "offset");
}

static void joined(void **state) {
    (void)state;
    char cmd[512];
    const char *dir = make_set("cat", "m", 7, 3);
    snprintf(cmd, sizeof cmd, "cat '%s'/m-* > '%s/joined.gguf'", dir, dir);
    assert_int_equal(system(cmd), 0);
    GB_REFUSED(in(dir, "joined.gguf"), PN_E_FORMAT, "joined.gguf", "second GGUF", "cat", "offset");
    /* Put in the place of the first part, with the others still there. */
    snprintf(cmd, sizeof cmd, "mv '%s/joined.gguf' '%s/m-00001-of-00003.gguf'", dir, dir);
    assert_int_equal(system(cmd), 0);
    GB_REFUSED(in(dir, "m-00001-of-00003.gguf"), PN_E_FORMAT, "second GGUF", "cat");
    /* One part under a name that says nothing of the set. */
    dir = make_set("alone", "m", 7, 3);
    rename(in(dir, "m-00002-of-00003.gguf"), in(dir, "model.gguf"));
    GB_REFUSED(in(dir, "model.gguf"), PN_E_FORMAT, "model.gguf", "'split.count'", "is 3",
               "NAME-00001-of-00003.gguf", "offset");
}

static void counts(void **state) {
    (void)state;
    static const struct {
        uint16_t count;
        const char *needle;
    } rows[] = {{UINT16_MAX, "is 65535"}, {0, "is 0"}, {2, "is 2"}};
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        const char *dir = make_set("counts", "m", 7, 3);
        struct pn_gguf_writer *w = gb_model(7);
        write_part(in(dir, "m-00001-of-00003.gguf"), w, 0, 3, "split.count", &rows[i].count, 2);
        pn__gguf_writer_free(w);
        GB_REFUSED(in(dir, "m-00001-of-00003.gguf"), PN_E_FORMAT, "m-00001-of-00003.gguf",
                   "'split.count'", rows[i].needle, "3 parts", "offset");
    }
    struct pn_gguf_writer *w = gb_model(7);
    const char *dir = make_set("nokeys", "m", 7, 3);
    struct pn_detail d;
    PN_ASSERT_OK(pn__gguf_w_file(w, in(dir, "m-00002-of-00003.gguf"), &d), &d);
    GB_REFUSED(in(dir, "m-00001-of-00003.gguf"), PN_E_FORMAT, "m-00002-of-00003.gguf",
               "'split.count' is missing", "part 2 of 3");
    pn__gguf_writer_free(w);
}

/* Sets whose parts belong to different models. */
static void strangers(void **state) {
    (void)state;
    const char *dir = make_set("strangers", "m", 7, 3);
    const char *first = in(dir, "m-00001-of-00003.gguf");
    const char *second = in(dir, "m-00002-of-00003.gguf");
    struct pn_gguf_writer *other = gb_model(9);
    /* Another total. */
    write_part(second, other, 1, 3, NULL, NULL, 0);
    GB_REFUSED(first, PN_E_FORMAT, "m-00002-of-00003.gguf", "another model",
               "'split.tensors.count' is 9", "7");
    /* The same total claimed: tensors come twice (7 in thirds are 2 2 3, 9 are 3 3 3). */
    write_part(second, other, 1, 3, "split.tensors.count", &(int32_t){7}, 4);
    GB_REFUSED(first, PN_E_FORMAT, "tensor 't", "twice", "m-00002-of-00003.gguf",
               "m-00003-of-00003.gguf");
    pn__gguf_writer_free(other);
    /* Other names, another number of them. */
    struct pn_detail d;
    PN_ASSERT_OK(pn__gguf_writer_new(&other, &d), &d);
    for (int i = 0; i < 9; i++) {
        char name[16];
        snprintf(name, sizeof name, "u%d", i);
        pn__gguf_w_tensor(other, name, PN_TYPE_F16, 1, (uint64_t[1]){16}, NULL);
    }
    write_part(second, other, 1, 3, "split.tensors.count", &(int32_t){7}, 4);
    GB_REFUSED(first, PN_E_FORMAT, "'split.tensors.count' is 7", "hold 8 tensors", "another model");
    pn__gguf_writer_free(other);
    /* Another architecture. */
    dir = make_set("strangers2", "m", 7, 3);
    struct gb b;
    gb_header(&b, 3, 0, 3);
    gb_str(&b, "general.architecture");
    gb_u32(&b, PN_GGUF_STRING);
    gb_str(&b, "qwen3");
    gb_str(&b, "split.no");
    gb_u32(&b, PN_GGUF_U16);
    gb_raw(&b, "\x01", 2);
    gb_str(&b, "split.count");
    gb_u32(&b, PN_GGUF_U16);
    gb_raw(&b, "\x03", 2);
    gb_write("strangers2/m-00002-of-00003.gguf", b.p, b.n);
    GB_REFUSED(in(dir, "m-00001-of-00003.gguf"), PN_E_FORMAT, "m-00002-of-00003.gguf",
               "another model", "'qwen3'", "'llama'");
}

static void one_of_one(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_gguf *g;
    struct pn_gguf_writer *w = gb_model(7);
    /* No split keys; split.count 1 as a split into one; 0 as a merged file. */
    for (int i = 0; i < 3; i++) {
        const char *path = gb_path(i == 2 ? "merged.gguf" : "one-00001-of-00001.gguf");
        if (i > 0) pn__gguf_w_scalar(w, "split.no", PN_GGUF_U16, &(uint16_t){0});
        if (i > 0) pn__gguf_w_scalar(w, "split.count", PN_GGUF_U16, &(uint16_t){i == 1});
        PN_ASSERT_OK(pn__gguf_w_file(w, path, &d), &d);
        PN_ASSERT_OK(pn__gguf_open(path, &d, &g), &d);
        assert_int_equal(pn__gguf_tensor_n(g), 7);
        pn__gguf_close(g);
        pn__gguf_writer_free(w);
        w = gb_model(7);
    }
    /* Names that only look like a set's. */
    static const char *const names[] = {"m-00000-of-00003.gguf", "m-00004-of-00003.gguf",
                                        "m-0001-of-0003.gguf", "-00001-of-00001.gguf"};
    for (size_t i = 0; i < PN_ARRAY_N(names); i++) {
        PN_ASSERT_OK(pn__gguf_w_file(w, gb_path(names[i]), &d), &d);
        PN_ASSERT_OK(pn__gguf_open(gb_path(names[i]), &d, &g), &d);
        assert_int_equal(pn__gguf_shard_n(g), 1);
        pn__gguf_close(g);
    }
    pn__gguf_writer_free(w);
}

/* Input files are only ever opened for reading: a set without write permission, byte by byte. */
static void inputs_stay(void **state) {
    (void)state;
    char cmd[512];
    const char *dir = make_set("keep", "m", 7, 3);
    snprintf(cmd, sizeof cmd, "chmod a-w '%s'/m-*; cat '%s'/m-* | cksum > '%s/before'", dir, dir,
             dir);
    assert_int_equal(system(cmd), 0);
    opens_whole(in(dir, "m-00002-of-00003.gguf"), in(dir, "m-00001-of-00003.gguf"));
    snprintf(cmd, sizeof cmd, "cat '%s'/m-* | cksum | cmp - '%s/before'", dir, dir);
    assert_int_equal(system(cmd), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_part_opens_all),
        cmocka_unit_test(folders),
        cmocka_unit_test(missing),
        cmocka_unit_test(swapped),
        cmocka_unit_test(joined),
        cmocka_unit_test(counts),
        cmocka_unit_test(strangers),
        cmocka_unit_test(one_of_one),
        cmocka_unit_test(inputs_stay),
    };
    return cmocka_run_group_tests(tests, gb_setup, gb_teardown);
}
