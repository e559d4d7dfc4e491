/* The demo model, where `make demo` keeps it. */
#ifndef PN_TESTS_ENGINE_DEMO_H
#define PN_TESTS_ENGINE_DEMO_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define DEMO_NAME "SmolLM2-135M-Instruct.Q4_1.gguf"

/* False when it isn't there. */
static inline bool demo_find(char *path, size_t cap) {
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    struct stat st;
    if (cache && cache[0]) {
        snprintf(path, cap, "%s/pannier/" DEMO_NAME, cache);
    } else {
        snprintf(path, cap, "%s/.cache/pannier/" DEMO_NAME, home ? home : "");
    }
    return stat(path, &st) == 0;
}

#endif
