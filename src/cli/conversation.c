#include "cli/conversation.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "text/segment.h"

static int no_memory(struct pn_detail *d) {
    return pn__fail(d, PN_E_NOMEM, "the conversation's messages");
}

/* ---- messages ---- */

static int add(struct pn_conversation *c, json_t *message, struct pn_detail *d) {
    return json_array_append_new(c->messages, message) ? no_memory(d) : 0;
}

static json_t *message_of(const char *role, const char *text, size_t len) {
    return json_pack("{s:s, s:s%}", "role", role, "content", text, len);
}

static bool has_role(const struct pn_conversation *c, size_t i, const char *role) {
    const char *is = json_string_value(json_object_get(json_array_get(c->messages, i), "role"));
    return is && strcmp(is, role) == 0;
}

/* Messages that are always sent: the system's. */
static size_t fixed_n(const struct pn_conversation *c) {
    return has_role(c, 0, "system") ? 1 : 0;
}

static void take_back_last(struct pn_conversation *c) {
    (void)json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

int pn__conversation_reset(struct pn_conversation *c, struct pn_detail *d) {
    const char *system = pn__set_text(c->s, PN_SET_SYSTEM);
    time_t now = time(NULL);
    json_decref(c->messages);
    c->messages = json_array();
    c->skip_n = 0;
    c->told_rewind = false;
    if (!c->messages) return no_memory(d);
    if (!localtime_r(&now, &c->now)) {
        return pn__fail(d, PN_E_IO, "no local time: %s", strerror(errno));
    }
    return system ? add(c, message_of("system", system, strlen(system)), d) : 0;
}

void pn__conversation_deinit(struct pn_conversation *c) {
    json_decref(c->messages);
    pn__ids_free(&c->held);
    pn__ids_free(&c->prompt);
}

/* ---- what is sent ---- */

/* The ids of the conversation without its `skip_n` oldest messages. */
static int render(struct pn_conversation *c, size_t skip_n, struct pn_ids *ids,
                  struct pn_detail *d) {
    struct pn_chat_text text = {0};
    json_t *sent = json_array();
    size_t fixed = fixed_n(c);
    int rc = sent ? 0 : no_memory(d);
    for (size_t i = 0; rc == 0 && i < json_array_size(c->messages); i++) {
        if (i >= fixed && i < fixed + skip_n) continue;
        if (json_array_append(sent, json_array_get(c->messages, i))) rc = no_memory(d);
    }
    json_t *request = json_pack("{s:O, s:b}", "messages", sent, "add_generation_prompt", 1);
    if (rc == 0 && (!request || json_object_update_missing(request, c->model->args)))
        rc = no_memory(d);
    if (rc == 0) rc = pn__chat_render(c->model->t, request, c->model->vars, &c->now, &text, d);
    if (rc == 0 && text.len == 0)
        rc = pn__fail(d, PN_E_INVALID, "the chat template makes no text of this conversation");
    ids->n = 0;
    if (rc == 0) rc = pn__chat_tokenize(c->model->vocab, &text, ids, d);
    pn__chat_text_free(&text);
    json_decref(request);
    json_decref(sent);
    return rc;
}

/* Messages up to the k-th turn's end, counted from the oldest behind the system's; a turn begins
 * with what the user says. */
static size_t messages_of_turns(const struct pn_conversation *c, size_t k) {
    size_t fixed = fixed_n(c);
    size_t n = json_array_size(c->messages);
    size_t i = fixed;
    while (k > 0 && i < n) {
        i++;
        while (i < n && !has_role(c, i, "user"))
            i++;
        k--;
    }
    return i - fixed;
}

static size_t turns_of_messages(const struct pn_conversation *c, size_t message_n) {
    size_t fixed = fixed_n(c);
    size_t turns = 0;
    for (size_t i = fixed; i < fixed + message_n; i++) {
        if (has_role(c, i, "user")) turns++;
    }
    return turns;
}

/* Room that is left for an answer before old turns are given up for it. */
static uint32_t answer_room(const struct pn_conversation *c, uint32_t ctx) {
    int64_t asked = pn__set_int(c->s, PN_SET_PREDICT);
    uint32_t room = ctx / 8;
    return asked > 0 && asked < room ? (uint32_t)asked : room;
}

/* Leaves out the fewest of the oldest turns with which three quarters of the context hold the rest,
 * or, if none do, all but the newest: so that the next turns fit without all being read again each
 * time. Finds the number by halving: log2(turns) renderings. */
static int leave_out(struct pn_conversation *c, uint32_t ctx, struct pn_detail *d) {
    size_t whole_n = c->prompt.n;
    size_t low = turns_of_messages(c, c->skip_n); /* too few */
    size_t high = turns_of_messages(c, json_array_size(c->messages) - fixed_n(c)) - 1;
    size_t before = low;
    int rc = 0;
    while (rc == 0 && high > low + 1) {
        size_t middle = low + (high - low) / 2;
        rc = render(c, messages_of_turns(c, middle), &c->prompt, d);
        if (c->prompt.n > ctx - ctx / 4)
            low = middle;
        else
            high = middle;
    }
    if (rc == 0) rc = render(c, messages_of_turns(c, high), &c->prompt, d);
    if (rc) return rc;
    if (c->prompt.n > ctx) {
        return pn__fail(d, PN_E_CONTEXT,
                        "the message was not sent: with it alone %zu tokens would be read, and "
                        "the context holds %u (--ctx)",
                        c->prompt.n, ctx);
    }
    c->skip_n = messages_of_turns(c, high);
    if (high == before) return 0;
    fprintf(stderr,
            "[the context is full: the conversation has %zu tokens, the context %u, and an answer "
            "needs room. Its %zu oldest turn%s not sent from here on, which leaves %zu tokens; "
            "/reset starts anew]\n",
            whole_n, ctx, high, high == 1 ? " is" : "s are", c->prompt.n);
    return 0;
}

/* Fills c->prompt with what fits. */
static int make_prompt(struct pn_conversation *c, struct pn_detail *d) {
    uint32_t ctx = pn_engine_plan_used(c->answer->engine)->ctx;
    int rc = render(c, c->skip_n, &c->prompt, d);
    if (rc || c->prompt.n + answer_room(c, ctx) <= ctx) return rc;
    return leave_out(c, ctx, d);
}

/* Cuts the session back to what its tokens and the prompt have in common, but for one token, which
 * has to be read for the answer's first to follow. */
static int keep_prefix(struct pn_conversation *c, uint32_t *kept, struct pn_detail *d) {
    uint32_t held = pn_session_length(c->session);
    uint32_t same = 0;
    while (same < held && same < c->held.n && same + 1 < c->prompt.n &&
           c->held.ids[same] == c->prompt.ids[same]) {
        same++;
    }
    int rc = pn_session_truncate(c->session, same, d, kept);
    if (rc == 0 && *kept < same && !c->told_rewind) {
        fprintf(stderr,
                "[this model's memory can't go back %u tokens to where the conversation changed: "
                "all %zu are read again]\n",
                held - same, c->prompt.n);
        c->told_rewind = true;
    }
    return rc;
}

/* ---- the answer ---- */

/* The one token that a text is in this vocabulary, if it is. */
static int32_t mark_of(const struct pn_conversation *c, const char *text) {
    struct pn_ids ids = {0};
    struct pn_detail d;
    int32_t id = PN_TOKEN_NONE;
    if (pn__tokenize(c->model->vocab, text, strlen(text), PN_TOKENIZE_SPECIAL, &ids, &d) == 0 &&
        ids.n == 1)
        id = ids.ids[0];
    pn__ids_free(&ids);
    return id;
}

/* Whether the answer begins inside reasoning: its first token opens it, or the prompt did and left
 * it open. */
static bool begins_thinking(const struct pn_conversation *c, int32_t open, int32_t end) {
    if (open == PN_TOKEN_NONE) return false;
    if (c->answer->tokens.n && c->answer->tokens.ids[0] == open) return true;
    size_t look_n = c->prompt.n < 4 ? c->prompt.n : 4;
    for (size_t i = 1; i <= look_n; i++) {
        int32_t id = c->prompt.ids[c->prompt.n - i];
        if (id == end) return false;
        if (id == open) return true;
    }
    return false;
}

static struct pn_str trim_lines(struct pn_str s) {
    while (s.len && s.data[0] == '\n') {
        s.data++;
        s.len--;
    }
    while (s.len && s.data[s.len - 1] == '\n')
        s.len--;
    return s;
}

/* A tag at one end of reasoning, unless it is a control token and so not in the text. */
static struct pn_str without_tags(struct pn_str s) {
    static const char open[] = "<think>";
    static const char end[] = "</think>";
    s = trim_lines(s);
    if (s.len >= sizeof open - 1 && memcmp(s.data, open, sizeof open - 1) == 0) {
        s.data += sizeof open - 1;
        s.len -= sizeof open - 1;
    }
    if (s.len >= sizeof end - 1 &&
        memcmp(s.data + s.len - (sizeof end - 1), end, sizeof end - 1) == 0) {
        s.len -= sizeof end - 1;
    }
    return trim_lines(s);
}

/* Puts the answer into the conversation. Where a model has marks for reasoning, it is told apart by
 * them as tokens and goes into a field of its own, so that a template needn't look for its tags in
 * the text, which may speak of them (CASES C5). */
static int add_answer(struct pn_conversation *c, struct pn_detail *d) {
    const struct pn_answer *a = c->answer;
    struct pn_str content = {a->text_len ? a->text : "", a->text_len};
    if (a->think_end == PN_TOKEN_NONE) {
        return add(c, message_of("assistant", content.data, content.len), d);
    }
    struct pn_str reasoning = {"", 0};
    if (begins_thinking(c, mark_of(c, "<think>"), a->think_end)) {
        size_t n = a->think_len ? a->think_len : content.len;
        reasoning = without_tags((struct pn_str){content.data, n});
        content = (struct pn_str){content.data + n, content.len - n};
        while (content.len && content.data[0] == '\n') {
            content.data++;
            content.len--;
        }
    }
    json_t *message = message_of("assistant", content.data, content.len);
    if (message && json_object_set_new(message, "reasoning_content",
                                       json_stringn(reasoning.data, reasoning.len)))
        return no_memory(d);
    return add(c, message, d);
}

/* Remembers what the session was fed: the prompt, and the answer behind it. */
static int remember(struct pn_conversation *c, struct pn_detail *d) {
    const struct pn_ids *said = &c->answer->tokens;
    c->held.n = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->prompt.n; i++)
        rc = pn__ids_push(&c->held, c->prompt.ids[i], d);
    for (size_t i = 0; rc == 0 && i < said->n; i++)
        rc = pn__ids_push(&c->held, said->ids[i], d);
    return rc;
}

static void say_why(const struct pn_conversation *c) {
    const struct pn_answer *a = c->answer;
    if (a->done.stop == PN_STOP_CANCELLED) {
        fprintf(stderr, a->tokens.n ? "[stopped]\n" : "[stopped; the message was taken back]\n");
    } else if (!a->ended && a->done.stop == PN_STOP_LENGTH) {
        fprintf(stderr, "[cut off after %u tokens, the most that -n allows]\n", a->done.decode_n);
    } else if (a->done.stop == PN_STOP_CONTEXT) {
        fprintf(stderr, "[cut off after %u tokens: the context of %u tokens is full]\n",
                a->done.decode_n, pn_engine_plan_used(a->engine)->ctx);
    }
}

int pn__conversation_say(struct pn_conversation *c, const char *text, size_t len,
                         struct pn_detail *d) {
    struct pn_answer *a = c->answer;
    uint32_t ctx = pn_engine_plan_used(a->engine)->ctx;
    int64_t most = pn__set_int(c->s, PN_SET_PREDICT);
    uint32_t kept = 0;
    int rc = add(c, message_of("user", text, len), d);
    if (rc) return rc;
    rc = make_prompt(c, d);
    if (rc == 0) rc = keep_prefix(c, &kept, d);
    if (rc) {
        take_back_last(c);
        return rc;
    }
    a->think_end = mark_of(c, "</think>");
    rc = pn__answer_ask(a, c->session, kept, c->prompt.ids + kept, (uint32_t)c->prompt.n - kept,
                        most > 0 ? (uint32_t)most : ctx + 1, d);
    if (rc == 0) rc = remember(c, d);
    if (rc == 0 && a->tokens.n)
        rc = add_answer(c, d);
    else
        take_back_last(c);
    if (rc == 0) rc = pn__answer_report(a, d);
    if (rc == 0) say_why(c);
    return rc;
}
