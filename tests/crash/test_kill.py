"""SIGKILL at random moments of a chat: no acknowledged turn is lost, and what follows is what a run
that was never killed would have said.

STET_KILL_ROUNDS (default 50) kills; STET_KILL_SEED replays a run. By hand: 200 rounds and more.
"""
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STET = pathlib.Path(os.environ.get("STET", ROOT / "build" / "stet"))
CACHE = pathlib.Path(os.environ.get("STET_TEST_CACHE", pathlib.Path.home() / ".cache/stet/test"))
MODEL = CACHE / "models" / "smollm2-135m-instruct-q4_1.gguf"
ROUNDS = int(os.environ.get("STET_KILL_ROUNDS", "50"))
SEED = int(os.environ.get("STET_KILL_SEED", "0")) or random.randrange(1, 1 << 32)

MESSAGES = [
    "Hello! Who are you?",
    "Name a colour.",
    "Name another one.",
    "Which of the two is darker?",
    "Say it in one word.",
    "Thank you.",
]
ANSWER_TOKENS = 10


def chat(store, session):
    return subprocess.Popen(
        [STET, "run", MODEL, "--chat", "--json", "--session", session, "--store", store,
         "--temp", "0", "-n", str(ANSWER_TOKENS), "--ctx", "2048", "--threads", "2"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ask(process, message):
    """Sends one message; answers its acknowledged turn, or None when the process died first."""
    try:
        process.stdin.write(message + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return None
    line = process.stdout.readline()
    if not line.endswith("\n"):
        return None
    answer = json.loads(line)
    assert "error" not in answer, answer
    return answer


def turns_of(store, session):
    """Committed turns of the session; 0 when it does not exist yet."""
    shown = subprocess.run([STET, "session", "show", session, "--json", "--store", store],
                           capture_output=True, text=True, check=False)
    if shown.returncode == 3:  # not_found
        return 0
    assert shown.returncode == 0, shown.stderr
    return len(json.loads(shown.stdout)["turns"])


@pytest.fixture(scope="module")
def control(tmp_path_factory):
    """The turns of a conversation that nobody kills, and how long one takes."""
    if not MODEL.exists():
        assert not os.environ.get("CI"), f"{MODEL} is missing"
        pytest.skip(f"{MODEL} is missing; run scripts/fetch_test_data.py")
    store = tmp_path_factory.mktemp("control")
    process = chat(store, "control")
    answers = []
    begin = time.monotonic()
    for message in MESSAGES:
        answers.append(ask(process, message))
        assert answers[-1] is not None, process.stderr.read()
        assert answers[-1]["durable"]
    process.stdin.close()
    assert process.wait(30) == 0
    return answers, (time.monotonic() - begin) / len(MESSAGES)


def test_no_acknowledged_turn_is_lost(control, tmp_path):
    answers, turn_s = control
    dice = random.Random(SEED)
    print(f"seed {SEED}, {ROUNDS} kills")
    session, acknowledged, sessions = "k0", 0, 1
    for round_number in range(ROUNDS):
        where = f"seed {SEED}, round {round_number}"
        process = chat(tmp_path, session)
        timer_s = dice.uniform(0, 3 * turn_s)
        deadline = time.monotonic() + timer_s
        killer = subprocess.Popen(["sh", "-c", f"sleep {timer_s:.4f}; kill -9 {process.pid}"],
                                  stderr=subprocess.DEVNULL)
        while time.monotonic() < deadline and acknowledged < len(MESSAGES):
            answer = ask(process, MESSAGES[acknowledged])
            if answer is None:
                break
            assert answer["turn"] == acknowledged + 1, where
            # What a resumed conversation says is what the unbroken one said, computing no prompt
            # but the new message.
            expected = answers[acknowledged]
            assert answer["tokens"] == expected["tokens"], where
            assert answer["reused_tokens"] == expected["reused_tokens"], where
            assert answer["computed_tokens"] == expected["computed_tokens"], where
            acknowledged += 1
        killer.wait()
        process.send_signal(signal.SIGKILL)
        process.wait()
        committed = turns_of(tmp_path, session)
        # The turn in flight is there whole, or not at all.
        assert committed in (acknowledged, acknowledged + 1), where
        acknowledged = committed
        if acknowledged >= len(MESSAGES):
            session, acknowledged, sessions = f"k{sessions}", 0, sessions + 1
    # After the last kill the conversation still goes on as if nothing had happened.
    if acknowledged < len(MESSAGES):
        process = chat(tmp_path, session)
        answer = ask(process, MESSAGES[acknowledged])
        assert answer["tokens"] == answers[acknowledged]["tokens"]
        process.stdin.close()
        assert process.wait(30) == 0
