"""`stet completion`: the scripts are run by the shells that they are for."""

import os
import shutil
import subprocess

import pytest

from conftest import STET

ASK = """
source /dev/stdin <<<"$SCRIPT"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_stet
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def complete(stet, environment, tmp_path):
    """What bash offers for the last of the words."""
    script = stet("completion", "bash").stdout
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "stet").symlink_to(STET.resolve())

    def ask(*words):
        result = subprocess.run(
            ["bash", "-c", ASK, "bash", "stet", *words], text=True, check=True,
            capture_output=True, cwd=tmp_path,
            env=dict(environment, SCRIPT=script, PATH=f"{programs}:{os.environ['PATH']}"))
        assert result.stderr == ""
        return set(result.stdout.split("\n")) - {""}

    return ask


def test_verbs(complete, stet):
    offered = complete("")
    assert {"run", "serve", "session", "tokenize", "doctor", "completion"} <= offered
    assert complete("sess") == {"session"}
    assert {"show", "fork", "rollback", "export"} <= complete("session", "")
    listed = [line.split()[0] for line in stet("--help").stdout.split("commands:")[-1].splitlines()
              if line.startswith("  ") and line.strip()[:1].isalpha()]
    assert set(listed) <= offered | {"stet"}


def test_flags_are_those_of_the_verb(complete):
    assert "--top-k" in complete("run", "--") and "--slot-save-path" not in complete("run", "--")
    assert complete("serve", "--slot-s") == {"--slot-save-path"}
    assert complete("serve", "m.gguf", "--durab") == {"--durability"}
    assert "--json" in complete("session", "show", "--")


def test_values(complete):
    assert complete("serve", "--durability", "") == {"turn", "idle", "none"}
    assert complete("completion", "") >= {"bash", "zsh", "fish"}


def test_models(complete, tmp_path):
    (tmp_path / "a model.gguf").touch()
    (tmp_path / "b.gguf").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "folder").mkdir()
    offered = complete("run", "")
    assert {"a model.gguf", "b.gguf"} <= offered and "notes.txt" not in offered
    assert complete("serve", "-m", "b.") == {"b.gguf"}
    assert "folder" in offered


def test_sessions(complete, stet, model):
    for name in ("alpha", "beta"):
        assert stet("run", model, "Hi", "-n", "1", "--session", name).returncode == 0
    assert complete("session", "show", "") == {"alpha", "beta"}
    assert complete("run", "m.gguf", "--session", "a") == {"alpha"}
    assert stet("completion", "sessions").stdout.split() == ["beta", "alpha"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_can_read_it(stet, shell, tmp_path):
    result = stet("completion", shell)
    assert result.returncode == 0 and "stet" in result.stdout
    path = tmp_path / shell
    path.write_text(result.stdout)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", path], check=True)


def test_other_shells_are_refused(stet):
    result = stet("completion", "tcsh")
    assert result.returncode == 2 and "bash" in result.stderr
