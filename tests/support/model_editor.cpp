#include "support/model_editor.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/env.h"

namespace stet::test {
namespace {

void copy_key(GgufWriter& writer, const std::string& key, const gguf::Value& value) {
    if (const auto* number = std::get_if<std::uint64_t>(&value)) {
        writer.set_u64(key, *number);
    } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
        writer.set_i64(key, *integer);
    } else if (const auto* real = std::get_if<double>(&value)) {
        writer.set_f64(key, *real);
    } else if (const auto* flag = std::get_if<bool>(&value)) {
        writer.set_bool(key, *flag);
    } else if (const auto* text = std::get_if<std::string>(&value)) {
        writer.set_string(key, *text);
    } else if (const auto* integers = std::get_if<gguf::IntArray>(&value)) {
        writer.set_i32s(key, {integers->values.begin(), integers->values.end()});
    } else if (const auto* reals = std::get_if<gguf::FloatArray>(&value)) {
        writer.set_f32s(key, {reals->values.begin(), reals->values.end()});
    } else {
        writer.set_strings(key, std::get<gguf::StringArray>(value).values);
    }
}

}  // namespace

std::unique_ptr<gguf::File> edit_model(const gguf::File& file, const ModelEdits& edits,
                                       const std::filesystem::path& path) {
    GgufWriter writer;
    for (const auto& [key, value] : file.metadata()) {
        if (!edits.key || !edits.key(writer, key, value)) copy_key(writer, key, value);
    }
    for (const gguf::Tensor& tensor : file.tensors()) {
        const auto data = file.data(tensor);
        if (edits.tensor && edits.tensor(writer, tensor, data)) continue;
        writer.add_tensor(tensor.name, tensor.type,
                          {tensor.shape.begin(), tensor.shape.begin() + tensor.dimensions},
                          {data.begin(), data.end()});
    }
    const std::vector<std::byte> bytes = writer.bytes();
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    out.close();
    EXPECT_TRUE(out.good()) << path;
    auto copy = gguf::File::open(Env::posix(), path);
    EXPECT_TRUE(copy) << copy.status().to_string();
    return copy ? *std::move(copy) : nullptr;
}

}  // namespace stet::test
