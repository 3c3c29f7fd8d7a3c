// A copy of a model file with some of its metadata or tensors changed: what a damaged, foreign or
// hostile file could say. Small models only: everything is copied.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "gguf/gguf.h"
#include "support/gguf_writer.h"

namespace stet::test {

struct ModelEdits {
    // Called for each key of the file; true: it wrote the key itself, or leaves it out.
    std::function<bool(GgufWriter& writer, const std::string& key, const gguf::Value& value)> key =
        nullptr;
    // The same for tensors.
    std::function<bool(GgufWriter& writer, const gguf::Tensor& tensor,
                       std::span<const std::byte> data)>
        tensor = nullptr;
};

// Fails the current test and answers null when the copy can't be written or isn't a GGUF file.
std::unique_ptr<gguf::File> edit_model(const gguf::File& file, const ModelEdits& edits,
                                       const std::filesystem::path& path);

}  // namespace stet::test
