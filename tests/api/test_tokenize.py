"""`stet tokenize` and `stet detokenize`: text as ids and back."""

import json
import os
import random
import subprocess

import pytest
from conftest import LIMIT_S, STET, cached

TEXT = "Hello, world!\n  naïve 你好 \U0001f600"
CHAT = "<|im_start|>user\nHi<|im_end|>"


def vocabulary(name):
    return cached(f"vocab/ggml-vocab-{name}.gguf")


def ids_of(done):
    assert done.returncode == 0, done.stderr
    return [[int(word) for word in line.split()] for line in done.stdout.split("\n")[:-1]]


def raw(*arguments, stdin=b""):
    """Bytes in, bytes out."""
    return subprocess.run([STET, *map(str, arguments)], input=stdin, capture_output=True,
                          timeout=LIMIT_S, check=False)


def test_an_argument_and_stdin_are_the_same_text(stet, model):
    ids = ids_of(stet("tokenize", model, TEXT))
    assert len(ids) == 1 and len(ids[0]) > 5
    assert ids_of(stet("tokenize", model, stdin=TEXT)) == ids
    assert stet("tokenize", model, "").stdout == "\n"


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "llama-spm", "gemma-4", "qwen35", "phi-3"])
def test_text_comes_back(name):
    for text in (TEXT.encode(), b"", b" a", b"a\n", b"\n\n", b"tab\t \r\n"):
        ids = raw("tokenize", vocabulary(name), stdin=text)
        assert ids.returncode == 0, ids.stderr
        assert raw("detokenize", vocabulary(name), stdin=ids.stdout).stdout == text


def test_reference_ids(stet):
    """The reference's own input and output files, many texts in one call."""
    for name in ("bert-bge", "command-r", "llama-spm", "deepseek-llm"):
        path = vocabulary(name)
        texts = path.with_suffix(".gguf.inp").read_text().split("\n__ggml_vocab_test__\n")
        lines = path.with_suffix(".gguf.out").read_text().splitlines()
        expected = [[int(word) for word in line.split()] for line in lines]
        done = raw("tokenize", path, "--no-bos", "--null",
                   stdin=b"".join(text.encode() + b"\0" for text in texts))
        assert done.returncode == 0, done.stderr
        found = [[int(word) for word in line.split()] for line in done.stdout.decode().splitlines()]
        assert len(expected) > 40
        assert found[:len(expected)] == expected, name


def test_bos_and_special_tokens(stet, model):
    spm = vocabulary("llama-spm")
    (with_bos,) = ids_of(stet("tokenize", spm, "a"))
    (without,) = ids_of(stet("tokenize", spm, "a", "--no-bos"))
    assert with_bos == [1, *without]
    (plain,) = ids_of(stet("tokenize", model, CHAT))
    (special,) = ids_of(stet("tokenize", model, CHAT, "--special"))
    assert len(special) < len(plain)
    joined = " ".join(map(str, special))
    assert stet("detokenize", model, joined, "--special").stdout == CHAT
    assert stet("detokenize", model, joined).stdout == "user\nHi"


def test_json_has_pieces(stet, model):
    done = stet("tokenize", model, TEXT, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [token["id"] for token in answer["tokens"]] == ids_of(stet("tokenize", model, TEXT))[0]
    assert answer["count"] == len(answer["tokens"]) and answer["bytes"] == len(TEXT.encode())
    assert set(answer["timings"]) == {"load_ms", "tokenize_ms"}
    pieces = [token["piece"] for token in answer["tokens"]]
    assert any(isinstance(piece, list) for piece in pieces)  # a part of a character is its bytes
    joined = b"".join(bytes(piece) if isinstance(piece, list) else piece.encode()
                      for piece in pieces)
    assert joined.decode() == TEXT
    assert stet("detokenize", model, *map(str, ids_of(stet("tokenize", model, TEXT))[0]),
                "--json").stdout == json.dumps({"content": TEXT}, ensure_ascii=False,
                                               separators=(",", ":")) + "\n"


def test_many_texts_in_one_call(stet, model):
    rng = random.Random(8)
    texts = ["".join(rng.choice("ab \n\té你\U0001f600<|>") for _ in range(rng.randrange(30)))
             for _ in range(200)]
    done = raw("tokenize", model, "--null", stdin="".join(text + "\0" for text in texts).encode())
    assert done.stdout.count(b"\n") == len(texts)
    back = raw("detokenize", model, "--null", stdin=done.stdout)
    assert back.stdout.decode().split("\0")[:-1] == texts
    done = raw("tokenize", model, "--null", "--json", stdin=b"a\0b")
    assert [json.loads(line)["bytes"] for line in done.stdout.splitlines()] == [1, 1]


def test_ids_in_every_common_form(stet, model):
    (ids,) = ids_of(stet("tokenize", model, TEXT))
    words = [str(token) for token in ids]
    for form in (" ".join(words), ",".join(words), "\n".join(words), json.dumps(ids), "\t".join(words)):
        assert stet("detokenize", model, stdin=form).stdout == TEXT
    assert stet("detokenize", model, *words).stdout == TEXT
    assert stet("detokenize", model, stdin=" \n").stdout == ""


@pytest.mark.parametrize("bad, said", [
    ("49152", "0 to 49151"), ("-1", "0 to 49151"), ("99999999999999999999", "0 to 49151"),
    ("abc", "'abc'"), ("1.5", "'1.5'"), ("3x", "'3x'"), ("--1", "'--1'")])
def test_bad_ids_are_named(stet, model, bad, said):
    done = stet("detokenize", model, stdin=f"17 {bad} 18")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert said in done.stderr and "number 2 of the list" in done.stderr
    assert done.stdout == ""
    done = stet("detokenize", model, "--json", stdin=bad)
    assert json.loads(done.stdout)["error"]["code"] == "invalid_argument"


def test_only_the_vocabulary_is_read(stet, model, tmp_path, environment):
    """The same ids from a file whose weights are noise, and no fingerprint is computed."""
    data = bytearray(model.read_bytes()[:8_000_000])
    path = tmp_path / "cut.gguf"
    path.write_bytes(data)
    with open(path, "r+b") as file:
        file.truncate(model.stat().st_size)  # the weights are zeros now
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    assert ids_of(stet("tokenize", path, TEXT)) == ids_of(stet("tokenize", model, TEXT))
    assert not os.path.exists(tmp_path / "cache")


def test_what_is_no_model_is_refused(stet, tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF")
    for verb in ("tokenize", "detokenize"):
        done = stet(verb, path, "1")
        assert done.returncode != 0 and "x.gguf" in done.stderr and done.stderr.count("\n") == 1
