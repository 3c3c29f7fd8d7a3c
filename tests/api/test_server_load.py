"""Many clients at once: every answer equals the same request alone, nothing grows, nothing breaks.

STET_LOAD_CLIENTS and STET_LOAD_S make it larger.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import socket
import time

from server_process import launch

CLIENTS = int(os.environ.get("STET_LOAD_CLIENTS", "16"))
SECONDS = float(os.environ.get("STET_LOAD_S", "6"))
COUNT = 6
BEGIN = "The keeper of the lighthouse wrote down every ship that passed. " * 4
PROMPTS = [f"{BEGIN if i % 2 else ''}Ship number {i} was" for i in range(8)]
PROMPTS += [PROMPTS[1] + " large and", PROMPTS[3] + " small, and its captain"]


def leave_early(server, prompt):
    """Asks for a stream and goes away."""
    body = json.dumps({"prompt": prompt, "n_predict": 200, "ignore_eos": True, "stream": True})
    with contextlib.closing(socket.create_connection((server.host, server.port))) as connection:
        connection.sendall(f"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
                           f"\r\n\r\n{body}".encode())
        if random.random() < 0.7:
            connection.recv(1000)


def client(server, seed, expected, until):
    choose = random.Random(seed)
    done = {200: 0, 503: 0}
    # On a slow machine: until there is an answer at all.
    while time.monotonic() < until or done[200] == 0:
        i = choose.randrange(len(PROMPTS))
        what = choose.random()
        if what < 0.15:
            leave_early(server, PROMPTS[i])
            continue
        if what < 0.2:
            assert server.get("/metrics")[0] == 200 and server.get("/slots")[0] == 200
            continue
        status, answer = server.request("POST", "/completion", {
            "prompt": PROMPTS[i], "n_predict": COUNT, "temperature": 0, "return_tokens": True})
        done[status] += 1  # nothing else may come
        if status == 200:
            assert answer["tokens"] == expected[i], PROMPTS[i]
    return done


def open_files(server):
    return len(list(pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()))


def resident_kib(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def run(server, expected, seconds, seed):
    until = time.monotonic() + seconds
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        results = list(pool.map(lambda i: client(server, seed + i, expected, until),
                                range(CLIENTS)))
    deadline = time.monotonic() + 60
    while any(slot["is_processing"] for slot in server.get("/slots")[1]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return results


def test_answers_do_not_depend_on_what_else_is_asked(model, tmp_path, environment):
    server = launch(model, tmp_path / "store", environment, "--deterministic", "-np", 6,
                    "--cache-ram", 64, "--kept-sequences", 8)
    try:
        expected = [server.complete(prompt, COUNT, cache_prompt=False)["tokens"]
                    for prompt in PROMPTS]
        assert expected == [server.complete(prompt, COUNT)["tokens"] for prompt in PROMPTS]
        run(server, expected, SECONDS / 2, 1)
        files, memory = open_files(server), resident_kib(server)
        results = run(server, expected, SECONDS / 2, 1000)
        answered = [done[200] for done in results]
        assert min(answered) >= 1
        assert open_files(server) <= files + 8
        assert resident_kib(server) <= memory * 1.1 + 32 * 1024
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
