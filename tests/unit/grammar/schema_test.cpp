// What schemas allow, and that what can't be enforced is refused by name instead of left out.
#include "grammar/schema.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/grammar/grammar_support.h"

namespace stet::grammar {
namespace {

struct Example {
    std::string schema;
    std::vector<std::string> allowed;
    std::vector<std::string> denied;
};

std::vector<Example> combinations() {
    return {
        {R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})", {"12", "\"a\""}, {"true"}},
        {R"({"oneOf": [
            {"type": "object", "properties": {"k": {"const": "a"}, "x": {"type": "integer"}},
             "required": ["k", "x"]},
            {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}]})",
         {R"({"k": "a", "x": 1})", R"({"k": "b"})"},
         {R"({"k": "a"})", R"({"k": "b", "x": 1})"}},
        {R"({"oneOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "boolean"}]})",
         {"3", "true"},
         {"12", "null"}},
        {R"({"type": "string", "anyOf": [{"minLength": 3}, {"pattern": "^[0-9]$"}]})",
         {"\"abc\"", "\"7\""},
         {"7", "\"ab\""}},
        {R"({"type": "integer", "enum": [1, 2.0, "a", null, 1.5]})",
         {"1"},
         {"\"a\"", "null", "1.5"}},
        {R"({"allOf": [{"$ref": "#/$defs/n"}], "title": "t", "$defs": {"n": {"type": "null"}}})",
         {"null"},
         {"1"}},
        {R"({"type": ["string", "null"], "maxLength": 2})", {"\"ab\"", "null"}, {"\"abc\"", "1"}},
    };
}

std::vector<Example> recursions() {
    return {
        {R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
            "v": {"type": "integer"},
            "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["v", "next"]}}})",
         {R"({"v": 1, "next": null})",
          R"({"v": 1, "next": {"v": 2, "next": {"v": 3, "next": null}}})"},
         {R"({"v": 1, "next": {"v": "2", "next": null}})", R"({"v": 1, "next": {"v": 2}})"}},
        {R"({"type": "array", "items": {"$ref": "#"}})",
         {"[]", "[ [ ], [ [ ] ] ]"},
         {"[1]", "[[1]]"}},
        {R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": 3},
             "b": {"$ref": "#/properties/a"}}, "required": ["b"]})",
         {R"({"b": 3})", R"({"a": 4, "b": 3})"},
         {R"({"b": 2})", "{}"}},
    };
}

std::vector<Example> objects() {
    return {
        // Words without a type ask for values of theirs.
        {R"({"required": ["a"]})", {R"({"a": [1]})"}, {"{}", R"({"b": 1})"}},
        {R"({"minLength": 2, "minimum": 3})", {"\"ab\"", "3"}, {"\"a\"", "2", "null"}},
        {R"({"minItems": 1})", {"[1]", R"(["a", {}])"}, {"[]"}},
        // Required names that are not described.
        {R"({"type": "object", "additionalProperties": {"type": "integer"}, "required": ["a"]})",
         {R"({"a": 1})", R"({"a": 1, "b": 2})"},
         {R"({"b": 2})", R"({"a": "x"})"}},
        // No name again, as it is or escaped.
        {R"({"type": "object", "properties": {"a": {"type": "integer"}},
             "additionalProperties": {"type": "string"}})",
         {R"({"a": 1, "b": "x"})"},
         {R"({"a": 1, "a": "x"})", R"({"\u0061": "x"})", R"({"a": "x"})"}},
        {R"({"type": "object", "propertyNames": {"pattern": "^[a-c]$"}})",
         {R"({"a": 1, "c": null})", "{}"},
         {R"({"d": 1})"}},
        {R"({"type": "object", "unevaluatedProperties": {"type": "null"}})",
         {R"({"a": null})"},
         {R"({"a": 1})"}},
        // Names of properties are no keywords.
        {R"({"type": "object", "properties": {"not": {"type": "object"}, "enum": {"type": "array"},
             "default": {"type": "object"}}})",
         {R"({"not": {"a": 1}, "enum": [1], "default": {"b": 2}})"},
         {R"({"not": 1})"}},
    };
}

std::vector<Example> texts() {
    return {
        {R"({"type": "string", "format": "time"})",
         {R"("08:30:06.28+00:00")", R"("23:59:60Z")"},
         {R"("8:30")", R"("24:00:00Z")", R"("08:30:06")"}},
        {R"({"type": "string", "format": "date-time"})",
         {R"("2018-11-13T20:20:39Z")"},
         {R"("2018-13-13T20:20:39Z")"}},
        {R"({"type": "string", "format": "ipv4"})", {R"("10.0.0.255")"}, {R"("10.0.0.256")"}},
        // What JSON does not allow in texts.
        {R"({"type": "string", "minLength": 1, "maxLength": 9})",
         {R"("a b")"},
         {"\"a\tb\"", "\"a\nb\"", "\"a\x01\"", "\"\""}},
        {R"({"type": "string"})", {R"("a\tb")"}, {"\"a\tb\""}},
    };
}

TEST(Schema, AllowsWhatItSaysAndNothingElse) {
    STET_NEED_TOKENIZER();
    Compiler compiler(*tokenizer(), vocabulary());
    for (const auto& list : {combinations(), recursions(), objects(), texts()}) {
        for (const Example& example : list) {
            const Source source{Kind::json_schema, example.schema};
            for (const std::string& text : example.allowed) {
                EXPECT_TRUE(allows(compiler, source, text)) << example.schema << "\n" << text;
            }
            for (const std::string& text : example.denied) {
                EXPECT_FALSE(allows(compiler, source, text)) << example.schema << "\n" << text;
            }
        }
    }
}

struct Refusal {
    std::string schema;
    std::string why;
};

std::vector<Refusal> refusals() {
    return {
        {R"({"not": {"type": "string"}})", "'not'"},
        {R"({"properties": {"a": {"if": {}, "then": {}}}})", "'if'"},
        {R"({"type": "array", "contains": {"const": 1}})", "'contains'"},
        {R"({"type": "array", "items": {}, "uniqueItems": true})", "'uniqueItems'"},
        {R"({"type": "object", "dependentRequired": {"a": ["b"]}})", "'dependentRequired'"},
        {R"({"$ref": "#/$defs/a", "minLength": 2, "$defs": {"a": {"type": "string"}}})",
         "'minLength' beside '$ref'"},
        {R"({"properties": {"a": {}}, "anyOf": [{"required": ["a"]}]})",
         "'properties' beside 'anyOf'"},
        {R"({"anyOf": [{"type": "string"}], "oneOf": [{}]})", "'oneOf' beside 'anyOf'"},
        {R"({"type": "object", "anyOf": [{"type": "string"}]})", "'type' beside 'anyOf'"},
        {R"({"allOf": [{"minimum": 1}, {"maximum": 2}]})", "'allOf' with more than one"},
        {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "disjoint"},
        {R"({"$ref": "http://x/y"})", "another document"},
        {R"({"$ref": "#/$defs/none"})", "names nothing"},
        {R"({"$ref": 1})", "$ref"},
        {R"({"type": "string", "format": "idn-email"})", "idn-email"},
        {R"({"type": "string", "format": "date", "pattern": "1"})", "'pattern' beside 'format'"},
        {R"({"type": "string", "format": "date", "minLength": 3})", "minLength"},
        {R"({"type": "string", "pattern": "(?!a)b"})", "regex"},
        {R"({"type": "number", "multipleOf": 0.5})", "multipleOf"},
        {R"({"type": "frob"})", "frob"},
        {R"({"patternProperties": {"^a": {}}, "properties": {"b": {}}})", "'patternProperties'"},
        {R"({"patternProperties": {"^a": {}, "b$": {"type": "null"}}})", "more than one pattern"},
        {R"({"propertyNames": {"pattern": "^a$"}, "required": ["b"]})", "'propertyNames'"},
        {R"({"type": "object", "minProperties": 3})", "'minProperties'"},
        {R"({"type": "object", "required": ["a"], "additionalProperties": false})",
         "allows nothing"},
        {R"({"type": "string", "const": 1})", "allows nothing"},
        {R"({"items": [{"type": "string"}]})", "items"},
        // Also where only a reference leads.
        {R"({"$ref": "#/x/y", "x": {"y": {"not": {}}}})", "'not'"},
        {R"({"anyOf": [{"$ref": "#/$defs/a%7Eb"}], "$defs": {"a~b": {"not": {}}}})",
         "names nothing"},
        {R"({"anyOf": [{"$ref": "#/$defs/a~0%62"}], "$defs": {"a~b": {"not": {}}}})", "'not'"},
        {"false", "cannot accept"},
        {"{", "not valid JSON"},
        {"[1]", "neither an object"},
        {"{\"minimum\": 1e999}", "too large"},
    };
}

TEST(Schema, WhatCantBeEnforcedIsRefusedByName) {
    STET_NEED_TOKENIZER();
    Compiler compiler(*tokenizer(), vocabulary());
    for (const Refusal& refusal : refusals()) {
        const auto grammar = compiler.compile({Kind::json_schema, refusal.schema});
        ASSERT_FALSE(grammar) << refusal.schema;
        const std::string line = grammar.status().to_string();
        EXPECT_EQ(grammar.status().code(), Code::invalid_argument) << line;
        EXPECT_NE(line.find(refusal.why), std::string::npos) << refusal.schema << "\n" << line;
        EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    }
}

TEST(Schema, NotesAreNoRules) {
    STET_NEED_TOKENIZER();
    Compiler compiler(*tokenizer(), vocabulary());
    const Source source{Kind::json_schema, R"({"$schema": "https://json-schema.org/draft/2020-12",
        "$id": "x", "title": "t", "description": "d", "$comment": "c", "default": 1,
        "examples": [1], "deprecated": true, "x-order": 3, "type": "integer", "format": "int64",
        "uniqueItems": false})"};
    EXPECT_TRUE(allows(compiler, source, "7"));
    EXPECT_FALSE(allows(compiler, source, "\"7\""));
}

}  // namespace
}  // namespace stet::grammar
