#!/usr/bin/env python3
"""Several clients of one server that begin with the same 2,000 tokens, beside llama.cpp's server.

usage: serve_bench.py [--runs N] [--clients 1,8,32] [--model smollm2]    (part of make bench)

Each run has a prefix of its own, so that nothing of an earlier run can be reused. Two passes: first
all clients arrive at once with the prefix and a tail of their own (end to end, time to the first
token), then each asks the same again and decodes (the prefix is computed everywhere by then).
The peer runs in two modes: a context for each slot, and one for all (--kv-unified).
"""

import concurrent.futures
import contextlib
import datetime
import http.client
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import threading
import time

import bench
import fetch_models
import peer
import pypi

PREFIX_TOKENS = 2000
TAIL_TOKENS = 16
FIRST_IDS, LAST_IDS = 1000, 40000  # tokens to draw prompts from
LIMIT_S = 1800


class Answer:
    """When the tokens of one answer came, and what the server says it computed of the prompt."""

    def __init__(self, port, prompt, count):
        self.times = []
        self.computed = 0
        body = {"prompt": prompt, "n_predict": count, "temperature": 0, "ignore_eos": True,
                "stream": True, "cache_prompt": True}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, LIMIT_S)) as server:
            server.request("POST", "/completion", json.dumps(body),
                           {"Content-Type": "application/json"})
            answer = server.getresponse()
            if answer.status != 200:
                raise RuntimeError(f"/completion: {answer.status} {answer.read(300)!r}")
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if event.get("stop"):
                    self.computed = event["timings"]["prompt_n"]
                self.times += [time.monotonic()] * len(event.get("tokens", []))


def ask_all(port, prompts, count):
    """The answers to prompts that are asked at the same moment, and that moment."""
    gate = threading.Barrier(len(prompts) + 1)

    def ask(prompt):
        gate.wait()
        return Answer(port, prompt, count)

    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        asked = [pool.submit(ask, prompt) for prompt in prompts]
        gate.wait()
        begin = time.monotonic()
        return begin, [one.result() for one in asked]


def measure(port, clients, seed, options, results):
    """One run against a server: adds to the figures of `results` by their name."""
    draw = random.Random(seed)
    prefix = [draw.randrange(FIRST_IDS, LAST_IDS) for _ in range(PREFIX_TOKENS)]
    prompts = [prefix + [draw.randrange(FIRST_IDS, LAST_IDS) for _ in range(TAIL_TOKENS)]
               for _ in range(clients)]
    begin, answers = ask_all(port, prompts, options.answer)
    end = max(answer.times[-1] for answer in answers)
    firsts = [answer.times[0] - begin for answer in answers]
    begin_again, again = ask_all(port, prompts, options.answer)
    decoded_from = max(answer.times[0] for answer in again)
    decoded_to = min(answer.times[-1] for answer in again)
    inside = sum(decoded_from < at <= decoded_to for answer in again for at in answer.times)
    figures = {
        "end to end, tokens/s": clients * options.answer / (end - begin),
        "first token, s, median client": statistics.median(firsts),
        "prompt tokens computed": sum(answer.computed for answer in answers),
        "again: end to end, tokens/s":
            clients * options.answer / (max(one.times[-1] for one in again) - begin_again),
        "decode, all clients, tokens/s": inside / (decoded_to - decoded_from),
    }
    for name, value in figures.items():
        results.setdefault(name, []).append(value)


@contextlib.contextmanager
def serve_ours(options, model, clients, folder):
    command = [options.stet, "serve", model, "--port", "0", "--np", str(clients), "-t",
               str(options.threads), "-c", "4096", "--durability", "none"]
    with open(folder / "stet.log", "ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield int(process.stdout.readline().rsplit(":", 1)[1])
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def serve_theirs(options, model, clients, folder, unified):
    context = clients * (PREFIX_TOKENS + TAIL_TOKENS + 2 * options.answer + 256)
    more = ["-np", str(clients), "--kv-unified" if unified else "--no-kv-unified"]
    with peer.Server(options.peer, model, options.threads, context, folder / "peer.log",
                     more=more) as server:
        yield server.port


def rows(clients, results):
    """Lines of the table for one number of clients; the ratio is to the better of the peer's."""
    lines = []
    for name in results["stet"]:
        less_is_better = "first token" in name
        medians = {who: statistics.median(figures[name]) for who, figures in results.items()}
        best = (min if less_is_better else max)(
            value for who, value in medians.items() if who != "stet")
        ratio = best / medians["stet"] if less_is_better else medians["stet"] / best
        shown = "" if "computed" in name else f"{ratio:.2f}"
        cells = " | ".join(bench.cell(results[who][name]) for who in results)
        lines.append(f"| {clients} | {name} | {cells} | {shown} |")
    return lines


def parse_arguments():
    parser = bench.parser_of(__doc__, 3, "serve_results.md")
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--answer", type=int, default=48, help="tokens of each answer")
    parser.add_argument("--model", default="smollm2")
    options = parser.parse_args()
    options.clients = [int(count) for count in options.clients.split(",")]
    return options


def main():
    options = parse_arguments()
    model = pypi.MODELS / fetch_models.MODELS[options.model]["file"]
    options.peer = peer.find_or_build()
    load = os.getloadavg()[0]
    table = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for clients in options.clients:
            results = {"stet": {}, "llama.cpp": {}, "llama.cpp, one context": {}}
            # 32 prompts of 2,000 tokens take the peer minutes: once is enough.
            runs = options.runs if clients <= 8 else 1
            for run in range(runs):
                turns = [("stet", serve_ours, ()), ("llama.cpp", serve_theirs, (False,)),
                         ("llama.cpp, one context", serve_theirs, (True,))]
                for who, serve, more in turns if run % 2 == 0 else reversed(turns):
                    with serve(options, model, clients, folder, *more) as port:
                        measure(port, 1, 1000 + run, options, {})  # warm-up, not counted
                        measure(port, clients, 10 * clients + run, options, results[who])
            table += rows(clients, results)
            print("\n".join(table[-5:]), flush=True)
    lines = ["# Clients that share a prefix: results", "",
             "Written by `make bench`; how to read it: README.md here.", "",
             f"{fetch_models.MODELS[options.model]['title']}, a prefix of {PREFIX_TOKENS:,} tokens and"
             f" {TAIL_TOKENS} of each client's own, {options.answer} decoded."
             f" {datetime.date.today()}, {bench.processor_name()}, {options.threads} threads, up to"
             f" {options.runs} interleaved runs; load average {load:.1f} before,"
             f" {os.getloadavg()[0]:.1f} at the end. The ratio is to the better of llama.cpp's two"
             " modes (slots with contexts of their own, one context for all).", "",
             "| clients | median (min-max) | stet | llama.cpp | llama.cpp, one context | ratio |",
             "|---|---|---|---|---|---|", *table]
    options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
