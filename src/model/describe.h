// A plan in words and numbers, for people and programs that look at a model before they run it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "model/config.h"

namespace stet::model {

using FactValue = std::variant<std::uint64_t, double, std::string>;

// "attention": heads 9, kv_heads 3, ...; names as the plans have them. What is off is left out.
struct Facts {
    std::string kind;
    std::vector<std::pair<std::string_view, FactValue>> values;
    bool operator==(const Facts&) const = default;
};

struct LayerFacts {
    std::size_t first = 0;  // executed layers [first, last] are alike
    std::size_t last = 0;
    std::vector<Facts> mixers;
    Facts ffn;
    std::vector<std::string> groups;  // of the schema, that they have rows in
};

// The layers in order, equal neighbours together.
std::vector<LayerFacts> describe_layers(const Config& config);

// What reads a prompt before the layers; its kind is empty where the model has no encoder.
Facts describe_encoder(const Config& config);

// "attention, 9 heads, 3 kv_heads, ..." on one line.
std::string to_line(const Facts& facts);

}  // namespace stet::model
