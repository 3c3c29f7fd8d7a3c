#include "engine/turn_text.h"

#include "base/try.h"

namespace stet::engine {

Result<std::string> new_turn_text(const RenderMessages& render, std::string_view so_far,
                                  const std::vector<Message>& before,
                                  const std::vector<Message>& after) {
    STET_ASSIGN(const std::string whole, render(after, true));
    if (whole.starts_with(so_far)) return whole.substr(so_far.size());
    STET_ASSIGN(const std::string closed, render(before, false));
    if (whole.starts_with(closed) && !before.empty()) {
        const std::string& answer = before.back().content;
        const std::size_t at = closed.rfind(answer);
        const std::string closing =
            at == std::string::npos || answer.empty() ? "" : closed.substr(at + answer.size());
        return closing + whole.substr(closed.size());
    }
    return render({after.back()}, true);
}

}  // namespace stet::engine
