// File::open: one file, or all shards of a split one.
#include <fmt/format.h>

#include "base/quote.h"
#include "base/try.h"
#include "gguf/shard.h"

namespace stet::gguf {
namespace {

using Metadata = std::map<std::string, Value, std::less<>>;

std::string shard_suffix(std::uint64_t number, std::uint64_t count) {
    return fmt::format("-{:05}-of-{:05}.gguf", number + 1, count);
}

bool same_file(const FileInfo& a, const FileInfo& b) {
    return a.size_bytes == b.size_bytes && a.inode == b.inode && a.modified_ns == b.modified_ns;
}

std::optional<std::uint64_t> get_count(const Metadata& metadata, std::string_view key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::nullopt : to_uint(found->second);
}

// Numbers a shard states about itself; absent ones fail, since a shard without them may be any
// file that happens to have the name.
Status check_split(const Metadata& metadata, const std::string& what, std::string_view key,
                   std::uint64_t expected) {
    const auto found = get_count(metadata, key);
    if (found == expected) return {};
    return Status(
        Code::corruption,
        fmt::format("{}: expected {} = {}, found {}: the shards don't belong together", what, key,
                    expected, found ? std::to_string(*found) : std::string("none")));
}

}  // namespace

Result<std::unique_ptr<File>> File::open(Env& env, const std::filesystem::path& path) {
    std::unique_ptr<File> file(new File());
    STET_TRY(file->add_shard(env, path));
    STET_TRY(file->add_other_shards(env));
    STET_TRY(file->index_tensors());
    return file;
}

Status File::add_shard(Env& env, const std::filesystem::path& path) {
    STET_ASSIGN(const FileInfo before, env.info(path));
    STET_ASSIGN(auto mapping, env.map(path));
    STET_ASSIGN(const FileInfo after, env.info(path));
    if (!same_file(before, after) || mapping->bytes().size() != after.size_bytes) {
        return Status(Code::conflict, fmt::format("{}: changed while it was opened: try again "
                                                  "when it is complete",
                                                  path.native()));
    }
    const auto index = static_cast<std::uint32_t>(mappings_.size());
    STET_ASSIGN(Shard shard, parse_shard(mapping->bytes(), path.native(), index));
    if (index == 0) {
        metadata_ = std::move(shard.metadata);
    } else {
        // The first shard's metadata are the model's; the others repeat them or have none.
        STET_TRY(check_split(shard.metadata, path.native(), "split.no", index));
        STET_TRY(check_split(shard.metadata, path.native(), "split.count",
                             get_count(metadata_, "split.count").value_or(0)));
    }
    paths_.push_back(path);
    infos_.push_back(after);
    mappings_.push_back(std::move(mapping));
    tensors_.insert(tensors_.end(), std::make_move_iterator(shard.tensors.begin()),
                    std::make_move_iterator(shard.tensors.end()));
    return {};
}

Status File::add_other_shards(Env& env) {
    const std::uint64_t count = get_count(metadata_, "split.count").value_or(0);
    if (count <= 1) return {};
    const std::string first = path().native();
    const std::uint64_t number = get_count(metadata_, "split.no").value_or(0);
    if (number != 0) {
        return Status(Code::invalid_argument,
                      fmt::format("{}: shard {} of {}: open the first, NAME{}", first, number + 1,
                                  count, shard_suffix(0, count)));
    }
    const std::string suffix = shard_suffix(0, count);
    if (!std::string_view(first).ends_with(suffix)) {
        return Status(Code::invalid_argument,
                      fmt::format("{}: the first of {} shards must be named NAME{} to find the "
                                  "others",
                                  first, count, suffix));
    }
    const std::string prefix = first.substr(0, first.size() - suffix.size());
    for (std::uint64_t i = 1; i < count; ++i) {
        STET_TRY(add_shard(env, prefix + shard_suffix(i, count))
                     .with_context(fmt::format("{}: shard {} of {}", first, i + 1, count)));
    }
    if (!has("split.tensors.count")) return {};
    return check_split(metadata_, first, "split.tensors.count", tensors_.size());
}

Status File::index_tensors() {
    tensor_index_.reserve(tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        if (!tensor_index_.try_emplace(tensors_[i].name, i).second) {
            return Status(Code::corruption, fmt::format("{}: tensor {} found twice",
                                                        path(tensors_[i].file_index).native(),
                                                        quote_name(tensors_[i].name)));
        }
    }
    return {};
}

}  // namespace stet::gguf
