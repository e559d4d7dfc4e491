/* A conversation with a model: what was said, as its template writes it, and how much of that the
 * session has read already.
 *
 * Each turn renders the messages anew and compares the ids with those that the session holds: the
 * common beginning is kept, the session is cut back to it, and only the rest is computed. When the
 * whole no longer fits the context, the oldest turns are left out, and said so.
 */
#ifndef PN_CLI_CONVERSATION_H
#define PN_CLI_CONVERSATION_H

#include "cli/answer.h"
#include "cli/template_cli.h"

struct pn_conversation {
    /* Set by the caller. */
    const struct pn_settings *s;
    const struct pn_chat_model *model;
    struct pn_answer *answer;
    pn_session *session;

    struct pn_chat_marks marks; /* of reasoning */
    json_t *messages;           /* all, the system's first if there is one */
    struct tm now;        /* when it began: the template's clock, so that nothing said changes */
    size_t skip_n;        /* oldest messages behind the system's that are not sent */
    struct pn_ids held;   /* what the session was fed, the last answer included */
    struct pn_ids prompt; /* of this turn */
    bool told_rewind;
};

/* Starts anew, with --system's message if there is one. PN_E_NOMEM, PN_E_IO. */
int pn__conversation_reset(struct pn_conversation *c, struct pn_detail *d) PN_MUST_CHECK;
void pn__conversation_deinit(struct pn_conversation *c);

/* Says `text` and lets the model answer. Errors after which the conversation is as before and goes
 * on: PN_E_INVALID (the template refuses, or fails), PN_E_CONTEXT (the message is longer than the
 * context), those that pass (no memory for it now). After others it can't. When Ctrl-C came before
 * the first word, the message is taken back. */
int pn__conversation_say(struct pn_conversation *c, const char *text, size_t len,
                         struct pn_detail *d) PN_MUST_CHECK;

#endif
