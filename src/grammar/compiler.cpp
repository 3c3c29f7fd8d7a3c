#include <fmt/format.h>
#include <xgrammar/work_limit.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/deep_stack.h"
#include "base/try.h"
#include "grammar/compiled.h"
#include "grammar/schema.h"
#include "grammar/source.h"

namespace stet::grammar {
namespace {

// The first warning of the source that this thread compiles: something in it would be ignored.
thread_local std::string* warning_of_source = nullptr;

constexpr int kWarning = 2;  // of xgrammar's levels
constexpr std::size_t kStackBytes = 256U << 20U;

std::string one_line(std::string text) {
    constexpr std::size_t kShownMax = 300;
    std::replace(text.begin(), text.end(), '\n', ' ');
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text.size() <= kShownMax ? text : text.substr(0, kShownMax) + "...";
}

xgrammar::CompiledGrammar compile_source(xgrammar::GrammarCompiler& compiler, Kind kind,
                                         const std::string& text) {
    switch (kind) {
        case Kind::json_schema:
            return compiler.CompileJSONSchema(text, true, std::nullopt, std::nullopt, true,
                                              kBlanksMax);
        case Kind::gbnf:
            return compiler.CompileGrammar(text, "root");
        default:
            return compiler.CompileStructuralTag(text);
    }
}

}  // namespace
}  // namespace stet::grammar

// xgrammar's own log is off: what it would say goes into the answer to whoever sent the source.
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string&, int, const std::string& message);
void LogMessageImpl(const std::string&, int, int level, const std::string& message);

void LogFatalImpl(const std::string& /*file*/, int /*line*/, const std::string& message) {
    throw std::runtime_error(message);
}

void LogMessageImpl(const std::string& /*file*/, int /*line*/, int level,
                    const std::string& message) {
    std::string* warning = stet::grammar::warning_of_source;
    if (level == stet::grammar::kWarning && warning != nullptr && warning->empty()) {
        *warning = message;
    }
}

}  // namespace xgrammar

namespace stet::grammar {

struct Compiler::Parts {
    Parts(const text::Tokenizer& words_source, std::uint32_t vocabulary_size, const Limits& bounds)
        : tokenizer(words_source), size(vocabulary_size), limits(bounds) {}

    struct Kept {
        std::shared_ptr<const Grammar> grammar;
        std::size_t bytes = 0;
        std::list<Source>::iterator order;
    };

    const text::Tokenizer& tokenizer;
    std::uint32_t size;
    Limits limits;

    mutable std::mutex mutex;
    std::shared_ptr<const Vocabulary> vocabulary;  // made when the first grammar wants it
    mutable std::list<Source> order;               // least recently used first
    std::map<Source, Kept> kept;
    std::size_t kept_bytes = 0;

    std::shared_ptr<const Vocabulary> words();
    Result<xgrammar::CompiledGrammar> compile(const Source& source, const Vocabulary& words) const;
    void keep(const Source& source, std::shared_ptr<const Grammar> grammar, std::size_t bytes);
};

std::shared_ptr<const Vocabulary> Compiler::Parts::words() {
    const std::lock_guard lock(mutex);
    if (!vocabulary) vocabulary = std::make_shared<const Vocabulary>(tokenizer, size);
    return vocabulary;
}

Result<xgrammar::CompiledGrammar> Compiler::Parts::compile(const Source& source,
                                                           const Vocabulary& words) const {
    std::string warning;
    std::string trouble;
    Code code = Code::ok;
    xgrammar::CompiledGrammar compiled{xgrammar::NullObj{}};
    const auto work = [&] {
        warning_of_source = &warning;
        const xgrammar::WorkLimit limit(limits.compile_steps);
        try {
            xgrammar::GrammarCompiler compiler(words.info, 1, false);
            compiled = compile_source(compiler, source.kind, source.text);
        } catch (const xgrammar::WorkLimitError&) {
            code = Code::invalid_argument;
            trouble = "it takes too much work to compile; make it smaller";
        } catch (const std::bad_alloc&) {
            code = Code::resource_exhausted;
            trouble = "out of memory";
        } catch (const std::exception& error) {
            code = Code::invalid_argument;
            trouble = error.what();
        }
        warning_of_source = nullptr;
    };
    STET_TRY(run_on_deep_stack(kStackBytes, work));
    const std::string_view what = source.kind == Kind::gbnf ? "grammar" : "JSON schema";
    if (code != Code::ok) return Status(code, fmt::format("the {}: {}", what, one_line(trouble)));
    if (!warning.empty()) {  // after a semicolon it says what it does instead
        return Status(Code::invalid_argument,
                      fmt::format("the {} can't be enforced: {}", what,
                                  one_line(warning.substr(0, warning.find(';')))));
    }
    return compiled;
}

void Compiler::Parts::keep(const Source& source, std::shared_ptr<const Grammar> grammar,
                           std::size_t bytes) {
    const std::lock_guard lock(mutex);
    if (kept.contains(source)) return;  // compiled by two at once
    order.push_back(source);
    kept[source] = {std::move(grammar), bytes, std::prev(order.end())};
    kept_bytes += bytes;
    while (kept.size() > limits.cache_count || kept_bytes > limits.cache_bytes) {
        const auto oldest = kept.find(order.front());
        kept_bytes -= oldest->second.bytes;
        kept.erase(oldest);
        order.pop_front();
    }
}

Compiler::Compiler(const text::Tokenizer& tokenizer, std::uint32_t vocabulary, const Limits& limits)
    : parts_(std::make_unique<Parts>(tokenizer, vocabulary, limits)) {}

Compiler::~Compiler() = default;

std::shared_ptr<const Grammar> Compiler::find(const Source& source) const {
    const std::lock_guard lock(parts_->mutex);
    const auto at = parts_->kept.find(source);
    if (at == parts_->kept.end()) return nullptr;
    parts_->order.splice(parts_->order.end(), parts_->order, at->second.order);
    return at->second.grammar;
}

Result<std::shared_ptr<const Grammar>> Compiler::compile(const Source& source) {
    if (auto found = find(source)) return found;
    STET_TRY(check_size(source, parts_->limits));
    Source plain = source;
    if (source.kind == Kind::json_schema) {
        STET_ASSIGN(plain.text, strict_schema(source.text));
    } else if (source.kind == Kind::gbnf) {
        plain.text = plain_gbnf(source.text);
    }
    const std::shared_ptr<const Vocabulary> words = parts_->words();
    STET_ASSIGN(auto compiled, parts_->compile(plain, *words));
    const std::size_t bytes = compiled.MemorySizeBytes() + source.text.size();
    if (bytes > parts_->limits.grammar_bytes) {
        return Status(Code::invalid_argument,
                      fmt::format("the compiled grammar has {} MiB, at most {} are allowed",
                                  bytes >> 20U, parts_->limits.grammar_bytes >> 20U));
    }
    std::shared_ptr<const Grammar> grammar =
        std::make_shared<const Grammar>(std::move(compiled), words);
    parts_->keep(source, grammar, bytes);
    return grammar;
}

}  // namespace stet::grammar
