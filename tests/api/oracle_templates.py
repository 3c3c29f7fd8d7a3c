"""Random chat templates: mostly valid, some with mistakes. The same for the same seed."""

import random

CONTEXT = {
    "messages": [
        {"role": "system", "content": "Be <brief> & \"kind\"."},
        {"role": "user", "content": "Hello, wörld!\n  Two lines. "},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function",
             "function": {"name": "add", "arguments": {"a": 1.5, "b": [1, "x", None, True]}}}]},
        {"role": "tool", "content": "[1, 2]", "name": "add"},
        {"role": "user", "content": ""},
    ],
    "tools": [{"type": "function", "function": {
        "name": "add", "description": "Adds 'two' numbers",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}}}],
    "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
    "n": 7, "zero": 0, "x": -2.5, "s": "a,B;c  d", "long": "lorem ipsum " * 6, "none_value": None,
    "numbers": [3, 1, 2, 3], "words": ["beta", "Alpha", "gamma"], "empty": [],
    "table": {"b": 2, "a": 1, "c": {"d": [1, {"e": "f"}]}},
}


class Generator:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.names = []  # of numbers that the template has set
        self.in_loop = 0

    def pick(self, *choices):
        return self.rng.choice(choices)

    def number(self, depth):
        if depth <= 0 or self.rng.random() < 0.3:
            return self.pick("n", "zero", "1", "2", "10", "3.5", "x", *(self.names or ["n"]),
                             *(["loop.index", "loop.index0", "loop.revindex", "loop.length"]
                               if self.in_loop else ["4"]))
        a, b = self.number(depth - 1), self.number(depth - 1)
        return self.pick(
            f"{a} + {b}", f"({a} - {b})", f"{a} * {b}", f"({a}) // 3", f"({a}) % 4", f"-({a})",
            f"({a} if {self.truth(depth - 1)} else {b})", f"({a}) | abs", f"({a}) | int",
            f"{self.list(depth - 1)} | length", f"numbers | sum", f"(numbers | max) - {a}",
            f"{self.text(depth - 1)} | length", f"({a} / 4) | round(1)", f"{self.text(depth - 1)}.count('a')",
            f"{self.text(depth - 1)}.find('l')", f"words.index('Alpha')", f"table['b']", f"table.a", f"('12' | int) + {a}")

    def text(self, depth):
        if depth <= 0 or self.rng.random() < 0.25:
            return self.pick("s", "'abc'", "\"it's\"", "bos_token", "messages[0].content", "messages[1]['content']",
                             "long", "'é\\n\\t'", "words[0]", "messages[0]['role']", "''", "tools[0].function.name")
        a = self.text(depth - 1)
        return self.pick(
            f"({a} ~ {self.number(depth - 1)})", f"({a} + {self.text(depth - 1)})", f"{a} | upper", f"{a} | trim",
            f"{a} | capitalize", f"{a} | title", f"{a} | replace('l', 'LL')", f"{a} | replace('a', 'b', 1)",
            f"{a} | indent({self.pick(2, 4)})", f"{a} | truncate({self.pick(5, 9, 30)})", f"{a} | center(12)",
            f"({a})[{self.pick('1:', ':3', '::2', '::-1', '-3:', '1:-1')}]", f"({a}).strip()", f"({a}).upper()",
            f"({a}).split(',') | join('-')", f"({a}).replace('a', '')", f"({a}).lstrip('a')", f"({a}).title()",
            f"{self.list(depth - 1)} | join(', ')", f"{self.anything(depth - 1)} | tojson",
            f"{self.anything(depth - 1)} | tojson(indent=2)", f"{self.anything(depth - 1)} | string",
            f"'%s-%d' | format({a}, 3)", f"'%5.2f|%-4s|%03d' % ({self.number(0)}, 'a', n)", f"'{{}}:{{:>4}}'.format(n, s)",
            f"{a} | default('none')", f"missing | default({a})", f"({a} * 2)", f"{a} | e", f"{a} | urlencode",
            f"({a} if {self.truth(depth - 1)} else '')", f"{a} | wordcount", f"{a} | first", f"({a}).partition('l') | list | tojson",
            f"{self.list(depth - 1)} | first | string", f"({a}).zfill(9)", f"({a}).swapcase()", f"({a}).removeprefix('a')")

    def list(self, depth):
        if depth <= 0 or self.rng.random() < 0.3:
            return self.pick("numbers", "words", "empty", "[1, 'a', none, 2.0]", "messages", "range(3)", "(1, 2)", "table",
                             "'abc'")
        a = self.list(depth - 1)
        return self.pick(
            "numbers | sort", "numbers | sort(reverse=true)", "words | sort", "words | map('upper') | list",
            "messages | map(attribute='role') | list", "messages | selectattr('role', 'equalto', 'user') | list",
            "messages | rejectattr('content') | list", "numbers | select('odd') | list", "numbers | reject('gt', 2) | list",
            "numbers | unique | list", f"{a} | list", f"{a} | reverse | list", "table | dictsort", "table.items() | list",
            "table.keys() | list", "table | items | list", f"numbers + [{self.number(depth - 1)}]", "numbers * 2",
            "numbers[1:]", "numbers[::-1]", "messages[:2]", "words | batch(2, '-') | list", "numbers | slice(2) | list",
            f"[{self.text(depth - 1)}, {self.number(depth - 1)}]", "messages | groupby('role') | list",
            f"{self.text(depth - 1)}.split()", "long.splitlines()", "range(1, 9, 3) | list",
            "words | map('length') | list", "messages | map(attribute='name', default='?') | list")

    def truth(self, depth):
        if depth <= 0 or self.rng.random() < 0.2:
            return self.pick("true", "false", "add_generation_prompt", "n", "none_value", "empty", "missing", "s")
        return self.pick(
            f"{self.number(depth - 1)} {self.pick('<', '<=', '>', '>=', '==', '!=')} {self.number(depth - 1)}",
            f"{self.text(depth - 1)} == {self.text(depth - 1)}", f"not ({self.truth(depth - 1)})",
            f"({self.truth(depth - 1)} and {self.truth(depth - 1)})", f"({self.truth(depth - 1)} or {self.truth(depth - 1)})",
            f"'a' in {self.text(depth - 1)}", f"n in numbers", f"3 not in {self.list(depth - 1)}", "'a' in table",
            f"{self.anything(depth - 1)} is {self.pick('defined', 'none', 'string', 'number', 'mapping', 'sequence', 'iterable', 'boolean', 'integer', 'float', 'undefined', 'not none')}",
            f"{self.number(depth - 1)} is {self.pick('odd', 'even', 'divisibleby 3', 'divisibleby(2)')}",
            f"({self.text(depth - 1)}).startswith('a')", f"({self.text(depth - 1)}).endswith(('d', 'c'))",
            f"1 < {self.number(depth - 1)} < 9", f"{self.text(depth - 1)} is upper", "missing is not defined",
            f"({self.text(depth - 1)}).isdigit()", f"({self.text(depth - 1)}).isalpha()")

    def anything(self, depth):
        kind = self.rng.randrange(6)
        if kind == 0:
            return self.pick("messages[2]", "table", "table.c", "none_value", "missing", "tools", "true", "{'k': [n, x]}",
                             "messages[2].tool_calls[0].function.arguments", "messages[0].missing", "table.get('z', 9)")
        return (self.number, self.text, self.list, self.truth, self.text)[kind - 1](depth)

    def mistake(self):
        return self.pick("{{ messages[0].a.b }}", "{{ 'a' + 1 }}", "{{ n / zero }}", "{{ raise_exception('stop') }}",
                         "{{ missing.a }}", "{{ [] | first.a }}", "{{ s | no_such_filter }}", "{{ n is no_such_test }}",
                         "{% if n %}", "{{ 'abc' }", "{% for %}{% endfor %}", "{{ none_value + 1 }}", "{{ 'a' < 1 }}",
                         "{{ no_such_function() }}", "{{ numbers['a'].b }}", "{{ words | sum }}", "{% endfor %}", "{{ (1 }}",
                         "{{ n() }}", "{{ [1, 'a'] | sort }}", "{% set %}", "{{ 'x' | int + 'y' }}", "{% elif n %}")

    def tag(self, body):
        """With random control of white space."""
        return "{%" + self.pick("", "", "-", "+") + f" {body} " + self.pick("", "", "-") + "%}"

    def output(self, depth):
        return "{{" + self.pick("", "", "-") + f" {self.anything(depth)} " + self.pick("", "", "-") + "}}"

    def space(self):
        return self.pick("", "", " ", "\n", "  \n", "\n  ", "text", " a\n\n", "<|x|>")

    def block(self, depth):
        parts = [self.space()]
        for _ in range(self.rng.randrange(1, 4)):
            parts += [self.statement(depth), self.space()]
        return "".join(parts)

    def loop(self, depth):
        name = self.pick("m", "i", "item")
        extra = self.pick("", "", "", f" if {self.pick('m', 'i', 'item', 'n')} is defined")
        self.in_loop += 1
        body = self.block(depth - 1)
        if self.rng.random() < 0.3:
            body += self.tag(f"if loop.index {self.pick('==', '>')} 2") + self.tag(self.pick("break", "continue")) + self.tag("endif")
        body += self.pick("", "", "{{ loop.first }}", "{{ loop.last }}", "{{ loop.cycle('a', 'b') }}", "{{ loop.previtem }}",
                          f"{{{{ {name} | tojson }}}}", f"{{{{ {name} }}}}")
        self.in_loop -= 1
        text = self.tag(f"for {name} in {self.list(2)}{extra}") + body
        if self.rng.random() < 0.25:
            text += self.tag("else") + self.block(depth - 1)
        return text + self.tag("endfor")

    def statement(self, depth):
        kind = self.rng.randrange(12) if depth > 0 else 0
        if kind <= 3:
            return self.output(3)
        if kind <= 5:
            text = self.tag(f"if {self.truth(3)}") + self.block(depth - 1)
            if self.rng.random() < 0.4:
                text += self.tag(f"elif {self.truth(2)}") + self.block(depth - 1)
            if self.rng.random() < 0.5:
                text += self.tag("else") + self.block(depth - 1)
            return text + self.tag("endif")
        if kind <= 7:
            return self.loop(depth)
        if kind == 8:
            name = f"v{len(self.names)}"
            text = self.tag(f"set {name} = {self.number(3)}")
            if not self.in_loop:
                self.names.append(name)
            return text
        if kind == 9:
            return (self.tag("set ns = namespace(c=0, t='')") + self.tag("for q in numbers") +
                    self.tag("set ns.c = ns.c + q") + self.tag(f"set ns.t = ns.t ~ {self.pick('q', 's', 'loop.index')}") +
                    self.tag("endfor") + "{{ ns.c }}{{ ns.t }}")
        if kind == 10:
            return (self.tag("macro f(a, b='d', c=none)") + self.pick("{{ a }}{{ b }}", "{{ varargs }}{{ kwargs }}", "{{ caller() }}",
                                                                      "{% if c %}{{ c }}{% endif %}{{ a }}") +
                    self.tag("endmacro") + self.pick(f"{{{{ f({self.number(1)}) }}}}", "{{ f(1, c=2) }}", "{{ f(1, 2, 3, 4) }}",
                                                     "{{ f(b=1, z=2) }}", "{% call f(9) %}x{% endcall %}", "{{ f() | upper }}"))
        return self.pick("{# a comment #}", "{% raw %}{{ x }}{% endraw %}", self.tag("set blk") + "a{{ n }}" + self.tag("endset") + "{{ blk }}",
                         self.tag("filter upper") + "up{{ s }}" + self.tag("endfilter"),
                         self.tag("with w = n + 1") + "{{ w }}" + self.tag("endwith"), "{{ strftime_now('%d %B %Y') }}")

    def template(self):
        text = self.block(3)
        if self.rng.random() < 0.15:
            text += self.mistake()
        return text


def templates(seed, count=500):
    return [Generator(seed * 10007 + number).template() for number in range(count)]
