// Sources that want to take for ever: each is refused or served, in bounded work and memory.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "base/stopwatch.h"
#include "unit/grammar/grammar_support.h"

namespace {

// Of this program, by every thread: what compiling takes is counted where it is taken.
std::atomic<std::int64_t> live_bytes{0};
std::atomic<std::int64_t> peak_bytes{0};
std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t size) {
    void* memory = std::malloc(size);
    if (memory == nullptr) throw std::bad_alloc();
    const auto bytes = static_cast<std::int64_t>(malloc_usable_size(memory));
    const std::int64_t now = live_bytes.fetch_add(bytes) + bytes;
    std::int64_t before = peak_bytes.load();
    while (now > before && !peak_bytes.compare_exchange_weak(before, now)) {
    }
    allocations.fetch_add(1);
    return memory;
}

void release(void* memory) {
    if (memory != nullptr) live_bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
    std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) {
    return counted(size);
}
void operator delete(void* memory) noexcept {
    release(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
    release(memory);
}

namespace stet::grammar {
namespace {

std::string repeated(std::string_view text, std::size_t count) {
    std::string all;
    for (std::size_t i = 0; i < count; ++i) all += text;
    return all;
}

// PREFIX0 ::= line(0), ...
template <typename Line>
std::string rules(int count, Line line) {
    std::string text;
    for (int i = 0; i < count; ++i) {
        text += "r" + std::to_string(i) + " ::= " + line(i) + "\n";
    }
    return text;
}

std::string rule(int i) {
    return "r" + std::to_string(i);
}

std::vector<Source> grammars() {
    const auto gbnf = [](std::string text) { return Source{Kind::gbnf, std::move(text)}; };
    return {
        gbnf("root ::= ((((\"ab\"{50}){50}){50}){50}){50}"),
        gbnf("root ::= \"ab\"{1,100000}"),
        gbnf("root ::= (\"a\" | \"b\"){1,100000}"),
        gbnf("root ::= ([a-z] \" \"?){100000}"),
        gbnf("root ::= (\"a\"? \"b\"?){1000000000}"),
        gbnf("root ::= \"a\"{0,2147483647}"),
        gbnf("root ::= \"a\"{99999999999999999999}"),
        gbnf("root ::= " + repeated("(", 60) + "\"a\"" + repeated(")*", 60)),
        gbnf("root ::= " + repeated("(\"a\" | ", 60) + "\"b\"" + repeated(")", 60)),
        gbnf("root ::= r0 r0\n" + rules(40, [](int i) { return rule(i + 1) + " " + rule(i + 1); }) +
             "r40 ::= \"a\" | \"b\"\n"),
        gbnf("root ::= r0\n" + rules(4000, [](int i) { return rule(i + 1); }) +
             "r4000 ::= \"a\"\n"),
        gbnf("root ::= r0\n" + rules(2000, [](int i) { return "\"a\"? " + rule(i + 1); }) +
             "r2000 ::= \"b\"\n"),
        gbnf("root ::= " + repeated("\"a\" | ", 15000) + "\"b\""),
        gbnf("root ::= " + repeated("\"a\"? ", 15000)),
        gbnf("root ::= " + repeated("[^a]* ", 15000)),
        gbnf("root ::= root root | \"a\""),
        gbnf("root ::= root \"a\" | \"\""),
        gbnf("root ::= root"),
        gbnf("root ::= r0\nr0 ::= r1 | r0 r1\nr1 ::= r0 | r1 r0 | \"\""),
        gbnf("root ::= [" + repeated("a-z0-9", 15000) + "]"),
        gbnf(repeated("root ::= \"a\"\n", 9000)),
        gbnf("root ::= " + repeated("\"\\", 30000)),
    };
}

std::vector<Source> schemas() {
    const auto schema = [](std::string text) { return Source{Kind::json_schema, std::move(text)}; };
    std::string values = "0";
    for (int i = 1; i < 18000; ++i) values += "," + std::to_string(i);
    std::string names = "\"p0\":{}";
    for (int i = 1; i < 6000; ++i) names += ",\"p" + std::to_string(i) + "\":{}";
    std::string any = "{\"type\":\"null\"}";
    for (int i = 0; i < 30; ++i) any = "{\"anyOf\":[" + any + "," + any.substr(0, 1500) + "]}";
    std::string doubling = "\"d40\":{\"type\":\"null\"}";
    for (int i = 0; i < 40; ++i) {
        const std::string next = "{\"$ref\":\"#/$defs/d" + std::to_string(i + 1) + "\"}";
        doubling += ",\"d" + std::to_string(i) + "\":{\"prefixItems\":[" + next + "," + next + "]}";
    }
    const std::string long_text = repeated("a", 60000);
    std::string required = "\"0\"";
    for (int i = 1; i < 8000; ++i) required += ",\"" + std::to_string(i) + "\"";
    return {
        schema("{\"const\": \"" + repeated("a", 200000) + "\"}"),
        schema("{\"const\": \"" + long_text + "\"}"),
        schema(repeated("{\"items\":", 65) + "{}" + repeated("}", 65)),
        schema(repeated("{\"items\":", 60) + "{}" + repeated("}", 60)),
        schema(repeated("[", 100000)),
        schema("{\"enum\":[" + values + "]}"),
        schema("{\"properties\":{" + names + "}}"),
        schema("{\"properties\":{" + names + "},\"additionalProperties\":true}"),
        schema("{\"properties\":{" + names + "},\"minProperties\":3000}"),
        schema("{\"required\":[" + required + "],\"additionalProperties\":{\"const\":\"" +
               long_text + "\"}}"),
        schema(any),
        schema("{\"$ref\":\"#/$defs/d0\",\"$defs\":{" + doubling + "}}"),
        schema(R"({"$ref": "#"})"),
        schema(R"({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]})"),
        schema(R"({"$ref": "#/a", "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}})"),
        schema(R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})"),
        schema(R"({"type": "array", "minItems": 1000000000, "items": {}})"),
        schema(R"({"type": "array", "minItems": 100000, "maxItems": 100001, "items": {}})"),
        schema(R"({"type": "string", "minLength": 2000000000})"),
        schema(R"({"type": "string", "minLength": 1, "maxLength": 100000})"),
        schema(R"({"type": "string", "pattern": "(([a-z]{1,500}){1,500}){1,500}"})"),
        schema(R"({"type": "string", "pattern": "^(a|a?)+$"})"),
        schema(R"({"type": "string", "pattern": "(a*)*(a*)*(a*)*(a*)*b"})"),
        schema(R"({"type": "string", "pattern": "(a|b)*a(a|b){40}"})"),
        schema(
            R"({"type": "integer", "minimum": -9223372036854775807, "maximum": 9223372036854775806})"),
        schema(R"({"type": "number", "minimum": 1e-300, "maximum": 1e300})"),
        schema(R"({"type": "integer", "multipleOf": 9999, "minimum": 0, "maximum": 999999})"),
        schema(R"({"type": "object", "minProperties": 0, "maxProperties": 2000000000})"),
    };
}

class Measured {
  public:
    Measured() : live_(live_bytes), allocations_(allocations) { peak_bytes = live_; }
    std::int64_t peak() const { return peak_bytes - live_; }
    std::int64_t count() const { return allocations - allocations_; }

  private:
    std::int64_t live_;
    std::int64_t allocations_;
};

constexpr std::int64_t kPeakMax = 700LL << 20;
constexpr std::int64_t kAllocationsMax = 60000000;

TEST(Hostile, SourcesAreRefusedOrServedInBoundedWork) {
    STET_NEED_TOKENIZER();
    Compiler compiler(*tokenizer(), vocabulary());
    ASSERT_TRUE(compiler.compile({Kind::gbnf, "root ::= \"a\""}));  // the vocabulary is there
    int served = 0, refused = 0;
    for (const auto& list : {grammars(), schemas()}) {
        for (const Source& source : list) {
            const Measured measured;
            const Stopwatch watch;
            const auto grammar = compiler.compile(source);
            EXPECT_LT(measured.peak(), kPeakMax) << source.text.substr(0, 100);
            EXPECT_LT(measured.count(), kAllocationsMax) << source.text.substr(0, 100);
            ++(grammar ? served : refused);
            if (std::getenv("STET_TEST_VERBOSE") != nullptr) {
                std::printf("%6.0f ms %6ld MiB %9ld %.60s -> %s\n", watch.ms(),
                            static_cast<long>(measured.peak() >> 20),
                            static_cast<long>(measured.count()), source.text.c_str(),
                            grammar ? "served" : grammar.status().to_string().c_str());
            }
            if (grammar) continue;
            EXPECT_EQ(grammar.status().code(), Code::invalid_argument)
                << source.text.substr(0, 100);
            EXPECT_EQ(grammar.status().to_string().find('\n'), std::string::npos);
        }
    }
    EXPECT_GT(served, 0);
    EXPECT_GT(refused, 0);
    // And the next one is served.
    EXPECT_TRUE(allows(compiler, {Kind::gbnf, "root ::= \"b\""}, "b"));
}

// The answer grows until a move is refused, or for so many tokens.
int moves_of(Compiler& compiler, const std::string& gbnf, Status& end) {
    constexpr int kMovesMax = 3000;
    const auto grammar = compiler.compile({Kind::gbnf, gbnf});
    if (!grammar) {
        end = grammar.status();
        return 0;
    }
    const auto matcher = Matcher::create({*grammar, {}}, *tokenizer());
    if (!matcher) {
        end = matcher.status();
        return 0;
    }
    const std::vector<float> logits(vocabulary(), 0.0F);
    const Token a = tokens_of("a").front();
    for (int i = 0; i < kMovesMax; ++i) {
        const auto mask = (*matcher)->mask(logits);
        const auto accepted = mask ? (*matcher)->accept(a) : Result<bool>(mask.status());
        if (!accepted) {
            end = accepted.status();
            // It stays so.
            EXPECT_FALSE((*matcher)->mask(logits));
            EXPECT_FALSE((*matcher)->accept(a));
            return i;
        }
        if (!*accepted) return i;
    }
    return kMovesMax;
}

TEST(Hostile, AmbiguousGrammarsEndWithAnErrorInsteadOfGrowing) {
    STET_NEED_TOKENIZER();
    Compiler compiler(*tokenizer(), vocabulary());
    const std::vector<std::string> ambiguous = {
        "root ::= s\ns ::= s s s | s s | \"a\" | \"\"\n",
        "root ::= s\ns ::= s s | \"a\"\n",
        "root ::= s\ns ::= \"a\" s \"a\" | \"a\" s | s \"a\" | \"a\"\n",
        "root ::= (\"a\"* | \"a\"+ | (\"a\" \"a\")*)*\n",
    };
    for (const std::string& gbnf : ambiguous) {
        Status end;
        const Measured measured;
        const Stopwatch watch;
        const int moves = moves_of(compiler, gbnf, end);
        EXPECT_LT(measured.peak(), kPeakMax) << gbnf;
        if (std::getenv("STET_TEST_VERBOSE") != nullptr) {
            std::printf("%d moves, %.0f ms, %ld MiB: %s\n", moves, watch.ms(),
                        static_cast<long>(measured.peak() >> 20), end.to_string().c_str());
        }
        if (end) continue;
        EXPECT_EQ(end.code(), Code::invalid_argument);
        EXPECT_NE(end.to_string().find("ambiguous"), std::string::npos) << end.to_string();
    }
    // A plain one goes on and on.
    Status end;
    EXPECT_EQ(moves_of(compiler, "root ::= \"a\"*\n", end), 3000);
    EXPECT_EQ(moves_of(compiler, "root ::= \"a\" root?\n", end), 3000) << end.to_string();
}

}  // namespace
}  // namespace stet::grammar
