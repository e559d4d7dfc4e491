"""What the checks share: which files are ours, and C text without comments and strings."""

import os
import re

SKIPPED_DIRS = {"build", "__pycache__", "data"}
C_SUFFIXES = (".c", ".h")
TEXT_SUFFIXES = C_SUFFIXES + (".py", ".sh", ".md", ".cmake", ".txt", ".json", ".in", ".yml")
TEXT_NAMES = {"Makefile", "LICENSE", "run", ".clang-tidy", ".clang-format", ".gitignore"}


def files(root, suffixes=None):
    """Paths relative to `root`, sorted; text files of the project unless suffixes are given."""
    found = []
    for folder, dirs, names in os.walk(root):
        dirs[:] = sorted(d for d in dirs if d not in SKIPPED_DIRS
                         and (not d.startswith(".") or d == ".ci"))
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), root)
            if suffixes is not None:
                wanted = name.endswith(suffixes)
            else:
                wanted = name.endswith(TEXT_SUFFIXES) or name in TEXT_NAMES
            if wanted:
                found.append(path)
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


_TOKEN = re.compile(
    r"//(?:[^\\\n]|\\.|\\\n)*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'", re.S)


def code_only(text):
    """C text with comments and the insides of literals blanked; line numbers stay."""
    def blank(match):
        token = match.group(0)
        if token[0] in "\"'":
            return token[0] + token[0]
        return " " + "\n" * token.count("\n")
    return _TOKEN.sub(blank, text)
