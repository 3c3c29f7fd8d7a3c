// A GGUF model file, read with every size checked. Format: github.com/ggml-org/ggml docs/gguf.md,
// versions 2 and 3, little-endian.
//
// A File is immutable after open(); any thread may read it. Tensor data stay in the mapped file.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/env.h"
#include "base/hash.h"
#include "stet/status.h"

namespace stet::gguf {

// Values are ids of the file format, equal to ggml's ggml_type.
enum class TensorType : std::uint32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q4_1 = 3,
    q5_0 = 6,
    q5_1 = 7,
    q8_0 = 8,
    q8_1 = 9,
    q2_k = 10,
    q3_k = 11,
    q4_k = 12,
    q5_k = 13,
    q6_k = 14,
    q8_k = 15,
    iq2_xxs = 16,
    iq2_xs = 17,
    iq3_xxs = 18,
    iq1_s = 19,
    iq4_nl = 20,
    iq3_s = 21,
    iq2_s = 22,
    iq4_xs = 23,
    i8 = 24,
    i16 = 25,
    i32 = 26,
    i64 = 27,
    f64 = 28,
    iq1_m = 29,
    bf16 = 30,
    tq1_0 = 34,
    tq2_0 = 35,
    mxfp4 = 39,
    nvfp4 = 40,
    q1_0 = 41,
    q2_0 = 42,
};

struct TypeTraits {
    std::string_view name;         // "q4_k"
    std::uint32_t block_elements;  // elements a block
    std::uint32_t block_bytes;
};
// nullptr for an id that is not in the table.
const TypeTraits* type_traits(TensorType type);

struct Tensor {
    std::string name;
    TensorType type;
    std::array<std::uint64_t, 4> shape;  // shape[0] is the contiguous one (row length); 1 if absent
    std::uint32_t dimensions;            // 1..4
    std::uint64_t offset_bytes;          // from the start of its file
    std::uint64_t size_bytes;
    std::uint32_t file_index;  // which split file holds it
};

// Arrays keep their elements packed by kind: all integers and bools as i64, all floats as f64.
struct IntArray {
    std::vector<std::int64_t> values;
};
struct FloatArray {
    std::vector<double> values;
};
struct StringArray {
    std::vector<std::string> values;
};
using Value = std::variant<std::uint64_t, std::int64_t, double, bool, std::string, IntArray,
                           FloatArray, StringArray>;

class File {
  public:
    // Opens one file, or all shards when given the first of NAME-00001-of-0000N.gguf. Fails with
    //   corruption        not GGUF, cut short, a tensor beyond the end, counts that can't be
    //   incompatible      a GGUF version, byte order or type that this program can't read
    //   invalid_argument  a shard other than the first, or shards not named as above
    //   conflict          the file changed while it was opened
    //   not_found, io     the file itself
    // Every message names the file and what was expected and found.
    static Result<std::unique_ptr<File>> open(Env& env, const std::filesystem::path& path);

    const std::filesystem::path& path() const { return paths_.front(); }
    const std::filesystem::path& path(std::uint32_t file_index) const;
    // As it was when the file was opened; later changes of the file on disk don't show here.
    const FileInfo& info(std::uint32_t file_index) const;
    std::uint64_t size_bytes() const;  // of all shards
    const std::map<std::string, Value, std::less<>>& metadata() const { return metadata_; }
    const std::vector<Tensor>& tensors() const { return tensors_; }  // in file order
    const Tensor* find_tensor(std::string_view name) const;
    std::span<const std::byte> data(const Tensor& tensor) const;
    // Whole mapped file `index`; tensor data lie inside.
    std::span<const std::byte> mapped(std::uint32_t file_index) const;
    std::size_t file_count() const { return mappings_.size(); }

    // Typed look-ups; nullopt when missing or of another kind. Numbers convert where exact.
    bool has(std::string_view key) const;
    std::optional<std::string_view> get_string(std::string_view key) const;
    std::optional<std::uint64_t> get_uint(std::string_view key) const;
    std::optional<std::int64_t> get_int(std::string_view key) const;
    std::optional<double> get_float(std::string_view key) const;
    std::optional<bool> get_bool(std::string_view key) const;
    const std::vector<std::string>* get_strings(std::string_view key) const;
    const std::vector<std::int64_t>* get_ints(std::string_view key) const;
    const std::vector<double>* get_floats(std::string_view key) const;

  private:
    File() = default;
    Status add_shard(Env& env, const std::filesystem::path& path);
    Status add_other_shards(Env& env);
    Status index_tensors();

    std::vector<std::filesystem::path> paths_;
    std::vector<FileInfo> infos_;
    std::vector<std::unique_ptr<Mapping>> mappings_;
    std::map<std::string, Value, std::less<>> metadata_;
    std::vector<Tensor> tensors_;
    std::unordered_map<std::string, std::size_t> tensor_index_;
};

// SHA-256 over the metadata that changes results and the tensor table with each tensor's data hash
// (design, section 3). Renaming or moving the file keeps it; one changed weight changes it. What
// does not change results (general.name, general.* texts, chat template, urls) is left out.
Hash256 compute_fingerprint(const File& file);
// The same, remembered in `cache_directory` by path + size + mtime + inode, because hashing reads
// every byte of the file. A damaged or unwritable cache only costs time.
Result<Hash256> fingerprint(Env& env, const File& file,
                            const std::filesystem::path& cache_directory);

}  // namespace stet::gguf
