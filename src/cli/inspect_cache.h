/* What a token takes in the cache, by kind of layers: from the header, where the architecture is
 * one that runs. */
#ifndef PN_CLI_INSPECT_CACHE_H
#define PN_CLI_INSPECT_CACHE_H

#include <jansson.h>

#include "gguf/gguf.h"

/* Lines `cache` and `state` of the text; none for other architectures. */
void pn__print_cache(const struct pn_gguf *g);
/* A list of kinds with bytes a token in each format; null for other architectures, NULL: no memory.
 */
json_t *pn__cache_json(const struct pn_gguf *g);

#endif
