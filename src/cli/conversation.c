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
    int rc = pn__chat_marks(c->model->vocab, &c->marks, d);
    if (rc) return rc;
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
    if (rc == 0) rc = pn__chat_tokenize(c->model->vocab, c->model->t, &text, ids, d);
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

/* Puts the answer into the conversation; what a model with marks for it thought in a field of its
 * own. */
static int add_answer(struct pn_conversation *c, struct pn_detail *d) {
    const struct pn_answer *a = c->answer;
    struct pn_str content = {a->text_len ? a->text : "", a->text_len};
    struct pn_str reasoning = {"", 0};
    if (pn__chat_begins_thinking(&c->marks, c->prompt.ids, c->prompt.n, a->tokens.ids[0])) {
        size_t end = a->think_len ? a->think_len : content.len;
        pn__chat_split_reasoning(content, end, &reasoning, &content);
    }
    /* gpt-oss's template refuses a content that still has its channels, and has its own word for
     * reasoning. */
    bool channels = c->marks.channel != PN_TOKEN_NONE && a->tokens.ids[0] == c->marks.channel;
    if (channels) pn__chat_split_channels(content, &reasoning, &content);
    json_t *message = message_of("assistant", content.data, content.len);
    if (channels || c->marks.end != PN_TOKEN_NONE) {
        json_t *text = json_stringn(reasoning.data, reasoning.len);
        if (json_object_set_new(message, channels ? "thinking" : "reasoning_content", text)) {
            json_decref(message);
            return no_memory(d);
        }
    }
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
    a->think_end = c->marks.end;
    rc = pn__answer_ask(a, c->session, kept, c->prompt.ids + kept, (uint32_t)c->prompt.n - kept,
                        most > 0 ? (uint32_t)most : PN_NEW_OPEN, d);
    if (rc == 0) rc = remember(c, d);
    if (rc == 0 && a->tokens.n) rc = add_answer(c, d);
    if (rc || a->tokens.n == 0) take_back_last(c);
    if (rc == 0) rc = pn__answer_report(a, d);
    if (rc == 0) say_why(c);
    return rc;
}
