/* What a good file gives: every value type through every getter, tensors by name, the kept file,
 * what may be run, large headers in good time, and real files where they are present. */
#include <dirent.h>
#include <math.h>
#include <time.h>

#include "gguf_bytes.h"

static struct pn_gguf *open_bytes(struct pn_gguf_writer *w, const char *name) {
    struct pn_detail d;
    struct pn_gguf *g;
    PN_ASSERT_OK(pn__gguf_w_file(w, gb_path(name), &d), &d);
    PN_ASSERT_OK(pn__gguf_open(gb_path(name), &d, &g), &d);
    pn__gguf_writer_free(w);
    return g;
}

/* A file with a key of every type. */
static struct pn_gguf *open_all_kinds(void) {
    struct pn_gguf_writer *w = gb_model(1);
    pn__gguf_w_scalar(w, "u8", PN_GGUF_U8, &(uint8_t){200});
    pn__gguf_w_scalar(w, "i8", PN_GGUF_I8, &(int8_t){-5});
    pn__gguf_w_scalar(w, "u16", PN_GGUF_U16, &(uint16_t){60000});
    pn__gguf_w_scalar(w, "i16", PN_GGUF_I16, &(int16_t){1234});
    pn__gguf_w_scalar(w, "i32", PN_GGUF_I32, &(int32_t){77});
    pn__gguf_w_scalar(w, "u64", PN_GGUF_U64, &(uint64_t){UINT64_MAX});
    pn__gguf_w_scalar(w, "i64", PN_GGUF_I64, &(int64_t){INT64_MIN});
    pn__gguf_w_scalar(w, "f64", PN_GGUF_F64, &(double){2.5});
    pn__gguf_w_scalar(w, "big", PN_GGUF_F64, &(double){1e300});
    pn__gguf_w_f32(w, "f32", 0.125f);
    pn__gguf_w_bool(w, "yes", true);
    pn__gguf_w_bool(w, "no", false);
    pn__gguf_w_array(w, "ints", PN_GGUF_I16, (int16_t[3]){1, -2, 3}, 3);
    pn__gguf_w_array(w, "floats", PN_GGUF_F32, (float[2]){0.5f, -1}, 2);
    pn__gguf_w_array(w, "bools", PN_GGUF_BOOL, (uint8_t[2]){0, 7}, 2);
    pn__gguf_w_array(w, "none", PN_GGUF_U32, "", 0);
    return open_bytes(w, "get.gguf");
}

/* Absent keys leave the result alone; wrong types and values are refused by name. */
static void getters_refuse(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_gguf *g = open_all_kinds();
    uint64_t u = 5;
    uint32_t u32 = 5;
    int64_t v = 5;
    float f = 5;
    bool b = false;
    struct pn_str s = {"x", 1};
    assert_int_equal(pn__gguf_get_u64(g, "absent", &u, &d), 0);
    assert_int_equal(pn__gguf_get_u32(g, "absent", &u32, &d), 0);
    assert_int_equal(pn__gguf_get_i64(g, "absent", &v, &d), 0);
    assert_int_equal(pn__gguf_get_f32(g, "absent", &f, &d), 0);
    assert_int_equal(pn__gguf_get_bool(g, "absent", &b, &d), 0);
    assert_int_equal(pn__gguf_get_str(g, "absent", &s, &d), 0);
    assert_true(u == 5 && u32 == 5 && v == 5 && f == 5 && s.len == 1);

    assert_int_equal(pn__gguf_get_u64(g, "i8", &u, &d), PN_E_FORMAT);
    gb_assert_has(&d, "get.gguf");
    gb_assert_has(&d, "'i8' at offset");
    gb_assert_has(&d, "-5");
    assert_int_equal(pn__gguf_get_u32(g, "u64", &u32, &d), PN_E_FORMAT);
    gb_assert_has(&d, "18446744073709551615");
    assert_int_equal(pn__gguf_get_i64(g, "u64", &v, &d), PN_E_FORMAT);
    gb_assert_has(&d, "18446744073709551615");
    assert_int_equal(pn__gguf_get_u64(g, "f32", &u, &d), PN_E_FORMAT);
    gb_assert_has(&d, "f32, wanted an integer");
    assert_int_equal(pn__gguf_get_u64(g, "yes", &u, &d), PN_E_FORMAT);
    assert_int_equal(pn__gguf_get_u64(g, "ints", &u, &d), PN_E_FORMAT);
    gb_assert_has(&d, "array of 3 i16");
    assert_int_equal(pn__gguf_get_str(g, "u8", &s, &d), PN_E_FORMAT);
    assert_int_equal(pn__gguf_get_bool(g, "u8", &b, &d), PN_E_FORMAT);
    assert_int_equal(pn__gguf_get_f32(g, "big", &f, &d), PN_E_FORMAT);
    gb_assert_has(&d, "1e+300");
    assert_int_equal(pn__gguf_get_f32(g, "general.architecture", &f, &d), PN_E_FORMAT);
    assert_true(u == 5 && u32 == 5 && f == 5);
    pn__gguf_close(g);
}

static void getters(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_gguf *g = open_all_kinds();
    static const struct {
        const char *key;
        uint64_t u;
    } uints[] = {{"u8", 200}, {"u16", 60000}, {"i16", 1234}, {"i32", 77}, {"u64", UINT64_MAX}};
    for (size_t i = 0; i < PN_ARRAY_N(uints); i++) {
        uint64_t u = 0;
        assert_int_equal(pn__gguf_get_u64(g, uints[i].key, &u, &d), 1);
        assert_true(u == uints[i].u);
    }
    int64_t v;
    float f;
    bool b;
    double f64;
    struct pn_str s;
    assert_int_equal(pn__gguf_get_i64(g, "i64", &v, &d), 1);
    assert_true(v == INT64_MIN);
    assert_int_equal(pn__gguf_get_f32(g, "f32", &f, &d), 1);
    assert_true(f == 0.125f);
    assert_int_equal(pn__gguf_get_f32(g, "f64", &f, &d), 1);
    assert_true(f == 2.5f);
    assert_int_equal(pn__gguf_get_f32(g, "i8", &f, &d), 1);
    assert_true(f == -5);
    assert_int_equal(pn__gguf_get_f64(g, "big", &f64, &d), 1);
    assert_true(f64 == 1e300);
    assert_int_equal(pn__gguf_get_bool(g, "yes", &b, &d), 1);
    assert_true(b);
    assert_int_equal(pn__gguf_get_bool(g, "no", &b, &d), 1);
    assert_false(b);
    assert_int_equal(pn__gguf_get_str(g, "general.architecture", &s, &d), 1);
    assert_true(s.len == 5 && memcmp(s.data, "llama", 5) == 0);
    pn__gguf_close(g);
}

static void arrays(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_gguf *g = open_all_kinds();
    struct pn_gguf_arr a;
    assert_int_equal(pn__gguf_get_arr(g, "absent", &a, &d), 0);
    assert_int_equal(pn__gguf_get_arr(g, "u8", &a, &d), PN_E_FORMAT);
    gb_assert_has(&d, "wanted an array");
    assert_int_equal(pn__gguf_get_arr(g, "ints", &a, &d), 1);
    assert_true(a.n == 3 && a.type == PN_GGUF_I16);
    assert_int_equal(pn__gguf_arr_i64(&a, 1), -2);
    assert_true(pn__gguf_arr_f64(&a, 2) == 3);
    assert_int_equal(pn__gguf_arr_i64(&a, 3), 0);
    assert_int_equal(pn__gguf_arr_str(&a, 0).len, 0);
    assert_int_equal(pn__gguf_get_arr(g, "floats", &a, &d), 1);
    assert_true(pn__gguf_arr_f64(&a, 0) == 0.5 && pn__gguf_arr_f64(&a, 1) == -1);
    assert_int_equal(pn__gguf_arr_i64(&a, 0), 0);
    assert_int_equal(pn__gguf_get_arr(g, "bools", &a, &d), 1);
    assert_true(pn__gguf_arr_i64(&a, 0) == 0 && pn__gguf_arr_i64(&a, 1) == 1);
    assert_int_equal(pn__gguf_get_arr(g, "none", &a, &d), 1);
    assert_int_equal(a.n, 0);
    assert_int_equal(pn__gguf_get_arr(g, "tokenizer.ggml.tokens", &a, &d), 1);
    assert_true(a.n == 3 && a.type == PN_GGUF_STRING);
    assert_memory_equal(pn__gguf_arr_str(&a, 0).data, "one", 3);
    assert_int_equal(pn__gguf_arr_str(&a, 1).len, 0);
    assert_int_equal(pn__gguf_arr_str(&a, 2).len, 6);
    assert_memory_equal(pn__gguf_arr_str(&a, 2).data, "th\0ree", 6);
    assert_int_equal(pn__gguf_arr_str(&a, 3).len, 0);
    assert_true(pn__gguf_arr_f64(&a, 0) == 0);

    int64_t i = pn__gguf_kv_index(g, "ints");
    assert_string_equal(pn__gguf_kv_key(g, (uint64_t)i), "ints");
    assert_int_equal(pn__gguf_kv_type(g, (uint64_t)i), PN_GGUF_ARRAY);
    assert_int_equal(pn__gguf_kv_elem_type(g, (uint64_t)i), PN_GGUF_I16);
    assert_int_equal(pn__gguf_kv_elem_n(g, (uint64_t)i), 3);
    assert_int_equal(pn__gguf_kv_index(g, "int"), -1);
    assert_int_equal(pn__gguf_kv_n(g), 19);
    assert_string_equal(pn__gguf_type_name(PN_GGUF_F64), "f64");
    assert_string_equal(pn__gguf_type_name(13), "?");
    pn__gguf_close(g);
    pn__gguf_close(NULL);
}

static void tensors(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_gguf_writer *w;
    PN_ASSERT_OK(pn__gguf_writer_new(&w, &d), &d);
    pn__gguf_w_version(w, 2);
    pn__gguf_w_align(w, 64);
    const uint64_t dims[4] = {256, 3, 2, 5};
    uint8_t q[144 * 30];
    for (size_t i = 0; i < sizeof q; i++)
        q[i] = (uint8_t)i;
    pn__gguf_w_tensor(w, "quant", PN_TYPE_Q4_K, 4, dims, q);
    pn__gguf_w_tensor(w, "row", PN_TYPE_F16, 1, (uint64_t[1]){7}, NULL);
    struct pn_gguf *g = open_bytes(w, "tensors.gguf");
    assert_int_equal(pn__gguf_version(g), 2);
    const struct pn_gguf_tensor *t = pn__gguf_find(g, "quant");
    assert_true(t->dim_n == 4 && t->dims[0] == 256 && t->dims[3] == 5 && t->type == PN_TYPE_Q4_K);
    assert_true(t->row_bytes == 144 && t->row_n == 30 && t->bytes == sizeof q);
    assert_int_equal(t->offset % 64, 0);
    uint8_t back[sizeof q];
    assert_int_equal(pread(pn__gguf_shard_fd(g, 0), back, sizeof q, (off_t)t->offset), sizeof q);
    assert_memory_equal(back, q, sizeof q);
    t = pn__gguf_find(g, "row");
    assert_true(t->dim_n == 1 && t->dims[1] == 1 && t->row_n == 1 && t->bytes == 14);
    assert_int_equal(pn__gguf_shard_bytes(g, 0) % 64, 0);
    const uint8_t *map;
    assert_int_equal(pn__gguf_map(g, 1, &d, &map), PN_E_INVALID);
    pn__gguf_close(g);

    PN_ASSERT_OK(pn__gguf_writer_new(&w, &d), &d);
    pn__gguf_w_tensor(w, "bad", PN_TYPE_Q4_K, 1, (uint64_t[1]){100}, NULL);
    assert_int_equal(pn__gguf_w_file(w, gb_path("bad.gguf"), &d), PN_E_INVALID);
    gb_assert_has(&d, "'bad'");
    assert_int_equal(access(gb_path("bad.gguf"), F_OK), -1);
    pn__gguf_writer_free(w);
}

/* Renaming over the path and unlinking it change nothing; writing into the file is noticed. */
static void kept_file(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_gguf_writer *w = gb_model(3);
    struct pn_gguf *g = open_bytes(w, "kept.gguf");
    const char *path = gb_path("kept.gguf");
    uint64_t off = pn__gguf_find(g, "t2")->offset;
    PN_ASSERT_OK(pn__gguf_check_unchanged(g, &d), &d);
    rename(gb_write("new.gguf", "other", 5), path);
    PN_ASSERT_OK(pn__gguf_check_unchanged(g, &d), &d);
    unlink(path);
    PN_ASSERT_OK(pn__gguf_check_unchanged(g, &d), &d);
    const uint8_t *map;
    const uint8_t *again;
    float value;
    PN_ASSERT_OK(pn__gguf_map(g, 0, &d, &map), &d);
    PN_ASSERT_OK(pn__gguf_map(g, 0, &d, &again), &d);
    assert_ptr_equal(map, again);
    memcpy(&value, map + off, 4);
    assert_true(value == 2);
    pn__gguf_close(g);

    g = open_bytes(gb_model(3), "changed.gguf");
    path = gb_path("changed.gguf");
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(pn__gguf_check_unchanged(g, &d), PN_E_IO);
    gb_assert_has(&d, "changed.gguf");
    gb_assert_has(&d, "100 bytes now");
    pn__gguf_close(g);
    g = open_bytes(gb_model(3), "changed.gguf");
    struct timespec times[2] = {{0, UTIME_OMIT}, {1000000000, 5}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_int_equal(pn__gguf_check_unchanged(g, &d), PN_E_IO);
    gb_assert_has(&d, "changed");
    pn__gguf_close(g);
}

/* One key (NULL: none) in a file with or without a tensor, and what check_model says. */
static void check(const char *key, const char *value, const char *arch, const char *tensor,
                  int code, const char *needle) {
    struct pn_detail d;
    struct pn_gguf_writer *w;
    PN_ASSERT_OK(pn__gguf_writer_new(&w, &d), &d);
    if (arch) pn__gguf_w_str(w, "general.architecture", arch);
    if (key) pn__gguf_w_str(w, key, value);
    pn__gguf_w_u32(w, "qwen35.nextn_predict_layers", 1);
    if (tensor) pn__gguf_w_tensor(w, tensor, PN_TYPE_F32, 1, (uint64_t[1]){4}, NULL);
    struct pn_gguf *g = open_bytes(w, "check.gguf");
    int rc = pn__gguf_check_model(g, &d);
    if (rc != code) print_error("%s: %s\n", needle, d.text);
    assert_int_equal(rc, code);
    if (code) {
        gb_assert_has(&d, "check.gguf");
        gb_assert_has(&d, needle);
    }
    pn__gguf_close(g);
}

static void runnable(void **state) {
    (void)state;
    check(NULL, NULL, "llama", "blk.0.x", 0, "a model");
    check("general.type", "model", "llama", "blk.0.x", 0, "a model");
    check(NULL, NULL, "nosuch", "blk.0.x", 0, "the loader knows which architectures it runs");
    check(NULL, NULL, "qwen35", "blk.0.x", 0, "a whole model with a draft block");
    check(NULL, NULL, "qwen35", "blk.9.x", PN_E_UNSUPPORTED, "draft");
    check(NULL, NULL, "qwen35", "blk.9.x", PN_E_UNSUPPORTED, "'qwen35.nextn_predict_layers'");
    check(NULL, NULL, "clip", "v.blk.0.x", PN_E_UNSUPPORTED, "vision projector");
    check("general.type", "mmproj", "x", "v.blk.0.x", PN_E_UNSUPPORTED, "vision projector");
    check("general.type", "adapter", "llama", "blk.0.x", PN_E_UNSUPPORTED, "adapter");
    check("adapter.type", "lora", "llama", "blk.0.x", PN_E_UNSUPPORTED, "adapter");
    check(NULL, NULL, "controlvector", "direction.1", PN_E_UNSUPPORTED, "control vector");
    check("general.type", "imatrix", NULL, "x", PN_E_UNSUPPORTED, "importance matrix");
    check(NULL, NULL, "eagle3", "blk.0.x", PN_E_UNSUPPORTED, "draft");
    check(NULL, NULL, "dflash", "blk.0.x", PN_E_UNSUPPORTED, "draft");
    check(NULL, NULL, NULL, "blk.0.x", PN_E_FORMAT, "'general.architecture' is missing");
    check(NULL, NULL, "", "blk.0.x", PN_E_FORMAT, "'general.architecture' is empty");
    check(NULL, NULL, "llama", NULL, PN_E_UNSUPPORTED, "no tensors");
}

/* 250,000 strings, 100,000 tensors: what is quadratic anywhere takes minutes. */
static void large_header(void **state) {
    (void)state;
    enum { WORDS = 250000, TENSORS = 100000 };
    struct pn_detail d;
    struct pn_gguf_writer *w;
    struct pn_str *words = calloc(WORDS, sizeof *words);
    char *text = malloc(WORDS * 16);
    struct timespec from;
    struct timespec to;
    for (int i = 0; i < WORDS; i++) {
        words[i] = (struct pn_str){text + 16 * i, 7};
        snprintf(text + 16 * i, 16, "w%06d", i);
    }
    PN_ASSERT_OK(pn__gguf_writer_new(&w, &d), &d);
    pn__gguf_w_strings(w, "words", words, WORDS);
    for (int i = 0; i < TENSORS; i++) {
        char name[32];
        snprintf(name, sizeof name, "blk.%d.weight", i * 7919 % TENSORS);
        pn__gguf_w_tensor(w, name, PN_TYPE_F32, 1, (uint64_t[1]){1}, NULL);
    }
    PN_ASSERT_OK(pn__gguf_w_file(w, gb_path("large.gguf"), &d), &d);
    pn__gguf_writer_free(w);
    struct pn_gguf *g;
    struct pn_gguf_arr a;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from); /* a busy machine isn't our fault */
    PN_ASSERT_OK(pn__gguf_open(gb_path("large.gguf"), &d, &g), &d);
    assert_int_equal(pn__gguf_get_arr(g, "words", &a, &d), 1);
    for (int i = 0; i < WORDS; i++)
        assert_int_equal(memcmp(pn__gguf_arr_str(&a, i).data, words[i].data, 7), 0);
    for (int i = 0; i < TENSORS; i++) {
        char name[32];
        snprintf(name, sizeof name, "blk.%d.weight", i);
        assert_non_null(pn__gguf_find(g, name));
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    assert_true(to.tv_sec - from.tv_sec < 5);
    pn__gguf_close(g);
    free(words);
    free(text);
}

static void real_files(void **state) {
    (void)state;
    static const char *const folders[] = {PN_TEST_SHARED "/goldens/models",
                                          PN_TEST_SHARED "/goldens/vocab"};
    int opened = 0;
    for (int k = 0; k < 2; k++) {
        DIR *dir = opendir(folders[k]);
        const struct dirent *e;
        while (dir && (e = readdir(dir))) {
            char path[1024];
            size_t len = strlen(e->d_name);
            struct pn_detail d;
            struct pn_gguf *g;
            struct pn_str arch;
            if (len < 5 || strcmp(e->d_name + len - 5, ".gguf") != 0) continue;
            snprintf(path, sizeof path, "%s/%s", folders[k], e->d_name);
            PN_ASSERT_OK(pn__gguf_open(path, &d, &g), &d);
            assert_int_equal(pn__gguf_get_str(g, "general.architecture", &arch, &d), 1);
            assert_int_equal(pn__gguf_tensor_n(g) == 0, k);
            assert_int_equal(pn__gguf_check_model(g, &d), k ? PN_E_UNSUPPORTED : 0);
            pn__gguf_close(g);
            opened++;
        }
        if (dir) closedir(dir);
    }
    if (!opened) PN_SKIP_TEST("no files under %s", PN_TEST_SHARED "/goldens");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(getters),      cmocka_unit_test(getters_refuse),
        cmocka_unit_test(arrays),       cmocka_unit_test(tensors),
        cmocka_unit_test(kept_file),    cmocka_unit_test(runnable),
        cmocka_unit_test(large_header), cmocka_unit_test(real_files),
    };
    return cmocka_run_group_tests(tests, gb_setup, gb_teardown);
}
