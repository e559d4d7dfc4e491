#include "mem/v1_group.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOUNT "/sys/fs/cgroup/memory"

static int put(const struct v1_group *g, const char *name, const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", g->dir, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = write(fd, text, strlen(text));
    int err = errno;
    close(fd);
    errno = err;
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* The path of our memory group, from the line "N:memory:PATH". */
static int own_path(char *out, size_t cap) {
    char line[600];
    int rc = -1;
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (!f) return -1;
    while (rc != 0 && fgets(line, sizeof line, f)) {
        const char *path = strstr(line, ":memory:");
        if (!path) continue;
        path += strlen(":memory:");
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, cap, "%s", strcmp(path, "/") == 0 ? "" : path);
        rc = 0;
    }
    fclose(f);
    return rc;
}

int v1_group_new(struct v1_group *g, uint64_t limit_bytes) {
    char own[400];
    char text[32];
    memset(g, 0, sizeof *g);
    if (own_path(own, sizeof own) != 0) {
        snprintf(g->why, sizeof g->why, "no cgroup v1 memory controller");
        return -1;
    }
    snprintf(g->dir, sizeof g->dir, MOUNT "%s/pn-test-%ld", own, (long)getpid());
    if (mkdir(g->dir, 0755) != 0) {
        snprintf(g->why, sizeof g->why, "can't make a group below %.150s: %s", own,
                 strerror(errno));
        g->dir[0] = '\0';
        return -1;
    }
    snprintf(text, sizeof text, "%llu", (unsigned long long)limit_bytes);
    if (put(g, "memory.limit_in_bytes", text) != 0) {
        snprintf(g->why, sizeof g->why, "can't set memory.limit_in_bytes: %s", strerror(errno));
        v1_group_free(g);
        return -1;
    }
    return 0;
}

int v1_group_run(const struct v1_group *g, int (*body)(void *arg), void *arg) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) return -1;
    if (pid == 0) {
        if (put(g, "cgroup.procs", "0") != 0) {
            perror("cgroup.procs");
            _exit(99);
        }
        int rc = body(arg);
        fflush(NULL);
        _exit(rc);
    }
    int status;
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

long v1_group_oom_kill_n(const struct v1_group *g) {
    char path[600];
    char line[128];
    long n = -1;
    snprintf(path, sizeof path, "%s/memory.oom_control", g->dir);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    while (fgets(line, sizeof line, f))
        sscanf(line, "oom_kill %ld", &n);
    fclose(f);
    return n;
}

int v1_group_free(struct v1_group *g) {
    int rc = -1;
    if (!g->dir[0]) return 0;
    /* A group stays busy for a moment after its last process has ended. */
    for (int i = 0; i < 100 && rc != 0; i++) {
        rc = rmdir(g->dir);
        if (rc != 0) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    g->dir[0] = '\0';
    return rc;
}

/* ---- a neighbour ---- */

pid_t group_hog_start(uint64_t bytes, uint64_t piece_bytes, unsigned pause_ms) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* never outlives the test */
    uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) _exit(1);
    for (uint64_t at = 0; at < bytes; at += piece_bytes) {
        uint64_t n = bytes - at < piece_bytes ? bytes - at : piece_bytes;
        memset(p + at, 1, n);
        if (pause_ms) {
            nanosleep(&(struct timespec){.tv_sec = pause_ms / 1000,
                                         .tv_nsec = (long)(pause_ms % 1000) * 1000000},
                      NULL);
        }
    }
    for (;;)
        pause();
}

int group_hog_stop(pid_t pid) {
    int status;
    if (pid <= 0 || kill(pid, SIGTERM) != 0) return -1;
    return waitpid(pid, &status, 0) == pid ? 0 : -1;
}

uint64_t v1_group_figure(const struct v1_group *g, const char *name) {
    char path[600];
    unsigned long long v = 0;
    snprintf(path, sizeof path, "%s/%s", g->dir, name);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (fscanf(f, "%llu", &v) != 1) v = 0;
    fclose(f);
    return v;
}
