// The tables of filters, tests, global functions and methods. Each file of the library contributes
// one table; names are looked up when a template is parsed.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/value.h"

namespace stet::text::jinja {

struct FilterEntry {
    std::string_view name;
    Value (*call)(Runtime&, const Value& input, Arguments&);
};

struct TestEntry {
    std::string_view name;
    bool (*call)(Runtime&, const Value& input, Arguments&);
};

// Null when there is none of that name.
const FilterEntry* find_filter(std::string_view name);
const TestEntry* find_test(std::string_view name);

std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> selection_filters();
std::span<const FilterEntry> number_filters();
std::span<const TestEntry> tests();
std::span<const FunctionEntry> global_functions();

}  // namespace stet::text::jinja
