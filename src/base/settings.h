/* Settings: every flag, environment variable and default is a row of one table (law 8).
 *
 * Order of precedence: flag, environment, default. The table is parsed once; the result is plain
 * data that is handed down. A bad value or an unknown flag is an error with the flag, the value and
 * what would be right; an unknown PN_* variable is a warning. There is no other getenv.
 */
#ifndef PN_BASE_SETTINGS_H
#define PN_BASE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

/* The commands, each a bit, and the name that is typed. X(id, bit, name) */
#define PN_CMD_TABLE(X)        \
    X(RUN, 0, "run")           \
    X(LOGITS, 1, "logits")     \
    X(BENCH, 2, "bench")       \
    X(PLAN, 3, "plan")         \
    X(INSPECT, 4, "inspect")   \
    X(TOKENIZE, 5, "tokenize") \
    X(MEM, 6, "mem")           \
    X(TEMPLATE, 7, "template")

enum pn_cmd {
#define PN_CMD_ENUM(id, bit, name) PN_CMD_##id = 1 << (bit),
    PN_CMD_TABLE(PN_CMD_ENUM)
#undef PN_CMD_ENUM
        PN_CMD_WATCHES = PN_CMD_RUN | PN_CMD_LOGITS | PN_CMD_BENCH | PN_CMD_MEM,
    PN_CMD_ENGINE = PN_CMD_RUN | PN_CMD_LOGITS | PN_CMD_BENCH | PN_CMD_PLAN,
    PN_CMD_ALL = PN_CMD_ENGINE | PN_CMD_INSPECT | PN_CMD_TOKENIZE | PN_CMD_MEM | PN_CMD_TEMPLATE,
};

/* "run" for PN_CMD_RUN; "?" for what is not exactly one command. */
const char *pn__cmd_name(unsigned cmd);

enum pn_setting_kind {
    PN_SETTING_FLAG,  /* present or not; in the environment 0/1/on/off */
    PN_SETTING_INT,   /* min..max */
    PN_SETTING_BYTES, /* 123, 64K, 10M, 4G (powers of 1024), min..max */
    PN_SETTING_FLOAT, /* min..max */
    PN_SETTING_TEXT,
    PN_SETTING_LIST,   /* texts: the flag may be given several times; see pn__set_listed */
    PN_SETTING_CHOICE, /* one of "a|b|c" */
};

/* X(id, flag, short, env, kind, default, min, max, arg, cmds, help)
 * flag without dashes, NULL for environment-only; short 0 for none; env NULL for none; default as
 * text, NULL for "not set"; arg names the value in --help (for CHOICE it is the list). */
#define PN_SETTINGS_TABLE(X)                                                                       \
    X(HELP, "help", 'h', NULL, FLAG, NULL, 0, 0, NULL, PN_CMD_ALL, "print this help")              \
    X(LOG, "log", 0, "PN_LOG", CHOICE, "warn", 0, 0, "error|warn|info|debug", PN_CMD_ALL,          \
      "how much the log says on stderr")                                                           \
    X(JSON, "json", 0, NULL, FLAG, NULL, 0, 0, NULL,                                               \
      PN_CMD_RUN | PN_CMD_LOGITS | PN_CMD_BENCH | PN_CMD_PLAN | PN_CMD_INSPECT | PN_CMD_MEM,       \
      "machine-readable output")                                                                   \
    X(THREADS, "threads", 't', "PN_THREADS", INT, "0", 0, 256, "N",                                \
      PN_CMD_RUN | PN_CMD_LOGITS | PN_CMD_BENCH | PN_CMD_PLAN,                                     \
      "compute threads (0: one for each usable core)")                                             \
    X(CTX, "ctx", 'c', "PN_CTX", INT, "0", 0, 1 << 24, "N", PN_CMD_ENGINE,                         \
      "context length in tokens (0: what the model was trained for, or what fits)")                \
    X(SLOTS, "slots", 0, "PN_SLOTS", INT, "0", 0, 256, "N", PN_CMD_PLAN,                           \
      "sequences held at once (0: what fits, at most 4)")                                          \
    X(CHUNK, "chunk", 0, "PN_CHUNK", INT, "512", 1, 4096, "N", PN_CMD_ENGINE,                      \
      "prompt tokens computed in one step")                                                        \
    X(WINDOW, "prefill-window", 0, "PN_PREFILL_WINDOW", INT, "0", 0, 1 << 24, "N", PN_CMD_RUN,     \
      "longest prompt taken while memory is ample (0: the context); less of it when it is tight")  \
    X(KV, "kv", 0, "PN_KV", CHOICE, "f16", 0, 0, "f32|f16|q8_0|q4|auto", PN_CMD_ENGINE,            \
      "format of the KV cache (logits: f32 unless given)")                                         \
    X(WEIGHTS, "weights", 0, "PN_WEIGHTS", CHOICE, "auto", 0, 0, "auto|map|copy", PN_CMD_ENGINE,   \
      "read weights in place from the map, or from a copy in memory")                              \
    X(ISA, "isa", 0, "PN_ISA", CHOICE, "auto", 0, 0, "auto|ref|avx2|avx512|amx|neon",              \
      PN_CMD_ENGINE, "highest instruction set level used by the kernels")                          \
    X(PIN, "pin", 0, "PN_PIN", CHOICE, "auto", 0, 0, "auto|on|off", PN_CMD_ENGINE,                 \
      "bind worker threads to CPUs (auto: when every usable CPU has one)")                         \
    X(PRE, "pre", 0, NULL, TEXT, NULL, 0, 0, "NAME", PN_CMD_RUN | PN_CMD_TOKENIZE,                 \
      "pre-tokeniser to use instead of the file's")                                                \
    X(PROMPT, "prompt", 'p', NULL, TEXT, NULL, 0, 0, "TEXT", PN_CMD_RUN,                           \
      "one turn of a conversation (without it: each line of standard input)")                      \
    X(RAW, "raw", 0, NULL, FLAG, NULL, 0, 0, NULL, PN_CMD_RUN,                                     \
      "no conversation: the text is continued as it is, each prompt by itself")                    \
    X(SYSTEM, "system", 0, NULL, TEXT, NULL, 0, 0, "TEXT", PN_CMD_RUN,                             \
      "the system message that the conversation begins with")                                      \
    X(CHAT_TEMPLATE, "chat-template", 0, NULL, TEXT, NULL, 0, 0, "FILE",                           \
      PN_CMD_RUN | PN_CMD_TEMPLATE, "a chat template to use instead of the model's")               \
    X(TEMPLATE_ARG, "template-arg", 0, NULL, LIST, NULL, 0, 0, "NAME=JSON",                        \
      PN_CMD_RUN | PN_CMD_TEMPLATE,                                                                \
      "a variable for the chat template, such as enable_thinking=false; repeatable")               \
    X(STATS, "stats", 0, NULL, FLAG, NULL, 0, 0, NULL, PN_CMD_RUN, "speed after each answer")      \
    X(PREDICT, "predict", 'n', NULL, INT, NULL, 1, 1 << 24, "N", PN_CMD_RUN,                       \
      "most tokens of an answer (default: until the context is full; with --raw 256)")             \
    X(HISTORY, "history", 0, "PN_HISTORY", TEXT, NULL, 0, 0, "FILE", PN_CMD_RUN,                   \
      "where lines typed on a terminal are kept (\"\": nowhere; default: history in --state-dir)") \
    X(TRACE, "trace", 0, NULL, TEXT, NULL, 0, 0, "FILE", PN_CMD_RUN,                               \
      "write which experts each token used to FILE")                                               \
    X(SPECIAL, "special", 0, NULL, FLAG, NULL, 0, 0, NULL, PN_CMD_RUN | PN_CMD_TOKENIZE,           \
      "parse special tokens written in the text (run: with --raw)")                                \
    X(BOS, "bos", 0, NULL, FLAG, NULL, 0, 0, NULL, PN_CMD_TOKENIZE, "put BOS in front")            \
    X(TEMP, "temp", 0, NULL, FLOAT, "0.8", 0, 100, "T", PN_CMD_RUN, "temperature (0: greedy)")     \
    X(TOP_K, "top-k", 0, NULL, INT, "40", 0, 1 << 24, "K", PN_CMD_RUN, "keep the K best (0: all)") \
    X(TOP_P, "top-p", 0, NULL, FLOAT, "0.95", 0, 1, "P", PN_CMD_RUN, "keep the mass P (1: all)")   \
    X(MIN_P, "min-p", 0, NULL, FLOAT, "0.05", 0, 1, "P", PN_CMD_RUN,                               \
      "drop tokens below P times the best one's probability (0: none)")                            \
    X(SEED, "seed", 's', NULL, INT, "0", 0, INT64_MAX, "S", PN_CMD_RUN,                            \
      "random seed (0: a new one, printed with --json)")                                           \
    X(TOKENS, "tokens", 0, NULL, TEXT, NULL, 0, 0, "IDS|FILE", PN_CMD_LOGITS | PN_CMD_BENCH,       \
      "logits: ids separated by commas; bench: a file of ids")                                     \
    X(GREEDY, "greedy", 0, NULL, INT, "0", 0, 1 << 24, "N", PN_CMD_LOGITS,                         \
      "greedy tokens after the prompt")                                                            \
    X(BESIDE, "beside", 0, NULL, INT, "0", 0, 63, "K", PN_CMD_LOGITS,                              \
      "other sequences computed in the same steps")                                                \
    X(OUT, "out", 'o', NULL, TEXT, NULL, 0, 0, "FILE", PN_CMD_LOGITS, "where the rows go")         \
    X(BENCH_P, "n-prompt", 'p', NULL, INT, "512", 0, 1 << 24, "N", PN_CMD_BENCH, "prompt tokens")  \
    X(BENCH_N, "n-predict", 'n', NULL, INT, "64", 0, 1 << 24, "N", PN_CMD_BENCH,                   \
      "tokens decoded one by one")                                                                 \
    X(STREAMS, "streams", 0, NULL, INT, "1", 1, 256, "S", PN_CMD_BENCH, "sequences at once")       \
    X(NO_DRAM, "no-dram", 0, NULL, FLAG, NULL, 0, 0, NULL, PN_CMD_BENCH,                           \
      "leave out the read of 512 MiB that speed is set against")                                   \
    X(IDS, "ids", 0, NULL, FLAG, NULL, 0, 0, NULL, PN_CMD_TEMPLATE,                                \
      "print the token ids that the model would be fed")                                           \
    X(NOW, "now", 0, NULL, TEXT, NULL, 0, 0, "TIME", PN_CMD_TEMPLATE,                              \
      "the time that the template is told, such as 2025-03-09T14:05:06 (default: now)")            \
    X(TEMPLATE_BYTES, "template-bytes", 0, "PN_TEMPLATE_BYTES", BYTES, "1M", 1, 1 << 26, "BYTES",  \
      PN_CMD_RUN | PN_CMD_TEMPLATE, "largest chat template")                                       \
    X(TEMPLATE_OUTPUT, "template-output", 0, "PN_TEMPLATE_OUTPUT_BYTES", BYTES, "64M", 1,          \
      INT64_C(1) << 40, "BYTES", PN_CMD_RUN | PN_CMD_TEMPLATE,                                     \
      "longest text that a chat template may make")                                                \
    X(TEMPLATE_MEMORY, "template-memory", 0, "PN_TEMPLATE_MEMORY_BYTES", BYTES, "1G", 65536,       \
      INT64_C(1) << 40, "BYTES", PN_CMD_RUN | PN_CMD_TEMPLATE,                                     \
      "most memory that one rendering may take")                                                   \
    X(TEMPLATE_STEPS, "template-steps", 0, "PN_TEMPLATE_STEPS", INT, "100000000", 1, INT64_MAX,    \
      "N", PN_CMD_RUN | PN_CMD_TEMPLATE, "steps after which a rendering is stopped")               \
    X(TEMPLATE_DEPTH, "template-depth", 0, "PN_TEMPLATE_DEPTH", INT, "1000", 10, 4000, "N",        \
      PN_CMD_RUN | PN_CMD_TEMPLATE,                                                                \
      "deepest nesting of blocks, calls and values in a chat template")                            \
    X(SETTINGS, "settings", 0, NULL, FLAG, NULL, 0, 0, NULL, PN_CMD_PLAN,                          \
      "list every setting with its value and where it came from")                                  \
    X(HOST_RESERVE, NULL, 0, "PN_HOST_RESERVE_BYTES", BYTES, NULL, 0, INT64_MAX, "BYTES",          \
      PN_CMD_ALL, "host memory kept free (default: the larger of 1 GiB and 15 %)")                 \
    X(CGROUP_RESERVE, NULL, 0, "PN_CGROUP_RESERVE_BYTES", BYTES, NULL, 0, INT64_MAX, "BYTES",      \
      PN_CMD_ALL, "kept free below a cgroup limit (default: the larger of 64 MiB and 1/16)")       \
    X(ROOT, "root", 0, "PN_ROOT", TEXT, NULL, 0, 0, "DIR", PN_CMD_ENGINE | PN_CMD_MEM,             \
      "folder put in front of /proc and /sys when memory is probed")                               \
    X(WATCH, "watch", 0, NULL, FLAG, NULL, 0, 0, NULL, PN_CMD_MEM,                                 \
      "go on, with every new snapshot, until interrupted")                                         \
    X(STATE_DIR, "state-dir", 0, "PN_STATE_DIR", TEXT, NULL, 0, 0, "DIR", PN_CMD_WATCHES,          \
      "folder where the last memory snapshot is kept (\"\": nowhere; default: pannier in the XDG " \
      "state folder, where that can be written)")                                                  \
    X(XDG_STATE_HOME, NULL, 0, "XDG_STATE_HOME", TEXT, NULL, 0, 0, "DIR", PN_CMD_WATCHES,          \
      "the XDG state folder")                                                                      \
    X(HOME, NULL, 0, "HOME", TEXT, NULL, 0, 0, "DIR", PN_CMD_WATCHES,                              \
      "holds .local/state, the XDG state folder by default")                                       \
    X(PSI_FULL_REJECT, NULL, 0, "PN_PSI_FULL_REJECT", FLOAT, "15", 0, 100, "PERCENT", PN_CMD_ALL,  \
      "full memory stalls from here on are CRITICAL and refuse requests")                          \
    X(DIE_RESERVE, NULL, 0, "PN_DIE_RESERVE_BYTES", BYTES, "1G", 0, INT64_MAX, "BYTES",            \
      PN_CMD_ALL, "memory of each die kept free")                                                  \
    X(LOAD_SPIKE, NULL, 0, "PN_LOAD_SPIKE_BYTES", BYTES, NULL, 0, INT64_MAX, "BYTES", PN_CMD_ALL,  \
      "host memory that copying weights to a die takes for a moment (default: 2.4 GiB)")           \
    X(LADDER_DISABLE, NULL, 0, "PN_LADDER_DISABLE", FLAG, NULL, 0, 0, NULL, PN_CMD_ALL,            \
      "1: pressure takes nothing away from what is configured")

enum pn_setting {
#define PN_SETTING_ENUM(id, ...) PN_SET_##id,
    PN_SETTINGS_TABLE(PN_SETTING_ENUM)
#undef PN_SETTING_ENUM
        PN_SET_N,
};

enum pn_setting_source { PN_FROM_DEFAULT, PN_FROM_ENV, PN_FROM_FLAG };

struct pn_setting_value {
    const char *text; /* as given; NULL when not set. Points into argv, environ or the table */
    int64_t i;        /* INT, BYTES, FLAG (0/1), CHOICE (index in the list) */
    double f;         /* FLOAT */
    enum pn_setting_source source;
};

#define PN_POSITIONAL_MAX 8
#define PN_LISTED_MAX 64
struct pn_settings {
    struct pn_setting_value values[PN_SET_N];
    struct {
        enum pn_setting id;
        const char *text;
    } listed[PN_LISTED_MAX]; /* of settings that are lists, in the order given */
    uint32_t listed_n;
    const char *positional[PN_POSITIONAL_MAX];
    uint32_t positional_n;
};

/* Defaults, then the environment (`environ`-like array; NULL: none). PN_E_USAGE on a bad value, an
 * empty one included (only texts may be empty). Unknown PN_* names are logged as warnings. The
 * strings of `env` and `argv` must outlive `s`. */
int pn__settings_init(struct pn_settings *s, char *const *env, struct pn_detail *d) PN_MUST_CHECK;

/* Flags of command `cmd`: "--flag V", "--flag=V", "-f V"; "--" ends flags. argv[0] is the first
 * argument after the command's name. PN_E_USAGE on an unknown flag (a near one is suggested), a
 * flag of another command, a flag given twice (a list's: more than PN_LISTED_MAX values), a missing
 * or bad value, or too many positional arguments. After --help nothing else is read or checked. */
int pn__settings_parse(struct pn_settings *s, unsigned cmd, int argc, char *const *argv,
                       struct pn_detail *d) PN_MUST_CHECK;

static inline int64_t pn__set_int(const struct pn_settings *s, enum pn_setting id) {
    return s->values[id].i;
}
static inline bool pn__set_flag(const struct pn_settings *s, enum pn_setting id) {
    return s->values[id].i != 0;
}
static inline double pn__set_float(const struct pn_settings *s, enum pn_setting id) {
    return s->values[id].f;
}
static inline const char *pn__set_text(const struct pn_settings *s, enum pn_setting id) {
    return s->values[id].text;
}
/* The i-th text of a list, or NULL behind the last. */
const char *pn__set_listed(const struct pn_settings *s, enum pn_setting id, uint32_t i);
static inline bool pn__set_given(const struct pn_settings *s, enum pn_setting id) {
    return s->values[id].source != PN_FROM_DEFAULT;
}

/* The flags of one command, or of several, with their defaults and environment names, then the
 * variables that have no flag; and the list of all settings, one a line: name, value, where it came
 * from. */
void pn__settings_help(FILE *f, unsigned cmd);
void pn__settings_list(const struct pn_settings *s, FILE *f);

/* The candidate nearest to `word` if it is near enough to be what was meant, else NULL. For "did
 * you mean". */
const char *pn__nearest(const char *word, const char *const *candidates, size_t n);

#endif
