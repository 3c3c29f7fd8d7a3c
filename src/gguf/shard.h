// One GGUF file in memory -> its metadata and tensor table, with every count, size and offset
// proved against the bytes there before it is used or allocated. Internal to the gguf layer.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "gguf/gguf.h"

namespace stet::gguf {

struct Shard {
    std::map<std::string, Value, std::less<>> metadata;
    std::vector<Tensor> tensors;
};

// `what` names the file in messages. Pure: no I/O, any thread.
Result<Shard> parse_shard(std::span<const std::byte> bytes, const std::string& what,
                          std::uint32_t file_index);

// "Numbers convert where exact"; nullopt otherwise.
std::optional<std::uint64_t> to_uint(const Value& value);
std::optional<std::int64_t> to_int(const Value& value);

}  // namespace stet::gguf
