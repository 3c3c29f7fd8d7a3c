"""What a person reads, and a script sees, when something cannot be: one line and an exit code."""

import json

import pytest

INVALID, NOT_FOUND, CORRUPTION, UNIMPLEMENTED = 2, 3, 8, 12


def assert_one_line(result, code, *words):
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("stet: ")
    for word in words:
        assert word in lines[0]


def patched(path, tmp_path, before, after):
    """A copy of a model with the first `before` replaced; both have the same length."""
    data = path.read_bytes()
    assert len(before) == len(after) and before in data
    copy = tmp_path / "patched.gguf"
    copy.write_bytes(data.replace(before, after, 1))
    return copy


def string(text):
    """A string as GGUF has it."""
    return len(text).to_bytes(8, "little") + text


def test_missing_file(stet, tmp_path):
    missing = tmp_path / "missing.gguf"
    assert_one_line(stet("run", missing, "Hi"), NOT_FOUND, str(missing))


def test_not_gguf(stet, tmp_path):
    path = tmp_path / "text.gguf"
    path.write_text("This is a letter, not a model.\n" * 100)
    assert_one_line(stet("run", path, "Hi"), CORRUPTION, str(path), "GGUF")


def test_empty_file(stet, tmp_path):
    path = tmp_path / "empty.gguf"
    path.write_bytes(b"")
    assert_one_line(stet("run", path, "Hi"), CORRUPTION, str(path))


def test_directory(stet, tmp_path):
    result = stet("run", tmp_path, "Hi")
    assert result.returncode > 0
    assert str(tmp_path) in result.stderr


@pytest.mark.parametrize("part", [0.01, 0.5, 0.999])
def test_truncated(stet, model, tmp_path, part):
    data = model.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(data[:int(len(data) * part)])
    assert_one_line(stet("run", path, "Hi"), CORRUPTION, str(path))


def test_unknown_architecture(stet, model, tmp_path):
    path = patched(model, tmp_path, string(b"general.architecture") + b"\x08\0\0\0" +
                   string(b"llama"), string(b"general.architecture") + b"\x08\0\0\0" +
                   string(b"lambs"))
    assert_one_line(stet("run", path, "Hi"), UNIMPLEMENTED, "lambs")


def test_unknown_tokenizer(stet, model, tmp_path):
    key = string(b"tokenizer.ggml.model") + b"\x08\0\0\0"
    path = patched(model, tmp_path, key + string(b"gpt2"), key + string(b"gpt9"))
    assert_one_line(stet("run", path, "Hi"), UNIMPLEMENTED, "gpt9")


@pytest.mark.parametrize("arguments", [
    [],
    ["run"],
    ["walk"],
    ["run", "model.gguf", "--no-such-flag"],
    ["run", "model.gguf", "Hi", "--temp", "hot"],
    ["run", "model.gguf", "Hi", "--temp", "-1"],
    ["run", "model.gguf", "Hi", "--ctx", "-5"],
    ["run", "model.gguf", "Hi", "--stop", ""],
    ["run", "model.gguf", "Hi", "--session", "../up"],
    ["run", "model.gguf", "Hi", "--session", "x", "--no-session"],
    ["run", "model.gguf", ""],
])
def test_usage(stet, arguments):
    assert_one_line(stet(*arguments), INVALID)


def test_failure_as_json(stet, tmp_path):
    result = stet("run", tmp_path / "missing.gguf", "Hi", "--json")
    assert result.returncode == NOT_FOUND
    assert json.loads(result.stdout)["error"]["code"] == "not_found"


def test_help_and_version(stet):
    assert "Usage" in stet("run", "--help").stdout
    result = stet("--version")
    assert result.returncode == 0 and result.stdout.startswith("stet ")
