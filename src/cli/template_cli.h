/* What the commands that render chat templates share. */
#ifndef PN_CLI_TEMPLATE_CLI_H
#define PN_CLI_TEMPLATE_CLI_H

#include "base/settings.h"
#include "text/chat/chat.h"

/* A chat template with what goes into it beside the conversation. Zero it before; deinit after
 * success or failure. */
struct pn_chat_model {
    struct pn_template *t;
    struct pn_vocab *vocab; /* NULL for a template file alone */
    json_t *vars;           /* the model's: bos_token, eos_token */
    json_t *args;           /* the caller's: --template-arg */
};
void pn__chat_model_deinit(struct pn_chat_model *m);

/* The model's vocabulary and its template, or --chat-template's, and the arguments. Errors say that
 * --raw is there. */
int pn__chat_model_open(const struct pn_settings *s, struct pn_detail *d,
                        struct pn_chat_model *out) PN_MUST_CHECK;

/* The limits of the settings. */
void pn__cli_template_limits(const struct pn_settings *s, struct pn_template_limits *out);

/* A template file whole; the text is the caller's (pn__free). PN_E_NOTFOUND, PN_E_IO, PN_E_INVALID
 * (not a file, beyond --template-bytes), PN_E_NOMEM. */
int pn__cli_template_read(const struct pn_settings *s, const char *path, char **text, size_t *len,
                          struct pn_detail *d) PN_MUST_CHECK;

/* Adds each --template-arg NAME=JSON to `vars`. PN_E_USAGE for what is none, or names a variable
 * that isn't the caller's to set. */
int pn__cli_template_args(const struct pn_settings *s, json_t *vars,
                          struct pn_detail *d) PN_MUST_CHECK;

#endif
