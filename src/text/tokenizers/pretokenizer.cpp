#include "text/tokenizers/pretokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "base/try.h"
#include "text/tokenizers/pretokenizer_rules.h"
#include "text/unicode.h"

namespace stet::text {
namespace {

using Ends = std::vector<std::uint32_t>;

void push(Ends& ends, std::size_t end) {
    if (end > (ends.empty() ? 0 : ends.back())) ends.push_back(static_cast<std::uint32_t>(end));
}

void cut_newlines(std::string_view text, Ends& ends) {
    for (std::size_t at = 0; at < text.size();) {
        at = text[at] == '\n' ? text.find_first_not_of('\n', at) : text.find('\n', at);
        at = std::min(at, text.size());
        push(ends, at);
    }
}

// Calls run(begin, starts, end) for every run of characters that `is` holds for; `starts` are the
// offsets of its characters.
template <typename Is, typename Run>
void for_each_run(std::string_view text, const Is& is, const Run& run) {
    Ends starts;
    for (std::size_t at = 0; at < text.size();) {
        const Utf8Step step = utf8_step(text, at);
        const bool inside = is(step.codepoint);
        if (inside) starts.push_back(static_cast<std::uint32_t>(at));
        at += step.length;
        if (!starts.empty() && (!inside || at == text.size())) {
            run(starts, inside ? at : at - step.length);
            starts.clear();
        }
    }
}

void push_groups(Ends& ends, const Ends& starts, std::size_t end) {
    push(ends, starts.front());
    for (std::size_t i = starts.size() % 3; i < starts.size(); i += 3) push(ends, starts[i]);
    push(ends, end);
}

void cut_number_groups(std::string_view text, Ends& ends) {
    for_each_run(text, is_number,
                 [&](const Ends& starts, std::size_t end) { push_groups(ends, starts, end); });
    push(ends, text.size());
}

void cut_digit_groups(std::string_view text, Ends& ends) {
    for_each_run(text, is_decimal_digit, [&](const Ends& starts, std::size_t end) {
        const bool bounded = end == text.size() || !is_word(utf8_step(text, end).codepoint);
        if (bounded) push_groups(ends, starts, end);
    });
    push(ends, text.size());
}

void cut_digit_triples(std::string_view text, Ends& ends) {
    for_each_run(text, is_decimal_digit, [&](const Ends& starts, std::size_t) {
        for (std::size_t i = starts.size() % 3; i < starts.size(); i += 3) push(ends, starts[i]);
    });
    push(ends, text.size());
}

void cut_space_widths(std::string_view text, Ends& ends) {
    Ends starts;
    for (std::size_t at = 0; at < text.size();) {
        const Utf8Step step = utf8_step(text, at);
        const bool fits =
            is_space(step.codepoint) && step.codepoint != '\r' && step.codepoint != '\n';
        if (!fits) {
            push(ends, text.size());
            return;
        }
        starts.push_back(static_cast<std::uint32_t>(at));
        at += step.length;
    }
    std::size_t done = 0;
    for (std::size_t width = 512; width > 0; width /= 2) {
        for (; done + width < starts.size(); done += width) push(ends, starts[done + width]);
        if (done + width == starts.size()) break;
    }
    push(ends, text.size());
}

std::string known_names() {
    std::string list;
    for (const PreName& known : pre_names()) {
        if (!list.empty()) list += ", ";
        list += known.name;
    }
    return list;
}

}  // namespace

Result<PreTokenizer> PreTokenizer::make(std::string_view name) {
    const auto names = pre_names();
    const auto known = std::find_if(names.begin(), names.end(),
                                    [name](const PreName& each) { return each.name == name; });
    if (known == names.end()) {
        return Status(Code::unimplemented,
                      fmt::format("tokenizer.ggml.pre {} is not supported; known: {}",
                                  quote_name(name), known_names()));
    }
    const auto has = [&](PreFlag flag) { return (known->flags & flag) != 0; };
    PreTokenizer made;
    made.rules_ = {.ignore_merges = has(kIgnoreMerges),
                   .add_bos = has(kAddBos),
                   .no_bos = has(kNoBos),
                   .raw = has(kRaw),
                   .escape_spaces = has(kEscapeSpaces),
                   .whole_newlines = has(kWholeNewlines),
                   .metaspace = has(kMetaspace),
                   .force_add_bos = has(kForceAddBos)};
    STET_TRY(made.add_stages(known->family));
    return made;
}

Status PreTokenizer::add_stages(std::string_view family) {
    for (const PreFamily& each : pre_families()) {
        if (each.name != family) continue;
        for (const std::string_view source : each.stages) {
            Stage stage;
            if (source == "@newlines") {
                stage.cut = Cut::newlines;
            } else if (source == "@number_groups") {
                stage.cut = Cut::number_groups;
            } else if (source == "@digit_groups") {
                stage.cut = Cut::digit_groups;
            } else if (source == "@digit_triples") {
                stage.cut = Cut::digit_triples;
            } else if (source == "@space_widths") {
                stage.cut = Cut::space_widths;
            } else {
                STET_ASSIGN(Pattern pattern, Pattern::compile(source));
                stage.pattern.push_back(std::move(pattern));
            }
            stages_.push_back(std::move(stage));
        }
        return {};
    }
    return {Code::internal, fmt::format("pre-tokenizer family '{}' has no stages", family)};
}

void PreTokenizer::cut_stage(const Stage& stage, std::string_view text, Matcher& matcher,
                             std::vector<std::uint32_t>& ends) {
    switch (stage.cut) {
        case Cut::pattern:
            matcher.split(stage.pattern.front(), text, ends);
            return;
        case Cut::newlines:
            cut_newlines(text, ends);
            return;
        case Cut::number_groups:
            cut_number_groups(text, ends);
            return;
        case Cut::digit_groups:
            cut_digit_groups(text, ends);
            return;
        case Cut::digit_triples:
            cut_digit_triples(text, ends);
            return;
        case Cut::space_widths:
            cut_space_widths(text, ends);
            return;
    }
}

}  // namespace stet::text
