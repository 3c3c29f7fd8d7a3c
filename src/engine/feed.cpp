#include "engine/feed.h"

#include <algorithm>
#include <vector>

#include "base/try.h"
#include "state/checkpoint.h"

namespace stet::engine {

Status feed(Engine& engine, std::span<const Part> parts) {
    for (const Part& part : parts) {
        if (engine.has_encoder() && part.sequence->position() == 0) {
            return Status(Code::invalid_argument,
                          "the model reads the begin of a sequence with an encoder: generate from "
                          "it first");
        }
    }
    std::vector<Part> left(parts.begin(), parts.end());
    while (!left.empty()) {
        std::vector<Part> step;
        std::size_t budget = engine.batch();
        for (Part& part : left) {
            if (budget == 0) break;
            const std::size_t count =
                std::min({part.tokens.size(), budget,
                          state::step_tokens_max(engine.schema(), part.sequence->position())});
            const bool is_last = count == part.tokens.size();
            step.push_back({part.sequence, part.tokens.first(count),
                            is_last ? part.logits : Logits::none, is_last && part.keep_logits});
            part.tokens = part.tokens.subspan(count);
            budget -= count;
        }
        STET_TRY(engine.run(step).status());
        std::erase_if(left, [](const Part& part) { return part.tokens.empty(); });
    }
    return {};
}

}  // namespace stet::engine
