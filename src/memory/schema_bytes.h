// A schema as bytes, for files that say of what their state is made (state/encode.h has the
// layout).
#pragma once

#include "base/bytes.h"
#include "memory/schema.h"
#include "stet/status.h"

namespace stet::memory {

void write_schema(Writer& writer, const Schema& schema);
// What was written; not that it makes sense.
Result<Schema> read_schema(Reader& reader);
Result<ElementType> read_element_type(Reader& reader, std::string_view field);

// That a schema which a file brought along can have pages: corruption names the group and plane
// that can't. Its pages are at most kPageBytesMax.
inline constexpr std::uint64_t kPageBytesMax = 4ULL << 30;
Status check_schema(const Schema& schema);

}  // namespace stet::memory
