"""Texts as numbers: `stet embed`, OpenAI's /v1/embeddings and llama-server's /embedding."""

import base64
import json
import math
import struct
import threading

import openai
import pytest

from server_process import launch

TEXTS = ["Hello", "The quick brown fox."]


def length(row):
    return math.sqrt(sum(x * x for x in row))


def lines(stet, *arguments, stdin=""):
    result = stet("embed", *arguments, "--json", stdin=stdin)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_embed_texts_and_lines(stet, model):
    one, two = lines(stet, model, *TEXTS, "--pooling", "mean")
    assert len(one["embedding"]) == len(two["embedding"]) == 576
    assert one["pooling"] == "mean" and one["index"] == 0 and two["index"] == 1
    assert length(one["embedding"]) == pytest.approx(1)
    assert lines(stet, model, "--pooling", "mean", stdin="\n".join(TEXTS) + "\n") == [one, two]
    plain = stet("embed", model, TEXTS[0], "--pooling", "mean")
    assert [float(x) for x in plain.stdout.split()] == pytest.approx(one["embedding"])


def test_a_row_for_each_token_unless_the_model_says(stet, model):
    (every,) = lines(stet, model, TEXTS[1])
    assert every["pooling"] == "none" and len(every["embedding"]) == every["tokens"]
    (last,) = lines(stet, model, TEXTS[1], "--pooling", "last", "--embd-normalize", "-1")
    assert last["embedding"] == every["embedding"][-1]
    wrong = stet("embed", model, "x", "--pooling", "rank")
    assert wrong.returncode == 2 and "none, mean, cls or last" in wrong.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("server")


@pytest.fixture
def server(environment, folder, model):
    running = launch(model, folder / "store", environment, "--pooling", "mean")
    yield running
    assert running.stop() == 0


def test_openai_client(server, stet, model):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
    answer = client.embeddings.create(model="any", input=TEXTS)  # base64 under the hood
    expected = lines(stet, model, *TEXTS, "--pooling", "mean")
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(
        one["tokens"] for one in expected)
    for item, one in zip(answer.data, expected):
        assert item.index == one["index"]
        assert item.embedding == pytest.approx(one["embedding"], abs=1e-3)
    plain = client.embeddings.create(model="any", input=TEXTS[0], encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(answer.data[0].embedding, abs=1e-3)
    ids = server.post("/tokenize", {"content": TEXTS[1], "add_special": True})["tokens"]
    by_ids = client.embeddings.create(model="any", input=[ids, ids])
    assert len(by_ids.data) == 2
    assert by_ids.data[0].embedding == pytest.approx(answer.data[1].embedding, abs=1e-3)
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="any", input=TEXTS, dimensions=64)
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="any", input="")


def test_base64_is_little_endian_floats(server):
    body = {"input": TEXTS[0], "encoding_format": "base64"}
    coded = server.post("/v1/embeddings", body)["data"][0]
    plain = server.post("/v1/embeddings", {"input": TEXTS[0]})["data"][0]["embedding"]
    data = base64.b64decode(coded["embedding"], validate=True)
    assert list(struct.unpack(f"<{len(data) // 4}f", data)) == pytest.approx(plain, abs=1e-3)
    assert coded["object"] == "embedding"


def test_native_routes(server):
    for path in ("/embedding", "/embeddings"):
        (one,) = server.post(path, {"content": TEXTS[0]})
        assert one["index"] == 0 and len(one["embedding"]) == 1
        assert length(one["embedding"][0]) == pytest.approx(1)
    (raw,) = server.post("/embedding", {"content": TEXTS[0], "embd_normalize": -1})
    assert length(raw["embedding"][0]) > 1.5
    assert [one["index"] for one in server.post("/embedding", {"content": TEXTS})] == [0, 1]
    for wrong in ({}, {"input": []}, {"input": [-1]}, {"input": "x", "encoding_format": "hex"}):
        status, answer = server.request("POST", "/v1/embeddings", wrong)
        assert status == 400 and answer["error"]["message"], wrong
    status, _ = server.request("POST", "/v1/embeddings", {"input": "word " * 4000})
    assert status == 400


def test_answers_go_on_meanwhile(server):
    """A long batch does not stop a conversation, and both are right."""
    alone = server.complete("Once upon a time", 24)

    made = []
    thread = threading.Thread(target=lambda: made.append(
        server.post("/v1/embeddings", {"input": ["word " * 200] * 6})))
    thread.start()
    beside = server.complete("Once upon a time", 24)
    thread.join()
    assert beside["content"] == alone["content"]
    assert len(made[0]["data"]) == 6


def test_none_has_no_place_in_openais_shape(environment, folder, model):
    server = launch(model, folder / "other", environment)
    try:
        status, answer = server.request("POST", "/v1/embeddings", {"input": TEXTS[0]})
        assert status == 400 and "--pooling" in answer["error"]["message"]
        (every,) = server.post("/embedding", {"content": TEXTS[1]})
        assert len(every["embedding"]) > 1
    finally:
        server.stop()
