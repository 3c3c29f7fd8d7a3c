// Special tokens that a file doesn't name by id are known by their texts, and files mark some of
// them with the wrong kind. These tables and repairs follow what converted models need in practice.
#include <algorithm>
#include <array>
#include <string>

#include "text/tokenizers/vocabulary.h"

namespace stet::text {
namespace {

// U+FF5C and U+2581 appear in DeepSeek's and CodeLlama's token texts.
#define STET_BAR "\xEF\xBD\x9C"
#define STET_SPACE "\xE2\x96\x81"

constexpr std::string_view kEndOfTurn[] = {"<|eot_id|>",
                                           "<|im_end|>",
                                           "<|end|>",
                                           "<end_of_turn>",
                                           "<|endoftext|>",
                                           "<|end_of_text|>",
                                           "<EOT>",
                                           "_<EOT>",
                                           "[EOT]",
                                           "<" STET_BAR "end" STET_SPACE "of" STET_SPACE
                                           "sentence" STET_BAR ">",
                                           "<end_of_utterance>"};
constexpr std::string_view kEndOfMessage[] = {"<|eom_id|>"};
constexpr std::string_view kFimPrefix[] = {
    "<|fim_prefix|>",  "<fim-prefix>",
    "<fim_prefix>",    "<" STET_BAR "fim" STET_SPACE "begin" STET_BAR ">",
    "<PRE>",           STET_SPACE "<PRE>",
    "<|code_prefix|>", "<|prefix|>"};
constexpr std::string_view kFimSuffix[] = {
    "<|fim_suffix|>",  "<fim-suffix>",
    "<fim_suffix>",    "<" STET_BAR "fim" STET_SPACE "hole" STET_BAR ">",
    "<SUF>",           STET_SPACE "<SUF>",
    "<|code_suffix|>", "<|suffix|>"};
constexpr std::string_view kFimMiddle[] = {
    "<|fim_middle|>",  "<fim-middle>",
    "<fim_middle>",    "<" STET_BAR "fim" STET_SPACE "end" STET_BAR ">",
    "<MID>",           STET_SPACE "<MID>",
    "<|code_middle|>", "<|middle|>"};
constexpr std::string_view kFimPad[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr std::string_view kFimRepository[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>",
                                               "<REPO>", "<reponame>"};
constexpr std::string_view kFimSeparator[] = {"<|file_sep|>"};
constexpr std::string_view kEndsGeneration[] = {
    "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",        "</s>",
    "[EOS]",      "<eos>",    "<turn|>",   "<|tool_response>", "[e~["};
// gpt-oss: part of the answer's structure, so shown.
constexpr std::string_view kShown[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

#undef STET_BAR
#undef STET_SPACE

bool contains_any(std::string_view text, std::initializer_list<std::string_view> parts) {
    return std::any_of(parts.begin(), parts.end(), [text](std::string_view part) {
        return text.find(part) != std::string_view::npos;
    });
}

}  // namespace

void Vocabulary::detect_specials() {
    const auto detect = [this](Token& special, auto&& texts) {
        for (const std::string_view text : texts) {
            if (special != kNoToken) return;
            special = find(text);
            if (special != kNoToken) add(kControl, special);
        }
    };
    detect(specials_.eot, kEndOfTurn);
    detect(specials_.eom, kEndOfMessage);
    detect(specials_.fim_pre, kFimPrefix);
    detect(specials_.fim_suf, kFimSuffix);
    detect(specials_.fim_mid, kFimMiddle);
    detect(specials_.fim_pad, kFimPad);
    detect(specials_.fim_rep, kFimRepository);
    detect(specials_.fim_sep, kFimSeparator);
}

void Vocabulary::mark_unused() {
    for (std::size_t i = 0; i < size(); ++i) {
        const auto token = static_cast<Token>(i);
        if (is(token, kControl) && text(token).find("unused") != std::string_view::npos) {
            add(kUnused, token);
        }
    }
}

void Vocabulary::collect_end_of_generation() {
    auto& ends = end_of_generation_;
    const auto end_at = [&](std::string_view text) {
        const Token token = find(text);
        if (token == kNoToken) return;
        ends.push_back(token);
        add(kControl, token);
    };
    std::for_each(std::begin(kEndOfTurn), std::end(kEndOfTurn), end_at);
    std::for_each(std::begin(kEndOfMessage), std::end(kEndOfMessage), end_at);
    std::for_each(std::begin(kEndsGeneration), std::end(kEndsGeneration), end_at);
    for (const std::string_view text : kShown) {
        if (const Token token = find(text); token != kNoToken) {
            attributes_[static_cast<std::size_t>(token)] = kUserDefined;
        }
    }
    for (const Token token : {specials_.fim_pad, specials_.fim_rep, specials_.fim_sep,
                              specials_.eos, specials_.eot, specials_.eom}) {
        if (token != kNoToken) ends.push_back(token);
    }
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

void Vocabulary::fix_end_of_generation() {
    const auto ends = [this](std::string_view text) { return is_end_of_generation(find(text)); };
    const auto drop = [this](std::string_view text, std::uint8_t attribute) {
        const Token token = find(text);
        if (!is_end_of_generation(token)) return;
        std::erase(end_of_generation_, token);
        attributes_[static_cast<std::size_t>(token)] = attribute;
    };
    // <|end|> closes a message of an answer in these formats, not the answer.
    const bool calls = ends("<|call|>") || ends("<|calls|>");
    if (calls && (ends("<|return|>") || ends("<|flush|>"))) drop("<|end|>", kUserDefined);
    if (ends("<|tool_response>") || ends("<|plamo:eos|>")) drop("</s>", kNormal);
}

void Vocabulary::set_strip_rules(const gguf::File& file) {
    const std::string_view pre = file.get_string("tokenizer.ggml.pre").value_or("");
    const std::string_view architecture = file.get_string("general.architecture").value_or("");
    std::string name(file.get_string("general.name").value_or(""));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    const auto strip_left = [this](std::string_view text) {
        if (const Token token = find(text); token != kNoToken) add(kStripLeft, token);
    };
    if (contains_any(pre, {"jina-v2-de", "jina-v2-es", "jina-v2-code", "mmbert"}) ||
        contains_any(architecture, {"nomic-bert-moe", "jina-bert-v3"})) {
        strip_left("<mask>");
    } else if (contains_any(name, {"phi-3", "phi3"})) {
        for (const Token token : special_tokens_) {
            const std::string_view held = text(token);
            if (held != "<unk>" && held != "<s>" && held != "<|endoftext|>")
                add(kStripRight, token);
        }
    } else if (contains_any(name, {"modern-bert"})) {
        strip_left("[MASK]");
    }
}

}  // namespace stet::text
