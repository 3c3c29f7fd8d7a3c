"""`stet run` on diffusion models: answers filled in block by block."""

import json

import gguf
import pytest

from server_process import launch
from small_models import with_text

MASK = 5


@pytest.fixture(scope="module")
def diffusion_model(model, tmp_path_factory):
    return with_text(model, tmp_path_factory.mktemp("models") / "llada.gguf", "llada",
                     extra=[("tokenizer.ggml.mask_token_id", MASK, gguf.GGUFValueType.UINT32),
                            ("diffusion.shift_logits", False, gguf.GGUFValueType.BOOL)])


def answer(stet, *arguments):
    result = stet("run", *arguments, "--json", "--ignore-eos")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_an_answer_is_the_seeds(stet, diffusion_model):
    def once(seed, *more):
        return answer(stet, diffusion_model, "Name a colour.", "-n", "24", "--temp", "1", "--seed",
                      seed, "--diffusion-steps", "12", *more)

    first = once(3, "--diffusion-block-length", "8")
    assert len(first["tokens"]) == 24 and MASK not in first["tokens"]
    assert first["text"] and first["stop"] == "length"
    assert once(3, "--diffusion-block-length", "8")["tokens"] == first["tokens"]
    assert once(4, "--diffusion-block-length", "8")["tokens"] != first["tokens"]
    for algorithm in range(4):
        other = once(3, "--diffusion-block-length", "8", "--diffusion-algorithm", algorithm)
        assert len(other["tokens"]) == 24 and MASK not in other["tokens"]
    by_time = once(3, "--diffusion-eps", "0.001", "--diffusion-alg-temp", "0.5")
    assert len(by_time["tokens"]) == 24
    guided = once(3, "--diffusion-block-length", "8", "--diffusion-cfg-scale", "2")
    assert guided["tokens"] != first["tokens"]


def test_a_session_goes_on_where_it_was(stet, diffusion_model):
    def turn(session, text):
        return answer(stet, diffusion_model, text, "-n", "8", "--temp", "1", "--seed", "5",
                      "--diffusion-steps", "8", "--session", session)

    one = turn("a", "Hello.")
    two = turn("a", "And now?")
    assert two["reused_tokens"] == one["prompt_tokens"] + 8
    again = turn("b", "Hello.")
    assert again["tokens"] == one["tokens"]
    assert turn("b", "And now?")["tokens"] == two["tokens"]


def test_text_comes_by_block(stet, diffusion_model):
    plain = stet("run", diffusion_model, "Hello.", "-n", "16", "--temp", "0", "--ignore-eos",
                 "--diffusion-steps", "8", "--diffusion-block-length", "4")
    assert plain.returncode == 0, plain.stderr
    whole = answer(stet, diffusion_model, "Hello.", "-n", "16", "--temp", "0",
                   "--diffusion-steps", "8", "--diffusion-block-length", "4")
    assert plain.stdout.rstrip("\n") == whole["text"].rstrip("\n")


def test_what_cannot_be_is_said(stet, model, diffusion_model, small_model):
    refused = stet("run", model, "Hello.", "--diffusion-steps", "8")
    assert refused.returncode == 2
    assert "--diffusion-steps is for diffusion models" in refused.stderr
    both = stet("run", diffusion_model, "Hello.", "--diffusion-eps", "0.1",
                "--diffusion-block-length", "8")
    assert both.returncode == 2
    none = stet("run", diffusion_model, "Hello.", "--diffusion-steps", "0")
    assert none.returncode == 2 and "steps is 0" in none.stderr


def test_the_server_answers_with_them(environment, diffusion_model, tmp_path):
    server = launch(diffusion_model, tmp_path / "store", environment)
    try:
        body = {"prompt": "Hello.", "n_predict": 64, "temperature": 0, "ignore_eos": True}
        whole = server.post("/completion", body)
        assert whole["tokens_predicted"] == 64
        lines = server.events("/completion", {**body, "stream": True})
        pieces = [json.loads(line) for line in lines]
        assert "".join(piece["content"] for piece in pieces) == whole["content"]
        assert len(pieces) >= 2  # by block
        chat = server.post("/v1/chat/completions",
                           {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 8,
                            "temperature": 0, "ignore_eos": True})
        assert chat["usage"]["completion_tokens"] == 8
    finally:
        assert server.stop() == 0
