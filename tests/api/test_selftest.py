"""`stet selftest`: its outcomes, and that it can fail."""

import json
import os
import shutil


def test_details_of_one_model(stet, small_model):
    done = stet("selftest", small_model)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "llama-dense: attention" in done.stdout
    assert "1 passed, 0 failed (of 1)" in done.stdout


def test_table_of_a_directory(stet, small_model, tmp_path):
    os.symlink(small_model, tmp_path / "a.gguf")
    (tmp_path / "b.gguf").write_bytes(b"no model at all")
    (tmp_path / "notes.txt").write_text("not looked at")
    done = stet("selftest", "--models", tmp_path, "--json")
    assert done.returncode != 0
    answer = json.loads(done.stdout)
    assert (answer["passed"], answer["failed"]) == (1, 1)
    good, bad = answer["models"]
    outcomes = {name: cell["outcome"] for name, cell in good["columns"].items()}
    assert outcomes.pop("old") == "-"
    assert set(outcomes.values()) == {"PASS"}
    assert {cell["outcome"] for cell in bad["columns"].values()} == {"SKIP"}
    assert "b.gguf" in bad["failure"]


def test_damaged_old_state_fails(stet, small_model, tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    source = os.path.join(os.path.dirname(__file__), "../data/legacy/llama-dense.seq")
    shutil.copy(source, old)
    data = bytearray((old / "llama-dense.seq").read_bytes())
    data[-1000:] = b"\x7f" * 1000  # rows that no model computes
    (old / "llama-dense.seq").write_bytes(data)
    done = stet("selftest", small_model, "--old", old)
    assert done.returncode != 0
    assert "FAIL  old" in done.stdout
    assert "0 passed, 1 failed (of 1)" in done.stdout


def test_wants_a_model_or_a_directory(stet, tmp_path):
    for arguments in ([], ["--models", tmp_path], ["--models", tmp_path / "missing"]):
        done = stet("selftest", *arguments)
        assert done.returncode != 0
        assert done.stderr.count("\n") == 1
