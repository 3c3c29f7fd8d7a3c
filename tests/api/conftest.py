"""Runs build/stet as a program. STET names another one, STET_TEST_CACHE the folder of test data."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STET = pathlib.Path(os.environ.get("STET", ROOT / "build" / "stet"))
CACHE = pathlib.Path(os.environ.get("STET_TEST_CACHE", pathlib.Path.home() / ".cache/stet/test"))
LIMIT_S = 300


def pytest_sessionstart():
    if not os.access(STET, os.X_OK):
        pytest.exit(f"{STET} is not there; `make build` makes it", returncode=1)


def cached(name):
    """A file of the test cache. Without it the test is skipped; in CI it fails."""
    path = CACHE / name
    if not path.exists():
        message = f"{path} is missing; scripts/fetch_test_data.py fetches it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


@pytest.fixture(scope="session")
def model():
    return cached("models/smollm2-135m-instruct-q4_1.gguf")


@pytest.fixture(scope="session")
def other_model():
    return cached("models/gemma-3-270m-q4_k_m.gguf")


@pytest.fixture(scope="session")
def small_model():
    """A model of a few MB, with random weights and a vocabulary without text."""
    return cached("archs/llama-dense.gguf")


@pytest.fixture(scope="session")
def speakable(tmp_path_factory):
    """Makes a model of a few MB with a tokenizer that has ids and no text."""
    folder = tmp_path_factory.mktemp("speakable")

    def make(name):
        path = folder / f"{name}.gguf"
        if not path.exists():
            data = cached(f"archs/{name}.gguf").read_bytes()
            key = b"tokenizer.ggml.model"
            at = data.index(key) + len(key) + 4 + 8  # type, length of the string
            assert data[at:at + 4] == b"test"
            path.write_bytes(data[:at] + b"none" + data[at + 4:])
        return path

    return make


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    """`stet serve` for the tests of a file; a file that wants other settings has its own."""
    from server_process import launch
    server = launch(model, tmp_path_factory.mktemp("server") / "store", None)
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    import openai
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def claude(server):
    import anthropic
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


@pytest.fixture
def environment(tmp_path):
    """Nothing of the person's own is read or written. Fingerprints of models stay cached."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return dict(kept, XDG_DATA_HOME=str(tmp_path / "data"), XDG_STATE_HOME=str(tmp_path / "state"))


@pytest.fixture
def stet(environment):
    """Runs stet with arguments (and standard input) to its end."""

    def run(*arguments, stdin=""):
        return subprocess.run([STET, *map(str, arguments)], input=stdin, env=environment,
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)

    return run


@pytest.fixture
def start(environment):
    """Starts stet with pipes; what still runs at the end of the test is killed."""
    processes = []

    def begin(*arguments, **options):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([STET, *map(str, arguments)], env=environment,
                                   **{**pipes, **options})
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def chat(stet, model, tmp_path):
    """Sends lines to a chat with a session and returns the JSON objects that answer them."""

    def converse(session, *lines, arguments=(), store="store"):
        result = stet("run", model, "--chat", "--json", "--session", session, "--store",
                      tmp_path / store, "--temp", "0", "-n", "12", "--ctx", "2048", *arguments,
                      stdin="".join(line + "\n" for line in lines))
        assert result.returncode == 0, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    return converse
