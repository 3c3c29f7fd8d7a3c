// State of llama.cpp that fits a schema but for some edits: KIND, CONTAINER, LENGTH, SEED, then
// edits of five bytes each. Fields are changed while the file is written, so that all that follows
// still stands where it belongs; bytes are changed, cut or doubled afterwards.
#include <array>
#include <limits>

#include "fuzz/fuzz.h"
#include "memory/page_pool.h"
#include "state/encode.h"
#include "state/import/import.h"
#include "unit/state/llama_kinds.h"

namespace stet::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kPoolBytes = 16U << 20;
constexpr std::array<std::uint64_t, 10> kLengths = {0, 1, 3, 5, 9, 12, 63, 64, 65, 130};
constexpr std::array<std::int64_t, 8> kOdd = {-1,
                                              0,
                                              1,
                                              256,
                                              std::numeric_limits<std::int32_t>::max(),
                                              std::numeric_limits<std::int32_t>::min(),
                                              std::int64_t{1} << 32,
                                              std::numeric_limits<std::int64_t>::max()};

struct Edit {
    std::uint8_t what = 0;
    std::uint16_t at = 0;
    std::uint16_t value = 0;
};

std::vector<Edit> edits_of(Input& input) {
    std::vector<Edit> edits;
    while (!input.bytes().empty() && edits.size() < 64) {
        Edit edit;
        edit.what = input.byte();
        edit.at = static_cast<std::uint16_t>(input.byte() | input.byte() << 8);
        edit.value = static_cast<std::uint16_t>(input.byte() | input.byte() << 8);
        edits.push_back(edit);
    }
    return edits;
}

Bytes written(const state::test::LlamaModel& model, state::test::LlamaFile file,
              const std::vector<Edit>& edits) {
    std::size_t number = 0;
    file.change = [&](std::string_view, std::int64_t value) {
        for (const Edit& edit : edits) {
            if (edit.at != number || edit.what % 6 > 2) continue;
            if (edit.what % 6 == 0) value = kOdd[edit.value % kOdd.size()];
            if (edit.what % 6 == 1) {
                const auto step = static_cast<std::uint64_t>(static_cast<std::int16_t>(edit.value));
                value = static_cast<std::int64_t>(static_cast<std::uint64_t>(value) + step);
            }
            if (edit.what % 6 == 2) value = edit.value;
        }
        ++number;
        return value;
    };
    Bytes bytes = state::test::LlamaWriter(model.schema, file).write();
    for (const Edit& edit : edits) {
        if (bytes.empty() || edit.what % 6 <= 2) continue;
        const std::size_t at = edit.at % bytes.size();
        if (edit.what % 6 == 3) bytes[at] ^= static_cast<std::byte>(edit.value);
        if (edit.what % 6 == 4) bytes.resize(bytes.size() - at);
        if (edit.what % 6 == 5) {
            const Bytes more(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end());
            const std::size_t count = std::min<std::size_t>(more.size(), edit.value % 64);
            bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), more.begin(),
                         more.begin() + static_cast<std::ptrdiff_t>(count));
        }
    }
    return bytes;
}

// What was imported can be kept and read again.
void check_sequence(memory::PagePool& pool, const state::Sequence& sequence) {
    const Status valid = state::validate(pool.schema(), sequence);
    require(valid.is_ok(), "what was imported is valid", valid.to_string());
    state::Saved saved;
    saved.pool = &pool;
    saved.identity = state::Identity::of({}, pool.schema(), memory::ElementType::f16,
                                         memory::ElementType::f16, "fuzz");
    saved.entries.push_back({0, sequence});
    Bytes bytes(state::encoded_size(saved));
    state::SpanSink sink(bytes);
    require(state::encode(saved, sink).is_ok(), "what was imported can be written");
    state::SpanSource source(bytes);
    const auto read = state::decode_standalone(source, kPoolBytes);
    require(read.is_ok(), "what was written can be read", read.status().to_string());
}

void check_import(const Bytes& bytes, const state::test::LlamaModel& model, bool is_whole) {
    memory::PagePool pool(model.schema, kPoolBytes);
    const auto summary =
        state::check_llama_state(bytes, "fuzz.bin", model.target, model.schema, {});
    require_honest(summary.status());
    {
        const auto imported = state::import_llama_state(bytes, "fuzz.bin", model.target, pool);
        require_honest(imported.status());
        require(imported.is_ok() == summary.is_ok(), "what is checked can be imported",
                imported.status().to_string());
        require(!is_whole || imported.is_ok(), "an unedited file can be imported",
                imported.status().to_string());
        if (imported) {
            require(imported->sequences.size() == summary->sequences.size(), "as many sequences");
            for (const auto& each : imported->sequences) check_sequence(pool, each.sequence);
        }
    }
    require(pool.stats().pages_in_use == 0, "nothing is left in the pool");
    const auto head = state::read_llama_head(bytes, "fuzz.bin");
    require_honest(head.status());
}

}  // namespace
}  // namespace stet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace stet;
    fuzz::Input input(data, size);
    const auto kind = state::test::kLlamaKinds[input.byte() % state::test::kLlamaKinds.size()];
    const auto container = static_cast<state::ImportKind>(input.byte() % 3);
    const std::uint64_t length = fuzz::kLengths[input.byte() % fuzz::kLengths.size()];
    const std::uint32_t seed = input.byte();
    const auto model = state::test::LlamaModelMaker(kind, seed).take();
    const auto edits = fuzz::edits_of(input);
    const auto file = state::test::llama_file(model, container, length, seed);
    fuzz::check_import(fuzz::written(model, file, edits), model, edits.empty());
    return 0;
}
