#!/usr/bin/env python3
"""House rules that a compiler doesn't check: banned calls, sizes of files and functions, text.

Prints every breach as path:line: what, and exits with 1 when there is one. Warnings (a file that
has grown too long to read) are printed and don't fail.
"""

import argparse
import os
import re
import sys

import source_tree

FILE_LINES_WARN = 600
FILE_LINES_MAX = 1000
FUNCTION_LINES_MAX = 100
KERNEL_LINES_MAX = 150
KERNEL_FOLDER = "src/ops/cpu/"
COLUMNS_MAX = 100
# A comment with these words makes a file a table: its length is data, not code.
TABLE_MARKER = "pn-tidy: " + "table"

# (names, paths or folders where they are allowed, what to use)
BANNED_CALLS = [
    ("getenv secure_getenv setenv putenv unsetenv", (), "base/settings"),
    ("exit _exit _Exit abort quick_exit raise kill", ("src/cli/",), "an error code"),
    ("signal sigaction", ("src/cli/",), "nothing: a library owns no signal"),
    ("malloc calloc realloc reallocarray posix_memalign aligned_alloc memalign valloc strdup "
     "strndup asprintf vasprintf", ("src/base/alloc.c",), "base/alloc.h"),
    ("free", ("src/base/alloc.c", "src/cli/"), "pn__free"),
    ("mmap munmap mremap", ("src/base/io.c", "src/core/mem/pn_block.c"),
     "core/mem/pn_block.h or base/io.h"),
    ("fopen open openat open64 pread read readv mmap64",
     ("src/base/io.c", "src/cli/", "src/gguf/gguf_writer.c"), "base/io.h"),
    ("printf puts putchar perror", ("src/cli/",), "the log, or a result"),
    # The pool spins, and waiters for memory sleep, for a bounded time also while a test has stopped
    # base/clock.
    ("clock_gettime gettimeofday time", ("src/base/clock.c", "src/cli/", "src/ops/cpu/pool.c",
                                         "src/core/mem/pn_wake.c"),
     "base/clock.h"),
    ("strcpy strcat strncpy strncat sprintf vsprintf stpcpy gets", (), "snprintf with the size"),
    ("atoi atol atoll atof", (), "strtoll or strtod with their checks"),
    ("strtok strerror_l rand srand random tmpnam mktemp alloca system popen setjmp longjmp "
     "setlocale", (), "something safer"),
]
BANNED_WORDS = [
    (r"\benviron\b", ("src/cli/main.c",), "the environment is read in base/settings only"),
]
# Split so that this file passes its own check.
BANNED_TEXT = [
    (r"(?<![\w.~}])/(?:wo" r"rk|ho" r"me|ro" r"ot)/\w", "an absolute path of one machine"),
    (r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b", "an unfinished thought: do it, or write an issue"),
    (r"py" r"pi\.org|pythonhosted" r"\.org|deb\.deb" r"ian\.org", "the host of a registry"),
]


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def is_allowed(path, allowed):
    return any(path == a or (a.endswith("/") and path.startswith(a)) for a in allowed)


def check_calls(path, code):
    for names, allowed, instead in BANNED_CALLS:
        if is_allowed(path, allowed):
            continue
        # Not a member (x.read, x->read) and not a longer name.
        pattern = r"(?<![\w.>])(%s)[ \t]*\(" % "|".join(names.split())
        for match in re.finditer(pattern, code):
            yield line_of(code, match.start()), "%s() is banned here: use %s" % (
                match.group(1), instead)
    for pattern, allowed, why in BANNED_WORDS:
        if not is_allowed(path, allowed):
            for match in re.finditer(pattern, code):
                yield line_of(code, match.start()), "'%s': %s" % (match.group(0), why)


def functions(code):
    """(name, first line, last line) of each function body at the outermost level."""
    code = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", lambda m: "\n" * m.group(0).count("\n"), code,
                  flags=re.M)
    depth = 0
    start = None
    head_at = 0
    for match in re.finditer(r"[{};]", code):
        at = match.start()
        if match.group(0) == "{":
            if depth == 0:
                head = code[head_at:at]
                name = re.search(r"(\w+)\s*\([^{}]*\)[\s\w()]*$", head)
                start = (name.group(1), line_of(code, head_at + name.start())) if name else None
            depth += 1
        elif match.group(0) == "}":
            depth = max(depth - 1, 0)
            if depth == 0:
                if start:
                    yield start[0], start[1], line_of(code, at)
                start = None
                head_at = at + 1
        elif depth == 0:
            head_at = at + 1


def check_sizes(path, text, code):
    n = text.count("\n")
    is_table = TABLE_MARKER in text
    if n > FILE_LINES_MAX and not is_table:
        yield 1, "%d lines, at most %d" % (n, FILE_LINES_MAX)
    limit = KERNEL_LINES_MAX if path.startswith(KERNEL_FOLDER) else FUNCTION_LINES_MAX
    for name, first, last in functions(code):
        if last - first + 1 > limit:
            yield first, "%s() has %d lines, at most %d" % (name, last - first + 1, limit)


def check_text(path, text):
    in_code = not path.endswith(".md") and path != "LICENSE"
    for i, line in enumerate(text.split("\n"), 1):
        if "\t" in line and os.path.basename(path) != "Makefile":
            yield i, "a tab"
        if line != line.rstrip():
            yield i, "blanks at the end of the line"
        if in_code and not path.endswith(".json") and len(line) > COLUMNS_MAX:
            yield i, "%d columns, at most %d" % (len(line), COLUMNS_MAX)
        for pattern, what in BANNED_TEXT:
            if re.search(pattern, line):
                yield i, what
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end of the file"


def check(root):
    """(breaches, warnings), each a list of 'path:line: text'."""
    breaches, warnings = [], []
    for path in source_tree.files(root):
        text = source_tree.read(root, path)
        found = list(check_text(path, text))
        if path.endswith(source_tree.C_SUFFIXES):
            code = source_tree.code_only(text)
            found += check_sizes(path, text, code)
            if path.startswith("src/"):
                found += check_calls(path, code)
            n = text.count("\n")
            if FILE_LINES_WARN < n <= FILE_LINES_MAX and TABLE_MARKER not in text:
                warnings.append("%s:1: warning: %d lines, is it one thing?" % (path, n))
        breaches += ["%s:%d: %s" % (path, line, what) for line, what in sorted(found)]
    return breaches, warnings


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), ".."))
    breaches, warnings = check(parser.parse_args().root)
    print("\n".join(warnings + breaches + ["tidy: %d breaches" % len(breaches)]))
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
