// Cuts text into the words inside which byte pair merges may happen. Which rules apply is named by
// tokenizer.ggml.pre; each name has one or more stages, and each stage cuts the pieces of the one
// before.
//
// Immutable after make(); any thread may use it, each call with its own Scratch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stet/status.h"
#include "text/tokenizers/pattern.h"

namespace stet::text {

// What else a `pre` name decides.
struct PreRules {
    bool ignore_merges = false;  // a word that is a token is used at once
    bool add_bos = false;
    bool no_bos = false;          // the model has none unless the file names one
    bool raw = false;             // tokens are UTF-8, not the byte alphabet
    bool escape_spaces = false;   // ' ' is written U+2581
    bool whole_newlines = false;  // a word of newlines that is a token is used at once
    bool metaspace = false;       // words begin with U+2581, and one that begins a text is added
    bool force_add_bos = false;
};

class PreTokenizer {
  public:
    // unimplemented, with the list of known names, for a name that isn't known.
    static Result<PreTokenizer> make(std::string_view name);

    const PreRules& rules() const { return rules_; }

    struct Scratch {
        Matcher matcher;
        std::vector<std::vector<std::uint32_t>> ends;  // one list a stage
    };
    // Calls take(word) for every word of `text` in order; the words cover the text. `text` must be
    // valid UTF-8 of less than 4 GiB.
    template <typename Take>
    void for_each_word(std::string_view text, Scratch& scratch, const Take& take) const {
        scratch.ends.resize(stages_.size());
        cut(0, text, scratch, take);
    }

  private:
    enum class Cut : std::uint8_t {
        pattern,
        newlines,       // runs of '\n' and of everything else
        number_groups,  // runs of \p{N}, in groups of three counted from their right end
        digit_groups,   // the same for \d, and only where no word character follows the run
        digit_triples,  // cuts before every third digit counted from the right end of a run
        space_widths,   // white space without newlines, in powers of two up to 512
    };
    struct Stage {
        Cut cut = Cut::pattern;
        std::vector<Pattern> pattern;  // one for Cut::pattern
    };

    template <typename Take>
    void cut(std::size_t stage, std::string_view text, Scratch& scratch, const Take& take) const {
        if (stage == stages_.size()) {
            take(text);
            return;
        }
        std::vector<std::uint32_t>& ends = scratch.ends[stage];
        ends.clear();
        cut_stage(stages_[stage], text, scratch.matcher, ends);
        std::uint32_t begin = 0;
        for (const std::uint32_t end : ends) {
            cut(stage + 1, text.substr(begin, end - begin), scratch, take);
            begin = end;
        }
    }
    static void cut_stage(const Stage& stage, std::string_view text, Matcher& matcher,
                          std::vector<std::uint32_t>& ends);
    Status add_stages(std::string_view family);

    PreRules rules_;
    std::vector<Stage> stages_;
};

}  // namespace stet::text
