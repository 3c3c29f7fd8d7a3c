"""Two tenants that ask for the same: neither finds, or is told of, what the other has.

STET_TEST_TENANT_REQUESTS makes it longer.
"""

import concurrent.futures
import os
import random
import time

import pytest

from server_process import launch

REQUESTS = int(os.environ.get("STET_TEST_TENANT_REQUESTS", "2000"))
CLIENTS = 8
COUNT = 3
LONG = 40  # tokens of an answer that is still under way when the other asks
VOCABULARY = 128
MARKS = {"alpha": 5, "beta": 6}  # the token that each tenant's own texts begin with
# A mark and some tokens that are equal by chance; texts have ten times as many.
CHANCE = 5


def other_than(key):
    return next(name for name in MARKS if name != key)


def secret(key, number):
    choose = random.Random(number)
    return [MARKS[key]] + [choose.randrange(8, VOCABULARY) for _ in range(49 + number % 30)]


def ask(server, key, prompt, count=COUNT):
    answer = server.post("/completion", {
        "prompt": prompt, "n_predict": count, "temperature": 0, "return_tokens": True,
        "ignore_eos": True}, headers={"Authorization": f"Bearer {key}"})
    report = answer["stet"]
    assert report["reused_tokens"] <= report["matched_tokens"]
    assert report["reused_tokens"] + report["computed_tokens"] == len(prompt)
    return answer["tokens"], report["matched_tokens"], report["reused_tokens"]


class Tally:
    def __init__(self):
        self.requests = self.hits = self.misses = 0

    def say_and_pry(self, server, key, number):
        """One tells its secret twice; meanwhile or then the other tries it, and goes on from there."""
        prompt = secret(key, number)
        is_under_way = number % 5 == 0
        with concurrent.futures.ThreadPoolExecutor(1) as aside:
            answer = aside.submit(ask, server, key, prompt, LONG if is_under_way else COUNT)
            if is_under_way:
                time.sleep(0.01)
                pried = ask(server, other_than(key), prompt)
                assert max(pried[1:]) <= CHANCE, "another tenant's prefix was found under way"
            tokens, matched, reused = answer.result()
        tokens = tokens[:COUNT]
        assert matched <= CHANCE and reused <= CHANCE
        again, _, reused = ask(server, key, prompt)
        assert again == tokens
        self.hits += reused > CHANCE
        self.misses += reused <= CHANCE  # it had to go for others meanwhile
        if not is_under_way:
            pried = ask(server, other_than(key), prompt)
            assert max(pried[1:]) <= CHANCE, "another tenant's prefix was found"
        assert pried[0] == tokens
        # What the other asked for is its own now, and the answer is what it was.
        more, _, _ = ask(server, other_than(key), prompt + tokens)
        theirs, matched, _ = ask(server, key, prompt + tokens)
        assert more == theirs
        self.requests += 5


@pytest.fixture
def start(speakable, tmp_path, environment):
    servers = []

    def begin(*arguments):
        """With room for few sequences: what was computed goes, and comes back from the store."""
        servers.append(launch(
            speakable("llama-dense"), tmp_path / "store", environment, "-np", 3, "-c", "512",
            "--kept-sequences", 3, "--auto-sessions", 4, "--durability", "idle", "--deterministic",
            "--api-key", ",".join(MARKS), *arguments))
        return servers[-1]

    yield begin
    for server in servers:
        server.kill()


def test_nothing_of_another_tenant_is_found(start):
    server = start()

    def run(seed):
        tally = Tally()
        for i in range(REQUESTS // CLIENTS // 5):
            number = seed + i * CLIENTS
            tally.say_and_pry(server, list(MARKS)[number // 2 % 2], number)
        return tally

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        tallies = list(pool.map(run, range(CLIENTS)))
    assert sum(tally.requests for tally in tallies) >= REQUESTS * 0.9
    # Both happened often: there was something to find, and what was there was driven out.
    asked = sum(tally.hits + tally.misses for tally in tallies)
    assert sum(tally.hits for tally in tallies) > asked / 20
    assert sum(tally.misses for tally in tallies) > asked / 20
    # Sessions are listed to their tenant alone.
    listed = [{entry["id"] for entry in server.get(
        "/v1/sessions", headers={"Authorization": f"Bearer {key}"})[1]["data"]} for key in MARKS]
    for key, foreign in zip(MARKS, reversed(listed)):
        for name in foreign - listed[list(MARKS).index(key)]:
            assert server.get(f"/v1/sessions/{name}",
                              headers={"Authorization": f"Bearer {key}"})[0] == 404
    assert server.stop() == 0


def test_what_one_stored_is_not_loaded_for_the_other(start):
    """After a restart everything comes from the stores."""
    server = start()
    tokens = {key: ask(server, key, secret(key, 7))[0] for key in MARKS}
    assert server.stop() == 0
    server = start()
    for key in MARKS:
        pried, matched, _ = ask(server, other_than(key), secret(key, 7))
        assert matched <= CHANCE and pried == tokens[key]
        again, _, reused = ask(server, key, secret(key, 7))
        assert again == tokens[key] and reused > CHANCE
    assert server.stop() == 0
