#include <optional>
#include <string>

#include "grammar/compiled.h"

namespace stet::grammar {

Vocabulary::Vocabulary(const text::Tokenizer& tokenizer, std::uint32_t size) {
    std::vector<std::string> pieces;
    pieces.reserve(tokenizer.size());
    std::vector<std::int32_t> stops;
    for (std::size_t i = 0; i < tokenizer.size(); ++i) {
        const auto token = static_cast<Token>(i);
        const bool is_end = tokenizer.is_end_of_generation(token);
        if (is_end) ends.push_back(token);
        pieces.push_back(is_end || tokenizer.is_control(token) ? std::string()
                                                               : tokenizer.piece(token, false));
        const std::string& piece = pieces.back();
        if (!piece.empty() && piece.find_first_not_of(" \n") == std::string::npos) {
            blanks.push_back(token);
        }
    }
    stops.assign(ends.begin(), ends.end());
    info = xgrammar::TokenizerInfo(pieces, xgrammar::VocabType::RAW, static_cast<int>(size),
                                   std::move(stops));
}

}  // namespace stet::grammar
