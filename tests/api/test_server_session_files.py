"""Sessions of a server as files, and what keeps its store in order while it serves."""

import contextlib
import json
import time

import pytest

from server_process import launch

QUESTIONS = ["Name a colour.", "Name another one."]


def ask(server, session, text, count=12):
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0,
            "max_tokens": count, "session_id": session}
    return server.post("/v1/chat/completions", body)


def download(server, path):
    with contextlib.closing(server.connect()) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read()


@pytest.fixture
def serve(environment, tmp_path):
    servers = []

    def begin(model, *arguments, store="store"):
        servers.append(launch(model, tmp_path / store, environment, *arguments))
        return servers[-1]

    yield begin
    for server in servers:
        server.kill()


def test_export_goes_into_another_server(serve, model):
    first = serve(model)
    for text in QUESTIONS:
        ask(first, "s", text)
    data = download(first, "/v1/sessions/s/export")
    assert data.startswith(b"stet.ses")
    second = serve(model, store="other")
    status, made = second.request("POST", "/v1/sessions/import", data,
                                  headers={"Content-Type": "application/octet-stream"})
    assert status == 201 and made["id"] == "s" and made["turns"] == 2
    assert second.request("POST", "/v1/sessions/import", data)[0] == 409
    status, renamed = second.request("POST", "/v1/sessions/import?id=t", data)
    assert status == 201 and renamed["id"] == "t"
    here, there = (ask(server, "s", "And a third?") for server in (first, second))
    assert here["choices"][0]["message"] == there["choices"][0]["message"]
    assert there["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    history = second.get("/v1/sessions/s")[1]["history"]
    assert [turn["messages"][0]["content"] for turn in history[:2]] == QUESTIONS


def test_files_of_the_slot_directory(serve, model, tmp_path):
    directory = tmp_path / "slots"
    directory.mkdir()
    server = serve(model, "--slot-save-path", directory)
    ask(server, "s", QUESTIONS[0])
    written = server.post("/v1/sessions/s/export", {"filename": "s.stet", "zstd": True})
    assert written["compressed"] and written["n_written"] == (directory / "s.stet").stat().st_size
    status, made = server.request("POST", "/v1/sessions/import",
                                  {"filename": "s.stet", "id": "again"})
    assert status == 201 and made["turns"] == 1
    for name in ("../x", "/etc/passwd", ""):
        status, _ = server.request("POST", "/v1/sessions/import", {"filename": name, "id": "x"})
        assert status in (400, 422)
    assert server.request("POST", "/v1/sessions/import", {"filename": "none", "id": "x"})[0] == 404


def test_import_refuses_with_its_cause(serve, model, other_model):
    first = serve(model)
    ask(first, "s", QUESTIONS[0])
    data = bytearray(download(first, "/v1/sessions/s/export"))
    other = serve(other_model, store="other")
    status, failure = other.request("POST", "/v1/sessions/import", bytes(data))
    assert status == 422 and "made with another model" in failure["error"]["message"]
    data[-1] ^= 1
    status, failure = first.request("POST", "/v1/sessions/import?id=t", bytes(data))
    assert status == 422 and "damaged" in failure["error"]["message"]
    status, failure = first.request("POST", "/v1/sessions/import?id=t", b"something else")
    assert status == 422 and failure["error"]["message"]
    assert [one["id"] for one in first.get("/v1/sessions")[1]["data"]] == ["s"]


def test_a_checkpoint_says_what_is_durable(serve, model):
    server = serve(model)
    ask(server, "s", QUESTIONS[0])
    told = server.post("/v1/sessions/s/checkpoint", "")
    assert told["turn"] == 1 and told["durable"]
    assert server.request("POST", "/v1/sessions/none/checkpoint", "")[0] == 404


def metric(server, name):
    text = server.get("/metrics")[1]
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(name + " ")))


def test_damage_is_found_while_serving(serve, model, tmp_path):
    server = serve(model, "--scrub", "64M")
    ask(server, "s", QUESTIONS[0])
    [segment] = (tmp_path / "store" / "segments").iterdir()
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    with open(segment, "r+b") as file:
        file.write(data)
    deadline = time.monotonic() + 60
    while metric(server, "stet_damaged_records_total") == 0 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert metric(server, "stet_damaged_records_total") > 0
    assert metric(server, "stet_scrubbed_bytes_total") > 0
    assert "sessions affected: s" in (tmp_path / "store.log").read_text()
    # It goes on, and the next turn writes anew what was damaged.
    ask(server, "s", QUESTIONS[1])
    assert server.post("/v1/sessions/s/verify", "")["intact"]
    history = server.get("/v1/sessions/s")[1]["history"]
    assert [turn["messages"][0]["content"] for turn in history] == QUESTIONS


def test_the_disk_limit_holds(serve, model, tmp_path):
    """Each prompt takes a quarter of it."""
    server = serve(model, "--disk", "20M")
    for i in range(10):
        server.complete([100 + 7 * i] + list(range(1000, 1200)), 4)
    size = sum(path.stat().st_size for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert 4 << 20 < size <= 20 << 20
    assert metric(server, "stet_commit_failures_total") == 0


def test_a_pinned_session_stays(serve, model):
    server = serve(model, "--ttl", "1s")
    for name in ("pinned", "loose"):
        ask(server, name, QUESTIONS[0])
    assert server.post("/v1/sessions/pinned/pin", {})["pinned"]
    assert not server.get("/v1/sessions/loose")[1]["pinned"]
    deadline = time.monotonic() + 60
    while server.get("/v1/sessions/loose")[0] != 404:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert server.get("/v1/sessions/pinned")[0] == 200
    assert not server.post("/v1/sessions/pinned/pin", {"pinned": False})["pinned"]
    assert server.request("POST", "/v1/sessions/nobody/pin", json.dumps({}))[0] == 404


def test_eight_sessions_on_one_prefix(serve, model, tmp_path):
    """In memory and on disk: little more than one of them takes."""
    server = serve(model, "-c", "4500")
    prefix = list(range(1000, 5000))

    def sizes():
        files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
        return metric(server, "stet_state_bytes"), sum(path.stat().st_size for path in files)

    server.complete([*prefix, 500], 4)
    one = sizes()
    for i in range(1, 8):
        answer = server.complete([*prefix, 500 + i], 4)
        assert answer["timings"]["cache_n"] == len(prefix)
    assert all(0 < eight <= 1.15 * before for eight, before in zip(sizes(), one))


@pytest.mark.parametrize("flags, word", [(["--disk", "lots"], "disk"), (["--ttl", "soon"], "ttl"),
                                         (["--ram", "-1"], "ram")])
def test_limits_that_make_no_sense(stet, small_model, flags, word):
    result = stet("serve", small_model, *flags)
    assert result.returncode == 2 and word in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_limits_in_the_settings(stet, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('[serve]\ndisk = "20G"\nttl = "30d"\n')
    shown = stet("config", "show", "--config", file, "--json")
    assert shown.returncode == 0, shown.stderr
    values = json.loads(shown.stdout)
    assert "20480" in json.dumps(values) and "30d" in json.dumps(values)
