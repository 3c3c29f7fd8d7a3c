"""What a model thinks before it answers: `stet run` shows it apart, as `stet serve` does.

The template begins the answer inside of reasoning. The model, which never learnt to think, ends its
reasoning only where `--raw` or the template makes it.
"""

import json
import os
import pty
import subprocess

import pytest
from conftest import LIMIT_S, STET
from small_models import with_template

TURNS = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>assistant\n")
THINKING = TURNS + "<think>\n{% endif %}"
# The prompt has thought already; the answer begins behind it.
DONE = TURNS + "<think>\n</think>\n{% endif %}"


@pytest.fixture(scope="module")
def thinking(model, tmp_path_factory):
    return with_template(model, tmp_path_factory.mktemp("models") / "thinking.gguf", THINKING)


def answer(stet, model, *arguments):
    done = stet("run", model, "Name a colour.", "-n", "12", "--temp", "0", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def on_terminal(model, environment, *arguments):
    """Standard output as a terminal gets it."""
    main, side = pty.openpty()
    process = subprocess.Popen([STET, "run", model, "Name a colour.", "-n", "12", "--temp", "0", *arguments],
                               stdin=subprocess.DEVNULL, stdout=side, stderr=subprocess.PIPE,
                               env=environment)
    os.close(side)
    data = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        data += part
    os.close(main)
    process.stderr.close()
    assert process.wait(LIMIT_S) == 0
    return data.decode().replace("\r\n", "\n")


def test_json_has_it_apart(stet, thinking):
    found = json.loads(answer(stet, thinking, "--json"))
    assert found["text"] == "" and found["reasoning_content"].strip()
    assert len(found["tokens"]) == 12


def test_a_script_gets_the_answer_alone(stet, thinking):
    assert answer(stet, thinking).strip() == ""


def test_a_terminal_shows_it_dim_or_labelled(stet, thinking, environment):
    thought = json.loads(answer(stet, thinking, "--json"))["reasoning_content"]
    colored = dict(environment, TERM="xterm")
    colored.pop("NO_COLOR", None)
    dim = on_terminal(thinking, colored)
    assert dim.startswith("\x1b[2m") and "[thinking]" not in dim
    assert dim.replace("\x1b[2m", "").replace("\x1b[0m", "").strip() == thought.strip()
    plain = on_terminal(thinking, dict(colored, NO_COLOR="1"))
    assert plain.startswith("[thinking]\n" + thought.strip()[:8]) and "\x1b" not in plain
    assert on_terminal(thinking, colored, "--quiet").strip() == ""


def test_without_reasoning_nothing_changes(stet, model, tmp_path):
    done = with_template(model, tmp_path / "done.gguf", DONE)
    found = json.loads(answer(stet, done, "--json"))
    assert found["text"].strip() and "reasoning_content" not in found
    assert "reasoning_content" not in json.loads(answer(stet, model, "--json"))


def test_raw_is_not_taken_apart(stet, thinking):
    found = json.loads(answer(stet, thinking, "--raw", "--json"))
    assert found["text"] and "reasoning_content" not in found


def test_the_next_turn_goes_on(stet, thinking, tmp_path):
    """What was thought stays in the state, and the next turn's tokens follow it."""
    lines = [json.loads(line) for line in stet(
        "run", thinking, "--chat", "--json", "-n", "8", "--temp", "0", "--session", "s",
        "--store", tmp_path / "store", stdin="Name a colour.\nAnd another.\n").stdout.splitlines()]
    assert [line["turn"] for line in lines] == [1, 2]
    assert lines[1]["reused_tokens"] == lines[0]["prompt_tokens"] + 8
