"""`stet inspect`: a model without its weights being read."""

import json

import pytest


def inspect(stet, *arguments):
    done = stet("inspect", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_says_what_state_costs(stet, model):
    answer = inspect(stet, model)
    assert answer["model"]["architecture"] == "llama"
    assert answer["model"]["weights"] == 134515008
    (layers,) = answer["layers"]
    assert (layers["first"], layers["last"]) == (0, 29)
    assert layers["mixers"][0]["kv_heads"] == 3
    (group,) = answer["state"]["groups"]
    assert group["row_bytes"] == 30 * 2 * 3 * 64 * 2  # layers, k and v, heads, size, f16
    costs = {row["tokens"]: row["bytes"] for row in answer["state"]["sequence_bytes"]}
    assert costs[8192] == 8192 * group["row_bytes"]


def test_types_of_rows_change_the_cost(stet, model):
    halves, eighths = (
        inspect(stet, model, "--ctk", kind, "--ctv", kind)["state"]["groups"][0]["row_bytes"]
        for kind in ("f16", "q8_0")
    )
    assert eighths * 64 == halves * 34


def test_text_is_for_people(stet, other_model):
    done = stet("inspect", other_model)
    assert done.returncode == 0
    assert "the last 512 tokens" in done.stdout
    assert "architecture gemma3" in done.stdout


@pytest.mark.parametrize("content", [b"", b"not a model at all", b"GGUF" + b"\0" * 40])
def test_what_is_no_model_is_refused(stet, tmp_path, content):
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    done = stet("inspect", path)
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
    assert "x.gguf" in done.stderr
