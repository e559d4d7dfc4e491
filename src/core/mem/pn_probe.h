/* Reading the kernel's text files strictly: under a root, with "not there" and "there but
 * unreadable" told apart, and the first failure kept in words. */
#ifndef PN_CORE_MEM_PROBE_H
#define PN_CORE_MEM_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "pn_mem.h"

/* Larger files are refused; memory.stat, the longest that is read, has about 3 KiB. */
#define PN_PROBE_TEXT_BYTES 16384

/* No figure of a real machine reaches 1 EiB; one that does is garbage. */
#define PN_PROBE_BYTES_MAX (1ull << 60)

/* Path of one file of a group, terminator included. */
#define PN_GROUP_FILE_BYTES 3200

struct pn_probe {
    const char *root;       /* in front of every path; "" for the real machine */
    pn_source_state *state; /* of the source being read: the first failure's words go here */
    char text[PN_PROBE_TEXT_BYTES];      /* the file read last */
    char group_psi[PN_GROUP_FILE_BYTES]; /* our v2 group's memory.pressure; "" for none */
};

/* Notes a failure (the first one stays) and returns PN_SOURCE_FAILED. */
enum pn_source_status pn__probe_fail(struct pn_probe *p, const char *fmt, ...) PN_PRINTF(2, 3);

/* Reads root + path into p->text. ENOENT and EOPNOTSUPP give ABSENT; any other error, a NUL byte
 * or a file that is too long give FAILED. */
enum pn_source_status pn__probe_read(struct pn_probe *p, const char *path);

/* The parsers take *s forward over what they accepted and say whether it was there. Digits only: a
 * sign, a space or a number that wraps is refused. */
bool pn__probe_u64(const char **s, uint64_t *out);
bool pn__probe_decimal(const char **s, double *out); /* "12" or "12.34" */
bool pn__probe_word(const char **s, const char *word);

/* Where the line that begins with `key` goes on after it; NULL when there is none. */
const char *pn__probe_line(const char *text, const char *key);

/* The whole text is one number (or "max", which gives UINT64_MAX) and a newline. */
bool pn__probe_scalar(const char *text, uint64_t *out);

/* A line "KEY NUMBER" / "KEY: NUMBER kB"; bytes, at most PN_PROBE_BYTES_MAX. */
bool pn__probe_stat(const char *text, const char *key, uint64_t *out);
bool pn__probe_kb(const char *text, const char *key, uint64_t *out);

/* pn_host_signals_sample with p->root already set; p->group_psi is left for who wants the path. */
void pn__host_sample(struct pn_probe *p, pn_host_sample *out);

/* Fills the cgroup fields of a sample, and p->group_psi. HOT must have been sampled. */
enum pn_source_status pn__cgroup_sample(struct pn_probe *p, pn_host_sample *out);

#endif
