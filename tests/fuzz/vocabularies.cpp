#include "fuzz/vocabularies.h"

#include <string_view>

#include "fuzz/fuzz.h"
#include "support/small_vocabulary.h"
#include "text/tokenizers/pretokenizer_rules.h"
#include "text/unicode.h"

namespace stet::fuzz {
namespace {

using enum test::TokenType;

const std::string kSpace(text::kEscapedSpace);

class Builder : public test::SmallVocabulary {
  public:
    using test::SmallVocabulary::SmallVocabulary;
    void add_specials() {
        add("<unk>", kTypeUnknown);
        add("<s>", kTypeControl);
        add("</s>", kTypeControl);
        add(kSpecial, kTypeControl);
        add("[user]", kTypeUser);
    }
    void add_alphabet() {
        for (const std::string& letter : text::byte_alphabet().text) add(letter);
    }
    void merge(const std::string& left, const std::string& right) {
        merges_.push_back(left + " " + right);
        add(left + right);
    }
    fuzz::SmallVocabulary load(std::string name, Keeps keeps) {
        set_merges(merges_);
        auto tokenizer = test::SmallVocabulary::load();
        require(tokenizer.is_ok(), "a small vocabulary loads", tokenizer.status().to_string());
        fuzz::SmallVocabulary made{std::move(name), keeps, std::move(tokenizer).value(), {}};
        made.special = made.tokenizer->find(kSpecial);
        return made;
    }

  private:
    std::vector<std::string> merges_;
};

void add_merges(Builder& builder, const std::string& space) {
    for (const char* pair : {"ab", "in", "er", "th", "aa", "ll", "''", "12", "\n\n"}) {
        const std::string text(pair);
        if (text == "\n\n" && space != kSpace) continue;
        builder.merge(text.substr(0, 1), text.substr(1));
    }
    builder.merge("in", "g");
    builder.merge("aa", "aa");
    builder.merge(space, space);
    builder.merge(space, "th");
    builder.merge(space + "th", "er");
    builder.merge(space + space, space + space);
}

SmallVocabulary byte_level(const std::string& family) {
    std::string_view pre = "default";
    bool is_raw = false;
    for (const text::PreName& name : text::pre_names()) {
        if (name.family != family) continue;
        pre = name.name;
        is_raw = (name.flags & text::kRaw) != 0;
        break;
    }
    Builder builder(family == "whitespace" ? "whitespace"
                    : family == "newlines" ? "gemma4"
                                           : "gpt2");
    builder.writer().set_string("tokenizer.ggml.pre", pre);
    builder.add_specials();
    if (is_raw) {
        builder.add_bytes();
        for (char c = ' '; c < 127; ++c) builder.add(std::string(1, c));
        builder.add("\n");
        builder.add(kSpace);
    } else {
        builder.add_alphabet();
        builder.merge("\xC3\x83", "\xC2\xA9");  // the two bytes of U+00E9
    }
    add_merges(builder, is_raw ? kSpace : "\xC4\xA0");
    builder.writer().set_u32("tokenizer.ggml.bos_token_id", 1);
    builder.writer().set_u32("tokenizer.ggml.eos_token_id", 2);
    const Keeps keeps = family == "whitespace" ? Keeps::nothing : Keeps::text;
    return builder.load("bpe " + family, keeps);
}

SmallVocabulary spm() {
    Builder builder("llama");
    builder.add_specials();
    builder.add_bytes();
    float score = -1;
    const std::vector<std::string> pieces = {
        "th", "er",   "in", "ing", kSpace + "th", kSpace + "ther", kSpace, kSpace + kSpace,
        "aa", "aaaa", "<|", "|>"};
    for (const std::string& text : pieces) {
        builder.add(text, kTypeNormal, --score);
    }
    for (char c = '!'; c < 127; ++c) builder.add(std::string(1, c), kTypeNormal, --score);
    return builder.load("spm", Keeps::text);
}

SmallVocabulary wpm() {
    Builder builder("bert");
    builder.add_specials();
    for (const char* word : {"he", "a", ",", "cafe", "\xE4\xB8\xAD", "the"}) {
        builder.add(kSpace + word);
    }
    for (const char* part : {"llo", "a", "s", "ing", "x"}) builder.add(part);
    builder.writer().set_u32("tokenizer.ggml.unknown_token_id", 0);
    builder.writer().set_u32("tokenizer.ggml.bos_token_id", 1);
    builder.writer().set_u32("tokenizer.ggml.seperator_token_id", 2);
    return builder.load("wpm", Keeps::nothing);
}

SmallVocabulary ugm() {
    Builder builder("t5");
    builder.add_specials();
    for (char c = '!'; c < 127; ++c) builder.add(std::string(1, c), kTypeNormal, -5);
    builder.add(kSpace, kTypeNormal, -2);
    builder.add(kSpace + "the", kTypeNormal, -4);
    builder.add("ing", kTypeNormal, -6);
    builder.add("aaaa", kTypeNormal, -8);
    builder.writer().set_u32("tokenizer.ggml.unknown_token_id", 0);
    builder.writer().set_u32("tokenizer.ggml.eos_token_id", 2);
    builder.writer().set_bool("tokenizer.ggml.add_space_prefix", true);
    builder.writer().set_bool("tokenizer.ggml.remove_extra_whitespaces", true);
    return builder.load("ugm", Keeps::nothing);
}

SmallVocabulary rwkv() {
    Builder builder("rwkv");
    builder.add_specials();
    constexpr std::string_view kDigits = "0123456789abcdef";
    for (unsigned value = 0; value < 256; ++value) {
        builder.add(std::string("\\x") + kDigits[value / 16] + kDigits[value % 16]);
    }
    for (const char* text : {"the", "ing", "  ", "\\n\\n", "\\xe4\\xb8", "aaaaaaa"}) {
        builder.add(text);
    }
    return builder.load("rwkv", Keeps::bytes);
}

SmallVocabulary plamo2() {
    Builder builder("plamo2");
    builder.add_specials();
    builder.add_bytes();
    float score = -1;
    for (const char* text : {"the", "ing", " ", "  ", "a", "aa", "b", "\n", "\xE4\xB8\xAD"}) {
        builder.add(text, kTypeNormal, --score);
    }
    return builder.load("plamo2", Keeps::text);
}

SmallVocabulary dna() {
    Builder builder("hybriddna");
    builder.add_specials();
    builder.add_alphabet();
    for (const char* text : {"<dna>", "</dna>", "<oov>", "ACGTAC\xEE\x80\x80"}) builder.add(text);
    builder.writer().set_string("tokenizer.ggml.pre", "default");
    return builder.load("dna", Keeps::nothing);
}

std::vector<SmallVocabulary> make_all() {
    std::vector<SmallVocabulary> all;
    all.push_back(spm());
    all.push_back(wpm());
    all.push_back(ugm());
    all.push_back(rwkv());
    all.push_back(plamo2());
    all.push_back(dna());
    for (const text::PreFamily& family : text::pre_families()) {
        all.push_back(byte_level(std::string(family.name)));
    }
    return all;
}

}  // namespace

const std::vector<SmallVocabulary>& small_vocabularies() {
    static const std::vector<SmallVocabulary> all = make_all();
    return all;
}

}  // namespace stet::fuzz
