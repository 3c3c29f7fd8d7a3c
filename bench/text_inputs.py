"""Texts and models for text_bench.py, made once in the cache's folder bench.

The models have no weights to speak of: a vocabulary of the test data in a file that both programs
load.
"""

import pydoc_data.topics
import random
import string
import sys
import zipfile

import fetch_models
import fetch_test_data
import gguf
import numpy as np
import pypi

FOLDER = pypi.CACHE / "bench"
BABEL = ("babel", "2.19.0", "6d49734aed1d595b2c065d012174df8c83964692f26fc461702281634dd7555b")
LANGUAGES = ("ar bn el fa he hi hy ja ka ko ru ta th ur zh zh_Hant am my km lo gu te ml kn pa si mr ne"
             " uk bg sr vi tr pl cs hu fi de fr es it sv").split()
CODE_BYTES = 1_000_000
LENGTHS = [10 ** exponent for exponent in range(4, 8)]

# Per model: its title, the vocabulary's file or None, and what replaces its kind.
MODELS = {
    "smollm2": ("SmolLM2 (bpe)", None, None),
    "llama-bpe": ("Llama 3 (bpe)", "llama-bpe", None),
    "deepseek-llm": ("DeepSeek LLM (bpe, six stages)", "deepseek-llm", None),
    "gemma-4": ("Gemma 4 (bpe without words)", "gemma-4", None),
    "llama-spm": ("Llama 2 (spm)", "llama-spm", None),
    "bert-bge": ("BERT (wpm)", "bert-bge", None),
    "nomic": ("XLM-R, nomic (unigram)", "nomic-bert-moe", None),
    "rwkv": ("Llama 2's tokens (rwkv)", "llama-spm", "rwkv"),
    "plamo2": ("Llama 2's tokens (plamo2)", "llama-spm", "plamo2"),
}


def write_once(name, make):
    path = FOLDER / name
    if not path.is_file():
        FOLDER.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_bytes(make())
        part.rename(path)
    return path


def english():
    """The help texts of Python: prose about a language, 0.5 MB."""
    return "".join(pydoc_data.topics.topics.values()).encode()


def code():
    """The beginning of this program's own source."""
    paths = sorted((pypi.ROOT / "src").rglob("*.cpp"))
    return b"".join(path.read_bytes() for path in paths)[:CODE_BYTES]


def many_scripts():
    """Names of languages, countries and currencies in 42 languages and 20 scripts, 1.1 MB."""
    with pypi.scratch_folder() as scratch:
        with zipfile.ZipFile(pypi.download(*BABEL, scratch)) as wheel:
            wheel.extractall(scratch)
        sys.path.insert(0, scratch)
        import babel  # only here, from the wheel
        lines = []
        for language in LANGUAGES:
            names = babel.Locale.parse(language)
            lines.append(", ".join([*names.languages.values(), *names.territories.values(),
                                    *names.currencies.values()]))
        sys.path.remove(scratch)
    return "\n".join(lines).encode()


def ordinary():
    return {"English": write_once("english-1.txt", english), "C++": write_once("code-1.txt", code),
            "42 languages": write_once("scripts-1.txt", many_scripts)}


LONG = {
    "English": lambda size: (english() * (size // len(english()) + 1))[:size],
    "random letters": lambda size: "".join(
        random.Random(1).choices(string.ascii_lowercase, k=size)).encode(),
    "one letter": lambda size: b"a" * size,
}


def long_text(kind):
    """The longest text of a kind: prose, or one word."""
    return write_once(f"{kind.replace(' ', '-')}-long-1.txt", lambda: LONG[kind](LENGTHS[-1]))


def rwkv_writing(token, kind):
    """A token as RWKV's vocabularies write it: with escapes."""
    if kind == gguf.TokenType.BYTE:
        return f"\\x{int(token[3:5], 16):02x}"
    text = token.replace("\u2581", " ").encode()
    return "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in text)


def unlike(tokens):
    """The same list with other texts, that nobody writes, for those that came before."""
    seen = set()
    return [f"\\xff\\xfe{number}" if token in seen or seen.add(token) else token
            for number, token in enumerate(tokens)]


def copied_keys(writer, vocabulary, kind):
    fields = gguf.GGUFReader(vocabulary).fields
    types = fields["tokenizer.ggml.token_type"].contents()
    for name, field in fields.items():
        if not name.startswith("tokenizer.") or name == "tokenizer.chat_template":
            continue
        value = field.contents()
        if kind and name == "tokenizer.ggml.model":
            value = kind
        if kind == "plamo2" and name == "tokenizer.ggml.tokens":
            value = [token.replace("\u2581", " ") for token in value]
        if kind == "rwkv" and name == "tokenizer.ggml.tokens":
            value = unlike([rwkv_writing(token, of) for token, of in zip(value, types)])
        of = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, field.types[0], of)
    return len(types)


def model(name):
    _, vocabulary, kind = MODELS[name]
    if vocabulary is None:
        return fetch_models.fetch(fetch_models.MODELS[name])
    path = FOLDER / f"vocabulary-{name}-1.gguf"
    if path.is_file():
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "llama")
    fetch_test_data.fetch_sdist()
    source = fetch_test_data.TEST_CACHE / "vocab" / f"ggml-vocab-{vocabulary}.gguf"
    size = copied_keys(writer, source, kind)
    width = 32
    for key, value in (("block_count", 1), ("context_length", 64), ("embedding_length", width),
                       ("feed_forward_length", width), ("attention.head_count", 1),
                       ("attention.head_count_kv", 1)):
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_tensor("token_embd.weight", np.zeros((size, width), np.float16))
    for tensor in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{tensor}.weight", np.ones(width, np.float32))
    for tensor in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{tensor}.weight", np.zeros((width, width), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(path)
    return path
