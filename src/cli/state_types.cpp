#include "cli/state_types.h"

namespace stet::cli {

void add_state_types(CLI::App& verb, std::string& k_type, std::string& v_type,
                     const std::string& group) {
    const auto types = CLI::IsMember({"f16", "q8_0", "f32"});
    verb.add_option("--ctk", k_type, "Type of keys in the state (also -ctk)")
        ->check(types)
        ->capture_default_str()
        ->group(group);
    verb.add_option("--ctv", v_type, "Type of values in the state (also -ctv)")
        ->check(types)
        ->capture_default_str()
        ->group(group);
}

model::StateTypes state_types(const std::string& k_type, const std::string& v_type) {
    constexpr auto kDefault = memory::ElementType::f16;
    return {memory::element_type_of(k_type).value_or(kDefault),
            memory::element_type_of(v_type).value_or(kDefault)};
}

}  // namespace stet::cli
