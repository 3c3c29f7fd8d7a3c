// Collects the planes that layers declare into the groups of a schema.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "exec/attention.h"
#include "memory/schema.h"
#include "stet/status.h"

namespace stet::model {

// Where a layer's rows are.
struct PlaneSlot {
    std::size_t group = 0;  // of the schema, or exec::Graph::kStepGroup
    std::size_t plane = 0;  // of the group
};

struct StateTypes {
    memory::ElementType k = memory::ElementType::f16;
    memory::ElementType v = memory::ElementType::f16;
};

class SchemaBuilder {
  public:
    // Without memory every plane is one of the step's own (step_rows()).
    SchemaBuilder(const StateTypes& types, bool has_memory)
        : types_(types), has_memory_(has_memory) {}

    const StateTypes& types() const { return types_; }

    // Adds a plane to the group of that name, lifetime and parameter, made when it is first asked
    // for. invalid_argument when the type can't hold rows of so many elements.
    Result<PlaneSlot> add(std::string_view group, memory::Lifetime lifetime,
                          std::uint32_t parameter, std::string_view plane, std::size_t layer,
                          memory::ElementType type, std::uint32_t elements);
    // The usual cases: group "attention" (window 0) or "window"; group "recurrent" in f32.
    Result<PlaneSlot> add_rows(std::uint32_t window, std::string_view plane, std::size_t layer,
                               memory::ElementType type, std::uint32_t elements);
    Result<PlaneSlot> add_block(std::string_view plane, std::size_t layer, std::uint32_t elements);

    // Planes declared so far.
    std::size_t plane_count() const { return plane_count_; }

    // A plane that was added before, and how long its rows are.
    std::optional<PlaneSlot> find(std::string_view group, std::string_view plane,
                                  std::size_t layer) const;
    std::uint32_t elements(const PlaneSlot& slot) const {
        return schema_.groups[slot.group].planes[slot.plane].elements;
    }

    memory::Schema take_schema() { return std::move(schema_); }
    memory::Group take_step_rows() { return std::move(step_rows_); }

  private:
    StateTypes types_;
    bool has_memory_;
    std::size_t plane_count_ = 0;
    memory::Schema schema_;
    memory::Group step_rows_{"step", memory::Lifetime::tokens, 0, {}};
};

}  // namespace stet::model
