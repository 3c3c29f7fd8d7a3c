#!/usr/bin/env python3
"""Tokenizers: build/stet beside llama.cpp's server and the packages that models are trained with.

usage: text_bench.py [--runs N] [--models llama-bpe,gemma-4] [--out FILE]    (part of make bench)

All rates are of processor time, so that what else runs on the machine counts little.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import bench
import peer
import pypi
import text_inputs

sys.path.insert(0, str(pypi.ROOT / "tests" / "api"))

import oracle_models  # noqa: E402

RUNS_OF_SHORT = 300_000  # bytes that are measured in parts, if a part is shorter


class Ours:
    """A running build/bench/text_bench with one model."""

    def __init__(self, program, model):
        self._process = subprocess.Popen([program, model], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)
        self.load_ms = json.loads(self._process.stdout.readline())["load_ms"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait()

    def measure(self, path, offset=0, size=0):
        print(offset, size, path, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


class OurServer(peer.Server):
    """`stet serve` with one model, asked as the peer's server is."""

    def __init__(self, program, model):
        self._log = open(program.parent / "bench-text-stet.log", "w", encoding="utf-8")
        self._process = subprocess.Popen(
            [program, "serve", model, "--port", "0", "-c", "256"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=self._log, text=True)
        self._url = self._process.stdout.readline().strip()

    def __enter__(self):
        return self


def package(name, vocabulary):
    """(package, encode) of the PyPI package that knows this vocabulary, or None."""
    if name in ("rwkv", "plamo2"):
        return None
    vocabulary = oracle_models.Vocabulary(vocabulary)
    if name == "llama-bpe":
        return "tiktoken", oracle_models.ranked(vocabulary, name, oracle_models.LLAMA3)
    if name == "smollm2":  # digits and GPT-2's words, as StarCoder has them
        return "tokenizers", oracle_models.byte_level(vocabulary, "starcoder")
    if name == "deepseek-llm":
        return "tokenizers", oracle_models.byte_level(vocabulary, name)
    if name == "gemma-4":
        return "tokenizers", oracle_models.raw_merges(vocabulary)
    if name == "bert-bge":
        return "tokenizers", oracle_models.wordpiece(vocabulary)
    is_unigram = name == "nomic"
    return "sentencepiece", oracle_models.pieces(vocabulary, is_unigram, remove_spaces=is_unigram)


def thread_ms(work):
    start = time.thread_time_ns()
    result = work()
    return (time.thread_time_ns() - start) / 1e6, result


def server_ms(server, work):
    start = server.processor_ms()
    result = work()
    return server.processor_ms() - start, result


def measure_text(options, path, ours, servers, library):
    """Milliseconds by (who, what), and the tokens that each counts."""
    text = path.read_text()
    times, counts = {}, {}

    def add(who, what, ms):
        times.setdefault((who, what), []).append(ms)

    def in_process():
        found = ours.measure(path)
        add("stet", "encode", found["encode_ms"])
        add("stet", "decode", found["decode_ms"])
        counts["stet"] = found["tokens"]

    def over_http(who):
        ms, tokens = server_ms(servers[who], lambda: servers[who].tokenize(text))
        add(who, "encode", ms)
        counts[who] = len(tokens)
        add(who, "decode", server_ms(servers[who], lambda: servers[who].detokenize(tokens))[0])

    def in_library():
        ms, tokens = thread_ms(lambda: library[1](text))
        add(library[0], "encode", ms)
        counts[library[0]] = len(tokens)

    steps = [in_process, lambda: over_http("peer"), lambda: over_http("stet http")]
    steps += [in_library] if library else []
    for run in range(options.runs + 1):
        for step in steps if run % 2 == 0 else reversed(steps):
            step()
        if run == 0:
            times.clear()  # the first touches everything for the first time
    return times, counts


def rates(size, milliseconds):
    return [size / 1e3 / ms for ms in milliseconds]


def cell(size, milliseconds):
    if not milliseconds:
        return "-"
    values = rates(size, milliseconds)
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def ratio(ours, theirs):
    return f"{statistics.median(theirs) / statistics.median(ours):.1f}" if ours and theirs else "-"


def row(title, size, times, what, library):
    def of(who):
        return times.get((who, what), [])

    cells = [cell(size, of("stet"))]
    if what == "encode":
        name = library[0] if library else None
        cells += [f"{name}: {cell(size, of(name))}" if name else "-", ratio(of("stet"), of(name))]
    cells += [cell(size, of("stet http")), cell(size, of("peer")), ratio(of("stet http"), of("peer"))]
    return f"| {title} | {' | '.join(cells)} |"


def carrying(server, text, runs=5):
    """Milliseconds of a request for one letter, and of one that carries a text nobody reads."""
    def some(body):
        return statistics.median(server_ms(server, lambda: server._post("/tokenize", body))[0]
                                 for _ in range(runs))
    return some({"content": "a"}), some({"content": "a", "unread": text})


def flat(ours):
    """Nanoseconds a byte: {kind: [of each length]}, of parts of one text that are each new."""
    found = {}
    whole = text_inputs.LENGTHS[-1]
    for kind in text_inputs.LONG:
        path = text_inputs.long_text(kind)
        for size in text_inputs.LENGTHS:
            parts = [whole // 40 * part % (whole - size + 1) for part in range(RUNS_OF_SHORT // size + 3)]
            some = [ours.measure(path, offset, size)["encode_ms"] for offset in parts][1:]
            found.setdefault(kind, []).append(statistics.median(some) * 1e6 / size)
    return found


def flat_rows(title, found):
    for kind, values in found.items():
        shown = " | ".join(f"{value:.0f}" for value in values)
        yield f"| {title} | {kind} | {shown} | {max(values[1:]) / values[0]:.2f} |"


def measure_model(options, binary, name, lines):
    title = text_inputs.MODELS[name][0]
    model = text_inputs.model(name)
    library = package(name, model)
    log = options.build / "bench-text-peer.log"
    with Ours(options.build / "bench" / "text_bench", model) as ours, \
            peer.Server(binary, model, 2, 256, log, more=["--no-warmup"]) as server, \
            OurServer(options.build / "stet", model) as our_server:
        servers = {"peer": server, "stet http": our_server}
        for text, path in text_inputs.ordinary().items():
            times, counts = measure_text(options, path, ours, servers, library)
            size = path.stat().st_size
            lines["encode"].append(row(f"{title} | {text}", size, times, "encode", library))
            lines["decode"].append(row(f"{title} | {text}", size, times, "decode", library))
            lines["notes"] += [f"- {title}, {text}: stet makes {counts['stet']:,} tokens, {who}"
                               f" {count:,}" for who, count in counts.items()
                               if count != counts["stet"]]
            print(lines["encode"][-1], flush=True)
        if not lines["http"]:
            text = text_inputs.ordinary()["C++"].read_text()
            for who, each in servers.items():
                tiny, carried = carrying(each, text)
                lines["http"].append(f"{who}: {tiny:.2f} ms of processor time for a request of one"
                                     f" letter, {carried:.1f} ms for one that carries the 1 MB of"
                                     " C++ unread")
        lines["flat"] += flat_rows(title, flat(ours))
        print("\n".join(lines["flat"][-3:]), flush=True)


def report(options, lines, load):
    sizes = ", ".join(f"{name} {path.stat().st_size / 1e6:.1f} MB"
                      for name, path in text_inputs.ordinary().items())
    http = "; ".join(lines["http"]).replace("peer:", "llama.cpp:").replace("stet http:", "stet:")
    lengths = " | ".join(f"{size:,}" for size in text_inputs.LENGTHS)
    text = ["# Tokenizing: results", "", "Written by `make bench`; how to read it: README.md here.", "",
            f"- {datetime.date.today()}, {bench.processor_name()}, {os.cpu_count()} cores; {options.runs}"
            f" interleaved runs after one that isn't counted; load average {load:.1f} before,"
            f" {os.getloadavg()[0]:.1f} at the end",
            f"- llama.cpp {peer.BUILD}; texts: {sizes}",
            "- MB/s of processor time, one thread, median (min-max). In process: the call alone. Over"
            " HTTP: all that the server does for `/tokenize` or `/detokenize`, JSON included.",
            f"- what HTTP costs: {http}", "", "## Text to tokens", "",
            "| vocabulary | text | stet in process | package in process | stet / package | stet HTTP |"
            " llama.cpp HTTP | stet / llama.cpp |", "|---|---|---|---|---|---|---|---|", *lines["encode"]]
    if lines["notes"]:
        text += ["", "Where the numbers of tokens differ:", "", *lines["notes"]]
    text += ["", "## Tokens to text", "",
             "| vocabulary | text | stet in process | stet HTTP | llama.cpp HTTP | stet / llama.cpp |",
             "|---|---|---|---|---|---|", *lines["decode"], "", "## Time and length", "",
             "Nanoseconds a byte, stet in process; letters make one word. The last column is the"
             " slowest of the longer ones beside the shortest.", "",
             f"| vocabulary | text | {lengths} bytes | slowest / shortest |",
             "|---|---|" + "---|" * (len(text_inputs.LENGTHS) + 1), *lines["flat"], ""]
    options.out.write_text("\n".join(text))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--models", default=",".join(text_inputs.MODELS))
    parser.add_argument("--build", type=pathlib.Path, default=pypi.ROOT / "build")
    parser.add_argument("--out", type=pathlib.Path, default=pypi.ROOT / "bench" / "text_results.md")
    options = parser.parse_args()
    options.build = options.build.resolve()
    names = options.models.split(",")
    if unknown := set(names) - set(text_inputs.MODELS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    binary = peer.find_or_build()
    load = os.getloadavg()[0]
    lines = {part: [] for part in ("encode", "decode", "notes", "http", "flat")}
    for name in names:
        measure_model(options, binary, name, lines)
    report(options, lines, load)


if __name__ == "__main__":
    main()
