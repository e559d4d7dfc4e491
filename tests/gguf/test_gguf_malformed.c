/* The rows G1 to G3, G5, G7, G8 and G10 of the case list, and what else a header can get wrong:
 * each is refused by a value, and the message names what it must. */
#include <sys/resource.h>

#include "gguf_bytes.h"

static const uint64_t dims42[4] = {4, 2, 1, 1};

static void g1_dimensions(void **state) {
    (void)state;
    for (int at = 0; at < 4; at++) {
        struct gb b;
        uint64_t dims[4] = {4, 3, 2, 5};
        char dim[32];
        dims[at] = 0;
        gb_header(&b, 3, 1, 0);
        gb_tensor(&b, "zero", 4, dims, PN_TYPE_F32, 0);
        gb_zeros(&b, 512);
        snprintf(dim, sizeof dim, "dimension %d is 0", at);
        GB_BAD(&b, PN_E_FORMAT, "'zero'", dim, "offset");
    }
    struct gb b;
    const uint64_t dims[2] = {4, 0};
    gb_header(&b, 3, 1, 0);
    gb_tensor(&b, "z", 2, dims, PN_TYPE_F32, 0);
    assert_true(b.n < 100);
    GB_BAD(&b, PN_E_FORMAT, "'z'", "dimension 1 is 0", "offset 45");
    const uint32_t counts[3] = {0, 5, UINT32_MAX};
    for (int i = 0; i < 3; i++) {
        char count[48];
        gb_header(&b, 3, 1, 0);
        gb_tensor(&b, "many", counts[i], (uint64_t[8]){1, 1, 1, 1, 1, 1, 1, 1}, PN_TYPE_F32, 0);
        gb_zeros(&b, 128);
        snprintf(count, sizeof count, "dimension count %u", counts[i]);
        GB_BAD(&b, PN_E_FORMAT, "'many'", count, "offset 36");
    }
}

static void g2_products(void **state) {
    (void)state;
    static const struct {
        uint32_t type;
        uint64_t dims[3];
        uint32_t dim_n;
        const char *needle;
    } rows[] = {
        {PN_TYPE_I8, {INT64_MAX, 2, 1}, 2, "overflows at dimension 1 = 2"},
        {PN_TYPE_F32, {4, (1ull << 42) + 1, 1}, 2, "wants 70368744177680 bytes"},
        {PN_TYPE_F32, {4194305, 4194305, 211106198978564}, 3, "overflows at dimension 2"},
        {PN_TYPE_F64, {1ull << 61, 1, 1}, 1, "2305843009213693952"},
        {PN_TYPE_F32, {1, 1ull << 62, 1}, 2, "4611686018427387904 rows"},
        {PN_TYPE_I8, {UINT64_MAX, 1, 1}, 1, "18446744073709551615"},
    };
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        struct gb b;
        gb_header(&b, 3, 1, 0);
        gb_tensor(&b, "wraps", rows[i].dim_n, rows[i].dims, rows[i].type, 0);
        gb_zeros(&b, 256);
        GB_BAD(&b, PN_E_FORMAT, "'wraps'", rows[i].needle);
    }
    /* offset + size, and data start + offset, go around. */
    const uint64_t offs[2] = {UINT64_MAX - 31, UINT64_MAX - 127};
    for (int i = 0; i < 2; i++) {
        struct gb b;
        char off[32];
        gb_header(&b, 3, 1, 0);
        gb_tensor(&b, "far", 2, dims42, PN_TYPE_F32, offs[i]);
        gb_zeros(&b, 256);
        snprintf(off, sizeof off, "%llu", (unsigned long long)offs[i]);
        GB_BAD(&b, PN_E_FORMAT, "'far'", off);
    }
}

static long peak_kib(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

static void g3_counts(void **state) {
    (void)state;
    struct gb b;
    b.n = 0;
    gb_raw(&b, "GGUF", 4);
    GB_BAD(&b, PN_E_FORMAT, "version wants 4 bytes at offset 4", "the file has 4");
    long before = peak_kib();
    for (int key_too = 0; key_too < 2; key_too++) {
        const uint64_t lens[4] = {1ull << 63, 1ull << 40, UINT64_MAX, 62};
        for (int i = 0; i < 4; i++) {
            char len[32];
            gb_header(&b, 3, 0, 1);
            if (key_too) {
                gb_u64(&b, lens[i]);
            } else {
                gb_str(&b, "long");
                gb_u32(&b, PN_GGUF_STRING);
                gb_u64(&b, lens[i]);
            }
            gb_zeros(&b, 30);
            snprintf(len, sizeof len, "%llu", (unsigned long long)lens[i]);
            GB_BAD(&b, PN_E_FORMAT, len, key_too ? "key 0" : "'long'", "offset");
        }
    }
    const uint32_t types[3] = {PN_GGUF_U8, PN_GGUF_STRING, PN_GGUF_F64};
    const uint64_t counts[4] = {UINT64_MAX, 1ull << 62, 1ull << 61, 40};
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < 4; i++) {
            char count[32];
            gb_header(&b, 3, 0, 1);
            gb_str(&b, "list");
            gb_u32(&b, PN_GGUF_ARRAY);
            gb_u32(&b, types[t]);
            gb_u64(&b, counts[i]);
            snprintf(count, sizeof count, "%llu", (unsigned long long)counts[i]);
            GB_BAD(&b, PN_E_FORMAT, "'list'", count, pn__gguf_type_name(types[t]), "offset");
        }
    }
    gb_header(&b, 3, 0, 1);
    gb_str(&b, "nested");
    gb_u32(&b, PN_GGUF_ARRAY);
    gb_u32(&b, PN_GGUF_ARRAY);
    gb_u64(&b, UINT64_MAX);
    GB_BAD(&b, PN_E_UNSUPPORTED, "'nested'", "array of arrays", "offset 42");
    gb_header(&b, 3, 1ull << 62, 0);
    GB_BAD(&b, PN_E_FORMAT, "tensor count 4611686018427387904", "offset 8", "at most 0");
    gb_header(&b, 3, 0, 1ull << 62);
    GB_BAD(&b, PN_E_FORMAT, "key count 4611686018427387904", "offset 16", "at most 0");
    /* A sparse file has bytes for any count, for nothing: the limits hold. */
    gb_header(&b, 3, 1ull << 30, 0);
    const char *path = gb_write("sparse.gguf", b.p, b.n);
    assert_int_equal(truncate(path, 1ll << 40), 0);
    GB_REFUSED(path, PN_E_FORMAT, "sparse.gguf", "tensor count 1073741824", "at most 1048576");
    gb_header(&b, 3, 0, 1);
    gb_str(&b, "long");
    gb_u32(&b, PN_GGUF_STRING);
    gb_u64(&b, 1ull << 39);
    path = gb_write("sparse.gguf", b.p, b.n);
    assert_int_equal(truncate(path, 1ll << 40), 0);
    GB_REFUSED(path, PN_E_UNSUPPORTED, "sparse.gguf", "'long'", "256 MiB");
#ifndef __SANITIZE_ADDRESS__
    assert_in_range(peak_kib() - before, 0, 1023);
#else
    (void)before;
#endif
}

/* A file of two tensors with a key general.alignment of `type` and the 4 bytes `value`. */
static void put_aligned(struct gb *b, uint32_t type, uint32_t value) {
    gb_header(b, 3, 1, 1);
    gb_str(b, "general.alignment");
    gb_u32(b, type);
    gb_u32(b, value);
    gb_tensor(b, "t", 2, dims42, PN_TYPE_F32, 0);
}

static void g5_alignment(void **state) {
    (void)state;
    struct gb b;
    const uint32_t bad[] = {0, 1, 3, 4, 48, 1u << 31, 1u << 17, UINT32_MAX};
    for (size_t i = 0; i < PN_ARRAY_N(bad); i++) {
        char value[32];
        put_aligned(&b, PN_GGUF_U32, bad[i]);
        gb_zeros(&b, 256);
        snprintf(value, sizeof value, "is %u,", bad[i]);
        GB_BAD(&b, PN_E_FORMAT, "'general.alignment'", value, "offset 53");
    }
    put_aligned(&b, PN_GGUF_I32, UINT32_MAX);
    gb_zeros(&b, 256);
    GB_BAD(&b, PN_E_FORMAT, "'general.alignment'", "type i32", "wanted u32");
    gb_header(&b, 3, 0, 1);
    gb_str(&b, "general.alignment");
    gb_u32(&b, PN_GGUF_STRING);
    gb_str(&b, "32");
    GB_BAD(&b, PN_E_FORMAT, "'general.alignment'", "type string", "wanted u32");
    gb_header(&b, 3, 0, 1);
    gb_str(&b, "general.alignment");
    gb_u32(&b, PN_GGUF_ARRAY);
    gb_u32(&b, PN_GGUF_U32);
    gb_u64(&b, 1);
    gb_u32(&b, 32);
    GB_BAD(&b, PN_E_FORMAT, "'general.alignment'", "type array", "wanted u32");
}

static void g5_alignment_good(void **state) {
    (void)state;
    /* 64; the smallest and largest; no padding behind the data; 4 KB of zeros behind it. */
    static const struct {
        uint32_t align;
        size_t behind;
    } rows[] = {{64, 32}, {8, 0}, {1024, 0}, {32, 0}, {32, 4096}};
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        struct gb b;
        struct pn_detail d;
        struct pn_gguf *g;
        const uint8_t *map;
        put_aligned(&b, PN_GGUF_U32, rows[i].align);
        gb_align(&b, rows[i].align);
        size_t data = b.n;
        for (int k = 0; k < 8; k++)
            gb_u32(&b, 0x3f800000);
        gb_zeros(&b, rows[i].behind);
        PN_ASSERT_OK(pn__gguf_open(gb_write("good.gguf", b.p, b.n), &d, &g), &d);
        assert_int_equal(pn__gguf_tensor(g, 0)->offset, data);
        assert_int_equal(pn__gguf_tensor(g, 0)->bytes, 32);
        PN_ASSERT_OK(pn__gguf_map(g, 0, &d, &map), &d);
        assert_memory_equal(map + data, b.p + data, 32);
        pn__gguf_close(g);
    }
    struct gb b;
    put_aligned(&b, PN_GGUF_U32, 64);
    b.n -= 8;
    gb_u64(&b, 32);
    gb_zeros(&b, 512);
    GB_BAD(&b, PN_E_FORMAT, "'t'", "data offset 32", "alignment 64");
}

static void g7_ranges(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_gguf_writer *w = gb_model(3);
    uint8_t *p;
    uint64_t n;
    PN_ASSERT_OK(pn__gguf_w_bytes(w, &p, &n, &d), &d);
    char sizes[32];
    const uint64_t cuts[] = {n * 99 / 100, n / 2, n - 384 + 1, n - 1};
    for (size_t i = 0; i < PN_ARRAY_N(cuts); i++) {
        const char *path = gb_write("cut.gguf", p, cuts[i]);
        snprintf(sizes, sizeof sizes, "the file has %llu", (unsigned long long)cuts[i]);
        GB_REFUSED(path, PN_E_FORMAT, "cut.gguf", sizes);
    }
    GB_REFUSED(gb_write("cut.gguf", p, n - 1), PN_E_FORMAT, "'t2'", "wants 128 bytes");
    pn__free(p);
    pn__gguf_writer_free(w);

    static const struct {
        uint64_t offs[3];
        const char *needle; /* NULL: opens */
    } rows[] = {
        {{64, 0, 32}, NULL},
        {{0, 32, 1024}, "'c': wants 32 bytes at data offset 1024"},
        {{0, 32, 1ull << 62}, "'c': wants 32 bytes at data offset 4611686018427387904"},
        {{0, 32, 32}, "overlap"},
        {{64, 0, 0}, "overlap"},
        {{0, 0, 0}, "overlap"},
    };
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        struct gb b;
        struct pn_gguf *g;
        gb_header(&b, 3, 3, 0);
        for (int t = 0; t < 3; t++)
            gb_tensor(&b, (const char *[]){"a", "b", "c"}[t], 2, dims42, PN_TYPE_F32,
                      rows[i].offs[t]);
        gb_align(&b, 32);
        gb_zeros(&b, 96);
        if (rows[i].needle) {
            GB_BAD(&b, PN_E_FORMAT, rows[i].needle, "offset");
            continue;
        }
        PN_ASSERT_OK(pn__gguf_open(gb_write("ok.gguf", b.p, b.n), &d, &g), &d);
        pn__gguf_close(g);
    }
    /* A part overlap: 48 bytes at 0 reach into what begins at 32. */
    struct gb b;
    gb_header(&b, 3, 2, 0);
    gb_tensor(&b, "long", 1, (uint64_t[1]){12}, PN_TYPE_F32, 0);
    gb_tensor(&b, "short", 1, (uint64_t[1]){4}, PN_TYPE_F32, 32);
    gb_zeros(&b, 256);
    GB_BAD(&b, PN_E_FORMAT, "'long'", "48 bytes", "'short'", "overlap");
}

static void g8_prefixes(void **state) {
    (void)state;
    struct pn_detail d;
    struct pn_gguf_writer *w = gb_model(2);
    uint8_t *p;
    uint64_t n;
    PN_ASSERT_OK(pn__gguf_w_bytes(w, &p, &n, &d), &d);
    for (size_t len = 0; len < n; len++) {
        struct pn_gguf *g;
        int rc = pn__gguf_open(gb_write("prefix.gguf", p, len), &d, &g);
        if (rc != PN_E_FORMAT) print_error("%zu bytes: %d %s\n", len, rc, d.text);
        assert_int_equal(rc, PN_E_FORMAT);
        gb_assert_has(&d, "prefix.gguf");
        gb_assert_has(&d, len == 0 ? "empty" : len < 4 ? "not a GGUF" : "file");
    }
    pn__free(p);
    pn__gguf_writer_free(w);
}

static void g8_other_files(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *needle;
    } rows[] = {
        {"<!DOCTYPE html><html>", "not a GGUF (looks like HTML)"},
        {"\xef\xbb\xbf \r\n<html><body>", "not a GGUF (looks like HTML)"},
        {"version https://git-lfs.github.com/spec/v1\n", "looks like a Git LFS pointer"},
        {"{\"error\": \"not found\"}", "looks like JSON"},
        {"PK\x03\x04zipzipzip", "looks like a zip archive"},
        {"tjgg\x01\x01\x01\x01", "looks like an older ggml format"},
        {"\x10\x01\x01\x01\x01\x01\x01\x01{\"__metadata__\"", "looks like safetensors"},
        {"Hello, world, this is text", "not a GGUF (starts with 48 65 6c 6c"},
        {"GG", "not a GGUF"},
    };
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        struct gb b = {.n = 0};
        gb_raw(&b, rows[i].text, strlen(rows[i].text));
        GB_BAD(&b, PN_E_FORMAT, rows[i].needle);
    }
    char dir[600];
    snprintf(dir, sizeof dir, "%s", gb_path("empty-folder"));
    assert_int_equal(mkdir(dir, 0777), 0);
    GB_REFUSED(dir, PN_E_NOTFOUND, "empty-folder", "no .gguf file");
    GB_REFUSED(gb_path("nothing.gguf"), PN_E_NOTFOUND, "nothing.gguf", "no such file");
    GB_REFUSED("/dev/null", PN_E_INVALID, "/dev/null", "not a regular file");
    GB_REFUSED("", PN_E_INVALID, "empty");
    const char *fifo = gb_path("fifo.gguf");
    assert_int_equal(mkfifo(fifo, 0666), 0);
    GB_REFUSED(fifo, PN_E_INVALID, "fifo.gguf", "not a regular file");
    char path[2000];
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    GB_REFUSED(path, PN_E_IO, "File name too long");
}

static void g8_versions(void **state) {
    (void)state;
    static const struct {
        uint32_t version;
        const char *needle; /* NULL: loads */
    } rows[] = {
        {2, NULL},
        {3, NULL},
        {0, "version 0 not supported"},
        {1, "version 1 not supported"},
        {4, "version 4 not supported"},
        {99, "version 99 not supported"},
        {0x00030000, "version 196608 not supported"},
        {0x03000000, "big-endian, not supported"},
        {0x02000000, "big-endian, not supported"},
    };
    for (size_t i = 0; i < PN_ARRAY_N(rows); i++) {
        struct gb b;
        struct pn_detail d;
        struct pn_gguf *g;
        gb_header(&b, rows[i].version, 1, 0);
        gb_tensor(&b, "t", 2, dims42, PN_TYPE_F32, 0);
        gb_zeros(&b, 256);
        if (rows[i].needle) {
            GB_BAD(&b, PN_E_UNSUPPORTED, rows[i].needle, "offset 4");
            continue;
        }
        PN_ASSERT_OK(pn__gguf_open(gb_write("ok.gguf", b.p, b.n), &d, &g), &d);
        assert_int_equal(pn__gguf_version(g), rows[i].version);
        pn__gguf_close(g);
    }
}

static void g10_types(void **state) {
    (void)state;
    struct gb b;
    const uint32_t unknown[] = {4, 5, 31, 33, 36, 38, 43, 200, UINT32_MAX};
    for (size_t i = 0; i < PN_ARRAY_N(unknown); i++) {
        char number[48];
        gb_header(&b, 3, 1, 0);
        gb_tensor(&b, "new.weight", 2, dims42, unknown[i], 0);
        gb_zeros(&b, 512);
        snprintf(number, sizeof number, "type number %u ", unknown[i]);
        GB_BAD(&b, PN_E_UNSUPPORTED, "'new.weight'", number, "this build knows: F32 F16", "MXFP4");
    }
    gb_header(&b, 3, 1, 0);
    gb_tensor(&b, "odd.weight", 2, (uint64_t[2]){33, 2}, PN_TYPE_Q4_0, 0);
    gb_zeros(&b, 512);
    GB_BAD(&b, PN_E_FORMAT, "'odd.weight'", "33 values", "Q4_0", "block of 32", "offset");
    gb_header(&b, 3, 1, 0);
    gb_tensor(&b, "odd.weight", 1, (uint64_t[1]){128}, PN_TYPE_Q4_K, 0);
    gb_zeros(&b, 512);
    GB_BAD(&b, PN_E_FORMAT, "'odd.weight'", "128 values", "Q4_K", "block of 256");
}

static void names(void **state) {
    (void)state;
    struct gb b;
    gb_header(&b, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        gb_str(&b, "same.key");
        gb_u32(&b, PN_GGUF_U32);
        gb_u32(&b, 7);
    }
    GB_BAD(&b, PN_E_FORMAT, "'same.key'", "twice", "44", "68");
    gb_header(&b, 3, 2, 0);
    gb_tensor(&b, "same.weight", 2, dims42, PN_TYPE_F32, 0);
    gb_tensor(&b, "same.weight", 2, dims42, PN_TYPE_F32, 32);
    gb_zeros(&b, 256);
    GB_BAD(&b, PN_E_FORMAT, "'same.weight'", "twice", "offset");

    gb_header(&b, 3, 0, 1);
    gb_str(&b, "");
    gb_u32(&b, PN_GGUF_U32);
    gb_u32(&b, 7);
    GB_BAD(&b, PN_E_FORMAT, "key 0", "offset 24", "empty");
    gb_header(&b, 3, 0, 1);
    gb_str(&b, "a\nb");
    gb_u32(&b, PN_GGUF_U32);
    gb_u32(&b, 7);
    GB_BAD(&b, PN_E_FORMAT, "'a?b'", "control character", "0x0a");
    gb_header(&b, 3, 0, 1);
    gb_u64(&b, 3);
    gb_raw(&b, "a\0b", 3);
    gb_u32(&b, PN_GGUF_U32);
    gb_u32(&b, 7);
    GB_BAD(&b, PN_E_FORMAT, "control character", "0x00");
    gb_header(&b, 3, 0, 1);
    gb_u64(&b, 70000);
    gb_zeros(&b, 64);
    GB_BAD(&b, PN_E_FORMAT, "key 0", "70000", "65535");

    gb_header(&b, 3, 1, 0);
    gb_tensor(&b, "", 2, dims42, PN_TYPE_F32, 0);
    gb_zeros(&b, 256);
    GB_BAD(&b, PN_E_FORMAT, "tensor 0", "empty", "offset 24");
    gb_header(&b, 3, 1, 0);
    gb_tensor(&b, "a\tb", 2, dims42, PN_TYPE_F32, 0);
    gb_zeros(&b, 256);
    GB_BAD(&b, PN_E_FORMAT, "'a?b'", "control character");
    char name[66];
    memset(name, 'n', 65);
    name[65] = '\0';
    gb_header(&b, 3, 1, 0);
    gb_tensor(&b, name, 2, dims42, PN_TYPE_F32, 0);
    gb_zeros(&b, 256);
    GB_BAD(&b, PN_E_FORMAT, "tensor 0", "65", "at most 64");
}

static void value_types(void **state) {
    (void)state;
    struct gb b;
    const uint32_t unknown[] = {13, 99, UINT32_MAX};
    for (size_t i = 0; i < PN_ARRAY_N(unknown); i++) {
        char number[48];
        gb_header(&b, 3, 0, 1);
        gb_str(&b, "odd");
        gb_u32(&b, unknown[i]);
        gb_zeros(&b, 64);
        snprintf(number, sizeof number, "unknown value type %u", unknown[i]);
        GB_BAD(&b, PN_E_FORMAT, "'odd'", number, "offset 35");
        gb_header(&b, 3, 0, 1);
        gb_str(&b, "odd");
        gb_u32(&b, PN_GGUF_ARRAY);
        gb_u32(&b, unknown[i]);
        gb_zeros(&b, 64);
        snprintf(number, sizeof number, "unknown element type %u", unknown[i]);
        GB_BAD(&b, PN_E_FORMAT, "'odd'", number, "offset 39");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(g1_dimensions),
        cmocka_unit_test(g2_products),
        cmocka_unit_test(g3_counts),
        cmocka_unit_test(g5_alignment),
        cmocka_unit_test(g5_alignment_good),
        cmocka_unit_test(g7_ranges),
        cmocka_unit_test(g8_prefixes),
        cmocka_unit_test(g8_other_files),
        cmocka_unit_test(g8_versions),
        cmocka_unit_test(g10_types),
        cmocka_unit_test(names),
        cmocka_unit_test(value_types),
    };
    return cmocka_run_group_tests(tests, gb_setup, gb_teardown);
}
