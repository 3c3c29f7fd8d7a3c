// The flags that choose the types of K/V rows.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "model/schema_builder.h"

namespace stet::cli {

// --ctk and --ctv, of which only names of types get through. Both begin as "f16".
void add_state_types(CLI::App& verb, std::string& k_type, std::string& v_type,
                     const std::string& group = "Options");
model::StateTypes state_types(const std::string& k_type, const std::string& v_type);

}  // namespace stet::cli
