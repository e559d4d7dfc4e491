/* Chat templates: who wrote each byte, errors with their places, limits, failing allocations. What
 * they compute is test_chat_features' business. */
#include "base/alloc.h"
#include "text/chat.h"

/* Renders as a chat. The result's text with every byte of the conversation's as '*' when it is
 * compared with `marks`; the text itself must be `want`. */
static void writes(const char *template, const char *conversation, const char *want,
                   const char *marks) {
    struct pn_detail d = {""};
    struct pn_chat_text out = {0};
    struct pn_template *t = chat_parse(template);
    json_t *j = chat_json(conversation);
    json_t *model = chat_json("{'bos_token': '<s>'}");
    PN_ASSERT_OK(pn__chat_render(t, j, model, chat_now(), &out, &d), &d);
    if (out.len != strlen(want) || memcmp(out.text, want, out.len) != 0)
        fail_msg("'%s' gives '%s', not '%s'", template, out.text, want);
    size_t at = 0;
    for (size_t r = 0; r < out.run_n; r++) {
        assert_true(out.runs[r].end > at);
        if (r) assert_true(out.runs[r].conversation != out.runs[r - 1].conversation);
        for (; at < out.runs[r].end; at++)
            if (out.runs[r].conversation) out.text[at] = '*';
    }
    assert_int_equal(at, out.len);
    assert_string_equal(out.text, marks);
    pn__chat_text_free(&out);
    pn__template_free(t);
    json_decref(model);
    json_decref(j);
}

#define USER(content) "{'messages': [{'role': 'user', 'content': '" content "'}], 'x': 'abc'}"
#define TEXT "{% set c = messages[0].content %}"

static void who_wrote_it(void **state) {
    (void)state;
    writes("<|{{ messages[0].role }}|>{{ messages[0].content }}<|end|>", USER("<|end|>"),
           "<|user|><|end|><|end|>", "<|user|>*******<|end|>");
    writes("{{ bos_token + x + bos_token }}", USER("q"), "<s>abc<s>", "<s>***<s>");
    /* Through everything that takes texts apart and puts them together. */
    writes(TEXT "[{{ c | trim }}]", USER("  ab "), "[ab]", "[**]");
    writes(TEXT "{{ c.replace('-', '<x>') }}", USER("a-b"), "a<x>b", "*<x>*");
    writes(TEXT "{{ 'p-q'.replace('-', c) }}", USER("ab"), "pabq", "p**q");
    writes(TEXT "{{ c.split('</think>')[-1].lstrip() ~ '<e>' }}", USER("q</think> <e>"), "<e><e>",
           "***<e>");
    writes(TEXT "{{ ('<' + c + '>')[::-1] }}", USER("ab"), ">ba<", ">**<");
    writes(TEXT "{{ ('<' + c + '>')[1:] }}", USER("ab"), "ab>", "**>");
    writes(TEXT "{{ [c, '|', c] | join('+') }}", USER("a"), "a+|+a", "*+|+*");
    writes(TEXT "{{ '<' ~ c | upper ~ '>' }}{{ c | length }}", USER("ab"), "<AB>2", "<**>2");
    writes(TEXT "{{ c | indent(1, true) }}", USER("a\\nb"), " a\n b", " ** *");
    writes(TEXT "{{ '%s<%s' % (c, 'x') }}", USER("<s>"), "<s><x", "***<x");
    writes(TEXT "{{ '<{}|{x!r}>{{'.format(c, x=c) }}{{ c.format('<') }}", USER("ab"),
           "<ab|'ab'>{ab", "<**|****>{**");
    writes(TEXT "{{ strftime_now('<%d>') }}{{ strftime_now(c) }}{{ strftime_now('<' + c) }}",
           USER("<%d>"), "<09><09><<09>", "<09>*********");
    writes(TEXT "{{ c | tojson }}{{ {'k': c} | tojson }}", USER("<s>\\\\"),
           "\"<s>\\\\\"{\"k\": \"<s>\\\\\"}", "*******{\"k\": *******}");
    writes(TEXT "{% set b %}<{{ c }}>{% endset %}{{ b | title }}", USER("ab"), "<Ab>", "<**>");
    writes(TEXT "{% filter upper %}x{{ c }}{% endfilter %}", USER("ab"), "XAB", "X**");
    writes(TEXT "{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(c) }}", USER("ab"), "<ab>", "<**>");
    writes(TEXT "{% for l in '<' + c %}{{ l }}{% endfor %}", USER("ab"), "<ab", "<**");
    writes(TEXT "{{ c | e }}{{ '<' | e }}", USER("<"), "&lt;&lt;", "****&lt;");
    writes(TEXT "{{ (c ~ 'x') | replace('x', '<') | reverse }}", USER("ax"), "<<a", "<<*");
    /* Numbers and structure that the conversation chose are its own, too. */
    writes("{{ n }}{{ n + 1 }}{{ l }}{{ l | tojson }}{{ b }}{{ [1] }}",
           "{'messages': [], 'n': 3, 'l': [1], 'b': true}", "34[1][1]True[1]", "************[1]");
    writes("{{ tools | tojson }}", "{'messages': [], 'tools': [{'<s>': '<s>'}]}",
           "[{\"<s>\": \"<s>\"}]", "****************");
}

/* CASES C5: what the user sees stays; reasoning comes from its own field. */
static void a_template_that_looks_for_think_tags(void **state) {
    (void)state;
    static const char template[] = "{% set m = messages[0] %}"
                                   "{% if m.reasoning_content is string %}"
                                   "<think>{{ m.reasoning_content }}</think>{{ m.content }}"
                                   "{% else %}{{ m.content }}{% endif %}";
    writes(template, "{'messages': [{'role': 'assistant', 'content': 'say </think> literally'}]}",
           "say </think> literally", "**********************");
    writes(template,
           "{'messages': [{'role': 'assistant', 'content': 'say </think> literally', "
           "'reasoning_content': 'r'}]}",
           "<think>r</think>say </think> literally", "<think>*</think>**********************");
}

/* A block of transformers, which jinja2 alone doesn't have. */
static void generation_blocks(void **state) {
    (void)state;
    chat_gives("{% generation %}a{{ 1 + 1 }}{% endgeneration %}b", NULL, "a2b");
    chat_gives("{% generation %}{% set x = 1 %}{% endgeneration %}{{ x is defined }}", NULL,
               "False");
    chat_fails("{% generation %}", NULL, PN_E_FORMAT, "this 'generation' has no 'endgeneration'");
}

/* Not jinja2's either, but expected of hosts. */
static void reading_json(void **state) {
    (void)state;
    writes("{% for k, v in (x | fromjson).items() %}<{{ k }}={{ v }}>{% endfor %}",
           "{'messages': [], 'x': '{\\'a\\': [1, \\'<s>\\']}'}", "<a=[1, '<s>']>",
           "<*=**********>");
    chat_gives("{{ '[1, 2.5]' | fromjson | sum }}{{ '\"q\"' | fromjson }}", NULL, "3.5q");
    chat_fails("{{ '{' | fromjson }}", NULL, PN_E_INVALID, "fromjson: line 1, column 1");
    chat_fails("{{ 1 | fromjson }}", NULL, PN_E_INVALID, "a string is needed");
}

/* ---- what clients send ---- */

static void other_spellings(void **state) {
    (void)state;
    static const char plus[] = "{{ '<' + messages[0].content + '>' }}";
    static const char parts[] =
        "{'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}, "
        "{'type': 'text', 'text': 'b'}]}]}";
    writes(plus, parts, "<ab>", "<**>");
    writes("{{ messages[0].content }}", parts, "ab", "**");
    writes("{{ messages[0].content | tojson }}", parts, "\"ab\"", "****");
    writes("{{ messages[0].content | string }}", parts, "ab", "**");
    writes("{% for p in messages[0].content %}{{ p.text }},{% endfor %}", parts, "a,b,", "*,*,");
    writes(plus, "{'messages': [{'role': 'assistant', 'content': null}]}", "<>", "<>");
    writes("{{ messages[0].content }}", "{'messages': [{'role': 'user', 'content': null}]}", "None",
           "****");
    /* Arguments are objects for templates that look into them, text for those that add them. */
    static const char call[] = "{'messages': [{'role': 'assistant', 'tool_calls': [{'function': "
                               "{'name': 'f', 'arguments': %s}}]}]}";
    char object[200];
    char text[200];
    snprintf(object, sizeof object, call, "{'a': 0.1}");
    snprintf(text, sizeof text, call, "'{\\'a\\': 0.1}'");
    static const char look[] = "{{ messages[0].tool_calls[0].function.arguments.a }}";
    static const char add[] = "{{ '' + messages[0].tool_calls[0].function.arguments }}";
    writes(look, object, "0.1", "***");
    writes(look, text, "0.1", "***");
    writes(add, object, "{\"a\": 0.1}", "**********");
    writes(add, text, "{\"a\": 0.1}", "**********");
    writes("{{ tools is none }}", "{'messages': []}", "True", "True");
}

static void chat_fails_with(const char *template, const char *conversation, const char *says,
                            bool refused) {
    struct pn_detail d = {""};
    struct pn_chat_text out = {0};
    struct pn_template *t = chat_parse(template);
    json_t *j = chat_json(conversation);
    assert_int_equal(pn__chat_render(t, j, NULL, chat_now(), &out, &d), PN_E_INVALID);
    if (!strstr(d.text, says)) fail_msg("'%s' says '%s', not '%s'", template, d.text, says);
    assert_true(out.refused == refused && !out.text && !out.runs);
    pn__template_free(t);
    json_decref(j);
}

static void broken_conversations(void **state) {
    (void)state;
    chat_fails_with("x", "[1]", "no object", false);
    chat_fails_with("x", "{}", "'messages' is missing", false);
    chat_fails_with("x", "{'messages': {}}", "'messages' is no array", false);
    chat_fails_with("x", "{'messages': [1]}", "messages[0] is no object", false);
    chat_fails_with("x", "{'messages': [{'role': 'user'}, {}]}", "messages[1] has no role", false);
    chat_fails_with("x", "{'messages': [{'role': 1}]}", "role that is a string", false);
    chat_fails_with("x", "{'messages': [{'role': 'user', 'content': 1}]}", "messages[0].content",
                    false);
    chat_fails_with("x", "{'messages': [{'role': 'user', 'tool_calls': {}}]}", "tool_calls", false);
    chat_fails_with("x", "{'messages': [], 'tools': 'x'}", "'tools'", false);
    chat_fails_with("{{ raise_exception('My words: ' + x) }}", "{'messages': [], 'x': 'no'}",
                    "My words: no", true);
    /* Parts that are no text stay: the first failure is told. */
    chat_fails_with("{{ '' + messages[0].content }}",
                    "{'messages': [{'role': 'user', 'content': [{'type': 'image'}]}]}",
                    "can only concatenate str (not \"list\") to str", false);
    chat_fails_with("{{ messages[0].content }}",
                    "{'messages': [{'role': 'user', 'content': [{'type': 'image'}]}]}",
                    "list of parts", false);
}

/* ---- errors and their places ---- */

static void places(void **state) {
    (void)state;
    chat_fails("a\n  {% nope %}", NULL, PN_E_FORMAT, "line 2, column 6: unknown block 'nope'");
    chat_fails("{% include 'x' %}", NULL, PN_E_UNSUPPORTED,
               "line 1, column 4: the block 'include'");
    chat_fails("{{ 1 |\n urlize }}", NULL, PN_E_UNSUPPORTED,
               "line 2, column 2: the filter 'urlize' is not supported");
    chat_fails("{{ 1 | huh }}", NULL, PN_E_UNSUPPORTED, "column 8: there is no filter 'huh'");
    chat_fails("{{ x }}\n{{ x.encode('utf-8') }}", NULL, PN_E_UNSUPPORTED,
               "line 2, column 12: the method 'encode' is not supported");
    chat_fails("{{ 1 is huh }}", NULL, PN_E_UNSUPPORTED, "column 9: there is no test 'huh'");
    chat_fails("{{ '\\N{DASH}' }}", NULL, PN_E_UNSUPPORTED, "column 5: characters by name");
    chat_fails("\xc3\xa9{{ (1 }}", NULL, PN_E_FORMAT, "line 1, column 8: this bracket closes none");
    chat_fails("{% if x %}\n{% for a in b %}{% endif %}", NULL, PN_E_FORMAT,
               "line 2, column 20: 'endif' ends nothing that is open here");
    chat_fails("\n{% if x %}", NULL, PN_E_FORMAT, "line 2, column 4: this 'if' has no 'endif'");
    chat_fails("{{ x", NULL, PN_E_FORMAT, "line 1, column 1: this '{{' has no '}}'");
    chat_fails("a\n{# x", NULL, PN_E_FORMAT, "line 2, column 1: this comment has no end");
    chat_fails("{{ 1 2 }}", NULL, PN_E_FORMAT, "column 6: expected '}}', got '2'");
    chat_fails("{{ 99999999999999999999 }}", NULL, PN_E_FORMAT,
               "column 4: this number is too large");
    chat_fails("a\xff", NULL, PN_E_FORMAT, "not UTF-8 at byte 1 (0xFF)");
    /* While rendering. */
    chat_fails("a\n{{ x.y }}", NULL, PN_E_INVALID, "line 2, column 6: 'x' is undefined");
    chat_fails("{{ d.a.b }}", "{'d': {}}", PN_E_INVALID, "'dict object' has no attribute 'a'");
    chat_fails("{{ 'a' + 1 }}", NULL, PN_E_INVALID,
               "column 4: can only concatenate str (not \"int\") to str");
    chat_fails("{{ s.nope() }}", "{'s': 'x'}", PN_E_INVALID,
               "'str object' has no attribute 'nope'");
    chat_fails("{% for x in 5 %}{% endfor %}", NULL, PN_E_INVALID, "'int' object is not iterable");
    chat_fails("{{ x() }}", NULL, PN_E_INVALID, "'x' is undefined");
    chat_fails("{{ [] | tojson(indent='x', nope=1) }}", NULL, PN_E_INVALID, "'nope'");
}

/* ---- limits ---- */

static int render_with(const char *text, struct pn_template_limits limits, const json_t *j,
                       struct pn_chat_text *out, struct pn_detail *d) {
    struct pn_template *t = NULL;
    int rc = pn__template_parse(text, strlen(text), &limits, d, &t);
    if (rc == 0) rc = pn__template_render(t, j, NULL, chat_now(), out, d);
    pn__template_free(t);
    return rc;
}

static void limit_says(const char *text, struct pn_template_limits limits, int code,
                       const char *says) {
    struct pn_detail d = {""};
    struct pn_chat_text out = {0};
    int rc = render_with(text, limits, NULL, &out, &d);
    if (rc != code || !strstr(d.text, says))
        fail_msg("'%.80s' ends with %s '%s'", text, pn_err_name(rc), d.text);
    assert_null(out.text);
}

static void limits(void **state) {
    (void)state;
    struct pn_template_limits l = chat_limits;
    l.steps_max = 100000;
    static const char forever[] =
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a * b }}{% endfor %}{% endfor %}";
    limit_says(forever, l, PN_E_INVALID, "more than 100000 steps");
    limit_says("{{ [0] * 9999999999 }}", l, PN_E_INVALID, "steps");
    limit_says("{{ 'x' * 9999999999 }}", l, PN_E_INVALID,
               "column 4: a text of 1 bytes, 9999999999");
    limit_says("{{ 'x'.ljust(9999999999) }}", l, PN_E_INVALID, "steps");
    limit_says("{{ [1] | batch(9999999999, 'x') | list }}", l, PN_E_INVALID, "steps");
    limit_says("{{ [1] | slice(9999999999) | list }}", l, PN_E_INVALID, "steps");
    limit_says("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", chat_limits, PN_E_INVALID,
               "nested deeper than the limit of 1000");
    limit_says("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", chat_limits, PN_E_INVALID,
               "nested deeper");
    limit_says("{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}", chat_limits,
               PN_E_INVALID, "nested deeper");
    l = chat_limits;
    l.output_bytes_max = 1000;
    limit_says("{% for i in range(1001) %}x{% endfor %}", l, PN_E_INVALID, "limit of 1000 bytes");
    limit_says("{% set x = 'x' * 1001 %}", l, PN_E_INVALID, "limit of 1000 bytes");
    l = chat_limits;
    l.memory_bytes_max = 100000;
    limit_says("{{ range(99999) }}", l, PN_E_INVALID,
               "line 1, column 4: the rendering needs more memory than the limit of 100000");
    l = chat_limits;
    l.source_bytes_max = 10;
    limit_says("12345678901", l, PN_E_INVALID, "11 bytes, more than the limit of 10");
}

/* `open` n times, `middle`, `close` n times: a value or one error, never a stack that overflows. */
static void nests(const char *open, const char *middle, const char *close, size_t n) {
    struct pn_detail d = {""};
    struct pn_chat_text out = {0};
    size_t len = n * (strlen(open) + strlen(close)) + strlen(middle);
    char *text = calloc(len + 1, 1);
    char *at = text;
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, open);
    at = stpcpy(at, middle);
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, close);
    int rc = render_with(text, chat_limits, NULL, &out, &d);
    if (rc != 0 && rc != PN_E_INVALID && rc != PN_E_FORMAT)
        fail_msg("%s: %s %s", open, pn_err_name(rc), d.text);
    if (rc) assert_true(strstr(d.text, "deep") != NULL);
    pn__chat_text_free(&out);
    free(text);
}

static void deep_templates(void **state) {
    (void)state;
    static const size_t depths[] = {100, 240, 900, 30000};
    for (size_t i = 0; i < PN_ARRAY_N(depths); i++) {
        nests("{% if 1 %}", "x", "{% endif %}", depths[i]);
        nests("{% for a in [1] %}", "x", "{% endfor %}", depths[i]);
    }
    for (size_t i = 0; i < PN_ARRAY_N(depths); i++) {
        char open[64];
        static const char *const opens[] = {
            "(", "[", "-", "not ", "1 + ", "{1:", "1 if 1 else ", "1 and ", "'a' ~ "};
        static const char *const closes[] = {")", "]", "", "", "", "}", "", "", ""};
        for (size_t k = 0; k < PN_ARRAY_N(opens); k++) {
            size_t n = depths[i];
            struct pn_detail d = {""};
            struct pn_chat_text out = {0};
            char *text = calloc(n * 20 + 64, 1);
            char *at = stpcpy(text, "{{ ");
            snprintf(open, sizeof open, "%s", opens[k]);
            for (size_t r = 0; r < n; r++)
                at = stpcpy(at, open);
            at = stpcpy(at, "1");
            for (size_t r = 0; r < n; r++)
                at = stpcpy(at, closes[k]);
            stpcpy(at, " }}");
            int rc = render_with(text, chat_limits, NULL, &out, &d);
            if (rc) assert_true(strstr(d.text, "deep") != NULL);
            pn__chat_text_free(&out);
            free(text);
        }
    }
    /* Chains are no nesting. */
    char *chain = calloc(200000, 1);
    char *at = stpcpy(chain, "{{ 0");
    for (int i = 0; i < 20000; i++)
        at = stpcpy(at, " + 1");
    stpcpy(at, " }}");
    chat_gives(chain, NULL, "20000");
    free(chain);
}

static json_t *conversation_of(size_t n) {
    json_t *j = json_object();
    json_t *messages = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *m = json_object();
        json_object_set_new(m, "role", json_string(i % 2 ? "assistant" : "user"));
        json_object_set_new(m, "content", json_string("<|im_end|> hello, how are you?"));
        json_array_append_new(messages, m);
    }
    json_object_set_new(j, "messages", messages);
    return j;
}

static uint64_t steps_for(const struct pn_template *t, size_t n) {
    struct pn_detail d = {""};
    struct pn_chat_text out = {0};
    json_t *j = conversation_of(n);
    PN_ASSERT_OK(pn__chat_render(t, j, NULL, chat_now(), &out, &d), &d);
    uint64_t steps = out.steps;
    assert_true(out.run_n == 2 * n + 1);
    pn__chat_text_free(&out);
    json_decref(j);
    return steps;
}

/* A hundred times the messages take a hundred times the steps, also where a text grows by adding,
 * and where a list is a queue. */
static void linear_in_messages(void **state) {
    (void)state;
    static const char *const templates[] = {
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] }}<|im_end|>\n"
        "{% endfor %}",
        "{% set ns = namespace(t='') %}{% for m in messages %}"
        "{% set ns.t = ns.t + '<|' + m.role + '|>' ~ m.content %}{% endfor %}{{ ns.t + '<e>' }}",
        "{% set q = messages %}{% for m in messages %}{% set x = q.pop(0) %}<|{{ x.role }}|>"
        "{{ x.content }}{% endfor %}<e>",
        "{% for m in messages[:] if m.role != 'x' %}<{{ loop.index }}>{{ m.content | trim }}"
        "{% endfor %}<e>"};
    for (size_t i = 0; i < PN_ARRAY_N(templates); i++) {
        struct pn_template *t = chat_parse(templates[i]);
        uint64_t few = steps_for(t, 1000);
        uint64_t many = steps_for(t, 100000);
        print_message("%zu: %llu steps for 1,000 messages, %llu for 100,000\n", i,
                      (unsigned long long)few, (unsigned long long)many);
        assert_true(many < few * 110);
        pn__template_free(t);
    }
}

/* ---- failing allocations ---- */

static const char everything[] =
    "{% macro m(a, b='x') %}{{ a | upper }}{{ b }}{% endmacro %}"
    "{% set ns = namespace(t='', l=[]) %}"
    "{% for x in messages if x.role != 'q' %}{{ loop.index }}{{ m(x.content) }}"
    "{% set ns.t = ns.t + x.content ~ loop.last %}{% set _ = ns.l.append(x) %}{% endfor %}"
    "{{ ns.t.split(' ') | map('trim') | select | sort | join(',') }}{{ ns.l | tojson(indent=2) }}"
    "{% set b %}{{ messages }}{% endset %}{{ b | length }}{{ b | replace('a', 'bb') }}"
    "{{ {'a': 1, 'b': 2} | dictsort }}{{ '%s' % b }}{{ strftime_now('%Y') }}";

static void allocations(void **state) {
    (void)state;
    json_t *j = conversation_of(20);
    size_t failed = 0;
    for (uint64_t nth = 1;; nth++) {
        struct pn_detail d = {""};
        struct pn_chat_text out = {0};
        struct pn_template *t = NULL;
        uint64_t before = pn__alloc_count();
        pn__alloc_fail_nth(nth);
        int rc = pn__template_parse(everything, strlen(everything), &chat_limits, &d, &t);
        if (rc == 0) rc = pn__template_render(t, j, NULL, chat_now(), &out, &d);
        uint64_t made = pn__alloc_count() - before;
        pn__alloc_fail_nth(0);
        if (rc) {
            assert_int_equal(rc, PN_E_NOMEM);
            assert_true(d.text[0] && !out.text && !out.runs);
            failed++;
        }
        pn__chat_text_free(&out);
        pn__template_free(t);
        if (rc == 0 && made < nth) break;
    }
    assert_true(failed >= 8);
    json_decref(j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_wrote_it),
        cmocka_unit_test(a_template_that_looks_for_think_tags),
        cmocka_unit_test(generation_blocks),
        cmocka_unit_test(reading_json),
        cmocka_unit_test(other_spellings),
        cmocka_unit_test(broken_conversations),
        cmocka_unit_test(places),
        cmocka_unit_test(limits),
        cmocka_unit_test(deep_templates),
        cmocka_unit_test(linear_in_messages),
        cmocka_unit_test(allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
