// A text through a small vocabulary: KIND, OPTIONS, then the text. What the kind promises must hold
// of any bytes.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "fuzz/vocabularies.h"
#include "text/unicode.h"

namespace stet::fuzz {
namespace {

using text::Token;
using Tokens = std::vector<Token>;

Tokens encode(const SmallVocabulary& small, std::string_view text, bool add, bool parse) {
    const auto ids = small.tokenizer->encode(text, {.add_special = add, .parse_special = parse});
    require(ids.is_ok(), "any text can be encoded", ids.status().to_string());
    return *ids;
}

void check_ids(const SmallVocabulary& small, std::string_view text, const Tokens& ids) {
    // A byte that is no text becomes U+FFFD, of three bytes; bos, eos and a space come besides.
    require(ids.size() <= 3 * text.size() + 8, "no more tokens than bytes", small.name);
    for (const Token id : ids) {
        require(id >= 0 && static_cast<std::size_t>(id) < small.tokenizer->size(),
                "ids of the vocabulary", small.name);
    }
}

// Decoding gives the text again, and so does a stream of its pieces.
void check_kept(const SmallVocabulary& small, std::string_view text, const Tokens& ids,
                bool special) {
    const std::string kept =
        small.keeps == Keeps::bytes ? std::string(text) : text::utf8_sanitize(text);
    // plamo2 takes a byte order mark for none of the text, as the model was trained: at its begin
    // and after every special token.
    if (small.name == "plamo2" && kept.find("\xEF\xBB\xBF") != std::string_view::npos) return;
    const std::string back = small.tokenizer->decode(ids, special);
    require(back == kept, "decoding gives the text again",
            small.name + ": [" + back + "] of [" + kept + "]");
}

void check_stream(const SmallVocabulary& small, const Tokens& ids) {
    text::StreamDecoder decoder(*small.tokenizer, true);
    std::string joined;
    std::string streamed;
    for (const Token id : ids) {
        joined += small.tokenizer->piece(id, true);
        streamed += decoder.add(id);
    }
    streamed += decoder.finish();
    require(streamed == text::utf8_sanitize(joined), "a stream gives the joined pieces",
            small.name);
}

// A special token is a wall: what stands on one side knows nothing of the other.
void check_wall(const SmallVocabulary& small, std::string_view text) {
    const std::string whole = text::utf8_sanitize(text);
    std::size_t middle = whole.size() / 2;
    while (middle > 0 && (static_cast<unsigned char>(whole[middle]) & 0xC0U) == 0x80) --middle;
    const std::string left = whole.substr(0, middle);
    const std::string right = whole.substr(middle);
    Tokens expected = encode(small, left, false, true);
    expected.push_back(small.special);
    const Tokens after = encode(small, right, false, true);
    expected.insert(expected.end(), after.begin(), after.end());
    require(encode(small, left + std::string(kSpecial) + right, false, true) == expected,
            "a special token is a wall", small.name);
}

}  // namespace
}  // namespace stet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace stet;
    const auto& all = fuzz::small_vocabularies();
    fuzz::Input input(data, size);
    const fuzz::SmallVocabulary& small = all[input.byte() % all.size()];
    const std::uint8_t options = input.byte();
    const bool add = (options & 1U) != 0;
    const bool parse = (options & 2U) != 0;
    const std::string_view text = input.text();
    const auto ids = fuzz::encode(small, text, add, parse);
    fuzz::check_ids(small, text, ids);
    fuzz::require(fuzz::encode(small, text, add, parse) == ids, "the same ids again", small.name);
    fuzz::check_stream(small, ids);
    // spm puts a space before the text after a special token too, as the model was trained.
    const bool adds_spaces =
        small.name == "spm" && (parse || text.find("[user]") != std::string_view::npos);
    if (small.keeps != fuzz::Keeps::nothing && !add && !adds_spaces &&
        text.find(text::kEscapedSpace) == std::string_view::npos) {
        fuzz::check_kept(small, text, ids, parse);
    }
    if (small.keeps == fuzz::Keeps::text && small.name != "spm") fuzz::check_wall(small, text);
    return 0;
}
