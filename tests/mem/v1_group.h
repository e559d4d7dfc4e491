/* A control group of our own below the one we are in, on cgroup v1, for tests that need a real
 * limit. All load of such a test stays in a child process inside it. */
#ifndef PN_TESTS_MEM_V1_GROUP_H
#define PN_TESTS_MEM_V1_GROUP_H

#include <stdint.h>
#include <sys/types.h>

struct v1_group {
    char dir[512]; /* "" when there is none */
    char why[256]; /* why there is none */
};

/* 0, or -1 with `why` filled in where such a group can't be made. */
int v1_group_new(struct v1_group *g, uint64_t limit_bytes);

/* Runs `body` in a child process inside the group; its wait status, or -1. */
int v1_group_run(const struct v1_group *g, int (*body)(void *arg), void *arg);

/* How many processes the kernel killed in it for want of memory; -1 when that can't be read. */
long v1_group_oom_kill_n(const struct v1_group *g);

/* A number in one of its files, such as "memory.usage_in_bytes"; 0 when it can't be read. */
uint64_t v1_group_figure(const struct v1_group *g, const char *name);

/* From inside the group: a child process that takes `bytes`, a piece after each pause, and holds
 * them until it is stopped (or its parent ends). Its id, or -1. */
pid_t group_hog_start(uint64_t bytes, uint64_t piece_bytes, unsigned pause_ms);
int group_hog_stop(pid_t pid); /* 0 when it has ended */

/* Removes the group; 0 when it is gone. */
int v1_group_free(struct v1_group *g);

#endif
