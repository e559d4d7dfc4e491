/* The program's entry: finds the command, parses its settings, runs it, and turns the outcome into
 * one line and an exit code. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/monitor.h"
#include "pannier.h"

struct command {
    unsigned id;
    int (*run)(const struct pn_settings *s, struct pn_detail *d);
    const char *args;
    const char *what;
    bool without_model;
};

static const struct command commands[] = {
    {PN_CMD_RUN, pn__cmd_run, "MODEL", "talk to a model, or let it continue a text", false},
    {PN_CMD_LOGITS, pn__cmd_logits, "MODEL --tokens IDS --out FILE",
     "write the logits of given tokens", false},
    {PN_CMD_BENCH, pn__cmd_bench, "MODEL", "measure prompt and decode speed", false},
    {PN_CMD_PLAN, pn__cmd_plan, "MODEL",
     "say what memory the model would take, and whether it fits", false},
    {PN_CMD_INSPECT, pn__cmd_inspect, "MODEL", "list what a GGUF file holds", false},
    {PN_CMD_TOKENIZE, pn__cmd_tokenize, "MODEL", "turn text on standard input into token ids",
     false},
    {PN_CMD_TEMPLATE, pn__cmd_template, "FILE.jinja|MODEL",
     "print what a conversation on standard input becomes", false},
    {PN_CMD_MEM, pn__cmd_mem, "", "say what memory the machine has, and how tight it is", true},
};

static void print_usage(FILE *f) {
    fputs("usage: pannier COMMAND [MODEL] [flags]\n\n"
          "Runs GGUF language models on the memory that the machine really has.\n\n"
          "commands:\n",
          f);
    for (size_t i = 0; i < PN_ARRAY_N(commands); i++)
        fprintf(f, "  %-10s %s\n", pn__cmd_name(commands[i].id), commands[i].what);
    fputs("\n'pannier help COMMAND' lists a command's flags; 'pannier --version' says which "
          "version this is.\n"
          "Exit codes: 0 done, 1 error, 2 usage, 3 would not fit in memory.\n",
          f);
}

static void print_command_help(const struct command *c) {
    printf("usage: pannier %s %s%s[flags]\n\n%s\n\n", pn__cmd_name(c->id), c->args,
           c->args[0] ? " " : "", c->what);
    pn__settings_help(stdout, c->id);
}

static int find_command(const char *name, struct pn_detail *d, const struct command **out) {
    const char *names[PN_ARRAY_N(commands)];
    for (size_t i = 0; i < PN_ARRAY_N(commands); i++) {
        names[i] = pn__cmd_name(commands[i].id);
        if (strcmp(name, names[i]) != 0) continue;
        *out = &commands[i];
        return 0;
    }
    const char *near = pn__nearest(name, names, PN_ARRAY_N(names));
    if (near) {
        return pn__fail(d, PN_E_USAGE, "unknown command '%.80s' (did you mean '%s'?)", name, near);
    }
    return pn__fail(d, PN_E_USAGE, "unknown command '%.80s' (see 'pannier --help')", name);
}

/* The log goes to stderr, a line at a time. */
static void log_line(void *user, enum pn_log_level level, const char *line) {
    static const char *const names[] = {"error: ", "warning: ", "", "debug: "};
    (void)user;
    fprintf(stderr, "pannier: %s%s\n", names[level], line);
}

/* Commands that watch memory have the monitor beside them. */
static int run_monitored(const struct command *c, const struct pn_settings *s,
                         struct pn_detail *d) {
    bool watches =
        (c->id & PN_CMD_WATCHES) && (c->id != PN_CMD_MEM || pn__set_flag(s, PN_SET_WATCH));
    int rc = watches ? pn__monitor_start(s, pn__cmd_name(c->id), d) : 0;
    if (rc == 0) rc = c->run(s, d);
    pn__monitor_stop();
    pn_memwatch_stop(); /* which an engine may have started */
    return rc;
}

static int run_command(const struct command *c, int argc, char **argv, struct pn_detail *d) {
    struct pn_settings s;
    pn_log_set(log_line, NULL, PN_LOG_WARN);
    int rc = pn__settings_init(&s, environ, d);
    if (rc == 0) rc = pn__settings_parse(&s, c->id, argc, argv, d);
    if (rc != 0) return rc;
    pn_log_set(log_line, NULL, (enum pn_log_level)pn__set_int(&s, PN_SET_LOG));
    pn__cli_memory(&s);

    if (pn__set_flag(&s, PN_SET_HELP)) {
        print_command_help(c);
        return 0;
    }
    if (pn__set_flag(&s, PN_SET_SETTINGS)) {
        if (s.positional_n > 0) {
            return pn__fail(d, PN_E_USAGE, "--settings lists the settings and takes no model");
        }
        pn__settings_list(&s, stdout);
        return 0;
    }
    if (c->without_model && s.positional_n > 0) {
        return pn__fail(d, PN_E_USAGE, "unexpected argument '%.80s': %s takes none",
                        s.positional[0], pn__cmd_name(c->id));
    }
    if (s.positional_n == 0 && !c->without_model) {
        return pn__fail(d, PN_E_USAGE, "no model given: pannier %s %s", pn__cmd_name(c->id),
                        c->args);
    }
    if (s.positional_n > 1) {
        return pn__fail(d, PN_E_USAGE, "unexpected argument '%.80s' after the model",
                        s.positional[1]);
    }
    return run_monitored(c, &s, d);
}

static int dispatch(int argc, char **argv, struct pn_detail *d) {
    const struct command *c = NULL;
    if (argc < 2) {
        print_usage(stderr);
        return pn__fail(d, PN_E_USAGE, "no command given");
    }
    const char *name = argv[1];
    if (!strcmp(name, "--version") || !strcmp(name, "version")) {
        printf("pannier %s\n", pn_version());
        return 0;
    }
    bool is_help = !strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h");
    if (is_help && argc < 3) {
        print_usage(stdout);
        fputc('\n', stdout);
        pn__settings_help(stdout, PN_CMD_ALL);
        return 0;
    }
    if (!is_help && name[0] == '-') {
        return pn__fail(d, PN_E_USAGE,
                        "the command comes first, got '%.80s' (see 'pannier --help')", name);
    }
    int rc = find_command(is_help ? argv[2] : name, d, &c);
    if (rc != 0) return rc;
    if (is_help) {
        print_command_help(c);
        return 0;
    }
    return run_command(c, argc - 2, argv + 2, d);
}

/* A standard stream that the caller closed would be given to the next file opened, and a result
 * could be written into it. Such a stream is taken by one on which every use fails. */
static void fill_standard_streams(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
}

int main(int argc, char **argv) {
    struct pn_detail d = {{0}};
    fill_standard_streams();
    /* A reader that leaves is an error like any other: the write fails with EPIPE. */
    signal(SIGPIPE, SIG_IGN);

    int rc = dispatch(argc, argv, &d);
    if (rc == 0) rc = pn__out_check(&d);
    if (rc == 0) return PN_EXIT_DONE;

    fflush(stdout);
    fprintf(stderr, "pannier: %s\n", d.text[0] ? d.text : pn_err_text(rc));
    if (rc == PN_E_USAGE) return PN_EXIT_USAGE;
    return rc == PN_E_NOFIT ? PN_EXIT_NOFIT : PN_EXIT_ERROR;
}
