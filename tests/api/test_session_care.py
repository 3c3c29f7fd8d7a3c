"""The verbs of `stet session` that keep a store in order, files that hold a session, and
`stet inspect` of files with state."""

import json
import os

import pytest

from conftest import ROOT

QUESTIONS = ["Name a colour.", "Name another one."]
INVALID, ALREADY_EXISTS, INCOMPATIBLE, CORRUPTION = 2, 4, 6, 8


@pytest.fixture
def verb(stet, tmp_path):
    """Runs `stet session VERB ... --json` on the test's store; its objects, one a line."""

    def run(*arguments, code=0):
        result = stet("session", *arguments, "--json", "--store", tmp_path / "store")
        assert result.returncode == code, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run


def test_export_and_import(chat, verb, stet, model, tmp_path):
    chat("s", *QUESTIONS)
    [whole] = chat("s", "/fork twin", "And a third?")[1:]
    for option in ([], ["--zstd"]):
        path = tmp_path / f"s{len(option)}.stet"
        [exported] = verb("export", "twin", path, *option)
        assert exported["turns"] == 2 and exported["bytes"] == path.stat().st_size
        assert exported["compressed"] == bool(option)
        assert path.stat().st_mode & 0o777 == 0o600
        [imported] = verb("import", path, "--name", f"copy{len(option)}", "-m", model)
        assert imported["turns"] == 2
        # It goes on as the original did.
        [turn] = chat(imported["imported"], "And a third?")
        assert turn["tokens"] == whole["tokens"]
        assert turn["resume"]["restored_tokens"] == turn["resume"]["tokens"]
    result = stet("inspect", path, "--json")
    seen = json.loads(result.stdout)
    assert seen["format"] == "stet session" and seen["intact"] and len(seen["turns"]) == 2
    assert len(seen["sequences"][0]["tokens"]) == seen["turns"][-1]["token_end"]
    shown = stet("inspect", path).stdout
    assert "turn 2" in shown and "attention" in shown


def test_export_replaces_nothing_unasked(chat, verb, tmp_path):
    chat("s", QUESTIONS[0])
    path = tmp_path / "x.stet"
    path.write_text("mine")
    [refused] = verb("export", "s", path, code=ALREADY_EXISTS)
    assert refused["error"]["code"] == "already_exists"
    assert path.read_text() == "mine"
    verb("export", "s", path, "--force")
    assert path.read_bytes().startswith(b"stet.ses")


def test_import_refuses_what_it_should(chat, verb, tmp_path, other_model):
    chat("s", QUESTIONS[0])
    path = tmp_path / "s.stet"
    verb("export", "s", path)
    [taken] = verb("import", path, code=ALREADY_EXISTS)
    assert taken["error"]["code"] == "already_exists"
    [other] = verb("import", path, "--name", "t", "-m", other_model, code=INCOMPATIBLE)
    assert "fingerprint" in other["error"]["message"]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    [damaged] = verb("import", path, "--name", "t", code=CORRUPTION)
    assert str(path) in damaged["error"]["message"]
    [sessions] = verb("ls")
    assert [one["name"] for one in sessions["sessions"]] == ["s"]


def test_sizes_and_pins(chat, verb):
    chat("s", *QUESTIONS)
    verb("fork", "s", "t")
    chat("t", "And a third?")
    [listed] = verb("ls")
    by_name = {one["name"]: one for one in listed["sessions"]}
    assert by_name["s"]["own_bytes"] == 0
    assert by_name["t"]["own_bytes"] > 0
    assert by_name["t"]["shared_bytes"] == by_name["s"]["shared_bytes"] > 0
    [shown] = verb("show", "t")
    assert [turn["shared"] for turn in shown["turns"]] == [True, True, False]
    assert shown["session"]["can_be_cut_anywhere"]
    [pinned] = verb("pin", "t")
    assert pinned == {"session": "t", "pinned": True}
    [listed] = verb("ls")
    assert [one["pinned"] for one in listed["sessions"] if one["name"] == "t"] == [True]
    [pinned] = verb("pin", "t", "--off")
    assert not pinned["pinned"]


def test_du_gc_and_verify(chat, verb):
    chat("gone", "List: " + ", ".join(map(str, range(200))) + ".", *QUESTIONS)
    chat("kept", QUESTIONS[0])
    [before] = verb("du")
    assert before["sessions"] == 2 and before["garbage_bytes"] < before["live_bytes"]
    [dry] = verb("rm", "gone", "--dry-run")
    assert dry == {"removed": "gone", "dry_run": True}
    assert len(verb("ls")[0]["sessions"]) == 2
    verb("rm", "gone")
    [dry] = verb("gc", "--dry-run")
    assert dry["garbage_bytes"] > 0
    assert verb("du")[0]["total_bytes"] >= before["total_bytes"]
    [collected] = verb("gc")
    assert collected["records"] > 0 and collected["bytes"] > 0
    [after] = verb("du")
    assert after["garbage_bytes"] < dry["garbage_bytes"]
    [verified] = verb("verify")
    assert verified["records"] == after["records"]
    [turn] = chat("kept", QUESTIONS[1])
    assert turn["resume"]["restored_tokens"] == turn["resume"]["tokens"]


def test_expiry(chat, verb):
    chat("s", QUESTIONS[0])
    [dry] = verb("gc", "--dry-run", "--ttl", "30d")
    assert dry["expired"] == []
    [refused] = verb("gc", "--ttl", "soon", code=INVALID)
    assert "30d" in refused["error"]["message"]


def test_verify_names_what_is_damaged(chat, verb, tmp_path):
    chat("s", *QUESTIONS)
    [segment] = (tmp_path / "store" / "segments").iterdir()
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    answer = verb("verify", code=CORRUPTION)
    assert any("s" in str(one) for one in answer)
    # The conversation goes on from its tokens.
    [turn] = chat("s", "And a third?")
    assert turn["turn"] == 3
    verb("verify")


@pytest.mark.parametrize("kind", ["seq", "session"])
def test_inspect_of_foreign_state(stet, kind):
    path = ROOT / "tests" / "data" / "legacy" / f"llama-dense.{kind}"
    seen = json.loads(stet("inspect", path, "--json").stdout)
    assert seen["format"].startswith("llama.cpp")
    assert seen["tokens"] and seen["memory_bytes"] > 0
    assert (seen["architecture"] == "llama") == (kind == "session")


def test_inspect_refuses_what_is_nothing(stet, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(os.urandom(100))
    result = stet("inspect", path)
    assert result.returncode != 0 and len(result.stderr.splitlines()) == 1
