"""`stet serve`: answers, streams, cancelling, reuse, and what survives."""

import concurrent.futures
import contextlib
import json
import socket
import time

import pytest

from server_process import launch

STORY = ("Once upon a time there was a small town by the sea, where every morning the fishermen "
         "went out with their boats and came back in the evening with baskets full of fish. ") * 4


def test_completion(server):
    answer = server.complete("The capital of France is", 8)
    assert answer["stop"] is True and answer["stop_type"] == "limit"
    assert answer["tokens_predicted"] == 8 == len(answer["tokens"])
    assert "Paris" in answer["content"]
    assert answer["timings"]["prompt_n"] + answer["timings"]["cache_n"] == \
        answer["tokens_evaluated"]
    assert server.complete("The capital of France is", 8)["content"] == answer["content"]
    events = [json.loads(data) for data in server.events(
        "/completion", {"prompt": "The capital of France is", "n_predict": 8, "temperature": 0,
                        "stream": True})]
    assert "".join(event["content"] for event in events) == answer["content"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    word = answer["content"].split()[0].strip(",.")
    stopped = server.complete("The capital of France is", 8, stop=[word])
    assert stopped["stop_type"] == "word" and stopped["stopping_word"] == word
    assert word not in stopped["content"]


def test_the_prompt_alone(server):
    answer = server.complete(STORY + "alone", 0)
    assert answer["content"] == "" and answer["tokens_predicted"] == 0
    assert server.complete(STORY + "alone and", 1)["timings"]["prompt_n"] < 8


def test_bias_probabilities_and_seeds(server):
    answer = server.complete("The capital of France is", 4, n_probs=3)
    listed = answer["completion_probabilities"]
    assert [entry["id"] for entry in listed] == answer["tokens"]
    for entry in listed:
        assert entry["id"] == entry["top_logprobs"][0]["id"] and len(entry["top_logprobs"]) == 3
        assert entry["logprob"] <= 0
    banned = answer["tokens"][0]
    other = server.complete("The capital of France is", 4, logit_bias=[[banned, False]])
    assert other["tokens"][0] != banned
    body = {"prompt": "Name a colour:", "n_predict": 12, "temperature": 1.5, "seed": 42,
            "cache_prompt": False}
    assert server.post("/completion", body)["content"] == server.post("/completion", body)["content"]


def test_a_prompt_is_computed_once(server):
    first = server.complete(STORY, 8)
    again = server.complete(STORY, 8)
    assert again["tokens"] == first["tokens"]
    assert again["timings"]["prompt_n"] == 1
    longer = server.complete(STORY + " One day", 8)
    assert longer["timings"]["cache_n"] > first["tokens_evaluated"] - 4
    assert longer["stet"]["source"] == "kept"
    fresh = server.complete(STORY, 8, cache_prompt=False)
    assert fresh["timings"]["cache_n"] == 0 and fresh["tokens"] == first["tokens"]


def test_eight_at_once_compute_a_prefix_once(server):
    prefix = "A list of eight things that matter. " * 30
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: server.complete(f"{prefix}{i}:", 4), range(8)))
    computed = sum(answer["timings"]["prompt_n"] for answer in answers)
    assert computed < answers[0]["tokens_evaluated"] + 8 * 8
    assert {answer["stet"]["source"] for answer in answers} <= {"none", "live", "kept"}


def test_a_client_that_leaves_frees_its_slot(server):
    def figure(name):
        text = server.get("/metrics")[1]
        return next(float(line.split()[1]) for line in text.splitlines()
                    if line.startswith(name + " "))

    before = figure("stet_requests_cancelled_total")
    body = json.dumps({"prompt": "Count:", "n_predict": -1, "ignore_eos": True, "stream": True})
    with contextlib.closing(socket.create_connection((server.host, server.port))) as connection:
        connection.sendall(f"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
                           f"\r\n\r\n{body}".encode())
        assert b"data:" in connection.recv(65536) + connection.recv(65536)
    waited = 0
    while figure("stet_requests_cancelled_total") == before and waited < 600:
        time.sleep(0.05)
        waited += 1
    assert figure("stet_requests_cancelled_total") == before + 1
    assert all(not slot["is_processing"] for slot in server.get("/slots")[1])


def test_slots_are_in_range(server, model, tmp_path, environment):
    assert len(server.get("/slots")[1]) == 4
    status, answer = server.request("POST", "/slots/0?action=erase", "")
    assert status == 501 and "slot-save-path" in answer["error"]["message"]
    other = launch(model, tmp_path / "store", environment, "--slot-save-path", tmp_path, "-np", 2)
    other.complete(STORY, 1, id_slot=1)
    for slot in ("2", "-1", "x", "4294967296", "1e0"):
        assert other.request("POST", f"/slots/{slot}?action=erase", "")[0] == 400
    assert other.get("/slots")[1][1]["n_state_tokens"] > 50
    assert other.request("POST", "/slots/1?action=erase", "")[1]["n_erased"] > 50
    assert other.get("/slots")[1][1]["n_state_tokens"] == 0
    assert other.complete(STORY, 1, id_slot=1)["id_slot"] == 1
    assert other.stop() == 0


def talk(server, messages, count=12):
    body = {"messages": messages, "max_tokens": count, "temperature": 0}
    return server.post("/v1/chat/completions", body)


def test_a_chat_survives_a_kill_without_its_client_knowing(model, tmp_path, environment):
    server = launch(model, tmp_path / "store", environment)
    messages = [{"role": "system", "content": STORY}, {"role": "user", "content": "Who went out?"}]
    answer = talk(server, messages)
    assert answer["stet"]["durable"] is True
    messages += [answer["choices"][0]["message"], {"role": "user", "content": "And then?"}]
    server.kill()
    server = launch(model, tmp_path / "store", environment)
    resumed = talk(server, messages)
    assert resumed["stet"]["source"] == "kept" or resumed["stet"]["source"] == "stored"
    assert resumed["usage"]["prompt_tokens_details"]["cached_tokens"] > \
        answer["usage"]["prompt_tokens"]
    alone = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 12,
                                                 "temperature": 0, "cache_prompt": False})
    assert alone["choices"][0]["message"] == resumed["choices"][0]["message"]
    sessions = server.get("/v1/sessions")[1]["data"]
    assert len([entry for entry in sessions if entry["turns"] == 2]) == 1
    assert server.stop() == 0


def test_a_session_remembers_what_was_said(server):
    def say(text, count=12):
        return server.post("/v1/chat/completions", {
            "session_id": "memory", "messages": [{"role": "user", "content": text}],
            "max_tokens": count, "temperature": 0})

    first = say("My name is Ada. Say hello.")
    second = say("What is my name?")
    assert first["stet"]["session"] == second["stet"]["session"] == "memory"
    assert (first["stet"]["turn"], second["stet"]["turn"]) == (1, 2)
    assert second["stet"]["reused_tokens"] >= first["usage"]["prompt_tokens"]
    history = server.get("/v1/sessions/memory")[1]["history"]
    assert [message["role"] for turn in history for message in turn["messages"]] == \
        ["user", "assistant"] * 2
    status, fork = server.request("POST", "/v1/sessions/memory/fork", {"id": "branch", "turn": 1})
    assert status == 201 and fork["turns"] == 1
    server.post("/v1/sessions/memory/rollback", {"turn": 1})
    assert say("What is my name?")["choices"] == second["choices"]
    assert server.post("/v1/sessions/memory/verify", "")["intact"] is True
    assert server.request("DELETE", "/v1/sessions/branch")[0] == 200
    assert server.get("/v1/sessions/branch")[0] == 404
    assert server.request("POST", "/v1/sessions", {"id": "memory"})[0] == 409
    assert server.request("POST", "/v1/sessions", {"id": "../x"})[0] == 400


def test_a_retry_makes_no_second_turn(model, tmp_path, environment):
    body = {"session_id": "retry", "messages": [{"role": "user", "content": "Say something."}],
            "max_tokens": 12, "temperature": 1.0}

    def ask(key):
        return server.post("/v1/chat/completions", body, headers={"Idempotency-Key": key})

    server = launch(model, tmp_path / "store", environment)
    first = ask("one")
    assert ask("one")["choices"][0]["message"] == first["choices"][0]["message"]
    server.kill()
    server = launch(model, tmp_path / "store", environment)
    again = ask("one")
    assert again["choices"][0]["message"] == first["choices"][0]["message"]
    assert again["stet"]["turn"] == 1 and again["stet"]["computed_tokens"] == 0
    events = [json.loads(data) for data in server.events(
        "/v1/chat/completions", {**body, "stream": True}, {"Idempotency-Key": "one"})[:-1]]
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == \
        first["choices"][0]["message"]["content"]
    assert server.get("/v1/sessions/retry")[1]["turns"] == 1
    assert ask("two")["stet"]["turn"] == 2
    assert server.request("POST", "/v1/chat/completions", body,
                          headers={"Idempotency-Key": "x" * 256})[0] == 400
    assert server.stop() == 0


def test_a_busy_server_sheds_load(model, tmp_path, environment):
    server = launch(model, tmp_path / "store", environment, "-np", 1, "--queue", 1,
                    "--durability", "none")

    def ask(i):
        return server.request("POST", "/completion", {
            "prompt": f"{i}", "n_predict": 48, "ignore_eos": True})[0]

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(ask, range(12)))
    assert set(statuses) == {200, 503}
    assert server.get("/v1/sessions")[0] == 501
    assert server.stop() == 0
