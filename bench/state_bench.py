#!/usr/bin/env python3
"""What keeping a conversation's state costs, beside llama.cpp's slot files.

usage: state_bench.py [--runs N] [--model smollm2] [--out FILE]    (part of make bench)

stet's saves are durable (synced) and its restores verify every byte; the peer's are neither.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import bench
import fetch_models
import peer
import pypi

LENGTHS = (512, 2048, 8000)


def measure_stet(options, model, folder):
    program = options.build / "bench" / "store_bench"
    done = subprocess.run([program, model, folder, str(options.runs)], check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout)


def measure_peer(options, model, binary, folder):
    """Milliseconds by the names that store_bench uses, and the bytes of a file."""
    times = {}
    log = options.build / "bench-peer-state.log"
    with peer.Server(binary, model, options.threads, 8192, log,
                     more=["--slot-save-path", f"{folder}/"]) as server:
        for tokens in LENGTHS:
            text = bench.text_of(server, tokens)
            server.complete(text, 1, is_kept=True)
            for run in range(options.runs):
                name = f"{tokens}-{run}.bin"
                saved = server.slot("save", name)
                restored = server.slot("restore", name)
                times.setdefault(f"save {tokens}", []).append(saved["timings"]["save_ms"])
                times.setdefault(f"restore page cache {tokens}", []).append(
                    restored["timings"]["restore_ms"])
    return times


def cell(values):
    if not values:
        return "-"
    digits = 3 if statistics.median(values) < 1 else 1
    return (f"{statistics.median(values):.{digits}f} "
            f"({min(values):.{digits}f}-{max(values):.{digits}f})")


def table(ours, theirs):
    lines = ["| milliseconds, median (min-max) | stet | llama.cpp | stet / llama.cpp |",
             "|---|---|---|---|"]
    for name, values in ours["ms"].items():
        other = theirs.get(name, [])
        ratio = f"{statistics.median(values) / statistics.median(other):.2f}" if other else ""
        what, _, tokens = name.rpartition(" ")
        title = f"{what} {int(tokens):,} tokens" if tokens.isdigit() else name
        lines.append(f"| {title} | {cell(values)} | {cell(other)} | {ratio} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--build", type=pathlib.Path, default=pypi.ROOT / "build")
    parser.add_argument("--out", type=pathlib.Path,
                        default=pypi.ROOT / "bench" / "state_results.md")
    options = parser.parse_args()
    model = pypi.MODELS / fetch_models.MODELS[options.model]["file"]
    binary = peer.find_or_build()
    load = os.getloadavg()[0]
    # On the disk that the build is on, not in memory.
    with tempfile.TemporaryDirectory(dir=options.build) as folder:
        ours = measure_stet(options, model, folder)
        theirs = measure_peer(options, model, binary, folder)
    lines = ["# Keeping state: results", "",
             "Written by `make bench`; how to read it: README.md here.", "",
             f"- {fetch_models.MODELS[options.model]['title']}: {ours['row_bytes']:,} bytes of state"
             f" a token; {options.runs} runs; load average {load:.1f} before,"
             f" {os.getloadavg()[0]:.1f} at the end",
             "- stet: every save is durable (two syncs) and every restore from the store verifies"
             " every byte. llama.cpp: slot files, written without a sync and read unverified.", "",
             *table(ours, theirs), ""]
    options.out.write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
