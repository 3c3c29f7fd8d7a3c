"""`stet serve` is killed in the middle of answers: what was acknowledged is there, whole, once."""

import concurrent.futures
import http.client
import threading
import time

import pytest

from server_process import launch

CLIENTS = 6


class Talk:
    """A client that knows nothing of sessions: it sends its whole conversation each time."""

    def __init__(self, number):
        self.number = number
        self.messages = [{"role": "system", "content": f"You are helper number {number}. " * 6}]
        self.known_tokens = 0  # of what was acknowledged
        self.turns = 0

    def say(self, server):
        question = {"role": "user", "content": f"Tell me fact {self.turns} about {self.number}."}
        answer = server.post("/v1/chat/completions", {
            "messages": self.messages + [question], "max_tokens": 6, "temperature": 0})
        assert answer["stet"]["durable"] is True
        self.messages += [question, answer["choices"][0]["message"]]
        self.known_tokens = answer["usage"]["total_tokens"]
        self.turns += 1
        return answer


def talk_until_killed(server, talks, turns_before_kill):
    enough = threading.Event()
    lost = (ConnectionError, http.client.HTTPException, OSError)

    def run(talk):
        try:
            while talk.turns < 50:
                talk.say(server)
                if sum(other.turns for other in talks) >= turns_before_kill:
                    enough.set()
        except lost:
            return

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(run, talk) for talk in talks]
        assert enough.wait(timeout=120)
        server.kill()
        for future in running:
            future.result()


@pytest.mark.parametrize("kills", [3])
def test_no_conversation_is_lost(model, tmp_path, environment, kills):
    talks = [Talk(number) for number in range(CLIENTS)]
    for kill in range(kills):
        server = launch(model, tmp_path / "store", environment, "-np", CLIENTS)
        before = [(talk.turns, talk.known_tokens) for talk in talks]
        done = sum(talk.turns for talk in talks)
        talk_until_killed(server, talks, done + CLIENTS + 3 * kill + 1)
        assert all(talk.turns >= turns for talk, (turns, _) in zip(talks, before))
    server = launch(model, tmp_path / "store", environment, "-np", CLIENTS)
    sessions = server.get("/v1/sessions")[1]["data"]
    for session in sessions:
        assert server.post(f"/v1/sessions/{session['id']}/verify", "")["intact"] is True
    for talk in talks:
        turns, known = talk.turns, talk.known_tokens
        answer = talk.say(server)
        # The last token of an answer is not part of its state; where the template writes the turn's
        # end anew, one more is computed.
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= known - 2
        assert answer["stet"]["turn"] == turns + 1
        session = server.get(f"/v1/sessions/{answer['stet']['session']}")[1]
        said = [message for turn in session["history"] for message in turn["messages"]]
        assert said == [{key: message[key] for key in ("role", "content")}
                        for message in talk.messages]
    assert server.stop() == 0


def test_sigterm_finishes_and_commits(model, tmp_path, environment):
    server = launch(model, tmp_path / "store", environment)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.complete, "Count to one hundred: one, two,", 60,
                             ignore_eos=True)
        while not any(slot["is_processing"] for slot in server.get("/slots")[1]):
            time.sleep(0.005)
        assert server.stop() == 0
        assert answer.result()["stet"]["durable"] is True
    server = launch(model, tmp_path / "store", environment)
    [session] = server.get("/v1/sessions")[1]["data"]
    assert session["turns"] == 1
    assert server.stop() == 0
