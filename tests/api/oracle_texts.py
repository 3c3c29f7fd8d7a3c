"""Random texts for comparisons with other tokenizers: the same for the same seed."""

import random

# Assigned since Unicode 13 or longer: libraries with newer tables agree on them.
SCRIPTS = {
    "ascii": [(0x20, 0x7E)],
    "latin": [(0xA0, 0x17F), (0x1E00, 0x1EFF)],
    "greek": [(0x391, 0x3A1), (0x3A3, 0x3FF)],
    "cyrillic": [(0x400, 0x4FF)],
    "armenian": [(0x531, 0x556), (0x561, 0x587)],
    "hebrew": [(0x5D0, 0x5EA)],
    "arabic": [(0x620, 0x64A), (0x660, 0x669), (0x6D4, 0x6D4)],
    "devanagari": [(0x905, 0x939), (0x93E, 0x94C), (0x964, 0x96F)],
    "thai": [(0xE01, 0xE3A), (0xE40, 0xE5B)],
    "georgian": [(0x10D0, 0x10FA)],
    "hangul": [(0xAC00, 0xD7A3)],
    "kana": [(0x3041, 0x3096), (0x30A1, 0x30FA), (0x3001, 0x3011)],
    "han": [(0x4E00, 0x9FA5), (0x20000, 0x200FF)],
    "symbols": [(0x2010, 0x2027), (0x2030, 0x205E), (0x20A0, 0x20BF), (0x2190, 0x21FF), (0x2200, 0x22FF)],
    "numbers": [(0xB2, 0xB3), (0xBC, 0xBE), (0x2150, 0x2182), (0x2460, 0x249B), (0xFF10, 0xFF19)],
    "emoji": [(0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x1F680, 0x1F6C5)],
    "wide": [(0xFF01, 0xFF5E)],
    "astral": [(0x10400, 0x1044F), (0x1D400, 0x1D454)],
}
MARKS = "\u0300\u0301\u0308\u0323\u0327\u0331\u05b0\u064b\u093c\u20dd\ufe0f\u200d\U0001f3fd"
SPACES = [" "] * 8 + ["  ", "   ", "\n", "\n\n", "\t", "\r\n", "\r", "\u00a0", "\u3000", "\u2003",
                      "\u2028", " " * 17, "\n \n", "\x0b", "\u200b"]
WORDS = ("the of and to in is that it was for you're I'LL don't We'VE it's 'S 1,234.56 3rd 2024-12-31 "
         "http://example.com/a?b=c#d e-mail@x.org naïve Straße İstanbul ΣΊΣΥΦΟΣ café cafe\u0301 ½ ﬁne "
         "日本語 한국어 ภาษาไทย हिन्दी العربية עברית Ελληνικά русский C++ foo_bar camelCaseWord "
         "HTTPServer2 x86_64 ____ ---- ==== !!!! ...").split()
CODE = ["def f(x):\n    return x + 1\n", "for (int i = 0; i < n; ++i) {\n\ta[i] *= 2;\n}\n",
        "<div class=\"a b\">text</div>", "SELECT * FROM t WHERE a != 'b';", "{\"k\": [1, 2.5e-3, null]}",
        "if __name__ == \"__main__\":\r\n", "\\frac{a}{b} $x^2$", "#!/bin/sh\necho \"$1\" | sed 's/a/b/g'\n",
        "0x1F + 0b101 // comment", "a->b::c<T&&>();"]
BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\x80\x80",
          b"\xf4\x90\x80\x80"]


def characters(rng, script, count):
    ranges = SCRIPTS[script]
    return "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(count))


def part(rng):
    kind = rng.randrange(10)
    if kind < 3:
        return rng.choice(WORDS)
    if kind == 3:
        return rng.choice(CODE)
    if kind == 4:
        return characters(rng, "ascii", rng.randrange(1, 6)) + rng.choice(MARKS) * rng.randrange(1, 4)
    if kind == 5:
        return str(rng.randrange(10 ** rng.randrange(1, 12)))
    if kind == 6:
        return rng.choice("a=-*#.!?'\"") * rng.randrange(1, 40)
    script = rng.choice(list(SCRIPTS))
    return characters(rng, script, rng.randrange(1, 9))


def texts(seed, count=2000):
    """Valid texts without the zero byte, which separates them."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        parts = []
        for _ in range(rng.randrange(1, 9)):
            parts += [part(rng), rng.choice(SPACES) if rng.random() < 0.7 else ""]
        if rng.random() < 0.2:
            parts.insert(0, rng.choice(SPACES))
        made.append("".join(parts).replace("\0", ""))
    return made


def broken_texts(seed, count=2000):
    """Bytes, half of them with parts that are no UTF-8."""
    rng = random.Random(seed + 1)
    made = []
    for text in texts(seed, count):
        data = text.encode()
        if rng.random() < 0.5:
            for _ in range(rng.randrange(1, 4)):
                at = rng.randrange(len(data) + 1)
                data = data[:at] + rng.choice(BROKEN) + data[at:]
        made.append(data)
    return made
