// The words of JSON Schema (draft 2020-12), by what they do.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

namespace stet::grammar {

// xgrammar looks at the first of these that is there, and at nothing beside it.
inline constexpr std::array<std::string_view, 6> kDeciders = {"$ref",  "const", "enum",
                                                              "anyOf", "oneOf", "allOf"};

// Not enforced by xgrammar 0.2.9.
inline constexpr std::array<std::string_view, 13> kUnsupported = {"not",
                                                                  "if",
                                                                  "then",
                                                                  "else",
                                                                  "dependentRequired",
                                                                  "dependentSchemas",
                                                                  "dependencies",
                                                                  "contains",
                                                                  "minContains",
                                                                  "maxContains",
                                                                  "uniqueItems",
                                                                  "$dynamicRef",
                                                                  "$recursiveRef"};

// Of strings, those that xgrammar has an expression for.
inline constexpr std::array<std::string_view, 14> kFormats = {
    "email",         "date",
    "time",          "date-time",
    "duration",      "ipv4",
    "ipv6",          "hostname",
    "uuid",          "uri",
    "uri-reference", "uri-template",
    "json-pointer",  "relative-json-pointer"};

inline constexpr std::array<std::string_view, 8> kObjectWords = {
    "properties", "patternProperties", "additionalProperties", "unevaluatedProperties",
    "required",   "minProperties",     "maxProperties",        "propertyNames"};
inline constexpr std::array<std::string_view, 5> kArrayWords = {
    "items", "prefixItems", "unevaluatedItems", "minItems", "maxItems"};
inline constexpr std::array<std::string_view, 4> kStringWords = {"minLength", "maxLength",
                                                                 "pattern", "format"};
inline constexpr std::array<std::string_view, 5> kNumberWords = {
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};

// What is asked of values of one type. Where a schema names no type, these do.
struct TypeWords {
    std::string_view type;
    std::span<const std::string_view> words;
};
inline constexpr std::array<TypeWords, 4> kTypeWords = {{{"object", kObjectWords},
                                                         {"array", kArrayWords},
                                                         {"string", kStringWords},
                                                         {"number", kNumberWords}}};

// A piece of a stranger's text, short and on one line.
inline std::string shown(std::string_view text) {
    constexpr std::size_t kShownMax = 60;
    std::string piece(text.substr(0, kShownMax));
    for (char& c : piece) {
        if (static_cast<unsigned char>(c) < ' ') c = ' ';
    }
    return text.size() > kShownMax ? piece + "..." : piece;
}

}  // namespace stet::grammar
