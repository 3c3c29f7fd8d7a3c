"""Downloads files of exact, hash-checked PyPI releases with pip, and knows where things are kept."""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("STET_CACHE") or pathlib.Path.home() / ".cache" / "stet")
MODELS = CACHE / "models"


class FetchError(Exception):
    """Says in one line what could not be fetched and why."""


class Offline(FetchError):
    """The package index did not answer, or does not have the release."""


def say(text):
    print(text, flush=True)


def _pip_python():
    venv = ROOT / ".venv" / "bin" / "python"
    return str(venv) if venv.exists() else sys.executable


def _raise_for(requirement, output):
    if "DO NOT MATCH THE HASHES" in output:
        got = next((line.split()[-1] for line in output.splitlines() if " Got " in line), "another")
        raise FetchError(f"{requirement.split()[0]}: SHA-256 is {got}, expected"
                         f" {requirement.rsplit(':', 1)[1]}; the release was not used")
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR")]
    reason = errors[-1] if errors else (output.strip().splitlines() or ["pip failed"])[-1]
    network = ("No matching distribution", "Connection", "Could not install", "Max retries", "timed out")
    if any(word in output for word in network):
        raise Offline(f"{requirement.split()[0]} could not be downloaded; is there a network?"
                      f" (pip: {reason})")
    raise FetchError(f"{requirement.split()[0]}: {reason}")


def download(package, version, sha256, folder, is_sdist=False):
    """Downloads one file of a release into `folder` and returns its path. pip refuses a file whose
    SHA-256 is another, before it looks into it."""
    requirement = f"{package}=={version} --hash=sha256:{sha256}"
    folder = pathlib.Path(folder)
    listing = folder / f"{package}.txt"
    listing.write_text(requirement + "\n")
    before = set(folder.iterdir())
    command = [_pip_python(), "-m", "pip", "download", "--no-deps", "--no-cache-dir",
               "--disable-pip-version-check", "--retries", "2", "--timeout", "30",
               "--require-hashes", "-r", str(listing), "-d", str(folder)]
    command += ["--no-binary", package] if is_sdist else ["--only-binary", ":all:"]
    # pip draws its progress bar on a terminal; elsewhere it has nothing to say.
    if not sys.stdout.isatty():
        command.append("-q")
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        _raise_for(requirement, result.stderr)
    files = set(folder.iterdir()) - before
    if len(files) != 1:
        raise FetchError(f"{package}=={version}: expected one file, pip left {len(files)}")
    return files.pop()


def scratch_folder():
    """A folder on the cache's file system, removed at the end, so that files can be renamed out of it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="fetch-", dir=CACHE)
