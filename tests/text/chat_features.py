#!/usr/bin/env python3
"""What Python's jinja2 makes of one-feature templates.

    chat_features.py write FILE    fills in the results; a new case needs a name and a template
    chat_features.py check FILE    exits 1 if they are not what jinja2 gives here, 77 without jinja2

FILE has the variables that all templates see, and the cases. jinja2 is set up as for chat
templates: trim_blocks, lstrip_blocks, loop controls, tojson as json.dumps without ASCII escapes. A
template that fails has the error's text instead of a result; ours need not say it in the same
words.
"""

import datetime
import json
import sys

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    jinja2 = None


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env = jinja2.sandbox.SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = datetime.datetime(2025, 3, 9, 14, 5, 6).strftime
    return env


def result(env, variables, case):
    row = {"name": case["name"], "template": case["template"]}
    try:
        # A copy: some templates change what they are given.
        copy = json.loads(json.dumps(variables))
        row["text"] = env.from_string(case["template"]).render(**copy)
    except Exception as e:  # whatever Python makes of it
        row["error"] = str(e)
    return row


def main():
    if jinja2 is None:
        print("skipped: Python has no jinja2")
        return 77
    mode, path = sys.argv[1:]
    with open(path, encoding="utf-8") as f:
        kept = json.load(f)
    env = environment()
    found = [result(env, kept["variables"], case) for case in kept["cases"]]
    if mode == "write":
        kept["cases"] = found
        with open(path, "w", encoding="utf-8") as f:
            f.write(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        return 0
    wrong = [a["name"] for a, b in zip(found, kept["cases"])
             if a.get("text") != b.get("text") or ("error" in a) != ("error" in b)]
    print("\n".join("differs: " + name for name in wrong) or "as jinja2 has it")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
