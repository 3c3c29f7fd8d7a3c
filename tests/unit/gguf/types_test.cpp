// Our table of types against ggml's.
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gguf/gguf.h"

namespace stet::gguf {
namespace {

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return text;
}

TEST(Types, AgreeWithGgml) {
    std::size_t known = 0;
    for (int id = 0; id < GGML_TYPE_COUNT; ++id) {
        const auto type = static_cast<ggml_type>(id);
        const TypeTraits* traits = type_traits(TensorType{static_cast<std::uint32_t>(id)});
        const bool is_withdrawn = ggml_blck_size(type) == 0;
        ASSERT_EQ(traits == nullptr, is_withdrawn) << id;
        if (is_withdrawn) continue;
        ++known;
        EXPECT_EQ(traits->name, lower(ggml_type_name(type))) << id;
        EXPECT_EQ(traits->block_elements, ggml_blck_size(type)) << traits->name;
        EXPECT_EQ(traits->block_bytes, ggml_type_size(type)) << traits->name;
    }
    EXPECT_EQ(known, 35u);
    EXPECT_EQ(type_traits(TensorType{GGML_TYPE_COUNT}), nullptr);
    EXPECT_EQ(type_traits(TensorType{0xffffffff}), nullptr);
}

}  // namespace
}  // namespace stet::gguf
