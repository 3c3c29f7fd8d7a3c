"""`stet serve`: the HTTP side. Limits, keys, errors, and the routes that compute nothing."""

import json
import socket

import pytest

from server_process import launch


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("http")
    server = launch(model, folder / "store", None, "--body-mib", "1")
    yield server
    assert server.stop() == 0


def raw(server, data):
    """All that comes back for these bytes."""
    with socket.create_connection((server.host, server.port), timeout=60) as connection:
        connection.sendall(data)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


def test_health_models_and_props(server, model):
    assert server.get("/health") == (200, {"status": "ok"})
    status, models = server.get("/v1/models")
    assert status == 200 and [entry["id"] for entry in models["data"]] == [model.name]
    status, props = server.get("/props")
    assert props["total_slots"] == 4
    assert props["default_generation_settings"]["n_ctx"] == 2048
    assert "<|im_start|>" in props["chat_template"]


def test_text_to_tokens_and_back(server):
    tokens = server.post("/tokenize", {"content": "Hello, world"})["tokens"]
    assert len(tokens) >= 2 and all(isinstance(token, int) for token in tokens)
    assert server.post("/detokenize", {"tokens": tokens})["content"] == "Hello, world"
    pieces = server.post("/tokenize", {"content": "Hello, world", "with_pieces": True})["tokens"]
    assert [piece["id"] for piece in pieces] == tokens
    assert "".join(piece["piece"] for piece in pieces) == "Hello, world"
    prompt = server.post("/apply-template",
                         {"messages": [{"role": "user", "content": "Hi there"}]})["prompt"]
    assert prompt.endswith("<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("body, word", [
    ("", "JSON"), ("{", "JSON"), ("[]", "object"), ('{"prompt": 5}', "prompt"), ("{}", "missing"),
    ('{"prompt": "x", "temperature": "hot"}', "temperature"),
    ('{"prompt": "x", "temperature": -1}', "temperature"),
    ('{"prompt": "x", "temperature": 1e400}', ""),
    ('{"prompt": "x", "n_predict": -2}', "n_predict"),
    ('{"prompt": "x", "n_predict": 1e30}', "n_predict"),
    ('{"prompt": "x", "top_k": 1.5}', "top_k"),
    ('{"prompt": "x", "id_slot": 4}', "id_slot"),
    ('{"prompt": "x", "id_slot": -2}', "id_slot"),
    ('{"prompt": [1, -1]}', "token id"), ('{"prompt": [99999999]}', "token id"),
    ('{"prompt": []}', "no tokens"), ('{"prompt": "x", "stop": [1]}', "stop"),
    ('{"prompt": "x", "logit_bias": 3}', "logit_bias"),
    ('{"a":' * 100 + "1" + "}" * 100, "deeper"), ("[" * 200000, "deeper"),
])
def test_bad_bodies_are_refused_by_name(server, body, word):
    status, answer = server.request("POST", "/completion", body)
    assert status == 400, answer
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["code"] == 400 and word in answer["error"]["message"]


def test_a_prompt_longer_than_the_context(server):
    status, answer = server.request("POST", "/completion", {"prompt": [5] * 3000})
    assert status == 400
    assert answer["error"]["type"] == "exceed_context_size_error"
    assert answer["error"]["n_prompt_tokens"] == 3000 and answer["error"]["n_ctx"] == 2048


def test_paths_and_methods(server):
    assert server.get("/nothing")[0] == 404
    assert server.get("/completion")[0] == 405
    assert server.get("/../../etc/passwd")[0] == 404
    assert raw(server, b"HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").endswith(
        b"\r\n\r\n")


@pytest.mark.parametrize("data, status", [
    (b"NONSENSE\r\n\r\n", b" 400 "),
    (b"GET / HTTP/1.1\r\nA: " + b"a" * 100000 + b"\r\n\r\n", b" 431 "),
    (b"GET / HTTP/1.1\r\n" + b"".join(b"A%d: b\r\n" % i for i in range(101)) + b"\r\n", b" 431 "),
    (b"POST /tokenize HTTP/1.1\r\nContent-Length: 2097152\r\n\r\n", b" 413 "),
    (b"POST /tokenize HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b" 400 "),
    (b"POST /tokenize HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     b" 400 "),
])
def test_hostile_bytes(server, data, status):
    answer = raw(server, data)
    assert status in answer.split(b"\r\n", 1)[0] + b" "
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["message"]
    assert server.get("/health")[0] == 200


def test_requests_on_one_connection(server):
    connection = server.connect()
    for i in range(3):
        connection.request("POST", "/tokenize", json.dumps({"content": f"number {i}"}))
        response = connection.getresponse()
        assert response.status == 200 and json.loads(response.read())["tokens"]
    connection.close()
    two = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 2
    answer = raw(server, two + b"GET /health HTTP/1.0\r\n\r\n")
    assert answer.count(b'{"status":"ok"}') == 3


def test_request_ids(server):
    connection = server.connect()
    connection.request("GET", "/health", headers={"X-Request-Id": "mine-1"})
    response = connection.getresponse()
    assert response.headers["X-Request-Id"] == "mine-1"
    response.read()
    connection.request("GET", "/health", headers={"X-Request-Id": "two words"})
    assert len(connection.getresponse().headers["X-Request-Id"]) == 16
    connection.close()


def test_keys(model, tmp_path, environment):
    server = launch(model, tmp_path / "store", environment, "--api-key", "first,second")
    assert server.get("/health")[0] == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer firs"},
                    {"X-Api-Key": "first,second"}, {"Authorization": "first"}):
        status, answer = server.get("/props", headers=headers)
        assert status == 401 and answer["error"]["type"] == "authentication_error"
    assert server.get("/props", headers={"Authorization": "Bearer first"})[0] == 200
    assert server.get("/props", headers={"X-Api-Key": "second"})[0] == 200
    # What one key said is nothing to the other: neither found nor reused.
    prompt = "The secret word of this conversation is heron. " * 8
    first, second = {"X-Api-Key": "first"}, {"X-Api-Key": "second"}
    body = {"prompt": prompt, "n_predict": 2, "temperature": 0}
    assert server.post("/completion", body, headers=first)["timings"]["cache_n"] == 0
    assert server.post("/completion", body, headers=second)["timings"]["cache_n"] == 0
    assert server.post("/completion", body, headers=first)["timings"]["cache_n"] > 50
    assert len(server.get("/v1/sessions", headers=first)[1]["data"]) == 1
    name = server.get("/v1/sessions", headers=first)[1]["data"][0]["id"]
    assert server.get(f"/v1/sessions/{name}", headers=second)[0] == 404
    assert server.stop() == 0


@pytest.mark.parametrize("arguments, word", [
    (["--host", "0.0.0.0"], "--api-key"),
    (["--host", "nowhere"], "address"),
    (["--slot-save-path", "/nowhere/at/all"], "slot-save-path"),
    (["--parallel", "0"], "parallel"),
    (["--port", "70000"], "port"),
    (["--durability", "often"], "durability"),
])
def test_refused_at_the_start(stet, model, tmp_path, arguments, word):
    result = stet("serve", model, "--port", "0", "--store", tmp_path / "store", *arguments)
    assert result.returncode != 0 and word in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_settings_and_their_sources(stet, environment, tmp_path):
    file = tmp_path / "stet.toml"
    file.write_text("[serve]\nparallel = 7\nport = 9000\nhost = \"127.0.0.2\"\n")
    environment["STET_PORT"] = "9001"
    environment["STET_API_KEY"] = "hidden-key"
    result = stet("config", "show", "--json", "--config", file, "--host", "127.0.0.3")
    assert result.returncode == 0, result.stderr
    shown = json.loads(result.stdout)
    assert shown["parallel"] == {"value": "7", "source": f"file {file}"}
    assert shown["port"] == {"value": "9001", "source": "environment STET_PORT"}
    assert shown["host"] == {"value": "127.0.0.3", "source": "flag --host"}
    assert shown["durability"] == {"value": "turn", "source": "default"}
    assert "hidden-key" not in result.stdout
    file.write_text("[serve]\nparalel = 7\n")
    result = stet("config", "show", "--config", file)
    assert result.returncode == 2 and "paralel" in result.stderr
