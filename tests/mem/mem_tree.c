#include "mem/mem_tree.h"

#include <errno.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/pn_test.h"

void mem_tree_new(struct mem_tree *t) {
    const char *dir = getenv("TMPDIR");
    snprintf(t->root, sizeof t->root, "%s/pn-test-XXXXXX", dir && strlen(dir) < 40 ? dir : "/tmp");
    assert_non_null(mkdtemp(t->root));
}

void mem_tree_write(const struct mem_tree *t, const char *path, const char *text) {
    char full[4096];
    int n = snprintf(full, sizeof full, "%s/%s", t->root, path);
    assert_in_range(n, 1, sizeof full - 1);
    for (char *c = full + strlen(t->root) + 1; (c = strchr(c, '/')) != NULL; c++) {
        *c = '\0';
        assert_true(mkdir(full, 0755) == 0 || errno == EEXIST);
        *c = '/';
    }
    char new[4096 + 8];
    snprintf(new, sizeof new, "%s.new", full);
    FILE *f = fopen(new, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
    assert_int_equal(rename(new, full), 0);
}

void mem_tree_remove(const struct mem_tree *t, const char *path) {
    char full[4096];
    snprintf(full, sizeof full, "%s/%s", t->root, path);
    assert_int_equal(unlink(full), 0);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

void mem_tree_free(struct mem_tree *t) {
    if (t->root[0]) nftw(t->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    t->root[0] = '\0';
}
