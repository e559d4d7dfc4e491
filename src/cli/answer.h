/* One answer of the model: asked for, shown as it comes or kept for --json, reported on. */
#ifndef PN_CLI_ANSWER_H
#define PN_CLI_ANSWER_H

#include "cli/engine_cli.h"
#include "cli/route_trace.h"

struct pn_answer {
    /* Set by the caller, for all its answers. */
    const struct pn_settings *s;
    pn_engine *engine;
    const struct pn_vocab *vocab;
    uint64_t seed;
    int32_t think_end; /* the token that ends reasoning; PN_TOKEN_NONE: the model has none */
    struct pn_route_trace *trace; /* NULL: not asked for */

    /* Of the answer now or last. */
    struct pn_ids tokens; /* all of them, the one that ended it included */
    char *text;           /* [text_len]: everything decoded */
    size_t text_len;
    size_t text_cap;
    size_t think_len; /* text up to the first think_end, it included; 0: it didn't come */
    uint32_t kept_n;  /* tokens of the prompt that the session held already */
    bool ended;       /* the model said so */
    struct pn_done done;

    /* Inside. */
    struct pn_decoder decoder;
    char *piece; /* [pn__decoder_max] */
    bool stream;
    struct pn_progress progress;
    int rc; /* trouble inside a callback */
    struct pn_detail *d;
};

/* Takes the settings, the engine and the vocabulary, which outlive it. PN_E_NOMEM. */
int pn__answer_init(struct pn_answer *a, const struct pn_settings *s, pn_engine *engine,
                    const struct pn_vocab *vocab, struct pn_detail *d) PN_MUST_CHECK;
void pn__answer_deinit(struct pn_answer *a);

/* Asks the session to read `tokens` behind what it holds (`kept_n`) and to say at most `max_new`;
 * streams to stdout unless --json is given. 0 also when Ctrl-C or a limit ended it: a->done says.
 * Errors of the request, the engine or stdout. */
int pn__answer_ask(struct pn_answer *a, pn_session *session, uint32_t kept_n, const int32_t *tokens,
                   uint32_t token_n, uint32_t max_new, struct pn_detail *d) PN_MUST_CHECK;

/* After an answer: the end of its line, with --stats its speed on stderr; or its JSON. */
int pn__answer_report(const struct pn_answer *a, struct pn_detail *d) PN_MUST_CHECK;

#endif
