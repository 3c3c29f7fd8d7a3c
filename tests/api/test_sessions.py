"""Sessions: kept, resumed, forked, rolled back, and never harmed by what fails."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

from conftest import LIMIT_S, ROOT, STET

QUESTIONS = ["Name a colour.", "Name another one.", "Which of the two is darker?"]
NOT_FOUND, CONFLICT, INCOMPATIBLE, CANCELLED = 3, 5, 6, 130


def shown(stet, tmp_path, session):
    result = stet("session", "show", session, "--json", "--store", tmp_path / "store")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["turns"]


def test_resumed_is_as_unbroken(chat):
    unbroken = chat("unbroken", *QUESTIONS)
    assert [turn["turn"] for turn in unbroken] == [1, 2, 3]
    assert all(turn["durable"] for turn in unbroken)
    for number, question in enumerate(QUESTIONS):
        [turn] = chat("broken", question)
        assert turn["turn"] == number + 1
        assert turn["tokens"] == unbroken[number]["tokens"]
        assert turn["reused_tokens"] == unbroken[number]["reused_tokens"]
        assert turn["computed_tokens"] == unbroken[number]["computed_tokens"]
        assert turn["resume"]["restored_tokens"] == turn["resume"]["tokens"]
        assert (turn["resume"]["tokens"] > 0) == (number > 0)


def test_long_session_is_restored_whole(chat):
    """Longer than a page of state."""
    text = "Here is a list: " + ", ".join(f"item {number}" for number in range(100)) + "."
    [first] = chat("long", text)
    [second] = chat("long", "Thank you.")
    assert second["resume"]["restored_tokens"] == second["resume"]["tokens"]
    assert second["reused_tokens"] >= first["prompt_tokens"]
    assert second["computed_tokens"] < 40


def test_undo(chat, stet, tmp_path):
    first = chat("s", *QUESTIONS[:2])
    undone, again = chat("s", "/undo", QUESTIONS[1])
    assert undone == {"undone": True, "turn": 1}
    assert again["turn"] == 2
    assert again["tokens"] == first[1]["tokens"]
    assert again["reused_tokens"] == first[1]["reused_tokens"]
    assert len(shown(stet, tmp_path, "s")) == 2


def test_undo_of_nothing(stet, model, tmp_path):
    result = stet("run", model, "--chat", "--json", "--session", "s", "--store", tmp_path / "store",
                  stdin="/undo\n")
    assert result.returncode == 10
    assert json.loads(result.stdout)["error"]["code"] == "unavailable"


def test_fork_is_independent(chat, stet, tmp_path):
    first = chat("s", *QUESTIONS[:2])
    forked, switched, undone, other = chat("s", "/fork f", "/switch f", "/undo", "Name an animal.")
    assert (forked["forked"], switched["turn"], undone["turn"]) == ("f", 2, 1)
    assert other["turn"] == 2 and other["session"] == "f"
    assert other["reused_tokens"] >= first[0]["prompt_tokens"]
    assert [turn["messages"] for turn in shown(stet, tmp_path, "s")][0] == \
        [turn["messages"] for turn in shown(stet, tmp_path, "f")][0]
    [third] = chat("s", QUESTIONS[2])
    assert third["turn"] == 3
    assert third["resume"]["restored_tokens"] == third["resume"]["tokens"]


def test_session_verbs(chat, stet, tmp_path):
    store = ["--store", tmp_path / "store"]
    chat("s", *QUESTIONS)
    assert stet("session", "fork", "s", "early", "--turn", "1", *store).returncode == 0
    assert len(shown(stet, tmp_path, "early")) == 1
    assert stet("session", "rollback", "s", *store).returncode == 0
    assert len(shown(stet, tmp_path, "s")) == 2
    assert stet("session", "rename", "s", "t", *store).returncode == 0
    names = json.loads(stet("session", "ls", "--json", *store).stdout)["sessions"]
    assert sorted(session["name"] for session in names) == ["early", "t"]
    assert stet("session", "rm", "t", *store).returncode == 0
    assert stet("session", "show", "t", *store).returncode == NOT_FOUND
    [turn] = chat("early", QUESTIONS[1])
    assert turn["turn"] == 2


def test_another_model_is_refused(chat, stet, other_model, tmp_path):
    chat("s", QUESTIONS[0])
    result = stet("run", other_model, "--session", "s", "--store", tmp_path / "store", "Hi")
    assert result.returncode == INCOMPATIBLE
    assert len(result.stderr.splitlines()) == 1
    assert len(shown(stet, tmp_path, "s")) == 1


def test_a_store_has_one_owner(start, stet, model, tmp_path):
    arguments = ["run", model, "--chat", "--json", "--store", tmp_path / "store", "-n", "4"]
    owner = start(*arguments, "--session", "a")
    owner.stdin.write(b"Hi\n")
    owner.stdin.flush()
    assert json.loads(owner.stdout.readline())["durable"]
    result = stet(*arguments, "--session", "b", stdin="Hi\n")
    assert result.returncode == CONFLICT
    assert "--store" in result.stderr
    # Reading the catalogue is not owning it.
    listed = stet("session", "ls", "--json", "--store", tmp_path / "store")
    assert [session["name"] for session in json.loads(listed.stdout)["sessions"]] == ["a"]


def test_interrupt_keeps_what_there_is(start, stet, model, tmp_path):
    process = start("run", model, "Count to one hundred.", "--session", "s", "--store",
                    tmp_path / "store", "--temp", "0", "--ignore-eos", "-n", "2000")
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    text = first + process.stdout.read()
    assert process.wait(LIMIT_S) == CANCELLED
    [turn] = shown(stet, tmp_path, "s")
    assert turn["messages"][-1]["content"].strip() == text.decode().strip()


def test_damaged_state_is_not_used(chat, tmp_path):
    """One flipped byte in a segment: noticed, said, computed again, and the same answer."""
    text = "Here is a list: " + ", ".join(f"item {number}" for number in range(100)) + "."
    chat("s", text)
    chat("unharmed", text)
    [expected] = chat("unharmed", "Thank you.")
    segments = [path for path in (tmp_path / "store").rglob("*")
                if path.is_file() and path.stat().st_size > 500_000]
    assert segments
    for path in segments:
        data = bytearray(path.read_bytes())
        for at in range(100_000, len(data), 200_000):
            data[at] ^= 1
        path.write_bytes(data)
    [turn] = chat("s", "Thank you.")
    assert turn["resume"]["restored_tokens"] < turn["resume"]["tokens"]
    assert turn["resume"]["reason"]
    assert turn["tokens"] == expected["tokens"]


def test_chat_at_a_terminal(model, environment, tmp_path):
    """A person types; the session's name and the command that resumes it stand at the end."""
    person, terminal = pty.openpty()
    environment = dict(environment, TERM="xterm", NO_COLOR="1")
    process = subprocess.Popen([STET, "run", model, "--store", tmp_path / "store", "--temp", "0",
                                "-n", "12"],
                               stdin=terminal, stdout=terminal, stderr=terminal, env=environment,
                               start_new_session=True)
    os.close(terminal)
    screen = b""

    def wait_for(text):
        nonlocal screen
        deadline = time.monotonic() + LIMIT_S
        while text not in screen:
            ready, _, _ = select.select([person], [], [], max(0, deadline - time.monotonic()))
            assert ready, screen
            try:
                screen += os.read(person, 65536)
            except OSError:  # the other end is closed
                assert text in screen, screen
                return
        screen = screen[screen.index(text) + len(text):]

    try:
        wait_for(b"/help lists commands")
        os.write(person, b"Name a colour.\n")
        wait_for(b"colour is")
        wait_for(b"saved in")
        os.write(person, b"/sessions\n")
        wait_for(b"TURNS")
        os.write(person, b"\x04")
        wait_for(b"go on with")
        wait_for(b"--session ")
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(person)


def test_demo(model):
    """The demonstration checks its own promises."""
    result = subprocess.run([sys.executable, ROOT / "scripts" / "demo.py", "--stet", STET, "--model",
                             model], capture_output=True, text=True, timeout=2 * LIMIT_S, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
