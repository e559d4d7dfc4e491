/* Chat templates: the jinja that GGUF files carry, turned into text that remembers who wrote it.
 *
 * A template is parsed once and is immutable then: any thread may render it. A rendering takes its
 * memory from one arena that is freed whole, counts its steps and bytes against limits, and never
 * recurses deeper than a limit, whatever the input. Every byte of the result is marked as written
 * by the template or by the conversation, so that text a user typed never becomes a control token.
 * Nothing here knows a model. Semantics are those of Python's jinja2 with trim_blocks,
 * lstrip_blocks and loop controls on, autoescape off, and its default Undefined.
 */
#ifndef PN_TEXT_CHAT_H
#define PN_TEXT_CHAT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "text/text.h"

struct pn_template;

/* Limits; what goes beyond one is an error that names it. */
struct pn_template_limits {
    uint64_t source_bytes_max; /* of the template */
    uint64_t output_bytes_max; /* of any text that a rendering makes */
    uint64_t memory_bytes_max; /* of one rendering's (or the parsed template's) arena */
    uint64_t steps_max;        /* nodes evaluated, elements visited, 16-byte pieces moved */
    uint32_t depth_max;        /* of nesting: brackets, blocks, macro calls, values in values */
};

/* Parses text[0, len). Errors: PN_E_UNSUPPORTED (a construct, filter or test that is not there,
 * named), PN_E_FORMAT (no valid template), each with line and column; PN_E_INVALID (beyond a
 * limit), PN_E_NOMEM. `text` is not kept. `*out` is NULL after an error. */
int pn__template_parse(const char *text, size_t len, const struct pn_template_limits *limits,
                       struct pn_detail *d, struct pn_template **out) PN_MUST_CHECK;
void pn__template_free(struct pn_template *t);

/* The text's bytes up to `end`, from the end of the run before. */
struct pn_chat_run {
    size_t end;
    bool conversation; /* who wrote them: the conversation, or the template */
};

/* A rendered conversation. Zero it before; free it after success or failure. */
struct pn_chat_text {
    char *text; /* NUL-terminated; may hold NULs */
    size_t len;
    struct pn_chat_run *runs; /* [run_n], neighbours differ */
    size_t run_n;
    bool refused; /* after an error: the template's own raise_exception; the detail is its words */
    uint64_t steps; /* taken */
};
void pn__chat_text_free(struct pn_chat_text *out);

/* Renders with the variables of two objects: `conversation`, whose text is the conversation's, and
 * `model` (bos_token and the like; NULL: none), whose text counts as the template's and which wins
 * when both have a name. Either may be shared between threads as long as nobody changes it. `now`
 * is the local time that strftime_now tells. Errors: PN_E_INVALID with line and column (a limit's,
 * too), or with the template's own words and `refused`; PN_E_NOMEM. */
int pn__template_render(const struct pn_template *t, const json_t *conversation,
                        const json_t *model, const struct tm *now, struct pn_chat_text *out,
                        struct pn_detail *d) PN_MUST_CHECK;

/* As pn__template_render for a chat request, in the forms that clients send: tool-call arguments
 * that are a JSON text become the object they spell; a template that fails on a content of text
 * parts, or would print the list, is given them joined, one that fails on a content of null "";
 * one that needs arguments as text gets them so. PN_E_INVALID also when `messages` is no array of
 * objects with a role. */
int pn__chat_render(const struct pn_template *t, const json_t *conversation, const json_t *model,
                    const struct tm *now, struct pn_chat_text *out,
                    struct pn_detail *d) PN_MUST_CHECK;

/* The model's template, pointing into `g`: the one for tool use when there are tools and it has
 * one. PN_E_NOTFOUND when the file has none. */
int pn__chat_template_find(const struct pn_gguf *g, bool with_tools, struct pn_str *out,
                           struct pn_detail *d) PN_MUST_CHECK;

/* Adds to `vars` what a template's `model` variables are: bos_token and eos_token, unless they are
 * there. */
int pn__chat_vars(const struct pn_vocab *v, json_t *vars, struct pn_detail *d) PN_MUST_CHECK;

/* Appends the ids of a conversation that `t` made. A mark is recognised only where the template
 * wrote all of its bytes: control tokens, and of the user-defined ones those in brackets
 * ("<think>") that have a bar inside or stand in the template's source (NULL: none is known).
 * Between two control tokens the text is tokenised as one stretch, whoever wrote it, so borders
 * leave no trace in ordinary text. The result begins with exactly one BOS if the model wants one in
 * front of a prompt, else with what the template wrote. Errors as pn__tokenize; on failure `ids`
 * keeps what it had. */
int pn__chat_tokenize(const struct pn_vocab *v, const struct pn_template *t,
                      const struct pn_chat_text *text, struct pn_ids *ids,
                      struct pn_detail *d) PN_MUST_CHECK;

/* The tokens between which a model reasons; PN_TOKEN_NONE where its vocabulary has none. */
struct pn_chat_marks {
    int32_t open;    /* "<think>" */
    int32_t end;     /* "</think>" */
    int32_t channel; /* "<|channel|>", which begins each part of gpt-oss's answers */
};
int pn__chat_marks(const struct pn_vocab *v, struct pn_chat_marks *out,
                   struct pn_detail *d) PN_MUST_CHECK;

/* Whether an answer begins inside reasoning: its first token opens it, or the prompt did and left
 * it open. False without both marks. */
bool pn__chat_begins_thinking(const struct pn_chat_marks *m, const int32_t *prompt, size_t prompt_n,
                              int32_t first);

/* Parts of such an answer, inside `text`: the bytes up to `end`, which is behind the closing mark
 * (or all, when it didn't come), without their tags, and the rest. What the history keeps as
 * reasoning_content and content, so that no template has to look for tags in a text that may speak
 * of them. */
void pn__chat_split_reasoning(struct pn_str text, size_t end, struct pn_str *reasoning,
                              struct pn_str *content);

/* An answer in channels, which begins with "<|channel|>": the first one that is not final is
 * reasoning, the last final one content; either may be empty. */
void pn__chat_split_channels(struct pn_str text, struct pn_str *reasoning, struct pn_str *content);

#endif
