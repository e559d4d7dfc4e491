/* A folder of text files that stands for a machine: /proc and /sys under a root. */
#ifndef PN_TESTS_MEM_TREE_H
#define PN_TESTS_MEM_TREE_H

struct mem_tree {
    char root[64];
};

/* Both fail the running test when the system doesn't let them. A file is replaced at once: a watch
 * may read it meanwhile. */
void mem_tree_new(struct mem_tree *t);
void mem_tree_write(const struct mem_tree *t, const char *path, const char *text);

void mem_tree_remove(const struct mem_tree *t, const char *path);
void mem_tree_free(struct mem_tree *t);

#endif
