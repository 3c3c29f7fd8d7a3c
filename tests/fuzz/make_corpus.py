#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets, small inputs that reach far, into tests/fuzz/corpus.

usage: make_corpus.py

What fuzzing adds to them is kept beside them (scripts/fuzz.sh --keep). Needs the package gguf.
"""

import pathlib
import struct

import gguf

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data"
SPACE = "\u2581"
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def byte_alphabet():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(extra)) for b in range(256)]


def vocabulary(model, tokens, merges=None, extra=()):
    """A model file without weights: rows of tokens are (text, type, score)."""
    path = HERE / "corpus" / ".writing.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("tokenizer.ggml.model", model)
    writer.add_array("tokenizer.ggml.tokens", [text for text, _, _ in tokens])
    writer.add_array("tokenizer.ggml.token_type", [kind for _, kind, _ in tokens])
    writer.add_array("tokenizer.ggml.scores", [float(score) for _, _, score in tokens])
    if merges is not None:
        writer.add_array("tokenizer.ggml.merges", merges)
    for key, value in extra:
        name = f"tokenizer.{key}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    data = path.read_bytes()
    path.unlink()
    return data


def charsmap():
    """SentencePiece's normaliser with one replacement, A -> a."""
    units = [0xFF] * 512
    units[0] = 256 << 10
    units[256 ^ 65] = (65 ^ 1) << 10 | 1 << 8 | 65
    units[257] = 1 << 31
    trie = struct.pack(f"<{len(units)}I", *units)
    return list(struct.pack("<I", len(trie)) + trie + b"a\0")


def vocabularies():
    specials = [("<unk>", UNKNOWN, 0), ("<s>", CONTROL, 0), ("</s>", CONTROL, 0)]
    ids = [("ggml.bos_token_id", 1), ("ggml.eos_token_id", 2), ("ggml.unknown_token_id", 0)]
    some_bytes = [(f"<0x{b:02X}>", BYTE, 0) for b in (0x0A, 0x20, 0xC3, 0xB6, 0xEF, 0xBF, 0xBD)]
    words = [(SPACE, NORMAL, -1), ("l", NORMAL, -2), ("o", NORMAL, -3), ("lo", NORMAL, -4),
             ("w", NORMAL, -5), (SPACE + "w", NORMAL, -6), ("[x]", USER, 0), ("1", NORMAL, -7)]
    alphabet = [(letter, NORMAL, 0) for letter in byte_alphabet()]
    joined = [("lo", NORMAL, 0), ("\u0120w", NORMAL, 0), ("\u0120wlo", NORMAL, 0)]
    merges = ["l o", "\u0120 w", "\u0120w lo"]
    yield "spm", vocabulary("llama", specials + some_bytes + words, None,
                            [*ids, ("ggml.add_space_prefix", True),
                             ("chat_template", "{% for m in messages %}{{ m.role }}{% endfor %}")])
    for pre in ("llama-bpe", "deepseek-llm", "gpt-4o"):
        yield f"bpe-{pre}", vocabulary("gpt2", specials + alphabet + joined, merges,
                                       [*ids, ("ggml.pre", pre), ("ggml.add_eos_token", True)])
    yield "gemma4", vocabulary("gemma4", specials + some_bytes + words, ["l o", SPACE + " w"], ids)
    yield "whitespace", vocabulary("whitespace", specials + words, ["l o"],
                                   [*ids, ("ggml.pre", "whitespace")])
    yield "dna", vocabulary("hybriddna", specials + alphabet +
                            [(t, NORMAL, 0) for t in ("<dna>", "</dna>", "<oov>")], [], ids)
    yield "wpm", vocabulary("bert", specials + [(SPACE + "hello", NORMAL, 0), ("w", NORMAL, 0),
                                                (SPACE + "w", NORMAL, 0), ("o", NORMAL, 0)], None,
                            [*ids, ("ggml.seperator_token_id", 2),
                             ("ggml.normalizer.lowercase", True)])
    yield "ugm", vocabulary("t5", specials + words, None,
                            [*ids, ("ggml.add_space_prefix", True),
                             ("ggml.remove_extra_whitespaces", True),
                             ("ggml.precompiled_charsmap", charsmap())])
    yield "rwkv", vocabulary("rwkv", [*specials, ("a", NORMAL, 0), ("\\n", NORMAL, 0),
                                      ("\\xc3\\xb6", NORMAL, 0), ("\\t12", NORMAL, 0)], None, ids)
    yield "plamo2", vocabulary("plamo2", specials + some_bytes + words, None, ids)
    yield "none", vocabulary("no_vocab", [("x", NORMAL, 0)], None, [("ggml.vocab_size", 7)])
    yield "empty", b""


TEXTS = ["", "Hello, world! it's 1234567 <|s|>  [user] \n\n\tthe thering",
         "na\u00efve caf\u00e9 e\u0301\u0323\u0323 \u4f60\u597d \ud55c\uad6d \u3042\u30a2\u30fc "
         "\U0001f600\u200d\U0001f525 \u0663\u0664 \u00bd\u2155 \u0e01\u0e33",
         "int main() {\r\n    return x[0] == 'a' ? 0x1F : -1; // \"done\"\r\n}\r\n",
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" + " " * 40 + "\n" * 9,
         "<dna>ACGTACgtN</dna> I'LL We'd \u2018x\u2019 <sentinel:12> IMGIMGABZ $1,000.00"]


def tokenizing():
    for kind in range(36):
        text = TEXTS[kind % len(TEXTS)].encode()
        yield f"{kind:02}", bytes([kind, kind % 4]) + text
    yield "broken", bytes([5, 2]) + b"a\xff\xc3(\xed\xa0\x80\xf0\x9f\x98 \xe2\x96"
    yield "broken-rwkv", bytes([3, 2]) + bytes(range(256))


TEMPLATES = [
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}{{ m.content or '' }}{% endfor %}",
    "{%- for m in messages -%}{%- if loop.first and m.role == 'system' -%}[{{ m.content | trim }}]"
    "{%- elif not loop.last -%}{{ loop.index0 }}{{ loop.cycle('a', 'b') }}{%- else -%}{{ m | tojson }}"
    "{%- endif -%}{%- endfor -%}\n",
    "{% set ns = namespace(n=0, l=[]) %}{% for t in tools if t.function.name %}{% set ns.n = ns.n + 1 %}"
    "{{ t | tojson(indent=2) }}{% endfor %}{{ ns.n }}",
    "{% macro f(a, b=2, *c, **d) %}{{ a }}{{ b }}{{ c }}{{ d }}{{ caller is defined }}{% endmacro %}"
    "{{ f(1) }}{{ f(1, 3, 4, x=5) }}{% call f(0) %}x{% endcall %}",
    "{{ messages | map(attribute='role') | join(', ') }}{{ messages | selectattr('role', 'equalto', "
    "'user') | list | length }}{{ messages[::-1][0].role }}{{ 'abc'[1:] }}{{ n // 2 ** 3 % 5 }}",
    "{{ raise_exception('no\\nthanks') }}",
    "{% if x < 0 and n is odd or none is none %}{{ '%05.2f|%s' | format(x, n) }}{{ x | round(1) }}"
    "{{ [3, 1, 2] | sort(reverse=true) }}{{ {'b': 1, 'a': [true, none]} | dictsort }}{% endif %}",
    "{{ 'A b'.split(' ') }}{{ ' x '.strip().upper() }}{{ 'aXb'.replace('X', n | string) }}"
    "{{ 'a,b'.partition(',') }}{{ 'ab'.startswith('a') }}{{ '{:>5}'.format(n) }}{{ 'e\u0301' | upper }}",
    "{% generation %}{{ messages | last }}{% endgeneration %}{% for i in range(3) %}{% if i == 1 %}"
    "{% continue %}{% endif %}{{ i }}{% break %}{% endfor %}",
    "{# c #}{% raw %}{{ x }}{% endraw %}{% filter upper %}a{% endfilter %}{% set y %}b{% endset %}{{ y }}"
    "{% with z = 1 %}{{ z }}{% endwith %}{{ strftime_now('%Y-%m-%d') }}",
    "{{ x ~ n }}{{ (1, 2) + (3,) }}{{ 1 if empty else 2 }}{{ -n | abs }}{{ 2 in [1, 2] }}{{ 'a' not in 'b' }}"
    "{{ messages | groupby('role') }}{{ 1e3 }}{{ 0x1f }}{{ 1_000 }}{{ '\\u00e9\\x41' }}",
    "plain text\n",
    "{{ 'a' * 100000 }}", "{% for i in range(99999) %}{{ i }}{% endfor %}", "{{", "{% if %}", "{{ 1 / 0 }}",
]


def templates():
    for number, source in enumerate(TEMPLATES):
        yield f"{number:02}", source.encode()
    yield "json", TEMPLATES[0].encode() + b"\0" + b'{"messages": [{"role": "user", "content": [1, {"a": null}]}]}'
    yield "no-json", b"{{ x }}\0[1]"
    yield "deep-json", b"{{ x }}\0" + b'{"x":' + b"[" * 200 + b"]" * 200 + b"}"


BAR, LOW = "\uff5c", SPACE
ANSWERS = [
    "<think>\nHm.\n</think>\n\nI add. <tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>x",
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.add "
    "<|constrain|>json<|message|>{\"a\": 1}<|call|>",
    "all\nI add.>>>add\n{\"a\": 1}>>>sub\n{}",
    "all\n<|content|>I add.\n<|from|>assistant\n<|recipient|>add\n<|content|>{\"a\": 1}<|stop|>",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{\"a\": 1}"
    "<|tool_call_end|><|tool_calls_section_end|>",
    "Hm.<|close|>think<|sep|><|open|>response<|sep|>Yes.<|close|>response<|sep|><|open|>tools<|sep|>"
    "<|open|>call tool=\"add\" index=\"0\"<|sep|><|open|>argument key=\"a\" type=\"number\"<|sep|>1"
    "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
    "<|START_THINKING|>Hm<|END_THINKING|><|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"add\", "
    "\"parameters\": {\"a\": 1}}]<|END_ACTION|>",
    f"<{BAR}tool{LOW}calls{LOW}begin{BAR}><{BAR}tool{LOW}call{LOW}begin{BAR}>function<{BAR}tool{LOW}sep{BAR}>add\n"
    f"```json\n{{\"a\": 1}}\n```<{BAR}tool{LOW}call{LOW}end{BAR}><{BAR}tool{LOW}calls{LOW}end{BAR}>",
    f"<{BAR}DSML{BAR}function_calls>\n<{BAR}DSML{BAR}invoke name=\"add\">\n<{BAR}DSML{BAR}parameter name=\"a\" "
    f"string=\"false\">1</{BAR}DSML{BAR}parameter>\n</{BAR}DSML{BAR}invoke>\n</{BAR}DSML{BAR}function_calls>",
    "]<]minimax[><tool_call>\n]<]minimax[><invoke name=\"add\">]<]minimax[><a>1]<]minimax[></a>]<]minimax[>"
    "</invoke>\n]<]minimax[></tool_call>",
    "<minimax:tool_call>\n<invoke name=\"add\">\n<parameter name=\"a\">1</parameter>\n</invoke>\n</minimax:tool_call>",
    "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    "<seed:think>Hm</seed:think><seed:tool_call>\n<function=add>\n<parameter=a>1</parameter>\n</function>\n"
    "</seed:tool_call>",
    "[THINK]Hm[/THINK][TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{\"a\": 1}",
    "<|python_tag|>search.call(query=\"a \\\"b\\\"\", n=2)",
    "{\"name\": \"add\", \"parameters\": {\"a\": [1, {\"b\": null}]}}; {\"name\": \"sub\", \"parameters\": {}}",
    "<TOOLCALL>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]</TOOLCALL>",
    "functools[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]",
    "Action: ```json\n[{\"tool_name\": \"add\", \"parameters\": {\"a\": 1}}]\n```",
]


def answers():
    for kind in range(24):
        for number, text in enumerate(ANSWERS):
            if number == kind % len(ANSWERS):
                yield f"{kind:02}", bytes([kind, 1 | (kind % 3) * 2, kind]) + text.encode()
    for number, text in enumerate(ANSWERS):
        yield f"any-{number:02}", bytes([255, 1, number]) + text.encode()


def states():
    for name in ("sequence.state", "session.stet", "session-zstd.stet"):
        yield name, b"\0" + (DATA / "formats" / "v1" / name).read_bytes()
    session = (DATA / "formats" / "v1" / "session.stet").read_bytes()
    yield "sealed-session", b"\2" + session
    yield "sealed-zstd", b"\2" + session[:12] + b"\1" + session[13:]
    yield "sealed", b"\1" + (DATA / "formats" / "v1" / "sequence.state").read_bytes()
    for name in ("llama-dense.seq", "llama-dense.session"):
        yield name, b"\0" + (DATA / "legacy" / name).read_bytes()[:1500]


def imports():
    for kind in range(14):
        for container in range(3):
            yield f"{kind:02}-{container}", bytes([kind, container, (kind + container) % 10, kind + 1])
    for what, at, value in ((0, 2, 4), (1, 9, 1), (2, 20, 7), (3, 30, 255), (4, 8, 0), (5, 16, 32)):
        yield f"edit-{what}", struct.pack("<4BBHH", 1, 0, 4, 1, what, at, value)


def main():
    for target, seeds in (("vocabulary", vocabularies), ("tokenize", tokenizing),
                          ("template", templates), ("chat", answers), ("state", states), ("import", imports)):
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("seed-*"):
            old.unlink()
        for name, data in seeds():
            (folder / f"seed-{name}").write_bytes(data)


if __name__ == "__main__":
    main()
