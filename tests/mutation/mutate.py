#!/usr/bin/env python3
"""Changes the code of memory, state and store in small ways, one at a time, and says which changes
the tests notice. A change that none notices is a hole in the tests.

    mutate.py --build DIR [--only TEXT...] [--check]

DIR is a scratch folder: a copy of the sources is built there, never the tree itself. Exits 1 if a
mutation survives or doesn't compile, 2 if one doesn't match exactly once. Where the text to change
has white space, any white space matches: the formatter may break lines as it likes.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from mutations import MUTATIONS  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPIED = ["CMakeLists.txt", "include", "src", "tests", "examples", "scripts"]
# The programs that answer for a folder, quickest first.
PROGRAMS = {
    "memory": ["test_memory", "test_state"],
    "state": ["test_state", "test_store", "test_fault_store"],
    "store": ["test_store", "test_fault_store"],
}
TIMEOUT_S = 300


def run(command, folder, timeout=None):
    """Exit status and output; a run past its time counts as failed."""
    env = dict(os.environ, CCACHE_BASEDIR=str(folder), CCACHE_NOHASHDIR="1")
    try:
        done = subprocess.run(command, cwd=folder, env=env, timeout=timeout, text=True,
                              errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return 124, "ran past its time"
    return done.returncode, done.stdout


def copy_tree(tree):
    tree.mkdir(parents=True, exist_ok=True)
    if not (tree / ".venv").is_symlink():
        (tree / ".venv").symlink_to(ROOT / ".venv")
    for name in COPIED:
        source = ROOT / name
        if not source.exists():
            continue
        if source.is_dir():
            # Times are kept, so that a second run builds only what changed.
            shutil.copytree(source, tree / name, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("data", "__pycache__"))
        else:
            shutil.copy2(source, tree / name)


def pattern(old):
    return re.compile(r"\s+".join(re.escape(word) for word in re.split(r"\s+", old)))


def matches(path, old):
    return len(pattern(old).findall(path.read_text()))


def mutate(path, old, new):
    """The text before; check_all() has seen that `old` is there once."""
    text = path.read_text()
    path.write_text(pattern(old).sub(lambda _: new, text))
    return text


def build(tree, programs):
    return run(["ninja", "-C", "build", *programs], tree)


def first_failure(status, output):
    for line in output.splitlines():
        if line.startswith("[  FAILED  ]"):
            return line.removeprefix("[  FAILED  ]").split(",")[0].split("(")[0].strip()
    return "running past its time" if status == 124 else f"ending with status {status}"


def verdict(tree, file):
    """(killed?, by what); killed is None when the change doesn't compile: it proves nothing."""
    programs = PROGRAMS[file.split("/")[1]]
    status, output = build(tree, programs)
    if status != 0:
        return None, ""
    for program in programs:
        status, output = run([f"build/tests/{program}", "--gtest_fail_fast", "--gtest_brief=1"],
                             tree, TIMEOUT_S)
        if status != 0:
            return True, first_failure(status, output)
    return False, ""


def check_all(tree):
    good = True
    for file, old, _, what in MUTATIONS:
        count = matches(tree / file, old)
        if count != 1:
            good = False
            print(f"{file}: '{what}': matches {count} times, expected 1", file=sys.stderr)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-mutation")
    parser.add_argument("--only", nargs="*", default=[""],
                        help="mutations whose file or words contain one of these")
    parser.add_argument("--check", action="store_true", help="only that each matches once")
    parser.add_argument("--cmake", nargs="*", default=[], help="more options for CMake")
    options = parser.parse_args()
    if not check_all(ROOT):
        return 2
    if options.check:
        print(f"{len(MUTATIONS)} mutations match")
        return 0
    tree = options.build.resolve()
    copy_tree(tree)
    status, output = run(["cmake", "-S", ".", "-B", "build", "-G", "Ninja",
                          "-DCMAKE_BUILD_TYPE=Release", "-DSTET_BUILD_TESTS=ON", *options.cmake], tree)
    if status == 0:
        status, output = build(tree, sorted({p for ps in PROGRAMS.values() for p in ps}))
    if status != 0:
        print(output, file=sys.stderr)
        return 2
    survivors = 0
    chosen = [m for m in MUTATIONS if any(text in m[0] or text in m[3] for text in options.only)]
    print(f"{'file':<32} {'mutation':<58} result")
    for file, old, new, what in chosen:
        begin = time.monotonic()
        before = mutate(tree / file, old, new)
        try:
            killed, by = verdict(tree, file)
        finally:
            (tree / file).write_text(before)
        survivors += killed is not True
        result = f"killed by {by}" if killed else "SURVIVED"
        if killed is None:
            result = "DOES NOT COMPILE"
        print(f"{file:<32} {what:<58} {result} ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
