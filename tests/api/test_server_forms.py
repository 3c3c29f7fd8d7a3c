"""Answers held to a form: JSON schemas, grammars, calls of tools that must come."""

import concurrent.futures
import datetime
import json
import re
import time

import jsonschema
import pytest

from server_process import launch

TEXT = {"type": "string", "maxLength": 12}
POINT = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99},
                                          "y": {"type": "integer", "minimum": 0, "maximum": 99}},
         "required": ["x", "y"], "additionalProperties": False}
SCHEMAS = {
    "object": {"type": "object", "properties": {"name": TEXT, "age": {"type": "integer"}},
               "required": ["name", "age"], "additionalProperties": False},
    "optional": {"type": "object", "properties": {"a": TEXT, "b": {"type": "boolean"}},
                 "required": ["b"]},
    "nested": {"type": "object", "properties": {"from": POINT, "to": POINT},
               "required": ["from", "to"]},
    "list": {"type": "array", "items": {"type": "integer", "maximum": 9, "minimum": 0},
             "minItems": 2, "maxItems": 4},
    "list of objects": {"type": "array", "items": POINT, "minItems": 1, "maxItems": 2},
    "tuple": {"type": "array", "prefixItems": [TEXT, {"type": "boolean"}], "items": False,
              "minItems": 2},
    "enum": {"enum": ["red", "green", "blue"]},
    "mixed enum": {"enum": ["red", 1, None, True, {"a": [1]}]},
    "const": {"const": {"answer": 42}},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "integer range": {"type": "integer", "minimum": 17, "maximum": 233},
    "negative range": {"type": "integer", "exclusiveMinimum": -20, "exclusiveMaximum": 3},
    "number range": {"type": "number", "minimum": 0, "maximum": 1},
    "short text": {"type": "string", "minLength": 2, "maxLength": 5},
    "pattern": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2,4}$"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "date and time": {"type": "string", "format": "date-time"},
    "uuid": {"type": "string", "format": "uuid"},
    "address": {"type": "string", "format": "ipv4"},
    "any of": {"anyOf": [POINT, {"type": "boolean"}]},
    "one of": {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "boolean"}]},
    "one of marked": {"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "a"}, "n": {"type": "boolean"}},
         "required": ["kind", "n"], "additionalProperties": False},
        {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"],
         "additionalProperties": False}]},
    "types": {"type": ["boolean", "null"]},
    "references": {"$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
                   "type": "object", "properties": {"a": {"$ref": "#/$defs/n"}},
                   "required": ["a"]},
    "map": {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 2},
    "pattern properties": {"type": "object", "patternProperties": {"^k[0-9]$": {"type": "null"}},
                           "additionalProperties": False, "maxProperties": 2},
    "ordered": {"type": "object", "properties": {"z": {"type": "null"}, "a": {"type": "null"}},
                "required": ["z", "a"]},
    "deep": {"type": "object", "properties": {"a": {"type": "object", "properties": {
        "b": {"type": "array", "items": {"type": "array", "items": {"type": "null"},
                                         "maxItems": 2}, "maxItems": 2}},
        "required": ["b"]}}, "required": ["a"]},
    "unicode keys": {"type": "object", "properties": {"gr\u00f6\u00dfe \"m\"": {"type": "boolean"}},
                     "required": ["gr\u00f6\u00dfe \"m\""], "additionalProperties": False},
}
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a place.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "maxLength": 12},
            "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city", "days"], "additionalProperties": False}}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object",
                                                                    "properties": {}}}},
]
CLAUDE_TOOLS = [{"name": tool["function"]["name"], "description": "",
                 "input_schema": tool["function"]["parameters"]} for tool in TOOLS]
ALONE = {"cache_prompt": False}


def user(text):
    return [{"role": "user", "content": text}]


def format_of(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}


FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER


@FORMATS.checks("time", raises=ValueError)
def is_time(text):
    return is_date_time(f"2000-01-01T{text}")


@FORMATS.checks("date-time", raises=ValueError)
def is_date_time(text):
    """RFC 3339; Python knows no leap seconds."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text), text
    plain = re.sub(r":60(?=[.Z+-])", ":59", re.sub(r"\.\d+", "", text)).replace("Z", "+00:00")
    return datetime.datetime.fromisoformat(plain) is not None


def check(text, schema):
    value = json.loads(text)
    jsonschema.validate(value, schema, format_checker=FORMATS)
    return value


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_answers_are_what_the_schema_allows(client, name, temperature):
    schema = SCHEMAS[name]
    answer = client.chat.completions.create(
        model="x", messages=user("Give me an example as JSON."), max_tokens=300, seed=7,
        temperature=temperature, response_format=format_of(schema))
    assert answer.choices[0].finish_reason == "stop"
    check(answer.choices[0].message.content, schema)


def test_a_recursive_schema(client):
    """A small model may go on for ever: of several answers some end, and those are right."""
    schema = {"$ref": "#/$defs/node", "$defs": {"node": {
        "type": "object", "properties": {
            "n": {"type": "boolean"},
            "below": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
        "required": ["n"], "additionalProperties": False}}}
    answer = client.chat.completions.create(
        model="x", messages=user("A tree as JSON."), max_tokens=60, seed=3, n=6, temperature=1.5,
        response_format=format_of(schema))
    ended = [choice.message.content for choice in answer.choices if choice.finish_reason == "stop"]
    assert ended
    for text in ended:
        check(text, schema)


def test_a_json_object(client):
    answer = client.chat.completions.create(
        model="x", messages=user("A JSON object with one key, please."), max_tokens=100,
        temperature=0, response_format={"type": "json_object"})
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(answer.choices[0].message.content), dict)
    assert answer.choices[0].message.content.startswith("{")


def test_streams_choices_and_logprobs(client):
    schema = SCHEMAS["nested"]
    more = {"max_tokens": 120, "temperature": 0, "response_format": format_of(schema),
            "extra_body": ALONE}
    whole = client.chat.completions.create(model="x", messages=user("Two points."), n=2,
                                           logprobs=True, top_logprobs=2, **more)
    texts = [choice.message.content for choice in whole.choices]
    assert texts[0] == texts[1]
    check(texts[0], schema)
    entries = whole.choices[0].logprobs.content
    assert "".join(entry.token for entry in entries) == texts[0]
    chunks = client.chat.completions.create(model="x", messages=user("Two points."), stream=True,
                                            **more)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == texts[0]


def test_the_same_alone_and_beside_others(client):
    names = ["object", "list", "enum", "nested", "pattern", "map"]

    def ask(name):
        form = {"response_format": format_of(SCHEMAS[name])} if name else {}
        answer = client.chat.completions.create(
            model="x", messages=user("Something about " + (name or "rain")), max_tokens=60,
            temperature=0, extra_body=ALONE, **form)
        return answer.choices[0].message.content

    wanted = names + [None]
    alone = [ask(name) for name in wanted]
    with concurrent.futures.ThreadPoolExecutor(len(wanted)) as pool:
        assert list(pool.map(ask, wanted)) == alone


def test_grammars_of_llama_server(server):
    grammar = 'root ::= ("yes" | "no") " " [0-9]{2}\n'
    answer = server.complete("Is it?", 16, grammar=grammar)
    word, number = answer["content"].split(" ")
    assert word in ("yes", "no") and len(number) == 2
    assert answer["stop_type"] == "eos"
    schema = SCHEMAS["object"]
    check(server.complete("Ann:", 200, json_schema=schema)["content"], schema)
    chat = server.post("/v1/chat/completions", {
        "messages": user("Is it?"), "temperature": 0, "max_tokens": 16, "grammar": grammar})
    assert chat["choices"][0]["message"]["content"].split(" ")[0] in ("yes", "no")
    chat = server.post("/v1/chat/completions", {
        "messages": user("Ann"), "temperature": 0, "max_tokens": 200, "json_schema": schema})
    check(chat["choices"][0]["message"]["content"], schema)


def test_stop_texts_cut_a_grammar_and_an_end_is_forced(server):
    grammar = 'root ::= "one, two, three"\n'
    cut = server.complete("Count:", 32, grammar=grammar, stop=[", th"])
    assert cut["content"] == "one, two" and cut["stop_type"] == "word"
    whole = server.complete("Count:", 32, grammar=grammar, ignore_eos=True)
    assert whole["content"] == "one, two, three" and whole["stop_type"] == "eos"
    short = server.complete("Count:", 2, grammar=grammar)
    assert "one, two, three".startswith(short["content"]) and short["stop_type"] == "limit"
    # What the grammar wants is banned: the answer ends, and nothing else comes.
    banned = server.complete("Count:", 8, grammar='root ::= "a"\n', logit_bias=[["a", False]])
    assert banned["content"] == "" and banned["stop_type"] == "limit"


def test_responses_and_messages(client, claude, server):
    schema = SCHEMAS["object"]
    answer = client.responses.create(
        model="x", input="Ann is seven.", max_output_tokens=200, temperature=0,
        text={"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}})
    check(answer.output_text, schema)
    message = claude.messages.create(
        model="x", max_tokens=200, messages=user("Ann is seven."),
        extra_body={"temperature": 0,
                    "output_config": {"format": {"type": "json_schema", "schema": schema}}})
    check(message.content[0].text, schema)


def test_a_session_goes_on_with_a_form(server):
    body = {"session_id": "formed", "messages": user("Pick one."), "temperature": 0,
            "max_tokens": 40, "response_format": format_of(SCHEMAS["enum"])}
    for _ in range(2):
        answer = server.post("/v1/chat/completions", body)
        check(answer["choices"][0]["message"]["content"], SCHEMAS["enum"])


def arguments_of(call):
    parameters = next(tool["function"]["parameters"] for tool in TOOLS
                      if tool["function"]["name"] == call.function.name)
    return check(call.function.arguments, parameters)


@pytest.mark.parametrize("choice", ["required", {"type": "function",
                                                 "function": {"name": "get_weather"}}])
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_call_must_come(client, choice, is_stream):
    answer = client.chat.completions.create(
        model="x", messages=user("How is the weather in Paris?"), tools=TOOLS, max_tokens=120,
        tool_choice=choice, temperature=0, stream=is_stream)
    if is_stream:
        chunks = [chunk.choices[0] for chunk in answer if chunk.choices]
        calls = [call for chunk in chunks for call in chunk.delta.tool_calls or []]
        reason = chunks[-1].finish_reason
    else:
        calls = answer.choices[0].message.tool_calls
        reason = answer.choices[0].finish_reason
        assert answer.choices[0].message.content is None
    assert reason == "tool_calls" and len(calls) == 1
    arguments_of(calls[0])
    if choice != "required":
        assert calls[0].function.name == "get_weather"


def test_calls_of_the_other_interfaces(client, claude):
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        message = claude.messages.create(
            model="x", max_tokens=120, messages=user("How is the weather in Paris?"),
            tools=CLAUDE_TOOLS, tool_choice=choice, extra_body={"temperature": 0})
        assert message.stop_reason == "tool_use"
        assert message.content[0].type == "tool_use"
        schema = next(tool["input_schema"] for tool in CLAUDE_TOOLS
                      if tool["name"] == message.content[0].name)
        jsonschema.validate(message.content[0].input, schema)
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    answer = client.responses.create(
        model="x", input="How is the weather in Paris?", tools=tools, max_output_tokens=120,
        temperature=0, tool_choice={"type": "function", "name": "get_weather"})
    assert [item.type for item in answer.output] == ["function_call"]
    check(answer.output[0].arguments, TOOLS[0]["function"]["parameters"])


def test_a_call_or_an_answer_of_the_form(client):
    answer = client.chat.completions.create(
        model="x", messages=user("How is the weather in Paris?"), tools=TOOLS, max_tokens=120,
        temperature=0, response_format=format_of(SCHEMAS["object"]))
    message = answer.choices[0].message
    if message.tool_calls:
        arguments_of(message.tool_calls[0])
    else:
        check(message.content, SCHEMAS["object"])


def test_no_tools_when_none_may_be_called(server):
    body = {"messages": user("Hello"), "tools": TOOLS, "temperature": 0, "max_tokens": 8,
            **ALONE}
    without = server.post("/v1/chat/completions", {**body, "tools": None})
    answer = server.post("/v1/chat/completions", {**body, "tool_choice": "none"})
    assert answer["usage"]["prompt_tokens"] == without["usage"]["prompt_tokens"]
    assert answer["choices"][0]["message"] == without["choices"][0]["message"]


BAD = [
    ({"response_format": {"type": "json_schema"}}, "schema"),
    ({"response_format": {"type": "yaml"}}, "response_format.type"),
    ({"response_format": format_of({"type": "frob"})}, "frob"),
    ({"response_format": format_of({"not": {}})}, "can't be enforced"),
    ({"response_format": format_of({"oneOf": [{"type": "integer"}, {"type": "number"}]})},
     "oneOf"),
    ({"response_format": format_of({"type": "string", "format": "idn-email"})}, "idn-email"),
    ({"response_format": format_of({"allOf": [{"minimum": 1}, {"maximum": 2}]})}, "allOf"),
    ({"response_format": format_of({"$ref": "https://example.com/x.json"})}, "another document"),
    ({"response_format": format_of({"const": "x" * 200000})}, "bytes"),
    ({"grammar": "root ::= other"}, "other"),
    ({"grammar": 'root ::= "a"', "json_schema": {}}, "exclude"),
    ({"tool_choice": "required"}, "tools"),
    ({"tool_choice": "required", "tools": []}, "tools"),
    ({"tool_choice": {"type": "function", "function": {"name": "x"}}, "tools": TOOLS}, "names"),
    ({"tool_choice": "always", "tools": TOOLS}, "tool_choice"),
    ({"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "a b"}}]},
     "name"),
]


@pytest.mark.parametrize("more, word", BAD, ids=[word + str(i) for i, (_, word) in enumerate(BAD)])
def test_what_cannot_be_is_refused_in_one_line(server, more, word):
    body = {"messages": user("x"), "max_tokens": 4, **more}
    status, answer = server.request("POST", "/v1/chat/completions", body)
    assert status == 400, answer
    assert word in answer["error"]["message"] and "\n" not in answer["error"]["message"]


HOSTILE = [
    {"grammar": 'root ::= (((("ab"{90}){90}){90}){90}){91}'},
    {"grammar": 'root ::= "a"{1,100000}'},
    {"grammar": "root ::= " + '"a"? ' * 15000},
    {"grammar": 'root ::= root "a" | ""'},
    {"grammar": "root ::= " + "(" * 5000 + '"a"' + ")" * 5000},
    {"response_format": format_of({"enum": list(range(15000))})},
    {"response_format": format_of({"$ref": "#"})},
    {"response_format": format_of({"type": "array", "items": {"$ref": "#"}, "minItems": 100000})},
    {"response_format": format_of({"type": "string", "pattern": "(([a-z]{1,500}){1,500}){1,500}"})},
    {"response_format": format_of({"required": [str(i) for i in range(9000)],
                                   "additionalProperties": {"const": "x" * 50000}})},
    {"tool_choice": "required", "tools": [
        {"type": "function", "function": {"name": f"f{i}", "parameters": {
            "type": "object", "properties": {f"p{j}": {"type": "string"} for j in range(20)}}}}
        for i in range(300)]},
]


def test_hostile_forms_are_refused_or_served(server):
    """Several at once, and nobody else waits for them."""
    def ask(form):
        return server.request("POST", "/v1/chat/completions",
                              {"messages": user("x"), "max_tokens": 4, **form})

    with concurrent.futures.ThreadPoolExecutor(len(HOSTILE)) as pool:
        waiting = [pool.submit(ask, form) for form in HOSTILE]
        assert server.complete("Hello", 4)["tokens_predicted"] > 0
        results = [future.result() for future in waiting]
    for form, (status, answer) in zip(HOSTILE, results):
        assert status in (200, 400), (str(form)[:100], answer)
        if status == 400:
            assert "\n" not in answer["error"]["message"]


def test_hard_grammars_hold_up_only_who_sends_them(model, tmp_path):
    server = launch(model, tmp_path / "store", None, "--api-key", "alpha,beta")

    def ask(key, grammar):
        return server.request("POST", "/completion", {"prompt": "x", "n_predict": 4,
                                                      "grammar": grammar},
                              headers={"Authorization": f"Bearer {key}"})[0]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        # Refused after all the work that is allowed; those of alpha wait for each other.
        hard = [pool.submit(ask, "alpha", "root ::= " + '"a"? ' * (15000 + i)) for i in range(6)]
        while server.get("/health")[0] != 200 or not any(future.done() for future in hard):
            time.sleep(0.01)
        assert ask("beta", 'root ::= "a"') == 200
        assert not all(future.done() for future in hard)
        assert {future.result() for future in hard} == {400}
    assert server.stop() == 0


def test_an_ambiguous_grammar_fails_and_the_session_stays(server):
    server.post("/v1/chat/completions", {"session_id": "ambiguous", "messages": user("Hi"),
                                         "max_tokens": 4, "temperature": 0})
    body = {"session_id": "ambiguous", "messages": user("Go on."), "max_tokens": 1000,
            "temperature": 0, "grammar": 'root ::= s\ns ::= "a" s "a" | "a" s | s "a" | "a"\n'}
    status, answer = server.request("POST", "/v1/chat/completions", body)
    assert status == 400 and "ambiguous" in answer["error"]["message"], answer
    last = json.loads(server.events("/v1/chat/completions", {**body, "stream": True})[-1])
    assert "ambiguous" in last["error"]["message"]
    session = server.get("/v1/sessions/ambiguous")[1]
    assert session["turns"] == 1
    assert server.post("/v1/sessions/ambiguous/verify", "")["intact"] is True
    answer = server.post("/v1/chat/completions", {**body, "grammar": 'root ::= "ok"'})
    assert answer["choices"][0]["message"]["content"] == "ok" and answer["stet"]["turn"] == 2


def test_run_takes_schemas_and_grammars(stet, model, tmp_path):
    schema = SCHEMAS["object"]
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema))
    for given in (json.dumps(schema), path):
        result = stet("run", model, "Ann is seven.", "--temp", "0", "--json-schema", given)
        assert result.returncode == 0, result.stderr
        check(result.stdout, schema)
    grammar = tmp_path / "grammar.gbnf"
    grammar.write_text('root ::= "yes" | "no"\n')
    result = stet("run", model, "Is it?", "--temp", "0", "--grammar", grammar)
    assert result.stdout.strip() in ("yes", "no")
    grammar.write_text("root ::= other\n")
    result = stet("run", model, "Is it?", "--grammar", grammar)
    assert result.returncode == 2 and "other" in result.stderr
    result = stet("run", model, "Is it?", "--grammar", tmp_path / "none.gbnf")
    assert result.returncode != 0 and "none.gbnf" in result.stderr
