#include "text/tokenizers/pattern.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "text/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace stet::text {
namespace {

constexpr std::size_t kJitStackStartBytes = 64U << 10;
constexpr std::size_t kJitStackMaxBytes = 64U << 20;
constexpr std::uint32_t kMatchLimit = 50'000'000;  // backtracking steps of one match
constexpr std::uint32_t kHeapLimitKibibytes = 64U << 10;

PCRE2_SPTR pointer(std::string_view text) {
    return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

Result<Pattern> Pattern::compile(std::string_view source) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* code = pcre2_compile(pointer(source), source.size(), PCRE2_UTF | PCRE2_UCP, &error,
                                     &offset, nullptr);
    if (code == nullptr) {
        std::array<PCRE2_UCHAR, 128> reason{};
        pcre2_get_error_message(error, reason.data(), reason.size());
        return Status(Code::internal,
                      fmt::format("pattern '{}' does not compile at {}: {}", source, offset,
                                  reinterpret_cast<const char*>(reason.data())));
    }
    const std::uint8_t* first_bytes = nullptr;
    pcre2_pattern_info(code, PCRE2_INFO_FIRSTBITMAP, &first_bytes);
    // A system that forbids writable code has no JIT; the interpreter gives the same matches.
    return Pattern(code, pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0, first_bytes);
}

Pattern::~Pattern() {
    pcre2_code_free(static_cast<pcre2_code*>(code_));
}

Pattern::Pattern(Pattern&& other) noexcept
    : code_(std::exchange(other.code_, nullptr)),
      jit_(other.jit_),
      first_bytes_(other.first_bytes_) {}

Pattern& Pattern::operator=(Pattern&& other) noexcept {
    std::swap(code_, other.code_);
    std::swap(jit_, other.jit_);
    std::swap(first_bytes_, other.first_bytes_);
    return *this;
}

struct Matcher::State {
    pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
    pcre2_match_context* context = pcre2_match_context_create(nullptr);
    pcre2_jit_stack* stack = nullptr;

    ~State() {
        pcre2_match_data_free(data);
        pcre2_match_context_free(context);
        pcre2_jit_stack_free(stack);
    }
    bool grow_stack() {
        if (stack != nullptr) return false;
        stack = pcre2_jit_stack_create(kJitStackStartBytes, kJitStackMaxBytes, nullptr);
        if (stack == nullptr) return false;
        pcre2_jit_stack_assign(context, nullptr, stack);
        return true;
    }
};

Matcher::Matcher() : state_(std::make_unique<State>()) {
    if (state_->context == nullptr) return;
    pcre2_set_match_limit(state_->context, kMatchLimit);
    pcre2_set_heap_limit(state_->context, kHeapLimitKibibytes);
}

Matcher::~Matcher() = default;

int Matcher::match(const Pattern& pattern, std::string_view text, std::size_t offset) {
    const auto* code = static_cast<const pcre2_code*>(pattern.code_);
    if (pattern.jit_) {
        int found = pcre2_jit_match(code, pointer(text), text.size(), offset, PCRE2_NO_UTF_CHECK,
                                    state_->data, state_->context);
        if (found == PCRE2_ERROR_JIT_STACKLIMIT && state_->grow_stack()) {
            found = pcre2_jit_match(code, pointer(text), text.size(), offset, PCRE2_NO_UTF_CHECK,
                                    state_->data, state_->context);
        }
        return found;
    }
    return pcre2_match(code, pointer(text), text.size(), offset, PCRE2_NO_UTF_CHECK, state_->data,
                       state_->context);
}

void Matcher::split(const Pattern& pattern, std::string_view text,
                    std::vector<std::uint32_t>& ends) {
    if (text.empty()) return;
    std::size_t last = 0;  // end of the last piece
    const auto cut = [&](std::size_t end) {
        if (end > last) ends.push_back(static_cast<std::uint32_t>(end));
        last = end;
    };
    const bool ready = state_->data != nullptr && state_->context != nullptr;
    for (std::size_t offset = 0; ready && offset < text.size();) {
        // Most words of an earlier stage hold nothing for a later one: no need to ask PCRE2.
        while (offset < text.size() &&
               ((static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80 ||
                !pattern.may_begin_with(static_cast<unsigned char>(text[offset])))) {
            ++offset;
        }
        if (offset == text.size()) break;
        if (match(pattern, text, offset) < 0) break;  // no match, or a limit
        const PCRE2_SIZE* span = pcre2_get_ovector_pointer(state_->data);
        const std::size_t begin = span[0];
        const std::size_t end = span[1];
        cut(begin);
        cut(end);
        if (end == text.size()) break;
        offset = end > begin ? end : end + utf8_length(static_cast<unsigned char>(text[end]));
    }
    cut(text.size());
}

}  // namespace stet::text
