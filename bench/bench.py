#!/usr/bin/env python3
"""Speed and memory of build/stet beside llama.cpp's server, on the two real models.

usage: bench.py [--runs N] [--models smollm2,gemma] [--out FILE] ...    (make bench)

What is measured, and how it stays fair, is in bench/README.md.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))

import fetch_models
import peer
import pypi

WORDS = ("the river town keeps a small library near old stone bridge where children read about "
         "ships winter trade maps stars bread music law rain engines gardens and letters from far "
         "islands each week someone brings new paper ink lamp oil or story that nobody knew before "
         "while market people count coins weigh salt mend nets paint doors and argue over prices "
         "until evening bells call them home").split()


FAMILIES_TITLE = "## Families\n"


@dataclasses.dataclass
class Case:
    """One thing to measure: a prompt of some length, then some decoded tokens."""

    name: str
    prompt_tokens: int
    answer_tokens: int
    text: str = ""
    rates: dict = dataclasses.field(default_factory=dict)   # (who, "prompt"|"decode") -> [tokens/s]
    counted: dict = dataclasses.field(default_factory=dict)  # who -> prompt tokens as counted there

    def add(self, who, rates, prompt_tokens):
        for kind, rate in rates.items():
            self.rates.setdefault((who, kind), []).append(rate)
        self.counted[who] = prompt_tokens


def make_cases(depth):
    return [Case("prompt", 512, 1), Case("decode", 16, 128), Case("depth", depth, 128)]


# The rows of the table: title, case, which of its rates.
ROWS = [
    ("prompt, {:,} tokens", "prompt", "prompt"),
    ("decode, 128 tokens at depth 0", "decode", "decode"),
    ("decode, 128 tokens at depth {:,}", "depth", "decode"),
    ("prompt, {:,} tokens", "depth", "prompt"),
]


def words(count):
    """`count` words, always the same ones."""
    state = 12345
    chosen = []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        chosen.append(WORDS[(state >> 9) % len(WORDS)])
    return chosen


def text_of(server, tokens):
    """A text that the peer counts as `tokens` tokens, or the nearest one below."""
    supply = words(tokens + 8)
    low, high = 1, len(supply)  # of words; the count grows with the words
    while low < high:
        middle = (low + high + 1) // 2
        if server.count_tokens(" ".join(supply[:middle])) <= tokens:
            low = middle
        else:
            high = middle - 1
    text = " ".join(supply[:low])
    missing = tokens - server.count_tokens(text)
    padded = text + " a" * missing
    return padded if server.count_tokens(padded) == tokens else text


def run_peer(server, case):
    timings = server.complete(case.text, case.answer_tokens)["timings"]
    rates = {"prompt": timings["prompt_n"] / timings["prompt_ms"] * 1000}
    if case.answer_tokens > 1:
        # The first token comes with the prompt: n tokens are n - 1 steps, here and below.
        rates["decode"] = (timings["predicted_n"] - 1) / timings["predicted_ms"] * 1000
    case.add("peer", rates, timings["prompt_n"])


def run_ours(options, model, case):
    """Returns (resident bytes as stet says, resident at most as the system says)."""
    command = [options.stet, "run", model, "--raw", "--json", "--ignore-eos", "--temp", "0",
               "-n", str(case.answer_tokens), "--threads", str(options.threads),
               "--ctx", str(options.context)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        process.stdin.write(case.text.encode())
        process.stdin.close()
        output = process.stdout.read()
        message = process.stderr.read().decode(errors="replace").strip()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"bench: {' '.join(map(str, command))} ended with {process.returncode}: {message}")
    answer = json.loads(output)
    produced = len(answer["tokens"])
    if produced != case.answer_tokens:
        sys.exit(f"bench: stet answered {produced} tokens instead of {case.answer_tokens}")
    if answer["reused_tokens"] != 0:
        sys.exit("bench: stet reused tokens; the comparison would not be fair")
    timings = answer["timings"]
    rates = {"prompt": answer["computed_tokens"] / timings["prompt_ms"] * 1000}
    if produced > 1:
        rates["decode"] = (produced - 1) / timings["decode_ms"] * 1000
    case.add("stet", rates, answer["prompt_tokens"])
    return answer["memory"]["resident_bytes"], usage.ru_maxrss * 1024


def measure_model(options, name, binary):
    """Runs all cases of a model, peer and stet by turns; returns (cases, memory)."""
    model = pypi.MODELS / fetch_models.MODELS[name]["file"]
    if not model.is_file():
        sys.exit(f"bench: {model} is not there; scripts/fetch_models.py fetches it")
    cases = make_cases(options.depth)
    memory = {}
    log = options.stet.parent / f"bench-peer-{name}.log"
    with peer.Server(binary, model, options.threads, options.context, log) as server:
        for case in cases:
            case.text = text_of(server, case.prompt_tokens)
        server.complete(cases[0].text, 8)  # warm-up, not counted
        run_ours(options, model, Case("warm-up", 512, 8, cases[0].text))
        for index in range(options.runs):
            for case in cases:
                # peer stet stet peer peer stet ...: what drifts slowly hits both alike
                for who in ("peer", "stet") if index % 2 == 0 else ("stet", "peer"):
                    if who == "peer":
                        run_peer(server, case)
                        memory["peer"] = server.memory_bytes()
                    else:
                        memory["stet"] = max(memory.get("stet", (0, 0)),
                                             run_ours(options, model, case))
            print(f"bench: {name}: run {index + 1} of {options.runs} done", flush=True)
    return cases, memory


def cell(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def table(name, cases, memory):
    """The lines of a model's table, and its ratios."""
    lines = [f"### {fetch_models.MODELS[name]['title']}", "",
             "| tokens/s, median (min-max) | stet | llama.cpp | ratio |", "|---|---|---|---|"]
    by_name = {case.name: case for case in cases}
    ratios = []
    for title, case_name, kind in ROWS:
        case = by_name[case_name]
        title = title.format(case.prompt_tokens)
        ours, theirs = case.rates["stet", kind], case.rates["peer", kind]
        ratio = statistics.median(ours) / statistics.median(theirs)
        ratios.append((f"{name}: {title}", ratio))
        lines.append(f"| {title} | {cell(ours)} | {cell(theirs)} | {ratio:.2f} |")
    for title, index in (("resident memory, MB", 0), ("resident at most, MB", 1)):
        ours, theirs = memory["stet"][index], memory["peer"][index]
        lines.append(f"| {title} | {ours / 1e6:.0f} | {theirs / 1e6:.0f} | {ours / theirs:.2f} |")
    for case in cases:
        if case.counted["stet"] != case.counted["peer"]:
            lines += ["", f"Note: the prompt of '{case.name}' has {case.counted['stet']} tokens for"
                      f" stet and {case.counted['peer']} for llama.cpp; each rate uses its own count."]
    return lines + [""], ratios


def processor_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def ggml_version():
    for config in sorted((pypi.ROOT / ".venv").glob(
            "lib/python3*/site-packages/libggml/lib/cmake/ggml/ggml-config-version.cmake")):
        if found := re.search(r'PACKAGE_VERSION "([^"]+)"', config.read_text()):
            return found.group(1)
    return "unknown"


def kept_families(path):
    """The section that families.py writes stays until it runs again."""
    text = path.read_text() if path.is_file() else ""
    begin = text.find(FAMILIES_TITLE)
    return "\n" + text[begin:] if begin >= 0 else ""


def report(options, results, load_before):
    load = f"{load_before:.1f} before, {os.getloadavg()[0]:.1f} at the end"
    lines = ["# Benchmark results", "", "Written by `make bench`; how to read it: README.md here.", "",
             f"- {datetime.date.today()}, {processor_name()}, {os.cpu_count()} cores,"
             f" Linux {platform.release().split('-')[0]}",
             f"- stet with ggml {ggml_version()} | llama.cpp {peer.BUILD}, both native builds",
             f"- {options.threads} threads, f16 K/V, flash attention, context {options.context},"
             f" {options.runs} interleaved runs; load average {load}", ""]
    ratios = []
    for name, (cases, memory) in results.items():
        rows, of_model = table(name, cases, memory)
        lines += rows
        ratios += of_model
    text = "\n".join(lines) + kept_families(options.out)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text)
    print("\n" + text)
    raw = {name: {f"{case.name} {who} {kind}": [round(rate, 2) for rate in rates]
                  for case in cases for (who, kind), rates in case.rates.items()}
           for name, (cases, _) in results.items()}
    (options.stet.parent / "bench.json").write_text(json.dumps(raw, indent=1) + "\n")
    return ratios


def parser_of(documentation, runs, out):
    """What the benchmarks of the program beside the peer's server have in common."""
    parser = argparse.ArgumentParser(description=documentation.splitlines()[0])
    parser.add_argument("--runs", type=int, default=runs, help=f"default {runs}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--stet", type=lambda path: pathlib.Path(path).resolve(),
                        default=pypi.ROOT / "build" / "stet")
    parser.add_argument("--out", type=pathlib.Path, default=pypi.ROOT / "bench" / out)
    return parser


def names_in(parser, text, known):
    """The names of a list with commas; an argument error when one is not among the known ones."""
    names = text.split(",")
    if unknown := set(names) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return names


def parse_arguments():
    parser = parser_of(__doc__, 7, "results.md")
    parser.add_argument("--models", default="smollm2,gemma", help="of: smollm2, gemma")
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--depth", type=int, default=4096, help="of the deep decode (default 4096)")
    parser.add_argument("--require", type=float, metavar="RATIO",
                        help="exit status 1 if a speed ratio is below this")
    options = parser.parse_args()
    options.models = names_in(parser, options.models, fetch_models.MODELS)
    if options.depth + 256 > options.context:
        parser.error(f"a depth of {options.depth} does not fit into a context of {options.context}")
    if options.runs < 5:
        print("bench: fewer than 5 runs: good for a try, not for a record", flush=True)
    if not os.access(options.stet, os.X_OK):
        sys.exit(f"bench: {options.stet} is not there; `make build` makes it")
    return options


def main():
    options = parse_arguments()
    binary = peer.find_or_build()
    load_before = os.getloadavg()[0]
    if load_before > 0.5:
        print(f"bench: load average is {load_before:.1f}: the machine is not idle", flush=True)
    results = {name: measure_model(options, name, binary) for name in options.models}
    ratios = report(options, results, load_before)
    lowest = min(ratios, key=lambda item: item[1])
    print(f"bench: lowest speed ratio {lowest[1]:.2f} ({lowest[0]})")
    if options.require is not None and lowest[1] < options.require:
        sys.exit(1)


if __name__ == "__main__":
    main()
