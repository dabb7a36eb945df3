"""Templates that would hang or end the process that runs them, each in its own way. Run as a program, it applies them
and writes what became of each as a JSON line: a crash ends the lines."""

from __future__ import annotations

import json
import resource
import threading

HOSTILE = {
    "range": "{% for i in range(1000000000000) %}x{% endfor %}",
    "doubling": "{% set n = namespace(x='ab') %}{% for i in range(64) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
    "repetition": "{{ 'x' * 1000000000000 }}",
    "nothing, often": "{{ '' * 1000000000000 }}",
    "replacement": "{% set a = 'a' * 1000000 %}{{ a.replace('a', a) }}",
    "search": "{% set a = 'a' * 9000000 %}{{ ('a' * 4000000 ~ 'b') in a }}",
    "split": "{{ ('a' * 3000000).split('a') | length }}",
    "join": "{% set a = 'a' * 1000000 %}{{ range(100000) | list | join(a) }}",
    "indent": "{{ messages | tojson(indent=2000000000) }}{{ 'a' | indent(2000000000) }}",
    "macro": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "parentheses": "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}",
    "lists": "{{ " + "[" * 100_000 + "]" * 100_000 + " }}",
    "negations": "{{ " + "not " * 50_000 + "1 }}",
    "signs": "{{ " + "- " * 50_000 + "1 }}",
    "sum": "{{ 1" + "+1" * 120_000 + " }}",
    "filters": "{{ 1" + "|abs" * 50_000 + " }}",
    "members": "{{ messages" + "[0]" * 50_000 + " }}",
    "calls": "{{ f" + "()" * 50_000 + " }}",
    "statements": "{% if 1 %}" * 10_000 + "{% endif %}" * 10_000,
    "alternatives": "{% if 0 %}" + "{% elif 0 %}" * 15_000 + "{% endif %}",
    "deep list": "{% set n = namespace(x=[]) %}{% for i in range(90000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
    "deep tuple": "{% set n = namespace(x=1)%}{% for i in range(900)%}{% set n.x = (n.x,1) %}{% endfor %}{{ {n.x:1} }}",
    "list in itself": "{% set l = [] %}{{ l.append(l) }}{{ l }}",
    "namespace in itself": "{% set n = namespace() %}{% set n.x = n %}{{ n | tojson }}",
    "method of itself": "{% set l = [] %}{{ l.append(l.append) }}{{ l }}",
    "many of one": "{% set n = namespace(x=1) %}{% for i in range(60)%}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "division": "{{ 5 is divisibleby 0 }}",
    "number": "{{ 99999999999999999999999999 }}",
    "length": "x" * 300_000,
}  # fmt: skip
#: not refused, but survived
ODD = {
    "step": "{{ [1, 2, 3][0:3:4611686018427387904] }}",
    "no order": "{{ ['a', 1, none, 'b', 2, true, [1], {}, 0.5] | sort | length }}",
}
#: takes the whole time that there is
ENDLESS = "{% for i in range(30000) %}{% for j in range(30000) %}{% set x = i * j %}{% endfor %}{% endfor %}"


def outcomes() -> None:
    from localspec.chat_format import native
    from localspec.errors import UsageError

    for name, source in {**HOSTILE, **ODD}.items():
        try:
            native.Template(source).apply({"messages": [{"role": "user", "content": "Hi"}]})
            words = ""
        except UsageError as error:
            words = str(error)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps({"name": name, "words": words, "peak": peak}), flush=True)


if __name__ == "__main__":
    # in a thread of a small stack, as servers have
    threading.stack_size(4 << 20)
    thread = threading.Thread(target=outcomes)
    thread.start()
    thread.join()
