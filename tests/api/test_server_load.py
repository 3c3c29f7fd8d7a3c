"""Many clients at once: every answer equals the same request alone, nothing grows, nothing breaks,
and a kill in the middle loses and doubles nothing.

STET_TEST_LOAD_CLIENTS and STET_TEST_LOAD_S make it larger.
"""

import collections
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import random
import socket
import statistics
import threading
import time

from server_process import launch

CLIENTS = int(os.environ.get("STET_TEST_LOAD_CLIENTS", "64"))
SECONDS = float(os.environ.get("STET_TEST_LOAD_S", "12"))
COUNT = 6
BEGIN = "The keeper of the lighthouse wrote down every ship that passed. " * 4
PROMPTS = [f"{BEGIN if i % 2 else ''}Ship number {i} was" for i in range(8)]
PROMPTS += [PROMPTS[1] + " large and", PROMPTS[3] + " small, and its captain"]
SLOTS = 8


class Client:
    """One of many. It counts what came; a status that is not named where it may come is a fault."""

    def __init__(self, server, number, expected):
        self.server = server
        self.choose = random.Random(number)
        self.expected = expected
        self.name = f"load-{number}"
        self.turns = 0
        self.forks = 0
        self.statuses = collections.Counter()
        self.times = []  # of answers, in seconds

    def request(self, what, method, path, body=None, allowed=(200, 503)):
        status, answer = self.server.request(method, path, body)
        self.statuses[what, status] += 1
        assert status in allowed, (what, status, answer)
        return answer if status < 300 else None

    def complete(self):
        i = self.choose.randrange(len(PROMPTS))
        began = time.monotonic()
        answer = self.request("complete", "POST", "/completion", {
            "prompt": PROMPTS[i], "n_predict": COUNT, "temperature": 0, "return_tokens": True})
        if answer is None:
            return
        self.times.append(time.monotonic() - began)
        assert answer["tokens"] == self.expected[i], PROMPTS[i]

    def stream(self):
        i = self.choose.randrange(len(PROMPTS))
        body = {"prompt": PROMPTS[i], "n_predict": COUNT, "temperature": 0, "return_tokens": True,
                "stream": True}
        with contextlib.closing(self.server.connect()) as connection:
            connection.request("POST", "/completion", json.dumps(body))
            response = connection.getresponse()
            text = response.read().decode()
        self.statuses["stream", response.status] += 1
        assert response.status in (200, 503), text
        if response.status == 200:
            events = [json.loads(line[6:]) for line in text.splitlines()
                      if line.startswith("data: {")]
            tokens = [token for event in events for token in event.get("tokens", [])]
            assert tokens == self.expected[i], (PROMPTS[i], events)

    def leave_early(self):
        """Asks for a long stream and goes away."""
        body = json.dumps({"prompt": self.choose.choice(PROMPTS), "n_predict": 200,
                           "ignore_eos": True, "stream": True})
        address = (self.server.host, self.server.port)
        with contextlib.closing(socket.create_connection(address)) as connection:
            connection.sendall(f"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: "
                               f"{len(body)}\r\n\r\n{body}".encode())
            if self.choose.random() < 0.7:
                connection.recv(1000)

    def talk(self):
        answer = self.request("talk", "POST", "/v1/chat/completions", {
            "session_id": self.name, "max_tokens": 3, "temperature": 0,
            "messages": [{"role": "user", "content": f"Say {self.turns}."}]})
        if answer is not None:
            self.turns += 1
            assert answer["stet"]["turn"] == self.turns and answer["stet"]["durable"]
        if self.turns >= 8:  # and begins anew
            self.request("rollback", "POST", f"/v1/sessions/{self.name}/rollback", {"turn": 1})
            self.turns = self.request("get", "GET", f"/v1/sessions/{self.name}")["turns"]

    def fork(self):
        if self.turns == 0:
            return self.talk()
        self.forks += 1
        name = f"{self.name}-{self.forks}"
        answer = self.request("fork", "POST", f"/v1/sessions/{self.name}/fork", {"id": name},
                              allowed=(201, 503))
        if answer is not None:
            assert answer["turns"] == self.turns
            self.request("delete", "DELETE", f"/v1/sessions/{name}")
        return None

    def save_and_restore(self):
        slot = self.choose.randrange(SLOTS)
        saved = self.request("save", "POST", f"/slots/{slot}?action=save", {"filename": self.name})
        if saved is not None:
            restored = self.request("restore", "POST", f"/slots/{slot}?action=restore",
                                    {"filename": self.name})
            assert restored is None or restored["n_restored"] == saved["n_saved"]

    def look(self):
        for path in ("/metrics", "/slots", "/health"):
            self.request("look", "GET", path)

    def run(self, until):
        actions = {self.complete: 50, self.stream: 15, self.leave_early: 10, self.talk: 10,
                   self.fork: 5, self.save_and_restore: 5, self.look: 5}
        # On a slow machine: until there is an answer at all.
        while time.monotonic() < until or not self.times:
            self.choose.choices(list(actions), actions.values())[0]()


def open_files(server):
    return len(list(pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()))


def resident_kib(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def run_all(server, clients, seconds):
    until = time.monotonic() + seconds
    with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
        for done in [pool.submit(client.run, until) for client in clients]:
            done.result()
    deadline = time.monotonic() + 60
    while any(slot["is_processing"] for slot in server.get("/slots")[1]):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def report(clients, **more):
    """For who runs it by hand: pytest -s."""
    total = sum((client.statuses for client in clients), collections.Counter())
    by_status = collections.Counter()
    for (_, status), count in total.items():
        by_status[status] += count
    print({"requests": sum(total.values()), "statuses": dict(by_status), **more})


def test_answers_do_not_depend_on_what_else_is_asked(model, tmp_path, environment):
    (tmp_path / "slots").mkdir()
    server = launch(model, tmp_path / "store", environment, "--deterministic", "-np", SLOTS,
                    "--cache-ram", 256, "--kept-sequences", 16, "--slot-save-path",
                    tmp_path / "slots")
    try:
        expected = [server.complete(prompt, COUNT, cache_prompt=False)["tokens"]
                    for prompt in PROMPTS]
        assert expected == [server.complete(prompt, COUNT)["tokens"] for prompt in PROMPTS]
        clients = [Client(server, number, expected) for number in range(CLIENTS)]
        run_all(server, clients, SECONDS / 2)
        files, memory = open_files(server), resident_kib(server)
        for client in clients:
            client.times.clear()
        run_all(server, clients, SECONDS / 2)
        means = [statistics.mean(client.times) for client in clients]
        report(clients, slowest=max(means), median=statistics.median(means),
               files=(files, open_files(server)), kib=(memory, resident_kib(server)))
        assert open_files(server) <= files + 8
        assert resident_kib(server) <= memory * 1.1 + 32 * 1024
        assert max(means) <= 5 * statistics.median(means)
        assert sum(client.statuses["complete", 200] for client in clients) > 2 * CLIENTS
        for session in server.get("/v1/sessions")[1]["data"][:20]:
            answer = server.post(f"/v1/sessions/{session['id']}/verify", "")
            assert answer["intact"] is True, answer
        assert server.stop() == 0
    finally:
        server.kill()


class Talk:
    """A session whose client tries each turn again, with its key, until it is answered."""

    def __init__(self, number):
        self.name = f"talk-{number}"
        self.said = []  # questions and answers that were acknowledged
        self.asked = 0
        self.retries = 0

    def turn(self, server):
        question = f"{self.name}: what is {self.asked}?"
        status, answer = server.request("POST", "/v1/chat/completions", {
            "session_id": self.name, "max_tokens": 4, "temperature": 0,
            "messages": [{"role": "user", "content": question}]},
            headers={"Idempotency-Key": f"{self.name}-{self.asked}"})
        if status == 503:
            return
        assert status == 200, answer
        assert answer["stet"]["durable"] is True and answer["stet"]["turn"] == self.asked + 1
        self.said += [question, answer["choices"][0]["message"]["content"]]
        self.asked += 1


def talk_until(server, talks, has_enough):
    """Until the server is killed, which happens when there is enough."""
    lost = (http.client.HTTPException, OSError)
    enough = threading.Event()

    def run(talk):
        try:
            while True:
                talk.turn(server)
                if has_enough():
                    enough.set()
        except lost:
            talk.retries += 1

    with concurrent.futures.ThreadPoolExecutor(len(talks)) as pool:
        running = [pool.submit(run, talk) for talk in talks]
        while not enough.wait(timeout=0.05):
            assert not any(done.done() for done in running), [done.result() for done in running
                                                              if done.done()]
        server.kill()
        for done in running:
            done.result()


def test_a_kill_under_load_loses_and_doubles_nothing(model, tmp_path, environment):
    talks = [Talk(number) for number in range(CLIENTS)]
    for _ in range(2):
        server = launch(model, tmp_path / "store", environment, "-np", SLOTS)
        before = sum(talk.asked for talk in talks)
        talk_until(server, talks, lambda start=before: sum(
            talk.asked for talk in talks) >= start + CLIENTS)
    server = launch(model, tmp_path / "store", environment, "-np", SLOTS)
    try:
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            asked = [talk.asked for talk in talks]
            while [talk.asked for talk in talks] != [count + 1 for count in asked]:
                list(pool.map(lambda pair: pair[0].turn(server) if pair[0].asked == pair[1] else
                              None, zip(talks, asked)))
        for talk in talks:
            session = server.get(f"/v1/sessions/{talk.name}")[1]
            assert session["turns"] == talk.asked
            said = [message["content"] for turn in session["history"]
                    for message in turn["messages"]]
            assert said == talk.said
            assert server.post(f"/v1/sessions/{talk.name}/verify", "")["intact"] is True
        assert server.stop() == 0
    finally:
        server.kill()


def test_bits_do_not_depend_on_how_a_prompt_is_cut(model, tmp_path, environment):
    """Probabilities are equal to the last digit: prompts cut in other steps, and reused ones."""
    listed = []
    for batch in (512, 7):
        server = launch(model, tmp_path / f"store{batch}", environment, "--deterministic", "-b",
                        batch)
        try:
            for cache in (False, True, True):
                answer = server.complete(BEGIN + "At last", 4, n_probs=3, cache_prompt=cache)
                listed.append(answer["completion_probabilities"])
            assert answer["timings"]["prompt_n"] == 1
            assert server.stop() == 0
        finally:
            server.kill()
    assert all(entry == listed[0] for entry in listed)
