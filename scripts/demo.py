#!/usr/bin/env python3
"""The demonstration of `make demo`: a chat that survives kill -9.

usage: demo.py [--model FILE] [--stet FILE] [--store DIR | --keep]

  1. two turns of chat in a fresh session, and a third that SIGKILL cuts off in the middle
  2. a new process resumes the session; its prompt is not computed again; the third turn again
  3. the session is forked, the fork rolled back one turn, and goes on another way

Ends with exit status 1 if anything that was promised did not happen.
"""

import argparse
import codecs
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("STET_CACHE") or pathlib.Path.home() / ".cache" / "stet")
MODEL = CACHE / "models" / "smollm2-135m-instruct-q4_1.gguf"

QUESTIONS = ["What is a proofreader? Answer in one sentence.",
             "And what does such a person write at the margin?",
             "Tell me a long story about a proofreader who lost a page."]
OTHER_QUESTION = "Give me three short tips for proofreading."
ANSWER_TOKENS = 96
KILL_AFTER_CHARACTERS = 160
STEP_LIMIT_S = 300

IS_TERMINAL = sys.stdout.isatty() and not os.environ.get("NO_COLOR")


class DemoError(Exception):
    """What went wrong, in one line."""


def styled(text, code):
    return f"\x1b[{code}m{text}\x1b[0m" if IS_TERMINAL else text


def say(text=""):
    print(text, flush=True)


def title(text):
    say("\n" + styled(f"== {text}", "1"))


def fact(text):
    say(styled(f"   [{text}]", "2"))


def question(text):
    say(styled(f"> {text}", "32"))


def check(is_true, promise):
    if not is_true:
        raise DemoError(f"this should hold, and does not: {promise}")


class Chat:
    """A running `stet run --chat` whose standard input is a pipe."""

    def __init__(self, options, session, is_json):
        self.started = time.monotonic()
        command = [options.stet, "run", options.model, "--chat", "--session", session,
                   "--store", options.store, "--temp", "0", "-n", str(ANSWER_TOKENS)]
        if is_json:
            command.append("--json")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE)
        self._output = queue.SimpleQueue()  # pieces of bytes as they come, then None
        self._errors = []
        self._readers = [threading.Thread(target=self._read_output, daemon=True),
                         threading.Thread(target=self._read_errors, daemon=True)]
        for reader in self._readers:
            reader.start()

    def _read_output(self):
        while piece := os.read(self._process.stdout.fileno(), 65536):
            self._output.put(piece)
        self._output.put(None)

    def _read_errors(self):
        for line in self._process.stderr:
            self._errors.append(line.decode(errors="replace").rstrip())

    def send(self, line):
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()

    def pieces(self):
        """Output as it comes; the caller stops asking when it has what it wants."""
        deadline = time.monotonic() + STEP_LIMIT_S
        while True:
            try:
                piece = self._output.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise DemoError(f"no answer within {STEP_LIMIT_S} s") from None
            if piece is None:
                self._fail()
            yield piece

    def _fail(self):
        self._process.wait()
        self._readers[1].join(5)
        reason = self._errors[-1] if self._errors else "it said nothing"
        raise DemoError(f"stet ended with status {self._process.returncode}: {reason}")

    def ask_json(self, line):
        """Sends a line and returns the JSON object that answers it, and the seconds it took."""
        start = time.monotonic()
        self.send(line)
        data = b""
        for piece in self.pieces():
            data += piece
            if data.endswith(b"\n"):
                break
        answer = json.loads(data)
        if "error" in answer:
            raise DemoError(answer["error"]["message"])
        return answer, time.monotonic() - start

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        return self._process.returncode

    def leave(self):
        self._process.stdin.close()
        check(self._process.wait(30) == 0, "stet leaves with exit status 0")


def stream_answer(chat, text, session):
    """Asks and shows the answer as it comes. Returns (seconds to the first text, seconds in all).

    The line that /save answers with, after the turn, marks the answer's end."""
    question(text)
    start = time.monotonic()
    chat.send(text)
    chat.send("/save")
    first_s, decoder = None, codecs.getincrementaldecoder("utf-8")("replace")
    marker = re.compile(rf"[^\n]*\b{re.escape(session)} has \d+ in [^\n]*\n$")
    for piece in chat.pieces():
        if first_s is None:
            first_s = time.monotonic() - start
        # stet writes the marker at once, so it never comes in two pieces.
        text = decoder.decode(piece)
        found = marker.search(text)
        sys.stdout.write(text[:found.start()] if found else text)
        sys.stdout.flush()
        if found:
            return first_s, time.monotonic() - start
    raise AssertionError("unreachable")


def stream_and_kill(chat, text):
    """Asks, shows the answer as it comes, and kills the process in the middle of it."""
    question(text)
    chat.send(text)
    count = 0
    for piece in chat.pieces():
        piece = piece.decode(errors="replace")
        sys.stdout.write(piece)
        sys.stdout.flush()
        count += len(piece)
        if count >= KILL_AFTER_CHARACTERS:
            break
    status = chat.kill()
    say(" " + styled("-- SIGKILL --", "31"))
    check(status == -signal.SIGKILL, "the process died of SIGKILL in the middle of the answer")


def show_turn(answer, seconds):
    say(answer["text"])
    timings = answer["timings"]
    fact(f"turn {answer['turn']}: {answer['reused_tokens']} of {answer['prompt_tokens']} prompt tokens"
         f" reused, {answer['computed_tokens']} computed in {timings['prompt_ms']:.0f} ms;"
         f" {len(answer['tokens'])} tokens at {timings['decode_per_second']:.0f}/s;"
         f" durable in {timings['commit_ms']:.1f} ms; {seconds:.2f} s in all")


def first_process(options, session):
    title(f"1. A new session, {session}: two turns, and a third that SIGKILL cuts off")
    chat = Chat(options, session, is_json=False)
    for number, text in enumerate(QUESTIONS[:2], 1):
        first_s, all_s = stream_answer(chat, text, session)
        since = f", {time.monotonic() - chat.started - all_s + first_s:.2f} s after the start"
        fact(f"turn {number}: first text after {first_s:.2f} s{since if number == 1 else ''};"
             f" {all_s:.2f} s in all, and durable")
    stream_and_kill(chat, QUESTIONS[2])


def second_process(options, session):
    """Returns the chat, and the answer to its first question."""
    title("2. A new process resumes it, and gets the third question again")
    chat = Chat(options, session, is_json=True)
    question(QUESTIONS[2])
    answer, seconds = chat.ask_json(QUESTIONS[2])
    show_turn(answer, seconds)
    resume = answer["resume"]
    check(answer["turn"] == 3, "the session has the two turns that were acknowledged, no more")
    check(resume["restored_tokens"] == resume["tokens"] > 0, "all of the session's state is restored")
    check(answer["reused_tokens"] >= resume["restored_tokens"], "what was restored is reused")
    fact(f"restored {resume['restored_tokens']} of {resume['tokens']} tokens in"
         f" {answer['timings']['restore_ms']:.1f} ms; no prompt was computed again")
    return chat, answer


def fork_and_roll_back(chat, session, third):
    title("3. A fork, rolled back one turn, goes another way")
    fork = f"{session}-fork"
    question(f"/fork {fork}")
    _, seconds = chat.ask_json(f"/fork {fork}")
    fact(f"forked in {seconds * 1000:.1f} ms: no state was copied")
    question(f"/switch {fork}")
    answer, seconds = chat.ask_json(f"/switch {fork}")
    check(answer["turn"] == 3, "the fork has three turns")
    fact(f"opened after turn {answer['turn']} in {seconds * 1000:.1f} ms")
    question("/undo")
    answer, seconds = chat.ask_json("/undo")
    check(answer["turn"] == 2, "the fork has two turns after /undo")
    fact(f"rolled back to turn {answer['turn']} in {seconds * 1000:.1f} ms")
    question(OTHER_QUESTION)
    answer, seconds = chat.ask_json(OTHER_QUESTION)
    show_turn(answer, seconds)
    check(answer["turn"] == 3, "the fork goes on with a third turn of its own")
    check(answer["reused_tokens"] >= third["reused_tokens"], "the fork reuses the first two turns")
    chat.leave()


def list_sessions(options):
    title("What is kept")
    sys.stdout.flush()
    subprocess.run([options.stet, "session", "ls", "--store", options.store], check=True)
    size = sum(path.stat().st_size for path in pathlib.Path(options.store).rglob("*")
               if path.is_file())
    fact(f"{size / 1e6:.1f} MB in {options.store}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=pathlib.Path, default=MODEL)
    parser.add_argument("--stet", type=pathlib.Path, default=ROOT / "build" / "stet")
    parser.add_argument("--store", help="keep the sessions in this directory")
    parser.add_argument("--keep", action="store_true",
                        help="keep the sessions in the default store, to chat on with them")
    options = parser.parse_args()
    options.stet = options.stet.resolve()
    if options.keep and options.store:
        parser.error("--keep and --store exclude each other")
    if options.keep:
        data = os.environ.get("XDG_DATA_HOME") or pathlib.Path.home() / ".local" / "share"
        options.store = str(pathlib.Path(data) / "stet")
    for path, maker in ((options.stet, "make build"),
                        (options.model, "scripts/fetch_models.py smollm2")):
        if not path.is_file():
            sys.exit(f"demo: {path} is not there; `{maker}` makes it")
    return options


def main():
    options = parse_arguments()
    temporary = None
    if not options.store:
        options.store = temporary = tempfile.mkdtemp(prefix="stet-demo-")
    session = f"demo-{os.getpid()}"
    try:
        first_process(options, session)
        chat, third = second_process(options, session)
        fork_and_roll_back(chat, session, third)
        list_sessions(options)
        if not temporary:
            say(f"\nchat on with: {options.stet} run {options.model} --session {session}"
                f" --store {options.store}")
    except (DemoError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        sys.exit(f"demo: {error}")
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    main()
