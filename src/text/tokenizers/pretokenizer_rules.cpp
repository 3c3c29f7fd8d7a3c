// The patterns are those of the models' own tokenizer files. \s is spelt out, because PCRE2 counts
// U+180E as white space and the libraries that models were trained with don't; what would take
// quadratic time on hostile text is written so that it can't.
#include "text/tokenizers/pretokenizer_rules.h"

#include <array>

namespace stet::text {
namespace {

#define SPACES                                                                     \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}" \
    "\\x{202f}\\x{205f}\\x{3000}"
#define SPACE "[" SPACES "]"
#define NOT_SPACE "[^" SPACES "]"

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define OTHERS " ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n]*"
#define OTHERS_SLASH " ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n/]*"
#define BLANKS_LAST SPACE "+(?!" NOT_SPACE ")|" SPACE "+"
#define BLANKS SPACE "*[\\r\\n]+|" BLANKS_LAST

#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define PREFIX "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED PREFIX UPPER "*" LOWER "+|" PREFIX UPPER "+" LOWER "*"
#define CASED_CONTRACTION \
    PREFIX UPPER "*" LOWER "+" CONTRACTION "?|" PREFIX UPPER "+" LOWER "*" CONTRACTION "?"
// The same two classes without Han.
#define UPPER_NO_HAN "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"
#define LOWER_NO_HAN "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"

#define CLASSIC \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|" BLANKS_LAST
#define O200K CASED_CONTRACTION "|\\p{N}{1,3}|" OTHERS_SLASH "|" BLANKS
#define MARKED_PUNCTUATION "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
#define MARKED_LETTERS "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
#define CJK_WIDE "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define CJK_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define SENTENCE \
    " ?[^(" SPACES "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"

// Letters with case, as deepseek-llm lists them.
#define CASED_LETTERS                                                                        \
    "[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-" \
    "\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}"    \
    "\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"   \
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-"     \
    "\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"  \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-" \
    "\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-"   \
    "\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-"  \
    "\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}"  \
    "\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}"    \
    "\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-"  \
    "\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-"   \
    "\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"   \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-" \
    "\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-"        \
    "\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-"   \
    "\\x{118df}\\x{1e900}-\\x{1e943}]+"

using Stages = std::string_view;

constexpr Stages kLlama3[] = {CONTRACTION "|" LETTERS "|\\p{N}{1,3}|" OTHERS "|" BLANKS};
constexpr Stages kQwen2[] = {CONTRACTION "|" LETTERS "|\\p{N}|" OTHERS "|" BLANKS};
constexpr Stages kQwen35[] = {CONTRACTION
                              "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACES
                              "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS};
constexpr Stages kUfakzeka[] = {LETTERS "|\\p{N}|" OTHERS "|" BLANKS};
constexpr Stages kLaguna[] = {"@newlines", CONTRACTION "|" LETTERS "|\\p{N}|" OTHERS "|" BLANKS};
constexpr Stages kClassic[] = {CLASSIC};
constexpr Stages kDigitsClassic[] = {"\\p{N}", CLASSIC};
constexpr Stages kDeepseek3[] = {"\\p{N}{1,3}", CJK_KANA,
                                 MARKED_PUNCTUATION "|" MARKED_LETTERS
                                                    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" BLANKS};
constexpr Stages kSpark[] = {
    "\\p{N}{1,3}", CJK_KANA,
    MARKED_PUNCTUATION "|" MARKED_LETTERS "| ?[\\p{P}\\p{S}]+|[\\r\\n]|" BLANKS_LAST, "\\p{N}"};
constexpr Stages kO200k[] = {O200K};
constexpr Stages kTinyAya[] = {"@digit_groups", O200K};
constexpr Stages kTekken[] = {CASED "|\\p{N}|" OTHERS_SLASH "|" BLANKS};
constexpr Stages kYoutu[] = {
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|"
    "[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}"
    "\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" CJK_KANA,
    CASED_CONTRACTION "|\\p{N}|" OTHERS_SLASH "|" BLANKS};
constexpr Stages kBloom[] = {SENTENCE};
constexpr Stages kViking[] = {SENTENCE, "\\p{N}"};
constexpr Stages kNewlines[] = {"@newlines"};
constexpr Stages kDeepseekLlm[] = {"[\\r\\n]",
                                   SPACE "?" CASED_LETTERS,
                                   SPACE
                                   "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-"
                                   "\\x{201f}\\x{3000}-\\x{3002}]+",
                                   "(?<!" SPACE ")" SPACE "+\\z",
                                   CJK_WIDE,
                                   "\\p{N}+"};
constexpr Stages kDeepseekCoder[] = {"[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", CJK_WIDE,
                                     "\\p{N}"};
constexpr Stages kFalcon[] = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", CLASSIC, "[0-9][0-9][0-9]"};
constexpr Stages kDefault[] = {"[\\p{P}\\$\\+<=>\\^~\\|]+", CLASSIC, "\\p{N}+", "[0-9][0-9][0-9]"};
constexpr Stages kJais2[] = {CONTRACTION "|" LETTERS "|\\p{N}{1,3}|" OTHERS "|" BLANKS,
                             "@space_widths"};
constexpr Stages kBailing[] = {"'(?i:[sdmt]|ll|ve|re)|" LETTERS "|\\p{N}|" OTHERS "|" SPACE
                               "*[\\r\\n]|" BLANKS_LAST};
constexpr Stages kSeedCoder[] = {CONTRACTION "|" LETTERS "|\\p{N}| ?[^" SPACES
                                             "\\p{L}\\p{N}\\r\\n]+|" BLANKS};
constexpr Stages kExaoneMoe[] = {CONTRACTION
                                 "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|"
                                 "\\p{N}| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n/]?|" SPACE
                                 "*[\\r\\n]|" BLANKS_LAST};
constexpr Stages kSuperBpe[] = {"\\p{N}+", "@digit_triples"};
constexpr Stages kChameleon[] = {"<sentinel:[0-9]+>",      "IMGIMG[A-I]{1,4}Z",
                                 "[\\t\\n]|    |  ",       "\\p{N}",
                                 "[\\p{P}!-/:-@\\[-`{-~]", CLASSIC};
constexpr Stages kMinicpm5[] = {"\\p{N}{1,3}",
                                CONTRACTION "|" LETTERS "|\\p{N}+|" OTHERS "|" BLANKS};
constexpr Stages kAfmoe[] = {
    "@number_groups",
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{30ff}\\x{ff65}-"
    "\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{e7f}\\x{e80}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-"
    "\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+",
    MARKED_PUNCTUATION "|" MARKED_LETTERS "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" BLANKS};
constexpr Stages kKimi[] = {"\\p{sc:Han}+|" PREFIX UPPER_NO_HAN "*" LOWER_NO_HAN "+" CONTRACTION
                            "?|" PREFIX UPPER_NO_HAN "+" LOWER_NO_HAN "*" CONTRACTION
                            "?|\\p{N}{1,3}|" OTHERS "|" BLANKS};
constexpr Stages kWhitespace[] = {NOT_SPACE "+"};

constexpr PreFamily kFamilies[] = {
    {"llama3", kLlama3},
    {"qwen2", kQwen2},
    {"qwen35", kQwen35},
    {"ufakzeka", kUfakzeka},
    {"laguna", kLaguna},
    {"classic", kClassic},
    {"digits+classic", kDigitsClassic},
    {"deepseek3", kDeepseek3},
    {"spark", kSpark},
    {"o200k", kO200k},
    {"tiny_aya", kTinyAya},
    {"tekken", kTekken},
    {"youtu", kYoutu},
    {"bloom", kBloom},
    {"viking", kViking},
    {"newlines", kNewlines},
    {"deepseek-llm", kDeepseekLlm},
    {"deepseek-coder", kDeepseekCoder},
    {"falcon", kFalcon},
    {"default", kDefault},
    {"jais-2", kJais2},
    {"bailing", kBailing},
    {"seed-coder", kSeedCoder},
    {"exaone-moe", kExaoneMoe},
    {"superbpe", kSuperBpe},
    {"chameleon", kChameleon},
    {"minicpm5", kMinicpm5},
    {"afmoe", kAfmoe},
    {"kimi", kKimi},
    {"whitespace", kWhitespace},
};

constexpr unsigned kLlama = kIgnoreMerges | kAddBos;
constexpr unsigned kSpaceEscaped = kRaw | kEscapeSpaces;
constexpr unsigned kGemma = kSpaceEscaped | kWholeNewlines | kForceAddBos;

constexpr PreName kNames[] = {
    {"default", "default"},
    {"llama3", "llama3", kLlama},
    {"llama-v3", "llama3", kLlama},
    {"llama-bpe", "llama3", kLlama},
    {"falcon3", "llama3", kLlama},
    {"falcon-h1", "llama3", kLlama},
    {"pixtral", "llama3", kLlama},
    {"midm-2.0", "llama3", kLlama},
    {"lfm2", "llama3", kLlama},
    {"jina-v5-nano", "llama3", kLlama},
    {"dbrx", "llama3"},
    {"smaug-bpe", "llama3"},
    {"chatglm-bpe", "llama3", kNoBos},
    {"glm4", "llama3", kNoBos | kIgnoreMerges},
    {"glm5", "llama3", kNoBos | kIgnoreMerges},
    {"qwen2", "qwen2"},
    {"deepseek-r1-qwen", "qwen2"},
    {"kormo", "qwen2"},
    {"f2llmv2", "qwen2"},
    {"megrez", "qwen2"},
    {"stablelm2", "qwen2"},
    {"hunyuan", "qwen2"},
    {"solar-open", "qwen2"},
    {"grok-2", "qwen2"},
    {"laguna", "laguna"},
    {"ufakzeka", "ufakzeka"},
    {"qwen35", "qwen35"},
    {"gpt-2", "classic"},
    {"phi-2", "classic"},
    {"jina-es", "classic"},
    {"jina-de", "classic"},
    {"gigachat", "classic"},
    {"jina-v2-es", "classic"},
    {"jina-v2-de", "classic"},
    {"a.x-4.0", "classic"},
    {"mellum", "classic"},
    {"modern-bert", "classic"},
    {"exaone4", "classic"},
    {"mpt", "classic"},
    {"olmo", "classic"},
    {"jais", "classic"},
    {"trillion", "classic"},
    {"granite-docling", "classic"},
    {"jina-v1-en", "classic"},
    {"jina-v2-code", "classic"},
    {"roberta-bpe", "classic"},
    {"starcoder", "digits+classic"},
    {"refact", "digits+classic"},
    {"command-r", "digits+classic"},
    {"smollm", "digits+classic"},
    {"codeshell", "digits+classic"},
    {"exaone", "digits+classic"},
    {"minerva-7b", "digits+classic"},
    {"mellum2", "digits+classic"},
    {"deepseek-v3", "deepseek3"},
    {"hunyuan-dense", "deepseek3"},
    {"joyai-llm", "deepseek3"},
    {"hy_v4", "deepseek3"},
    {"spark2_5", "spark"},
    {"gpt-4o", "o200k"},
    {"llama4", "o200k"},
    {"kanana2", "o200k"},
    {"talkie", "o200k"},
    {"minimax-m2", "o200k"},
    {"granite-embed-multi-97m", "o200k", kIgnoreMerges},
    {"tiny_aya", "tiny_aya"},
    {"cohere2moe", "tiny_aya"},
    {"tekken", "tekken", kLlama},
    {"youtu", "youtu", kIgnoreMerges},
    {"bloom", "bloom"},
    {"gpt3-finnish", "bloom"},
    {"poro-chat", "bloom"},
    {"viking", "viking"},
    {"gemma4", "newlines", kGemma},
    {"granite-embed-multi-311m", "newlines", kGemma},
    {"sarvam-moe", "newlines", kSpaceEscaped},
    {"mmbert", "newlines", kSpaceEscaped | kWholeNewlines | kMetaspace},
    {"deepseek-llm", "deepseek-llm"},
    {"deepseek-coder", "deepseek-coder"},
    {"falcon", "falcon"},
    {"jais-2", "jais-2"},
    {"bailingmoe", "bailing"},
    {"bailingmoe2", "bailing"},
    {"llada-moe", "bailing"},
    {"seed-coder", "seed-coder"},
    {"exaone-moe", "exaone-moe"},
    {"superbpe", "superbpe"},
    {"chameleon", "chameleon", kAddBos},
    {"minicpm5", "minicpm5", kIgnoreMerges},
    {"afmoe", "afmoe"},
    {"kimi-k2", "kimi"},
    {"whitespace", "whitespace", kRaw},
};

}  // namespace

std::span<const PreName> pre_names() {
    return kNames;
}
std::span<const PreFamily> pre_families() {
    return kFamilies;
}

}  // namespace stet::text
