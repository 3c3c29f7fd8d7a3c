// What makes two files the same model, and a small cache of the answer.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/bytes.h"
#include "base/try.h"
#include "gguf/gguf.h"

namespace stet::gguf {
namespace {

using std::chrono::nanoseconds;

// Names the recipe: a change of what is hashed must change it.
constexpr std::string_view kRecipe = "stet model fingerprint 1";
constexpr std::size_t kChunkBytes = 8 << 20;  // part of the recipe
constexpr unsigned kThreadsMax = 4;

constexpr std::uint32_t kCacheMagic = 0x31504653;  // "SFP1"
constexpr std::uint64_t kCacheBytesMax = 4 << 20;
// File systems stamp changes with a coarse clock: a file changed twice within a tick looks the
// same both times. A file this young is not remembered.
constexpr std::int64_t kSettledNs = 2'000'000'000;

bool starts_with(std::string_view text, std::string_view prefix) {
    return text.substr(0, prefix.size()) == prefix;
}

// Names, texts, links, how the file is cut and laid out: none changes a result.
bool changes_results(std::string_view key) {
    if (key == "general.architecture") return true;
    return !starts_with(key, "general.") && !starts_with(key, "split.") &&
           !starts_with(key, "tokenizer.chat_template");
}

// Floats by their bits, so that equal hashes mean equal values, NaN and -0 included.
std::uint64_t bits_of(double value) {
    return std::bit_cast<std::uint64_t>(value);
}

struct ValueHasher {
    Sha256& sha;

    void operator()(std::uint64_t value) const { sha.add("uint").add(value); }
    void operator()(std::int64_t value) const {
        // The same number is the same value, signed or not.
        if (value >= 0) return (*this)(static_cast<std::uint64_t>(value));
        sha.add("int").add(static_cast<std::uint64_t>(value));
    }
    void operator()(double value) const { sha.add("float").add(bits_of(value)); }
    void operator()(bool value) const { sha.add("bool").add(std::uint64_t{value}); }
    void operator()(const std::string& value) const { sha.add("string").add(value); }
    void operator()(const IntArray& array) const {
        sha.add("ints").add(std::uint64_t{array.values.size()});
        sha.add_bytes(std::as_bytes(std::span(array.values)));
    }
    void operator()(const FloatArray& array) const {
        sha.add("floats").add(std::uint64_t{array.values.size()});
        sha.add_bytes(std::as_bytes(std::span(array.values)));
    }
    // Packed first: a call for each of a million short strings costs more than their hash.
    void operator()(const StringArray& array) const {
        sha.add("strings").add(std::uint64_t{array.values.size()});
        Writer writer;
        for (const std::string& text : array.values) writer.write_string(text);
        sha.add_bytes(writer.data());
    }
};

using Chunks = std::vector<std::span<const std::byte>>;

std::vector<Hash256> hash_chunks(const Chunks& chunks) {
    std::vector<Hash256> digests(chunks.size());
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
        for (std::size_t i = next++; i < chunks.size(); i = next++) {
            digests[i] = Sha256().add_bytes(chunks[i]).finish();
        }
    };
    const unsigned threads =
        std::min(kThreadsMax, std::max(1u, std::thread::hardware_concurrency()));
    std::vector<std::jthread> helpers;
    try {
        while (helpers.size() + 1 < threads) helpers.emplace_back(work);
    } catch (const std::exception&) {
        // Fewer threads only take longer.
    }
    work();
    helpers.clear();  // joins
    return digests;
}

void hash_tensors(Sha256& sha, const File& file) {
    std::vector<const Tensor*> tensors;
    for (const Tensor& tensor : file.tensors()) tensors.push_back(&tensor);
    std::sort(tensors.begin(), tensors.end(),
              [](const Tensor* a, const Tensor* b) { return a->name < b->name; });
    Chunks chunks;
    for (const Tensor* tensor : tensors) {
        for (auto rest = file.data(*tensor); !rest.empty();) {
            chunks.push_back(rest.first(std::min(rest.size(), kChunkBytes)));
            rest = rest.subspan(chunks.back().size());
        }
    }
    const std::vector<Hash256> digests = hash_chunks(chunks);
    sha.add(std::uint64_t{tensors.size()});
    auto digest = digests.begin();
    for (const Tensor* tensor : tensors) {
        sha.add(tensor->name).add(static_cast<std::uint64_t>(tensor->type));
        for (const std::uint64_t length : tensor->shape) sha.add(length);
        sha.add(tensor->size_bytes);
        const std::uint64_t count = (tensor->size_bytes + kChunkBytes - 1) / kChunkBytes;
        for (std::uint64_t i = 0; i < count; ++i) sha.add(*digest++);
    }
}

// Everything that must be as it was for a remembered fingerprint to hold.
void write_identity(Writer& writer, const File& file) {
    writer.write(static_cast<std::uint64_t>(file.file_count()));
    for (std::uint32_t i = 0; i < file.file_count(); ++i) {
        const FileInfo& info = file.info(i);
        std::error_code error;
        writer.write_string(std::filesystem::absolute(file.path(i), error).native());
        writer.write(info.size_bytes);
        writer.write(info.inode);
        writer.write(info.modified_ns);
    }
}

std::vector<std::byte> cache_entry(const File& file, const Hash256& fingerprint) {
    Writer writer;
    writer.write(kCacheMagic);
    writer.write_string(kRecipe);
    write_identity(writer, file);
    writer.write_bytes(std::as_bytes(std::span(fingerprint.bytes)));
    const Hash128 checksum = xxh3_128(writer.data());
    writer.write_bytes(std::as_bytes(std::span(checksum.bytes)));
    return writer.take();
}

// The entry is compared as a whole with the one that this file would have: all of it is checked
// and nothing of it is trusted but the fingerprint.
std::optional<Hash256> read_cache(Env& env, const File& file, const std::filesystem::path& path) {
    const auto found = read_file(env, path, kCacheBytesMax);
    if (!found.is_ok()) return std::nullopt;
    constexpr std::size_t kTailBytes = sizeof(Hash256::bytes) + sizeof(Hash128::bytes);
    if (found->size() < kTailBytes) return std::nullopt;
    Hash256 fingerprint;
    std::memcpy(fingerprint.bytes.data(), found->data() + found->size() - kTailBytes,
                fingerprint.bytes.size());
    if (*found != cache_entry(file, fingerprint)) return std::nullopt;
    return fingerprint;
}

// Whether what was hashed is what the path names, and has been for a while.
bool is_settled(Env& env, const File& file) {
    const std::int64_t now_ns =
        std::chrono::duration_cast<nanoseconds>(env.now().time_since_epoch()).count();
    for (std::uint32_t i = 0; i < file.file_count(); ++i) {
        const FileInfo& opened = file.info(i);
        const auto current = env.info(file.path(i));
        if (!current.is_ok() || current->size_bytes != opened.size_bytes ||
            current->inode != opened.inode || current->modified_ns != opened.modified_ns) {
            return false;
        }
        if (now_ns - opened.modified_ns < kSettledNs) return false;
    }
    return true;
}

}  // namespace

Hash256 compute_fingerprint(const File& file) {
    Sha256 sha;
    sha.add(kRecipe);
    for (const auto& [key, value] : file.metadata()) {
        if (!changes_results(key)) continue;
        sha.add(key);
        std::visit(ValueHasher{sha}, value);
    }
    sha.add("tensors");
    hash_tensors(sha, file);
    return sha.finish();
}

Result<Hash256> fingerprint(Env& env, const File& file,
                            const std::filesystem::path& cache_directory) {
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(file.path(), error);
    const std::string key = Sha256().add(absolute.native()).finish().hex();
    const std::filesystem::path path = cache_directory / (key + ".fingerprint");
    if (const auto remembered = read_cache(env, file, path)) return *remembered;
    const Hash256 computed = compute_fingerprint(file);
    if (is_settled(env, file) && env.make_directory(cache_directory).is_ok()) {
        // Best effort: without the cache the next start only takes longer.
        static_cast<void>(replace_file(env, path, cache_entry(file, computed)));
    }
    return computed;
}

}  // namespace stet::gguf
