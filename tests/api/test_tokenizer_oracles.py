"""Every kind of vocabulary against the PyPI packages that models are trained and served with: 2,000
random texts each, ids equal.

Where a package differs from us by design, the test says which texts are left out, and why; it fails
when these are more than a quarter.
"""

import subprocess

import oracle_models
import pytest
from conftest import LIMIT_S, STET, cached
from oracle_texts import SCRIPTS, broken_texts, texts

SEED = 20241203


def vocabulary_path(name):
    if name.startswith("model:"):
        return cached(f"models/{name.removeprefix('model:')}.gguf")
    return cached(f"vocab/ggml-vocab-{name}.gguf")


def ids_of(name, data):
    """What `stet tokenize` makes of many texts (bytes)."""
    done = subprocess.run([STET, "tokenize", vocabulary_path(name), "--no-bos", "--null"],
                          input=b"".join(text + b"\0" for text in data), capture_output=True,
                          timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return [[int(word) for word in line.split()] for line in done.stdout.decode().split("\n")[:-1]]


def replaced(data):
    """Ill-formed parts as U+FFFD, one for each maximal part, as Python and we do it."""
    return data.decode("utf-8", "replace")


def compare(name, oracle, data, known=lambda text: None, equal=lambda ids, expected: False):
    found = ids_of(name, data)
    assert len(found) == len(data)
    left_out = {}
    compared = 0
    for text, ids in zip(map(replaced, data), found):
        reason = known(text)
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        compared += 1
        expected = oracle(text)
        assert ids == expected or equal(ids, expected), f"{text!r}: found {ids}, expected {expected}"
    assert compared >= len(data) * 3 // 4, left_out
    print(name, "compared", compared, "left out", left_out)


BYTE_LEVEL = ["llama-bpe", "qwen2", "qwen35", "gpt-2", "starcoder", "refact", "command-r", "falcon",
              "deepseek-coder", "deepseek-llm", "mpt"]


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_byte_level(name):
    vocabulary = oracle_models.Vocabulary(vocabulary_path(name))
    compare(name, oracle_models.byte_level(vocabulary, name), broken_texts(SEED))


@pytest.mark.parametrize("name, pattern", [("llama-bpe", "LLAMA3"), ("qwen2", "QWEN2"), ("gpt-2", "GPT2")])
def test_ranks(name, pattern):
    vocabulary = oracle_models.Vocabulary(vocabulary_path(name))
    oracle = oracle_models.ranked(vocabulary, name, getattr(oracle_models, pattern))
    compare(name, oracle, broken_texts(SEED + 1))


@pytest.mark.parametrize("name", ["llama-spm", "phi-3", "baichuan",
                                  "model:gemma-3-270m-q4_k_m"])
def test_sentencepiece(name):
    vocabulary = oracle_models.Vocabulary(vocabulary_path(name))
    oracle = oracle_models.pieces(vocabulary, is_unigram=False, remove_spaces=False)
    compare(name, oracle, broken_texts(SEED + 2))


@pytest.mark.parametrize("name", ["nomic-bert-moe"])
def test_unigram(name):
    vocabulary = oracle_models.Vocabulary(vocabulary_path(name))
    oracle = oracle_models.pieces(vocabulary, is_unigram=True, remove_spaces=True)

    def tied(ids, expected):
        """Of cuts with the same sum of scores any is right; llama.cpp and we keep the first."""
        sums = [sum(vocabulary.scores[number] for number in some) for some in (ids, expected)]
        return sorted(ids) == sorted(expected) or abs(sums[0] - sums[1]) < 1e-3

    compare(name, oracle, broken_texts(SEED + 3), equal=tied)


def test_wordpiece():
    vocabulary = oracle_models.Vocabulary(vocabulary_path("bert-bge"))

    def known(text):
        # Control characters that are white space end a word for llama.cpp and us; the package
        # drops them first, so that the words around them become one.
        return "vertical tab" if "\x0b" in text else None

    compare("bert-bge", oracle_models.wordpiece(vocabulary), broken_texts(SEED + 4), known)


def test_texts_are_what_they_should_be():
    """Many scripts, and as many texts that are no UTF-8 as promised."""
    valid = texts(SEED)
    assert len(set(valid)) > 1950 and texts(SEED) == valid
    letters = set("".join(valid))
    for ranges in SCRIPTS.values():
        assert any(low <= ord(letter) <= high for letter in letters for low, high in ranges)
    broken = broken_texts(SEED)
    assert 800 < sum(replaced(data).encode() != data for data in broken) < 1100
    assert not any(b"\0" in data for data in broken)
