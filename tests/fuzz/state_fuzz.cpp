// Any bytes as a file with state: OPTIONS, then the file. With option 1 it is sealed as an encoded
// sequence first, with option 2 as a session.
#include "fuzz/fuzz.h"
#include "fuzz/seal.h"
#include "state/encode.h"
#include "state/import/import.h"
#include "store/session_file.h"

namespace stet::fuzz {
namespace {

constexpr std::uint64_t kPagesBytesMax = 32U << 20;

Bytes encoded(const state::Saved& saved) {
    Bytes bytes(state::encoded_size(saved));
    state::SpanSink sink(bytes);
    const auto written = state::encode(saved, sink);
    require(written.is_ok() && *written == bytes.size(), "what was read can be written");
    return bytes;
}

// State that is accepted is the one encoding of what it holds.
void check_sequence(std::span<const std::byte> file) {
    state::SpanSource source(file);
    const auto read = state::decode_standalone(source, kPagesBytesMax);
    require_honest(read.status());
    if (!read) return;
    for (const auto& entry : read->saved.entries) {
        const Status valid = state::validate(read->saved.schema(), entry.sequence);
        require(valid.is_ok(), "what was read is valid", valid.to_string());
    }
    const Bytes again = encoded(read->saved);
    state::SpanSource second(again);
    const auto reread = state::decode_standalone(second, kPagesBytesMax);
    require(reread.is_ok(), "what was written can be read", reread.status().to_string());
    require(encoded(reread->saved) == again, "the same bytes again");
    require(read->saved.entries.size() == reread->saved.entries.size(), "the same sequences");
}

void check_session(std::span<const std::byte> file) {
    state::SpanSource source(file);
    const auto read = store::read_session(source, kPagesBytesMax);
    require_honest(read.status());
    if (!read) return;
    require(!read->turns.empty(), "a session has turns");
    Bytes bytes(file.size() * 4 + 65536);
    state::SpanSink sink(bytes);
    require(store::write_session(*read, false, sink).is_ok(), "a session can be written again");
    const std::span<const std::byte> written(bytes.data(), sink.written());
    state::SpanSource second(written);
    const auto reread = store::read_session(second, kPagesBytesMax);
    require(
        reread.is_ok() && reread->name == read->name && reread->turns.size() == read->turns.size(),
        "the same session again", reread.status().to_string());
}

void check_llama(std::span<const std::byte> file) {
    const bool is_known = state::is_llama_state(file);
    const auto head = state::read_llama_head(file, "fuzz.bin");
    require_honest(head.status());
    if (!head) return;
    require(is_known, "only state of llama.cpp has a head");
    require(head->tokens.size() * sizeof(state::Token) + head->memory_bytes <= file.size(),
            "tokens and memory are of the file");
}

}  // namespace
}  // namespace stet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace stet;
    fuzz::Input input(data, size);
    const std::uint8_t options = input.byte();
    fuzz::Bytes file(input.bytes().begin(), input.bytes().end());
    if ((options & 3U) == 1) fuzz::seal_sequence(file);
    if ((options & 3U) == 2) fuzz::seal_session(file);
    fuzz::check_sequence(file);
    fuzz::check_session(file);
    fuzz::check_llama(file);
    return 0;
}
