// Any bytes as a model file: reading its header, its vocabulary and its chat template. What loads
// must be usable.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "gguf/gguf.h"
#include "support/memory_env.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace stet::fuzz {
namespace {

constexpr std::string_view kTexts[] = {"", " Hello  w\xC3\xB6rld,\n\t123 <s>x</s>",
                                       "\xF0\x9F\x98\x80\xE4\xBD\xA0\xFF\xCC\x81"};

void use(const text::Tokenizer& tokenizer) {
    for (const std::string_view text : kTexts) {
        for (const bool special : {false, true}) {
            const auto ids = tokenizer.encode(text, {special, special});
            require_honest(ids.status());
            if (!ids) continue;
            text::StreamDecoder decoder(tokenizer, special);
            std::string streamed;
            for (const text::Token id : *ids) {
                require(id >= 0 && static_cast<std::size_t>(id) < tokenizer.size(),
                        "an id of the vocabulary");
                streamed += decoder.add(id);
            }
            streamed += decoder.finish();
            require(text::utf8_valid_prefix(streamed) == streamed.size(), "a stream is UTF-8");
            require(*tokenizer.encode(text, {special, special}) == *ids, "the same ids again");
            static_cast<void>(tokenizer.decode(*ids, special));
        }
    }
    const auto size = static_cast<text::Token>(tokenizer.size());
    for (const text::Token id : {-1, 0, 1, size / 2, size - 1, size}) {
        static_cast<void>(tokenizer.is_end_of_generation(id));
        static_cast<void>(tokenizer.is_control(id));
        static_cast<void>(tokenizer.find(tokenizer.piece(id, true)));
    }
    for (const text::Token id : {tokenizer.bos(), tokenizer.eos()}) {
        require(id >= text::kNoToken && id < size, "bos and eos are of the vocabulary, or none");
    }
}

}  // namespace
}  // namespace stet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace stet;
    const auto bytes = std::as_bytes(std::span(data, size));
    test::MemoryEnv env({bytes.begin(), bytes.end()});
    const auto file = gguf::File::open(env, "fuzz.gguf");
    fuzz::require_honest(file.status());
    if (!file) return 0;
    for (const gguf::Tensor& tensor : (*file)->tensors()) {
        fuzz::require((*file)->data(tensor).size() == tensor.size_bytes, "a tensor lies inside");
    }
    const auto tokenizer = text::Tokenizer::load(**file);
    fuzz::require_honest(tokenizer.status());
    if (tokenizer) fuzz::use(**tokenizer);
    fuzz::require_honest(text::ChatTemplate::for_model(**file).status());
    return 0;
}
