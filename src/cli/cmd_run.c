/* `pannier run MODEL`: a conversation by the model's own chat template, or with --raw the text
 * continued as it is. With -p one turn, else a line of standard input each. Answers go to stdout,
 * everything else to stderr. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/interrupt.h"
#include "cli/talk.h"

struct run {
    const struct pn_settings *s;
    struct pn_chat_model chat; /* its vocabulary also for --raw */
    pn_engine *engine;
    struct pn_answer answer;
    struct pn_lines *lines;
};

static int check_flags(const struct pn_settings *s, struct pn_detail *d) {
    static const struct {
        enum pn_setting id;
        const char *flag;
    } chat_only[] = {{PN_SET_SYSTEM, "--system"}, {PN_SET_CHAT_TEMPLATE, "--chat-template"}};
    const char *prompt = pn__set_text(s, PN_SET_PROMPT);
    bool raw = pn__set_flag(s, PN_SET_RAW);
    if (prompt && !*prompt) {
        return pn__fail(d, PN_E_INVALID, "empty prompt: there is nothing to %s",
                        raw ? "continue" : "answer");
    }
    for (size_t i = 0; raw && i < PN_ARRAY_N(chat_only); i++) {
        if (!pn__set_given(s, chat_only[i].id)) continue;
        return pn__fail(d, PN_E_USAGE, "%s is for conversations, not for --raw", chat_only[i].flag);
    }
    if (raw && pn__set_listed(s, PN_SET_TEMPLATE_ARG, 0)) {
        return pn__fail(d, PN_E_USAGE, "--template-arg is for conversations, not for --raw");
    }
    if (!raw && pn__set_flag(s, PN_SET_SPECIAL)) {
        return pn__fail(d, PN_E_USAGE,
                        "--special is for --raw: in a conversation only the template writes "
                        "special tokens");
    }
    return 0;
}

/* A terminal is talked to until its user has had enough; a pipe and -p leave Ctrl-C as it is. */
static int open_lines(struct run *r, struct pn_detail *d) {
    int rc = pn__lines_new(r->s, d, &r->lines);
    if (rc || !pn__lines_edited(r->lines)) return rc;
    rc = pn__interrupt_catch(d);
    if (rc) return rc;
    fprintf(stderr, "[context of %u tokens; %s]\n", pn_engine_plan_used(r->engine)->ctx,
            pn__set_flag(r->s, PN_SET_RAW) ? "every line is continued by itself; Ctrl-D ends"
                                           : "/help lists commands, Ctrl-D ends");
    return 0;
}

static int run_raw(struct run *r, struct pn_detail *d) {
    const char *prompt = pn__set_text(r->s, PN_SET_PROMPT);
    if (prompt) return pn__talk_raw(&r->answer, prompt, strlen(prompt), d);
    int rc = open_lines(r, d);
    return rc ? rc : pn__talk_raw_lines(&r->answer, r->lines, d);
}

static int run_chat(struct run *r, struct pn_detail *d) {
    const char *prompt = pn__set_text(r->s, PN_SET_PROMPT);
    struct pn_conversation c = {.s = r->s, .model = &r->chat, .answer = &r->answer};
    int rc = pn_session_new(r->engine, d, &c.session);
    if (rc == 0) rc = pn__conversation_reset(&c, d);
    if (rc == 0 && prompt) {
        rc = pn__conversation_say(&c, prompt, strlen(prompt), d);
    } else if (rc == 0) {
        rc = open_lines(r, d);
        if (rc == 0) rc = pn__talk_chat(&c, r->lines, d);
    }
    pn_session_free(c.session);
    pn__conversation_deinit(&c);
    return rc;
}

int pn__cmd_run(const struct pn_settings *s, struct pn_detail *d) {
    struct run r = {.s = s};
    struct pn_engine_options o;
    bool raw = pn__set_flag(s, PN_SET_RAW);
    pn__cli_options(s, &o);
    int rc = check_flags(s, d);
    /* The template is looked at first: it takes no time, and loading may. */
    if (rc == 0 && !raw) rc = pn__chat_model_open(s, d, &r.chat);
    if (rc == 0) rc = pn_engine_open(&o, d, &r.engine);
    if (rc == 0 && raw) rc = pn__cli_vocab(s, d, &r.chat.vocab);
    if (rc == 0) rc = pn__answer_init(&r.answer, s, r.engine, r.chat.vocab, d);
    const char *trace = pn__set_text(s, PN_SET_TRACE);
    if (rc == 0 && trace) rc = pn__route_trace_open(trace, r.engine, d, &r.answer.trace);
    if (rc == 0) rc = raw ? run_raw(&r, d) : run_chat(&r, d);
    int trace_rc = pn__route_trace_close(r.answer.trace, rc ? NULL : d);
    if (rc == 0) rc = trace_rc;
    pn__lines_free(r.lines);
    pn__answer_deinit(&r.answer);
    pn_engine_free(r.engine);
    pn__chat_model_deinit(&r.chat);
    return rc;
}
