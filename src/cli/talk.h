/* `pannier run` as a conversation, or over lines that are each a prompt of their own. */
#ifndef PN_CLI_TALK_H
#define PN_CLI_TALK_H

#include "cli/conversation.h"
#include "cli/line_input.h"

/* Reads lines and lets the model answer each, until the input ends or /exit. Commands are lines
 * that consist of one alone. On a terminal, what goes wrong with one turn is said and the next is
 * waited for; else it is the result. */
int pn__talk_chat(struct pn_conversation *c, struct pn_lines *lines,
                  struct pn_detail *d) PN_MUST_CHECK;

/* The text continued as it is, in a session of its own. */
int pn__talk_raw(struct pn_answer *a, const char *text, size_t len,
                 struct pn_detail *d) PN_MUST_CHECK;

/* Each line a prompt of its own. */
int pn__talk_raw_lines(struct pn_answer *a, struct pn_lines *lines,
                       struct pn_detail *d) PN_MUST_CHECK;

#endif
