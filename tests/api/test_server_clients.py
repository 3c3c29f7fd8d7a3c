"""`stet serve` through the real `openai` and `anthropic` packages, and against `stet run`."""

import json

import anthropic
import openai
import pytest
from server_process import launch

QUESTION = "Name a colour."
# What a prompt computes may differ in its last bits from what is reused of an earlier answer, and a
# small model's choices may hang on them: who compares computes all.
ALONE = {"cache_prompt": False}
GREEDY = {"temperature": 0, "max_tokens": 12, "extra_body": ALONE}
CLAUDE = {"max_tokens": 12, "extra_body": {"temperature": 0, **ALONE}}


@pytest.fixture(scope="module")
def expected(model, tmp_path_factory):
    """What `stet run` answers to QUESTION."""
    import os
    import subprocess

    from conftest import STET
    folder = tmp_path_factory.mktemp("expected")
    result = subprocess.run(
        [STET, "run", model, QUESTION, "-n", "12", "--json", "--temp", "0"], check=True,
        capture_output=True, text=True, env=dict(os.environ, XDG_DATA_HOME=str(folder)))
    return json.loads(result.stdout)


def user(text):
    return [{"role": "user", "content": text}]


def test_every_interface_answers_as_run_does(server, client, claude, expected):
    text = expected["text"]
    chat = client.chat.completions.create(model="x", messages=user(QUESTION), **GREEDY)
    assert chat.choices[0].message.content == text
    assert chat.usage.prompt_tokens == expected["prompt_tokens"]
    assert chat.usage.completion_tokens == len(expected["tokens"])
    message = claude.messages.create(model="x", messages=user(QUESTION), **CLAUDE)
    assert message.content[0].text == text
    response = client.responses.create(model="x", input=QUESTION, max_output_tokens=12,
                                       temperature=0, extra_body=ALONE)
    assert response.output_text == text
    prompt = server.post("/apply-template", {"messages": user(QUESTION)})["prompt"]
    completion = client.completions.create(model="x", prompt=prompt, **GREEDY)
    assert completion.choices[0].text == text
    native = server.complete(prompt, 12, cache_prompt=False)
    assert native["content"] == text and native["tokens"] == expected["tokens"]


def test_chat_stream_with_usage(client, expected):
    chunks = list(client.chat.completions.create(
        model="x", messages=user(QUESTION), stream=True, stream_options={"include_usage": True},
        **GREEDY))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == expected["text"]
    assert chunks[0].choices[0].delta.role == "assistant"
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert reasons[-1] == "length" and not any(reasons[:-1])
    assert chunks[-1].usage.completion_tokens == 12 and not chunks[-1].choices


def test_chat_options(client):
    chat = client.chat.completions.create(model="x", messages=user("Say hello."), n=2, seed=7,
                                          temperature=1.0, max_completion_tokens=8, logprobs=True,
                                          top_logprobs=2)
    assert [choice.index for choice in chat.choices] == [0, 1]
    assert chat.usage.completion_tokens == sum(len(choice.logprobs.content)
                                               for choice in chat.choices)
    for choice in chat.choices:
        for entry in choice.logprobs.content:
            assert len(entry.top_logprobs) == 2 and entry.logprob <= 0
            assert bytes(entry.bytes).decode(errors="replace") == entry.token
    first = chat.choices[0].logprobs.content[0].token
    tokens = client.post("/../tokenize", body={"content": first}, cast_to=dict)["tokens"]
    other = client.chat.completions.create(model="x", messages=user("Say hello."), max_tokens=1,
                                           temperature=0, logit_bias={str(tokens[0]): -100})
    assert other.choices[0].message.content != first
    stopped = client.chat.completions.create(model="x", messages=user("Count from 1 to 9."),
                                             temperature=0, max_tokens=40, stop=["4"])
    assert "4" not in stopped.choices[0].message.content
    assert stopped.choices[0].finish_reason == "stop"


def test_completions(client):
    whole = client.completions.create(model="x", prompt=["One, two,", "Red, green,"], temperature=0,
                                      max_tokens=4, logprobs=2, echo=True, extra_body=ALONE)
    assert [choice.text.startswith(begin) for choice, begin in
            zip(whole.choices, ["One, two,", "Red, green,"])] == [True, True]
    assert len(whole.choices[0].logprobs.tokens) == 4
    streamed = client.completions.create(model="x", prompt="One, two,", temperature=0, max_tokens=4,
                                         stream=True, extra_body=ALONE)
    text = "".join(chunk.choices[0].text for chunk in streamed)
    assert "One, two," + text == whole.choices[0].text


def test_models_and_errors(client, model):
    assert [entry.id for entry in client.models.list()] == [model.name]
    assert client.models.retrieve(model.name).id == model.name
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="x", messages=user("x"), temperature=-3)
    assert "temperature" in error.value.message
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="x", messages=user("word " * 4000))
    assert error.value.type == "exceed_context_size_error"


def test_messages_stream_and_count(claude, expected):
    with claude.messages.stream(model="x", messages=user(QUESTION), **CLAUDE) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == expected["text"] == final.content[0].text
    assert final.stop_reason == "max_tokens" and final.usage.output_tokens == 12
    assert final.usage.input_tokens == expected["prompt_tokens"]
    count = claude.messages.count_tokens(model="x", messages=user(QUESTION))
    assert count.input_tokens == expected["prompt_tokens"]
    blocks = [{"type": "text", "text": "Name a "}, {"type": "text", "text": "colour."}]
    again = claude.messages.create(model="x", messages=[{"role": "user", "content": blocks}],
                                   system="You are a helpful AI assistant named SmolLM, trained by "
                                          "Hugging Face", **CLAUDE)
    assert again.content[0].text == expected["text"]
    stopped = claude.messages.create(model="x", messages=user("Count from 1 to 9."),
                                     max_tokens=40, stop_sequences=["4"],
                                     extra_body={"temperature": 0})
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "4")
    with pytest.raises(anthropic.BadRequestError) as error:
        claude.messages.create(model="x", max_tokens=1, messages=user("x"),
                               extra_body={"temperature": -1})
    assert error.value.body["error"]["type"] == "invalid_request_error"


def test_responses_go_on_from_each_other(client, model, server):
    first = client.responses.create(model="x", input="My name is Ada. Say hello.", temperature=0,
                                    max_output_tokens=10)
    assert first.status in ("completed", "incomplete") and first.output_text
    options = {"model": "x", "input": "What is my name?", "temperature": 0,
               "max_output_tokens": 10, "previous_response_id": first.id}
    second = client.responses.create(**options)
    assert second.previous_response_id == first.id
    assert second.usage.input_tokens_details.cached_tokens > first.usage.input_tokens - 2
    events = list(client.responses.create(stream=True, **options))
    assert "".join(event.delta for event in events
                   if event.type == "response.output_text.delta") == second.output_text
    assert events[0].type == "response.created"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    assert last.response.output_text == second.output_text
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="x", input="x", previous_response_id="resp_none")


def test_two_keys_with_the_clients(model, tmp_path, environment):
    server = launch(model, tmp_path / "store", environment, "--api-key", "one")
    try:
        good = openai.OpenAI(base_url=server.url + "/v1", api_key="one", max_retries=0)
        assert good.chat.completions.create(model="x", messages=user("Hi"), max_tokens=1)
        bad = openai.OpenAI(base_url=server.url + "/v1", api_key="two", max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            bad.chat.completions.create(model="x", messages=user("Hi"), max_tokens=1)
        claude = anthropic.Anthropic(base_url=server.url, api_key="one", max_retries=0)
        assert claude.messages.create(model="x", max_tokens=1, messages=user("Hi")).content
        with pytest.raises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=server.url, api_key="two", max_retries=0).messages.create(
                model="x", max_tokens=1, messages=user("Hi"))
    finally:
        assert server.stop() == 0
